"""Commands that share scratchpad banks: exact ends, who slowed whom, and an independent recount."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.engine import FixedLatencyMemory, StallCause
from npusim.errors import ProtocolError, SimulationError
from npusim.machine import Machine, check_execution
from npusim.machine.streams import Shapes
from npusim.memory.sram import RATE_UNIT, Banks, Stream, conflict
from npusim.program import (
    BankGeometry,
    Command,
    EdgeKind,
    Engine,
    EngineKind,
    MemorySpace,
    Opcode,
    Program,
    Region,
)
from tests.component.test_machine_support import NS, dma, load, wait_for

PATH = (64, 64)
PAD = 1


def spaces(banks=1, ports=1, interleave=64, depth=None):
    return (
        MemorySpace("dram", "dram", 1 << 20, 0),
        MemorySpace(
            "pad", "scratchpad", 1 << 20, banks=BankGeometry(banks, 64, interleave, ports, depth)
        ),
    )


def engines(period=NS, path=PATH):
    unit = (EngineKind.MATRIX, EngineKind.CONVERT, EngineKind.VECTOR)
    made = [Engine(kind.value, kind, "npu", 0, period, path_bytes=path) for kind in unit]
    return [*made, dma(period_ps=period, queue_depth=4, path_bytes=path)]


MATRIX, CONVERT, VECTOR, LOAD = range(4)
OPCODES = (Opcode.MATMUL, Opcode.CONVERT, Opcode.VECTOR)


def reads(engine, cycles, *waits, at=0, rate=64):
    """A command that reads `rate` bytes in every cycle from `at` on."""
    region = Region(PAD, at, int(cycles * rate))
    return Command(engine, OPCODES[engine], cycles, waits, reads=(region,))


def run(commands, memory=None, period=NS, **keys):
    program = Program.from_commands(commands, engines(period), spaces(**keys))
    return Machine(program, memory or FixedLatencyMemory(100_000)).run()


def ends_ns(execution):
    return [Fraction(t, 1000) for t in execution.end_ps.tolist()]


def lost(execution):
    table = execution.conflicts
    return set(zip(table.command.tolist(), table.by.tolist(), table.lost_ps.tolist(), strict=True))


def test_two_commands_in_one_bank_take_twice_as_long():
    execution = run([reads(MATRIX, 10), reads(CONVERT, 10)])
    assert ends_ns(execution) == [20, 20]
    assert lost(execution) == {(0, CONVERT, 10_000), (1, MATRIX, 10_000)}
    use = execution.engines[MATRIX]
    assert (use.busy_ps, use.stalls_ps, use.idle_ps) == (
        10_000,
        {StallCause.SRAM_CONFLICT: 10_000},
        0,
    )


def test_a_later_command_slows_only_what_is_left():
    # matrix: 5 cycles alone, 5 more at half speed until 15. convert: 5 done by 15, the rest alone
    execution = run([reads(MATRIX, 10), reads(CONVERT, 10, wait_for(0, at=5))])
    assert ends_ns(execution) == [15, 20]
    assert lost(execution) == {(0, CONVERT, 5_000), (1, MATRIX, 5_000)}


def test_an_end_gives_the_banks_back():
    # convert needs 3: 5 to 11 at half speed; matrix has done 5 + 3 by then and ends at 13
    execution = run([reads(MATRIX, 10), reads(CONVERT, 3, wait_for(0, at=5))])
    assert ends_ns(execution) == [13, 11]


def test_a_stretched_command_ends_at_the_tick_that_finishes_it():
    # three streams in a bank: a third of the speed. matrix ends at 3; the other two have done 1 of
    # 10 by then and take 18 cycles more at half speed
    execution = run([reads(MATRIX, 1), reads(CONVERT, 10), reads(VECTOR, 10)])
    assert ends_ns(execution) == [3, 21, 21]
    execution = run([reads(MATRIX, 1, rate=48), reads(CONVERT, 12, rate=Fraction(112, 3))])
    # 3/4 and 7/12 of a word a cycle: one cycle of work takes 4/3, which the tick at 2 finishes
    assert ends_ns(execution)[0] == 2


def test_disjoint_banks_and_enough_ports_cost_nothing():
    # 1 MiB pad, two banks of 4 KiB in turn: bytes 0 on and 4096 on lie in different banks
    apart = run([reads(MATRIX, 10), reads(CONVERT, 10, at=4096)], banks=2, interleave=4096)
    assert ends_ns(apart) == [10, 10]
    assert len(apart.conflicts) == 0
    same = run([reads(MATRIX, 10), reads(CONVERT, 10, at=8192)], banks=2, interleave=4096)
    assert ends_ns(same) == [20, 20]
    ported = run([reads(MATRIX, 10), reads(CONVERT, 10)], ports=2)
    assert ends_ns(ported) == [10, 10]


def test_the_next_command_starts_at_the_stretched_end_and_consumers_see_it():
    commands = [
        reads(MATRIX, 10),
        reads(CONVERT, 10),
        Command(MATRIX, Opcode.MATMUL, 4),
        Command(VECTOR, Opcode.VECTOR, 2, (wait_for(1),)),
    ]
    assert ends_ns(run(commands)) == [20, 20, 24, 22]


def test_a_transfer_in_flight_slows_commands_and_is_not_slowed():
    # issued at 0, lands at 8; its full path in the one bank: half speed until 8, 4 of 10 done
    fill = replace(load(LOAD, nbytes=512), writes=(Region(PAD, 0, 512),))
    execution = run([reads(MATRIX, 10), fill], FixedLatencyMemory(8_000))
    assert ends_ns(execution) == [14, 8]
    assert lost(execution) == {(0, LOAD, 4_000)}


def test_of_several_transfers_in_flight_the_oldest_fills():
    # 4 transfers of one engine at once: still one stream; half speed until the last has landed at 8
    fill = replace(load(LOAD, nbytes=512), writes=(Region(PAD, 0, 512),))
    execution = run([reads(MATRIX, 10), fill, fill, fill], FixedLatencyMemory(8_000))
    assert ends_ns(execution)[0] == 14


@pytest.mark.parametrize("period", [Fraction(1000, 3), Fraction(10_000, 15), Fraction(3125, 10)])
def test_odd_clocks_stretch_by_whole_ticks(period):
    execution = run([reads(MATRIX, 7), reads(CONVERT, 3, wait_for(0, at=2))], period=period)
    # convert: 2 to 8. matrix: 2 alone, 3 until 8, 2 alone: 10
    ticks = [int(k * period) for k in (10, 8)]
    assert execution.end_ps.tolist() == ticks


def test_engines_without_a_path_and_pads_without_banks_meet_no_conflicts():
    program = Program.from_commands(
        [reads(MATRIX, 10), reads(CONVERT, 10)], engines(path=None), spaces()
    )
    assert ends_ns(Machine(program, FixedLatencyMemory()).run()) == [10, 10]
    plain = (spaces()[0], MemorySpace("pad", "scratchpad", 1 << 20))
    program = Program.from_commands([reads(MATRIX, 10), reads(CONVERT, 10)], engines(), plain)
    assert ends_ns(Machine(program, FixedLatencyMemory()).run()) == [10, 10]


def test_engines_of_two_clocks_cannot_share_a_scratchpad():
    mixed = engines()
    mixed[CONVERT] = replace(mixed[CONVERT], period_ps=Fraction(900))
    program = Program.from_commands([reads(MATRIX, 10), reads(CONVERT, 10)], mixed, spaces())
    with pytest.raises(ProtocolError, match="convert: runs on the clock of matrix"):
        Machine(program, FixedLatencyMemory())


def test_a_run_with_wrong_conflicts_is_refused():
    commands = [reads(MATRIX, 10), reads(CONVERT, 10)]
    program = Program.from_commands(commands, engines(), spaces())
    execution = Machine(program, FixedLatencyMemory()).run()
    check_execution(program, execution)
    ticks = execution.times.conflict_ticks.copy()
    ticks[0] -= 1
    with pytest.raises(SimulationError, match="lasts for its duration and conflicts"):
        check_execution(
            program, replace(execution, times=replace(execution.times, conflict_ticks=ticks))
        )
    table = replace(execution.conflicts, lost_ps=execution.conflicts.lost_ps + np.array([1, 0]))
    with pytest.raises(SimulationError, match="told apart by engine"):
        check_execution(program, replace(execution, conflicts=table))


def test_a_vector_units_path_carries_reads_and_writes_together():
    # 640 bytes in and 640 out in 10 cycles over one path of 64 a cycle: 32 each at most
    command = Command(
        VECTOR, Opcode.VECTOR, 10, reads=(Region(PAD, 0, 640),), writes=(Region(PAD, 640, 640),)
    )
    shapes = Shapes(Program.from_commands([command], engines(), spaces()))
    assert [stream[4] for stream in shapes.shapes[1]] == [RATE_UNIT // 2] * 2


# --- an independent recount ----------------------------------------------------------------------


@st.composite
def programs(draw):
    commands = []
    for index in range(draw(st.integers(2, 12))):
        waits = ()
        if index and draw(st.booleans()):
            producer = draw(st.integers(0, index - 1))
            offset = st.sampled_from([{}, {"at": 2}])
            keys = {} if commands[producer].engine == LOAD else draw(offset)
            waits = (wait_for(producer, EdgeKind.DATA, **keys),)
        engine = draw(st.integers(MATRIX, LOAD))
        at = draw(st.sampled_from([0, 64, 4096, 8192]))
        if engine == LOAD:
            spec = load(LOAD, *waits, nbytes=512)
            commands.append(replace(spec, writes=(Region(PAD, at, 512),)))
        else:
            cycles = draw(st.integers(2, 12))
            commands.append(
                reads(engine, cycles, *waits, at=at, rate=draw(st.sampled_from([16, 64])))
            )
    return commands


GEOMETRIES = st.fixed_dictionaries(
    {
        "banks": st.sampled_from([1, 2, 4]),
        "interleave": st.sampled_from([64, 4096]),
        "depth": st.sampled_from([None, 1]),
    }
)


def recount(program, execution):
    """Work each compute command did between its start and its end, from the spans alone."""
    found = program.spaces[PAD].banks
    banks = Banks(
        found.banks, found.port_bytes, found.interleave_bytes, found.ports, found.queue_depth
    )
    shapes = Shapes(program)
    start, end = execution.times.free_ps.tolist(), execution.end_ps.tolist()
    spans = []
    for command in range(len(program)):
        is_dma = program.engine[command] == LOAD
        begin = start[command] if is_dma else int(execution.start_ps[command])
        spans.append((begin, end[command]))
    times = sorted({t for span in spans for t in span})
    done = [Fraction(0)] * len(program)
    for low, high in pairwise(times):
        active = {}
        for command, (a, b) in enumerate(spans):
            if a <= low and high <= b:
                active.setdefault(int(program.engine[command]), command)  # the oldest
        owners = sorted(active)
        streams = tuple(
            Stream(owners.index(e), *row)
            for e in owners
            for row in shapes.shapes[shapes.of_command[active[e]]]
        )
        if not streams:
            continue
        counted = conflict(streams, banks)
        for e in owners:
            slow = Fraction(counted.slow[owners.index(e)], counted.unit)
            done[active[e]] += (high - low) / slow
    return done


@settings(max_examples=80, deadline=None)
@given(programs(), GEOMETRIES)
def test_commands_do_exactly_their_work_in_their_span(commands, geometry):
    program = Program.from_commands(commands, engines(), spaces(**geometry))
    execution = Machine(program, FixedLatencyMemory(7_000)).run()
    done = recount(program, execution)
    for command in range(len(program)):
        if program.engine[command] == LOAD:
            continue
        wanted = int(program.duration_ticks[command]) * 1000
        # all of it, in the first whole tick that finishes it; a change of the set rounds down by
        # less than one picosecond
        assert wanted - len(program) <= done[command] < wanted + 1000 + len(program)


@settings(max_examples=40, deadline=None)
@given(
    programs(), GEOMETRIES, st.permutations(range(4)), st.lists(st.integers(0, 60_000), max_size=8)
)
def test_neither_process_order_nor_idle_events_change_anything(commands, geometry, order, times):
    program = Program.from_commands(commands, engines(), spaces(**geometry))
    plain = Machine(program, FixedLatencyMemory(7_000)).run()
    other = Machine(program, FixedLatencyMemory(7_000), start_order=order)
    for at in times:
        other.env.timeout(at)
    again = other.run()
    assert np.array_equal(plain.end_ps, again.end_ps)
    assert np.array_equal(plain.times.conflict_ticks, again.times.conflict_ticks)
    assert lost(plain) == lost(again)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_with_a_port_for_everyone_nothing_is_stretched(commands):
    program = Program.from_commands(commands, engines(), spaces(ports=8))
    bare = (spaces()[0], MemorySpace("pad", "scratchpad", 1 << 20))
    ideal = Program.from_commands(commands, engines(), bare)
    ends = [Machine(p, FixedLatencyMemory(7_000)).run().end_ps for p in (program, ideal)]
    assert np.array_equal(*ends)
