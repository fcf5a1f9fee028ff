"""What must hold after every run; a broken one is a bug of the simulator, not of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.engine import Clock, StallCause
from npusim.engine.spans import union_ps
from npusim.errors import SimulationError
from npusim.machine.conflicts import conflict_ps
from npusim.machine.multicast import with_leaders
from npusim.machine.waits import DMA_KINDS, commands_by_engine, find_waits, last_signal_ps
from npusim.program import END

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import Execution
    from npusim.program import Program

    Ints = NDArray[np.int64]


def check_execution(program: Program, execution: Execution) -> None:
    """Check a finished run against its program.

    Every command executed once, for its duration; none started before the last signal it awaits,
    nor later than its engine, signals and queue entries allowed; spans of an engine do not overlap
    (DMA: at most `queue_depth`); busy + stalls + idle = elapsed; every byte submitted was counted.

    Raises
    ------
    SimulationError
        Naming the first command, engine or transfer that breaks a rule.
    """
    _check_executed(program, execution)
    _check_signals(program, execution)
    for index, commands in enumerate(commands_by_engine(program)):
        if program.engines[index].kind in DMA_KINDS:
            _check_issue(program, execution, index, commands)
        else:
            _check_durations(program, execution, index, commands)
    _check_starts(program, execution)
    _check_multicasts(program, execution)
    _check_time_adds_up(program, execution)
    _check_bytes(program, execution)
    _check_conflicts(program, execution)


def _fail(program: Program, bad: Ints, rule: str, values: Ints) -> None:
    """Raise for the first command of `bad` (indices), if any; `values` are per command."""
    if len(bad):
        command = int(bad[0])
        name = program.engines[program.engine[command]].name
        raise SimulationError(f"{name} #{command}", rule, int(values[command]))


def _check_executed(program: Program, execution: Execution) -> None:
    times = execution.times
    for values in (times.start_ps, times.end_ps, times.free_ps):
        if len(values) != len(program):
            raise SimulationError("machine", "every command executes once", len(values))
        _fail(program, np.flatnonzero(values < 0), "every command executes once", values)
    latest = max(int(times.end_ps.max()), execution.drain_ps)
    if latest != execution.elapsed_ps:
        raise SimulationError("machine", "elapsed is the last end or drain", execution.elapsed_ps)


def _check_signals(program: Program, execution: Execution) -> None:
    times = execution.times
    at_end = program.edge_offset == END
    producer = program.edge_producer
    consumer = np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))
    wrong = at_end & (times.signal_ps != times.end_ps[producer])
    for index, engine in enumerate(program.engines):
        mine = np.flatnonzero(~at_end & (program.engine[producer] == index))
        if len(mine):
            clock = Clock(engine.period_ps, program.ticks_per_cycle)
            after = times.signal_ps[mine] - times.start_ps[producer[mine]]
            ticks = program.edge_offset[mine]
            wrong[mine] = (after < clock.ticks_floor_ps(ticks)) | (
                after > clock.ticks_ceil_ps(ticks)
            )
    rule = "a signal is published at its offset or at its producer's end"
    _fail(program, consumer[wrong], rule, times.start_ps)
    early = times.start_ps[consumer] < times.signal_ps
    _fail(
        program,
        consumer[early],
        "no command starts before the last signal it awaits",
        times.start_ps,
    )


def _check_durations(program: Program, execution: Execution, index: int, commands: Ints) -> None:
    times = execution.times
    start_ps, end_ps = times.start_ps[commands], times.end_ps[commands]
    rule = "spans of an engine do not overlap"
    _fail(program, commands[1:][start_ps[1:] < end_ps[:-1]], rule, times.start_ps)
    clock = Clock(program.engines[index].period_ps, program.ticks_per_cycle)
    ticks = program.duration_ticks[commands] + times.conflict_ticks[commands]
    length_ps = end_ps - start_ps
    wrong = (length_ps < clock.ticks_floor_ps(ticks)) | (length_ps > clock.ticks_ceil_ps(ticks))
    _fail(program, commands[wrong], "a command lasts for its duration and conflicts", times.end_ps)
    _fail(
        program,
        commands[times.free_ps[commands] != end_ps],
        "an engine is free when its command ends",
        times.free_ps,
    )


def _check_issue(program: Program, execution: Execution, index: int, commands: Ints) -> None:
    times, engine = execution.times, program.engines[index]
    clock = Clock(engine.period_ps, program.ticks_per_cycle)
    ticks = program.issue_ticks()[commands]
    start_ps, free_ps = times.start_ps[commands], times.free_ps[commands]
    issue_ps = free_ps - start_ps
    wrong = (issue_ps < clock.ticks_floor_ps(ticks)) | (issue_ps > clock.ticks_ceil_ps(ticks))
    _fail(program, commands[wrong], "a descriptor takes its issue ticks", times.free_ps)
    rule = "descriptors issue one after the other"
    _fail(program, commands[1:][start_ps[1:] < free_ps[:-1]], rule, times.start_ps)
    early = times.end_ps[commands] < free_ps
    _fail(program, commands[early], "a transfer ends after its issue", times.end_ps)


def _check_starts(program: Program, execution: Execution) -> None:
    """Starts are tight: at the predecessor's end, or at the clock edge after the last reason."""
    times = execution.times
    waits = find_waits(program, times)  # also refuses more than queue_depth transfers in flight
    if not np.array_equal(waits.slot, execution.queue_slot):
        raise SimulationError("machine", "a transfer takes the lowest free queue entry")
    reason_ps = np.maximum(last_signal_ps(program, times.signal_ps), waits.entry_ps)
    for index, commands in enumerate(commands_by_engine(program)):
        clock = Clock(program.engines[index].period_ps, program.ticks_per_cycle)
        start_ps, ready_ps = times.start_ps[commands], waits.ready_ps[commands]
        waited = reason_ps[commands] > ready_ps
        late = ~waited & (start_ps != ready_ps)
        late |= waited & (start_ps - reason_ps[commands] > clock.edge_ps(1))
        _fail(program, commands[late], "a command starts as soon as it can", times.start_ps)
        off = waited & ~clock.on_edge(start_ps)
        _fail(program, commands[off], "a woken engine starts on its clock edge", times.start_ps)


