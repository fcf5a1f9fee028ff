"""Random programs on the real memory system: invariants hold, only the program matters."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.engine import FixedLatencyMemory
from npusim.machine import Machine, check_execution
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.sharing import SharingMemory
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem
from npusim.program import (
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    MemorySpace,
    Opcode,
    Program,
    TransferSpec,
)

NUM_DMA = 4
CAPACITY = 1 << 20
SPACES = (
    MemorySpace("dram", "dram", CAPACITY, 0),
    MemorySpace("shared", "shared_sram", CAPACITY, 1),
    MemorySpace("other dram", "dram", CAPACITY, 2),
)
PERIODS = (Fraction(1000), Fraction(1875, 2), Fraction(5000, 9), Fraction(10_000, 3))
COMPUTE_KINDS = (EngineKind.MATRIX, EngineKind.VECTOR, EngineKind.CONVERT)


def memory_parts():
    device = load_dram_device("LPDDR5-6400")
    ports = [
        PortConfig(
            f"dma{i}.{path}",
            bus,
            Fraction(1000 + 250 * (i // 2)),
            32,
            4,
            ids=i,
            outstanding_per_id=i // 2,
            qos=5 * (i % 2),
        )
        for i in range(NUM_DMA)
        for bus, path in enumerate(("dram", "shared"))
    ]
    buses = [
        BusConfig("axi", Fraction(1000), 32, 20_000, 16, "qos", crossing_cycles=2),
        BusConfig("fabric", Fraction(1000), 64, 0, 16),
    ]
    dram = DramConfig("dram", device, 2, 1 << 30, "BGlow", 256)
    sram = SramConfig("shared", Fraction(1000), 4, 32, 32, 2, CAPACITY)
    other = DramConfig("other", load_dram_device("DDR4-3200"), 1, 1 << 30, "RowLinear", 256)
    return ports, buses, [dram, sram, other]


MEMORIES = {
    "burst": lambda: MemorySystem(*memory_parts()),
    "transfer": lambda: SharingMemory(*memory_parts()),
    "fixed": lambda: FixedLatencyMemory(77_777),
}


@st.composite
def programs(draw):
    """Commands that wait for any earlier ones, by end or offset, on engines of several clocks."""
    engines = [
        Engine(
            f"dma{i}",
            EngineKind.DMA_LOAD if i > 1 else EngineKind.DMA_STORE,
            "npu",
            0,
            draw(st.sampled_from(PERIODS)),
            queue_depth=draw(st.integers(1, 3)),
            issue_ticks=draw(st.integers(0, 30)),
            port=2 * i,
            gather_ticks=draw(st.sampled_from([0, 0, 7])),
            gather_runs=draw(st.integers(1, 3)),
        )
        for i in range(NUM_DMA)
    ]
    engines += [
        Engine(kind.value, kind, "npu", 0, draw(st.sampled_from(PERIODS))) for kind in COMPUTE_KINDS
    ]
    commands: list[Command] = []
    for index in range(draw(st.integers(1, 25))):
        engine = draw(st.integers(0, len(engines) - 1))
        waits = tuple(draw(edges(commands)) for _ in range(draw(st.integers(0, min(index, 3)))))
        if engine < NUM_DMA:
            opcode = Opcode.LOAD if engine > 1 else Opcode.STORE
            spec = TransferSpec(draw(st.integers(0, 2)), engine < 2, draw(runs()))
            commands.append(Command(engine, opcode, 0, waits, spec))
        else:
            cycles = draw(st.fractions(0, 200, max_denominator=5))
            commands.append(Command(engine, Opcode.VECTOR, cycles, waits))
    return Program.from_commands(commands, engines, SPACES)


@st.composite
def edges(draw, commands):
    producer = draw(st.integers(0, len(commands) - 1))
    kind = draw(st.sampled_from(EdgeKind))
    last = int(commands[producer].cycles)
    return Edge(producer, kind, draw(st.one_of(st.just(-1), st.integers(0, last))))


@st.composite
def runs(draw):
    """A row, a 2D block or a list of up to four of them."""
    table = []
    for _ in range(draw(st.sampled_from([1, 1, 2, 4]))):
        nbytes = draw(st.integers(1, 600))
        stride = draw(st.integers(nbytes, 8192))
        table.append((draw(st.integers(0, 1 << 16)), nbytes, stride, draw(st.integers(1, 6))))
    return tuple(table)


def numbers(execution):
    """Everything a run found, comparable."""
    table = execution.stalls
    return (
        execution.elapsed_ps,
        execution.start_ps.tolist(),
        execution.end_ps.tolist(),
        execution.queue_slot.tolist(),
        execution.counters.tolist(),
        [(use.busy_ps, use.idle_ps, use.stalls_ps) for use in execution.engines],
        [column.tolist() for column in (table.command, table.cause, table.start_ps, table.end_ps)],
    )


@pytest.mark.parametrize("memory", MEMORIES)
@given(program=programs())
@settings(max_examples=40, deadline=None)
def test_random_programs_keep_every_invariant(memory, program):
    execution = Machine(program, MEMORIES[memory]()).run()
    check_execution(program, execution)
    assert int(execution.counters[:, 4].sum()) == int(program.transfers.nbytes().sum())


@pytest.mark.parametrize("memory", MEMORIES)
@given(program=programs(), times=st.lists(st.integers(0, 3_000_000), max_size=40))
@settings(max_examples=40, deadline=None)
def test_events_that_do_nothing_change_nothing(memory, program, times):
    quiet = Machine(program, MEMORIES[memory]()).run()
    noisy = Machine(program, MEMORIES[memory]())
    for at_ps in times:
        noisy.env.timeout(at_ps)
    assert numbers(noisy.run()) == numbers(quiet)


@pytest.mark.parametrize("memory", MEMORIES)
@given(program=programs(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_process_creation_changes_nothing(memory, program, data):
    order = data.draw(st.permutations(range(len(program.engines))))
    first = Machine(program, MEMORIES[memory]()).run()
    second = Machine(program, MEMORIES[memory](), start_order=order).run()
    assert numbers(second) == numbers(first)


@given(program=programs(), latency_ps=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_starts_equal_a_plain_evaluation_of_the_rules(program, latency_ps):
    """Fixed latency needs no events: times follow command by command in program order."""
    execution = Machine(program, FixedLatencyMemory(latency_ps)).run()
    assert execution.end_ps.tolist() == evaluate(program, latency_ps)


def evaluate(program, latency_ps):
    """End of each command; exact rational time per engine, in cycles."""
    free = [Fraction(0)] * len(program.engines)
    in_flight = [[] for _ in program.engines]
    starts, ends = [], []
    for command in range(len(program)):
        index = int(program.engine[command])
        engine = program.engines[index]
        period = engine.period_ps
        now_ps = free[index] * period // 1
        for edge in range(*program.edge_ptr[command : command + 2].tolist()):
            producer, offset = int(program.edge_producer[edge]), int(program.edge_offset[edge])
            if offset < 0:
                signal_ps = ends[producer]
            else:
                cycles = starts[producer] + Fraction(offset, program.ticks_per_cycle)
                signal_ps = cycles * program.engines[program.engine[producer]].period_ps // 1
            now_ps = max(now_ps, signal_ps)
        is_transfer = program.transfer[command] >= 0
        if is_transfer and len(in_flight[index]) >= engine.queue_depth:
            now_ps = max(now_ps, sorted(in_flight[index])[-engine.queue_depth])
        if now_ps > free[index] * period // 1:
            free[index] = Fraction(-(-now_ps // period))
        starts.append(free[index])
        ticks = int(program.duration_ticks[command])
        if is_transfer:
            pieces = len(program.transfers.of(program.transfer[command]))
            fetches = -(-pieces // engine.gather_runs) if pieces > 1 else 0
            ticks = engine.issue_ticks + engine.gather_ticks * fetches
        free[index] += Fraction(ticks, program.ticks_per_cycle)
        end_ps = int(free[index] * period // 1)
        if is_transfer:
            end_ps += latency_ps
            in_flight[index].append(end_ps)
        ends.append(end_ps)
    return ends


@given(program=programs())
@settings(max_examples=30, deadline=None)
def test_ideal_memory_gives_no_memory_stalls(program):
    execution = Machine(program, FixedLatencyMemory(0)).run()
    causes = {str(cause) for use in execution.engines for cause in use.stalls_ps}
    in_issue = any(e.issue_ticks for e in program.engines if e.port >= 0)
    assert in_issue or not any(cause.startswith(("dram", "sram")) for cause in causes)
    assert np.all(execution.counters[:, 4] == program.transfers.nbytes())
