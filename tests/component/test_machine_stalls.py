"""One constructed case per stall cause; without its cause the stall is gone."""

from __future__ import annotations

from fractions import Fraction

import pytest

from npusim.engine import FixedLatencyMemory, StallCause
from npusim.program import Command, EdgeKind, EngineKind, Opcode
from tests.component.test_machine_support import (
    SHARED,
    ScriptedMemory,
    compute,
    dma,
    load,
    matmul,
    run,
    store,
    wait_for,
)


def stalls(execution, engine):
    return {str(cause): ps for cause, ps in execution.engines[engine].stalls_ps.items()}


@pytest.mark.parametrize(("cycles", "expected"), [(10, {"dependency": 10_000}), (0, {})])
def test_dependency_is_a_result_of_another_compute_engine(cycles, expected):
    engines = [compute("a"), compute("b", EngineKind.VECTOR)]
    execution = run([matmul(0, cycles), matmul(1, 5, wait_for(0))], engines)
    assert stalls(execution, 1) == expected


@pytest.mark.parametrize(("cycles", "expected"), [(10, {"convert": 10_000}), (0, {})])
def test_convert_is_a_result_of_a_convert_unit(cycles, expected):
    engines = [compute("cvt", EngineKind.CONVERT), compute()]
    commands = [Command(0, Opcode.CONVERT, cycles), matmul(1, 5, wait_for(0))]
    assert stalls(run(commands, engines), 1) == expected


@pytest.mark.parametrize(("held_cycles", "expected"), [(30, {"buffer_free": 20_000}), (10, {})])
def test_buffer_free_is_a_reader_that_holds_the_buffer(held_cycles, expected):
    # the writer's second tile may overwrite when the reader ends; writer is free at 10 ns
    engines = [compute("writer"), compute("reader")]
    commands = [
        matmul(0, 10),
        matmul(1, held_cycles),
        matmul(0, 5, wait_for(1, EdgeKind.BUFFER_FREE)),
    ]
    assert stalls(run(commands, engines), 0) == expected


@pytest.mark.parametrize(
    ("queue_depth", "expected"),
    [(1, {"buffer_full": 100_000, "dram_latency": 100_000}), (2, {"dram_latency": 100_000})],
)
def test_buffer_full_is_a_transfer_that_waits_for_a_queue_entry(queue_depth, expected):
    # the matrix waits for the second load, which cannot start while the first is in flight
    engines = [dma(queue_depth=queue_depth), compute()]
    commands = [load(0), load(0), matmul(1, 5, wait_for(1))]
    execution = run(commands, engines)
    assert stalls(execution, 1) == expected
    assert stalls(execution, 0) == {}  # the DMA is busy while transfers are in flight


@pytest.mark.parametrize(("cycles", "expected"), [(10, {"barrier": 10_000}), (0, {})])
def test_barrier_is_a_signal_not_yet_set(cycles, expected):
    engines = [compute("setter"), compute("waiter")]
    commands = [
        Command(0, Opcode.SIGNAL, cycles, register=0, bit=1),
        Command(1, Opcode.WAIT, 0, register=0, bit=1),
        matmul(1, 5),
    ]
    assert stalls(run(commands, engines), 1) == expected


@pytest.mark.parametrize(("cycles", "expected"), [(10, {"launch": 10_000}), (0, {})])
def test_launch_is_a_kernel_not_yet_launched(cycles, expected):
    engines = [compute("host", EngineKind.HOST), compute("dispatch", EngineKind.DISPATCH)]
    commands = [
        Command(0, Opcode.LAUNCH, cycles),
        Command(1, Opcode.DISPATCH, 3, (wait_for(0, EdgeKind.LAUNCH),)),
    ]
    assert stalls(run(commands, engines), 1) == expected


@pytest.mark.parametrize(("cycles", "expected"), [(10, {"order": 10_000}), (0, {})])
def test_order_is_an_edge_without_data(cycles, expected):
    engines = [compute("a"), compute("b")]
    commands = [matmul(0, cycles), matmul(1, 5, wait_for(0, EdgeKind.ORDER))]
    assert stalls(run(commands, engines), 1) == expected


@pytest.mark.parametrize(("latency_ps", "expected"), [(40_000, {"sram": 40_000}), (0, {})])
def test_sram_is_a_transfer_of_the_shared_tier(latency_ps, expected):
    engines = [dma(), compute()]
    commands = [load(0, space=SHARED), matmul(1, 5, wait_for(0))]
    assert stalls(run(commands, engines, FixedLatencyMemory(latency_ps)), 1) == expected


