"""Exact start and end times, derived by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from npusim.engine import FixedLatencyMemory
from npusim.program import Command, EdgeKind, EngineKind, Opcode
from tests.component.test_machine_support import compute, dma, load, matmul, run, store, wait_for


@pytest.mark.parametrize(("queue_depth", "finish_ps"), [(1, 400), (2, 200), (4, 100)])
def test_descriptors_in_flight_set_finish_time(queue_depth, finish_ps):
    # latency 100 ps, four descriptors, nothing else: ceil(4 / depth) rounds of 100 ps
    engine = dma(queue_depth=queue_depth, period_ps=Fraction(1))
    execution = run([load(0) for _ in range(4)], [engine], FixedLatencyMemory(100))
    assert execution.elapsed_ps == finish_ps


def test_a_descriptor_takes_its_issue_time_before_the_memory_sees_it():
    # issue 3 ns each, latency 100 ns: starts at 0, 3, 6; ends 103, 106, 109
    execution = run([load(0) for _ in range(3)], [dma(queue_depth=4, issue_ticks=3)])
    assert execution.start_ps.tolist() == [0, 3_000, 6_000]
    assert execution.end_ps.tolist() == [103_000, 106_000, 109_000]
    assert execution.queue_slot.tolist() == [0, 1, 2]


def test_a_full_queue_blocks_until_the_first_transfer_completes():
    # depth 2, issue 3: the third starts when the first ends at 103 (on an edge), takes its entry
    execution = run([load(0) for _ in range(4)], [dma(queue_depth=2, issue_ticks=3)])
    assert execution.start_ps.tolist() == [0, 3_000, 103_000, 106_000]
    assert execution.queue_slot.tolist() == [0, 1, 0, 1]
    assert execution.engines[0].busy_ps == execution.elapsed_ps == 209_000


def test_back_to_back_commands_keep_fractional_cycles():
    # 1.8 cycles of 1 ns each: 1800, 3600, ... never rounded up to 2 cycles
    execution = run([matmul(0, Fraction(9, 5)) for _ in range(5)], [compute()])
    assert execution.start_ps.tolist() == [0, 1800, 3600, 5400, 7200]
    assert execution.end_ps.tolist() == [1800, 3600, 5400, 7200, 9000]


def test_fractional_periods_do_not_drift():
    # 1066.67 MHz: period 937.5 ps; 1000 one-cycle commands end at 937500 ps exactly
    execution = run([matmul(0, 1) for _ in range(1000)], [compute(period=Fraction(1875, 2))])
    assert execution.end_ps[:3].tolist() == [937, 1875, 2812]
    assert execution.elapsed_ps == 937_500


def test_a_woken_engine_realigns_to_its_next_edge():
    # producer ends at 1.8 ns; consumer's 1 ns clock: next edge 2 ns
    engines = [compute("a"), compute("b")]
    execution = run([matmul(0, Fraction(9, 5)), matmul(1, 1, wait_for(0))], engines)
    assert execution.start_ps[1] == 2000


def test_an_engine_woken_in_its_own_last_picosecond_does_not_realign():
    # both end at 1.8 ns; the second command of b follows its predecessor exactly
    engines = [compute("a"), compute("b")]
    commands = [
        matmul(0, Fraction(9, 5)),
        matmul(1, Fraction(9, 5)),
        matmul(1, 1, wait_for(0)),
    ]
    assert run(commands, engines).start_ps[2] == 1800


@pytest.mark.parametrize(("producer_cycles", "start_ps"), [(3, 3000), (4, 6000)])
def test_clock_domains_meet_at_the_consumers_edge(producer_cycles, start_ps):
    # producer 1 ns, consumer 3 ns: 3 ns is an edge (ready at t), 4 ns waits for 6 ns
    engines = [compute("fast"), compute("slow", period=3000)]
    execution = run([matmul(0, producer_cycles), matmul(1, 1, wait_for(0))], engines)
    assert execution.start_ps[1] == start_ps


def test_same_fractional_clock_wakes_without_losing_a_cycle():
    # 937.5 ps: the edge of cycle 3 is seen at 2812; the consumer must start there, not at cycle 4
    engines = [compute("a", period=Fraction(1875, 2)), compute("b", period=Fraction(1875, 2))]
    assert run([matmul(0, 3), matmul(1, 1, wait_for(0))], engines).start_ps[1] == 2812


@pytest.mark.parametrize(("at", "start_ps"), [(0, 2000), (3, 5000), (10, 12_000)])
def test_a_signal_offset_wakes_the_consumer_so_many_ticks_after_the_start(at, start_ps):
    engines = [compute("a"), compute("b")]
    commands = [matmul(0, 2), matmul(0, 10), matmul(1, 1, wait_for(1, at=at))]
    assert run(commands, engines).start_ps[2] == start_ps


def test_offset_signals_count_from_an_aligned_start():
    # a's second command is woken at 1.5 ns, starts at 2 ns, signals 1 cycle later at 3 ns
    engines = [compute("a"), compute("b"), compute("c")]
    commands = [
        matmul(1, Fraction(3, 2)),
        matmul(0, 5, wait_for(0)),
        matmul(2, 1, wait_for(1, at=2)),  # ticks: 2 of 2 per cycle
    ]
    assert run(commands, engines).start_ps.tolist() == [0, 2000, 3000]


def test_the_data_signal_of_a_load_fires_at_its_completion():
    # latency 100.3 ns; the 1 ns matrix clock starts at 101
    engines = [dma(), compute()]
    execution = run([load(0), matmul(1, 5, wait_for(0))], engines, FixedLatencyMemory(100_300))
    assert execution.end_ps.tolist() == [100_300, 106_000]


def test_a_barrier_releases_all_waiters_at_once():
    engines = [compute("a"), compute("b"), compute("bar", EngineKind.BARRIER)]
    commands = [
        matmul(0, 7),
        Command(2, Opcode.SIGNAL, 1, (wait_for(0),), register=0, bit=3, generation=2),
        Command(1, Opcode.WAIT, 0, register=0, bit=3, generation=2),
        matmul(1, 4),
    ]
    execution = run(commands, engines)
    assert execution.start_ps.tolist() == [0, 7000, 8000, 8000]
    assert execution.elapsed_ps == 12_000


def test_the_host_queue_limits_outstanding_launches():
    # host issues in 2 ns, the device takes 10 ns per kernel, one launch may be outstanding
    engines = [compute("host", EngineKind.HOST), compute("dispatch", EngineKind.DISPATCH)]
    commands = [
        Command(0, Opcode.LAUNCH, 2),
        Command(1, Opcode.DISPATCH, 10, (wait_for(0, EdgeKind.LAUNCH),)),
        Command(0, Opcode.LAUNCH, 2, (wait_for(1, EdgeKind.BUFFER_FREE),)),
        Command(1, Opcode.DISPATCH, 10, (wait_for(2, EdgeKind.LAUNCH),)),
    ]
    execution = run(commands, engines)
    assert execution.start_ps.tolist() == [0, 2000, 12_000, 14_000]


def test_a_posted_write_that_drains_late_sets_elapsed():
    class LateDrain(FixedLatencyMemory):
        def drain(self):
            return 500_000

    execution = run([store(0)], [dma("store", EngineKind.DMA_STORE)], LateDrain(100))
    assert execution.end_ps.tolist() == [100]
    assert (execution.drain_ps, execution.elapsed_ps) == (500_000, 500_000)
    assert execution.engines[0].idle_ps == 499_900


def test_zero_cycle_commands_take_no_time():
    engines = [compute("a")]
    execution = run([Command(0, Opcode.SYNC, 0) for _ in range(3)] + [matmul(0, 1)], engines)
    assert execution.start_ps.tolist() == [0, 0, 0, 0]
