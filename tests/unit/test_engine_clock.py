"""Clocks, by hand and by property."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.engine import Clock

PERIODS = st.fractions(min_value=1, max_value=10**6, max_denominator=10**9)


def test_half_cycles_of_hbm3_do_not_drift():
    # 312.5 ps: edges 0, 312.5, 625, 937.5, 1250 seen at the floor
    clock = Clock(Fraction(625, 2))
    assert [clock.edge_ps(cycle) for cycle in range(5)] == [0, 312, 625, 937, 1250]
    assert clock.edge_ps(2 * 10**12) == 625 * 10**12


@pytest.mark.parametrize(("now_ps", "cycle"), [(0, 0), (1, 1), (312, 1), (313, 2), (625, 2)])
def test_next_cycle_is_the_first_edge_not_before_now(now_ps, cycle):
    assert Clock(Fraction(625, 2)).next_cycle(now_ps) == cycle


def test_ticks_split_a_cycle():
    # 5 ticks per cycle of 1 ns: 9 ticks are 1.8 cycles
    clock = Clock(Fraction(1000), 5)
    assert clock.tick_ps(9) == 1800
    assert clock.next_edge_tick(1800) == 10


@given(PERIODS, st.integers(0, 10**15))
def test_an_edge_is_its_own_next_cycle(period, cycle):
    clock = Clock(period)
    assert clock.next_cycle(clock.edge_ps(cycle)) == cycle


@given(PERIODS, st.integers(0, 10**18))
def test_the_next_edge_is_less_than_a_cycle_away(period, now_ps):
    clock = Clock(period)
    edge_ps = clock.edge_ps(clock.next_cycle(now_ps))
    assert now_ps <= edge_ps < now_ps + period


@given(PERIODS, st.integers(1, 60), st.lists(st.integers(0, 10**9), max_size=20))
def test_spans_of_successive_ticks_touch_and_keep_their_length(period, ticks_per_cycle, ticks):
    clock = Clock(period, ticks_per_cycle)
    at, total = 0, 0
    for duration in ticks:
        total += duration
        end = clock.tick_ps(total)
        exact = duration * period / ticks_per_cycle
        assert abs((end - at) - exact) < 1
        at = end
    assert total * period / ticks_per_cycle - 1 < at <= total * period / ticks_per_cycle


@given(PERIODS, st.lists(st.integers(0, 10**15), min_size=1, max_size=20))
def test_arrays_agree_with_integers(period, times):
    clock = Clock(period, 3)
    on_edge = clock.on_edge(np.array(times, dtype=np.int64))
    assert on_edge.tolist() == [clock.edge_ps(clock.next_cycle(t)) == t for t in times]
    ticks = [min(t, 10**12) for t in times]
    lengths = clock.ticks_floor_ps(np.array(ticks, dtype=np.int64))
    assert lengths.tolist() == [clock.tick_ps(t) for t in ticks]


@pytest.mark.parametrize(("period", "ticks"), [(Fraction(1, 2), 1), (Fraction(1000), 0)])
def test_a_clock_has_at_least_a_picosecond_and_a_tick(period, ticks):
    with pytest.raises(ValueError, match="ticks per cycle"):
        Clock(period, ticks)
