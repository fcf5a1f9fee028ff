"""A run that broke a rule must not pass: executions corrupted one number at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npusim.engine import FixedLatencyMemory, StallCause
from npusim.errors import SimulationError
from npusim.machine import Machine, check_execution
from npusim.program import EdgeKind, EngineKind, Program
from tests.component.test_machine_support import (
    SPACES,
    compute,
    dma,
    load,
    matmul,
    store,
    wait_for,
)


def engines(queue_depth=2):
    return [
        dma(queue_depth=queue_depth, issue_ticks=2),
        compute(),
        dma("store", EngineKind.DMA_STORE, port=1),
    ]


COMMANDS = (
    load(0),
    load(0),
    load(0),
    matmul(1, 10, wait_for(0)),
    matmul(1, 10, wait_for(1)),
    store(2, wait_for(3)),
    matmul(1, 10, wait_for(2), wait_for(4, at=3)),
    store(2, wait_for(6), wait_for(5, EdgeKind.ORDER)),
)
# start, end in ns: loads [0,102) [2,104) [102,204); matmuls [102,112) [112,122) [204,214)
#                   stores [112,212) [214,314)
PROGRAM = Program.from_commands(COMMANDS, engines(), SPACES)


@pytest.fixture
def execution():
    return Machine(PROGRAM, FixedLatencyMemory(100_000)).run()


def with_time(execution, column, command, delta):
    values = getattr(execution.times, column).copy()
    values[command] += delta
    return replace(execution, times=replace(execution.times, **{column: values}))


def refuse(execution, message=None, program=PROGRAM):
    with pytest.raises(SimulationError, match=message):
        check_execution(program, execution)


def test_the_run_itself_is_as_derived(execution):
    ns = [t // 1000 for t in execution.start_ps.tolist()]
    assert ns == [0, 2, 102, 102, 112, 112, 204, 214]
    assert execution.elapsed_ps == 314_000
    check_execution(PROGRAM, execution)


@pytest.mark.parametrize("command", range(len(COMMANDS)))
@pytest.mark.parametrize("column", ["start_ps", "end_ps", "free_ps"])
@pytest.mark.parametrize("delta", [-1, 1])
def test_every_span_off_by_one_is_caught(execution, column, command, delta):
    refuse(with_time(execution, column, command, delta))


def test_a_start_before_an_awaited_signal_is_caught(execution):
    changed = with_time(execution, "start_ps", 6, -1000)
    changed = with_time(with_time(changed, "end_ps", 6, -1000), "free_ps", 6, -1000)
    signal_ps = np.where(PROGRAM.edge_producer == 6, 213_000, changed.times.signal_ps)
    changed = replace(changed, times=replace(changed.times, signal_ps=signal_ps))
    refuse(changed, "matrix #6: no command starts before the last signal it awaits")


@pytest.mark.parametrize("edge", range(len(PROGRAM.edge_kind)))
def test_a_signal_at_another_time_is_caught(execution, edge):
    signal_ps = execution.times.signal_ps.copy()
    signal_ps[edge] -= 1
    refuse(replace(execution, times=replace(execution.times, signal_ps=signal_ps)), "published")


def test_a_command_that_never_ran_is_caught(execution):
    refuse(with_time(execution, "end_ps", 7, -(10**9)), "every command executes once")


def test_a_lost_credit_is_caught():
    # the queue works with one entry although the engine has two
    slow = Machine(
        Program.from_commands(COMMANDS, engines(queue_depth=1), SPACES), FixedLatencyMemory(100_000)
    ).run()
    refuse(slow, "load #1: a command starts as soon as it can")


def test_more_transfers_in_flight_than_entries_are_caught(execution):
    one_entry = Program.from_commands(COMMANDS, engines(queue_depth=1), SPACES)
    refuse(execution, "at most 1 overlap", one_entry)


def test_a_wrong_queue_entry_is_caught(execution):
    slots = execution.queue_slot.copy()
    slots[1] = 0
    refuse(replace(execution, queue_slot=slots), "lowest free queue entry")


def test_a_dropped_transfer_is_caught():
    class Dropping(FixedLatencyMemory):
        def transfer_counters(self, tid):
            accesses, hits, misses, conflicts, nbytes = super().transfer_counters(tid)
            return accesses, hits, misses, conflicts, nbytes if tid else nbytes - 1

    with pytest.raises(SimulationError, match=r"transfer 0: bytes submitted .*64 submitted.* 63"):
        Machine(PROGRAM, Dropping(100_000)).run()


def test_an_access_that_is_neither_hit_nor_miss_is_caught(execution):
    counters = execution.counters.copy()
    counters[2, 0] += 1
    refuse(replace(execution, counters=counters), "transfer 2: accesses = hits")


@pytest.mark.parametrize("key", ["busy_ps", "idle_ps", "commands"])
def test_engine_totals_that_do_not_add_up_are_caught(execution, key):
    use = execution.engines[1]
    changed = (execution.engines[0], replace(use, **{key: getattr(use, key) + 1}))
    refuse(replace(execution, engines=changed + execution.engines[2:]), "matrix: ")


def test_a_stall_in_the_totals_but_not_in_the_rows_is_caught(execution):
    use = execution.engines[1]
    stalls = {**use.stalls_ps, StallCause.BUS: 1}
    changed = (execution.engines[0], replace(use, stalls_ps=stalls, idle_ps=use.idle_ps - 1))
    refuse(replace(execution, engines=changed + execution.engines[2:]), "stall rows sum")


def test_elapsed_is_the_last_end_or_drain(execution):
    refuse(replace(execution, elapsed_ps=execution.elapsed_ps + 1), "elapsed is the last end")
    refuse(replace(execution, drain_ps=execution.elapsed_ps + 1), "elapsed is the last end")


def test_a_start_off_the_clock_edge_is_caught(execution):
    # a whole picosecond later, with the duration kept: only the edge rule sees it
    changed = with_time(execution, "start_ps", 3, 1)
    changed = with_time(with_time(changed, "end_ps", 3, 1), "free_ps", 3, 1)
    refuse(changed)
