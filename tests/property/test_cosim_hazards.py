"""The vectorised hazard check against a plain byte-by-byte one."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.errors import ProtocolError
from npusim.program import (
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    Kernel,
    MemorySpace,
    Opcode,
    Program,
    Region,
    TransferSpec,
)
from npusim.program.check import check_program

NS = Fraction(1000)
ENGINES = (
    Engine("load", EngineKind.DMA_LOAD, "npu", 0, NS, port=0),
    Engine("matrix", EngineKind.MATRIX, "npu", 0, NS),
    Engine("vector", EngineKind.VECTOR, "npu", 0, NS),
)
SPACES = (
    MemorySpace("dram", "dram", 4096, 0),
    MemorySpace("pad", "scratchpad", 8),
    MemorySpace("other", "scratchpad", 8),
)
MOVE = TransferSpec(0, False, ((0, 4, 0, 1),))
KERNELS = 3


@st.composite
def programs(draw):
    """Few bytes, most edges: many programs lack just one edge, some none."""
    everything = (Region(1, 0, 8), Region(2, 0, 8))
    commands = [Command(1, Opcode.VECTOR, 1, writes=everything)]
    for index in range(1, draw(st.integers(2, 9))):
        engine = draw(st.integers(0, 2))
        regions = st.lists(st.builds(Region, st.integers(1, 2), *slots(draw)), max_size=2)
        left_out = draw(st.sets(st.integers(0, index - 1), max_size=1))
        producers = set(range(index)) - left_out
        kinds = st.sampled_from([*[EdgeKind.DATA] * 6, EdgeKind.BUFFER_FREE])
        commands.append(
            Command(
                engine,
                Opcode.VECTOR if engine else Opcode.LOAD,
                1 if engine else 0,
                tuple(Edge(producer, draw(kinds)) for producer in sorted(producers)),
                None if engine else MOVE,
                reads=tuple(draw(regions)) if engine else (),
                writes=tuple(draw(regions)),
                kernel=index * KERNELS // 9,
            )
        )
    kernels = [Kernel(f"k{i}", "op", "stage", None) for i in range(KERNELS)]
    return Program.from_commands(commands, ENGINES, SPACES, kernels)


def slots(draw):
    """Slots of one size per call, so that kernels differ in layout."""
    nbytes = draw(st.sampled_from([1, 2, 3, 4]))
    return st.integers(0, 8 // nbytes - 1).map(lambda i: i * nbytes), st.just(nbytes)


def has_hazard(program):
    """Every byte on its own, command by command."""
    written, readers = {}, {}
    for command in range(len(program)):
        edges = program.edges_of(command)
        kinds = dict(zip(program.edge_producer[edges], program.edge_kind[edges], strict=True))
        rows = [
            (bool(program.region_is_write[row]), (int(program.region_space[row]), int(byte)))
            for row in range(*program.region_ptr[command : command + 2].tolist())
            for byte in range(
                program.region_offset[row], program.region_offset[row] + program.region_bytes[row]
            )
        ]
        for byte in [byte for is_write, byte in rows if not is_write]:
            if byte not in written:
                return True
            if not ordered(program, written[byte], command, kinds, {EdgeKind.DATA}):
                return True
            readers.setdefault(byte, []).append(command)
        for byte in [byte for is_write, byte in rows if is_write]:
            earlier = [reader for reader in readers.get(byte, []) if reader != command]
            if not earlier and byte in written:
                earlier = [written[byte]]
            last = {program.engine[reader]: reader for reader in earlier}  # one per compute engine
            for reader in last.values():
                if not ordered(program, reader, command, kinds, set(EdgeKind)):
                    return True
            if command not in readers.get(byte, []) or written.get(byte) != command:
                written[byte] = command
                readers[byte] = []
    return False


def ordered(program, before, after, kinds, wanted):
    engine = program.engine[before]
    same = engine == program.engine[after] and ENGINES[engine].kind is not EngineKind.DMA_LOAD
    return before == after or same or kinds.get(before) in wanted


@given(programs())
@settings(max_examples=150, deadline=None)
def test_hazards_are_those_of_a_byte_by_byte_check(program):
    try:
        check_program(program)
    except ProtocolError:
        assert has_hazard(program)
    else:
        assert not has_hazard(program)