@pytest.mark.parametrize(
    ("category", "cause"),
    [
        ("data_read", "dram_other"),
        ("refresh", "dram_refresh"),
        ("turnaround", "dram_turnaround"),
        ("row", "dram_row"),
        ("bank_conflict", "dram_bank_conflict"),
        ("command", "dram_command"),
        ("arbitration", "dram_arbitration"),
        ("starved", "dram_latency"),
    ],
)
def test_waits_on_dram_are_split_by_what_the_channels_did(category, cause):
    engines = [dma(), compute()]
    commands = [load(0), matmul(1, 5, wait_for(0))]
    # a quarter of the time refresh-free own work, three quarters the category
    memory = ScriptedMemory(100_000, Fraction(1), data_write=1, **{category: 3})
    if category == "data_read":
        memory = ScriptedMemory(100_000, Fraction(1, 4), data_read=4)
    execution = run(commands, engines, memory)
    assert stalls(execution, 1) == {"dram_data": 25_000, cause: 75_000}
    ideal = run(commands, engines, FixedLatencyMemory(0))
    assert stalls(ideal, 1) == {}


def test_dram_time_is_split_by_largest_remainder():
    engines = [dma(), compute()]
    memory = ScriptedMemory(100_000, refresh=1, turnaround=1, row=1)
    execution = run([load(0), matmul(1, 5, wait_for(0))], engines, memory)
    assert stalls(execution, 1) == {
        "dram_refresh": 33_334,
        "dram_turnaround": 33_333,
        "dram_row": 33_333,
    }


def test_alignment_to_the_clock_belongs_to_the_awaited_signal():
    engines = [dma(), compute(period=7000)]
    execution = run([load(0), matmul(1, 1, wait_for(0))], engines, FixedLatencyMemory(10_000))
    assert stalls(execution, 1) == {"dram_latency": 14_000}


def test_the_wait_before_the_producer_started_takes_the_producers_own_cause():
    # the store's engine waits for the matrix, which first waits 10 ns for its launch
    engines = [compute("host", EngineKind.HOST), compute(), compute("vector", EngineKind.VECTOR)]
    commands = [
        Command(0, Opcode.LAUNCH, 10),
        matmul(1, 4, wait_for(0, EdgeKind.LAUNCH)),
        matmul(2, 1, wait_for(1)),
    ]
    assert stalls(run(commands, engines), 2) == {"launch": 10_000, "dependency": 4_000}


def test_a_wait_for_a_transfer_not_yet_submitted_is_split_from_its_submission():
    # the load waits 10 ns for the vector unit, then takes 100 ns
    engines = [compute("vector", EngineKind.VECTOR), dma(), compute()]
    commands = [matmul(0, 10), load(1, wait_for(0)), matmul(2, 1, wait_for(1))]
    memory = ScriptedMemory(100_000, refresh=1)
    execution = run(commands, engines, memory)
    assert stalls(execution, 2) == {"dependency": 10_000, "dram_refresh": 100_000}


def test_the_edge_that_resolves_last_gets_the_wait_and_ties_go_to_the_first():
    engines = [compute("a"), compute("cvt", EngineKind.CONVERT), compute("c")]
    for a_cycles, cvt_cycles, cause in [(5, 9, "convert"), (9, 5, "dependency"), (9, 9, "convert")]:
        commands = [
            matmul(0, a_cycles),
            Command(1, Opcode.CONVERT, cvt_cycles),
            matmul(2, 1, wait_for(1), wait_for(0)),
        ]
        assert stalls(run(commands, engines), 2) == {cause: 9_000}


def test_a_store_that_reads_back_waits_for_memory_only_while_nothing_is_in_flight():
    engines = [dma("store", EngineKind.DMA_STORE), dma("load", queue_depth=4)]
    commands = [load(1), store(0), load(1, wait_for(1))]
    # the load engine is busy with its first transfer for exactly as long as the store takes
    execution = run(commands, engines)
    assert stalls(execution, 1) == {}
    assert execution.engines[1].busy_ps == 200_000


def test_idle_is_only_after_the_last_command():
    engines = [compute("a"), compute("b"), compute("unused")]
    execution = run([matmul(0, 3), matmul(1, 5, wait_for(0))], engines)
    assert [use.idle_ps for use in execution.engines] == [5000, 0, 8000]
    assert [use.busy_ps for use in execution.engines] == [3000, 5000, 0]


def test_rows_name_waiter_producer_and_kind():
    engines = [compute("a"), compute("b")]
    table = run([matmul(0, 3), matmul(1, 5, wait_for(0))], engines).stalls
    assert (len(table), int(table.command[0]), int(table.producer[0])) == (1, 1, 0)
    assert int(table.edge_kind[0]) == EdgeKind.DATA
    assert list(StallCause)[table.cause[0]] is StallCause.DEPENDENCY