def _check_time_adds_up(program: Program, execution: Execution) -> None:
    stalls, times = execution.stalls, execution.times
    row_ps = np.zeros(len(program.engines), dtype=np.int64)
    np.add.at(row_ps, stalls.engine, stalls.end_ps - stalls.start_ps)
    commands_of = commands_by_engine(program)
    for index, use in enumerate(execution.engines):
        name, commands = program.engines[index].name, commands_of[index]
        lost_ps = use.stalls_ps.get(StallCause.SRAM_CONFLICT, 0)
        busy_ps = union_ps(times.start_ps[commands], times.end_ps[commands]) - lost_ps
        if busy_ps != use.busy_ps or len(commands) != use.commands:
            rule = "busy time is the union of its spans less conflicts"
            raise SimulationError(name, rule, use.busy_ps)
        if (
            int(row_ps[index]) != sum(use.stalls_ps.values())
            or min(use.stalls_ps.values(), default=0) < 0
        ):
            raise SimulationError(name, "stall rows sum to its stalls", int(row_ps[index]))
        total_ps = use.busy_ps + use.idle_ps + int(row_ps[index])
        if total_ps != execution.elapsed_ps or use.idle_ps < 0:
            raise SimulationError(name, "busy + stalls + idle = elapsed", total_ps)


def _check_conflicts(program: Program, execution: Execution) -> None:
    """Lost time is stretched time, told apart by engine; who loses it uses a scratchpad."""
    times, table = execution.times, execution.conflicts
    ticks = times.conflict_ticks
    _fail(program, np.flatnonzero(ticks < 0), "conflicts make a command longer", ticks)
    touches = np.diff(program.region_ptr) > 0
    rule = "only a command that uses a scratchpad loses time to conflicts"
    _fail(program, np.flatnonzero((ticks > 0) & ~touches), rule, ticks)
    told = np.zeros(len(program), dtype=np.int64)
    np.add.at(told, table.command, table.lost_ps)
    lost = conflict_ps(program, times)
    rule = "time lost to conflicts is told apart by engine"
    _fail(program, np.flatnonzero(told != lost), rule, told)


def _check_multicasts(program: Program, execution: Execution) -> None:
    """A follower ends with its leader, or at its own issue if that is later; nothing is early."""
    times = execution.times
    leader = with_leaders(program, np.arange(len(program)))
    wanted = np.maximum(times.end_ps[leader], times.free_ps)
    follows = leader != np.arange(len(program))
    rule = "a multicast reaches its receivers when it completes"
    _fail(program, np.flatnonzero(follows & (times.end_ps != wanted)), rule, times.end_ps)


def _check_bytes(program: Program, execution: Execution) -> None:
    asked, counted = program.transfers.nbytes(), execution.counters[:, 4]
    if len(asked) != len(counted):
        raise SimulationError("memory", "every transfer is counted", len(counted))
    bad = np.flatnonzero(asked != counted)
    if len(bad):
        transfer = int(bad[0])
        rule = f"bytes submitted are bytes counted ({int(asked[transfer])} submitted)"
        raise SimulationError(f"transfer {transfer}", rule, int(counted[transfer]))
    accesses, hits, misses, conflicts = execution.counters[:, :4].T
    bad = np.flatnonzero(accesses != hits + misses + conflicts)
    if len(bad):
        raise SimulationError(
            f"transfer {int(bad[0])}",
            "accesses = hits + misses + conflicts",
            int(accesses[bad[0]]),
        )
