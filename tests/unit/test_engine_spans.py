"""Arithmetic on spans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.engine.spans import assign_slots, covered_before_ps, union_ps
from npusim.errors import SimulationError


def times(*values):
    return np.array(values, dtype=np.int64)


def test_union_counts_overlap_once():
    # [0,10) [2,5) [20,30) [25,40) -> 10 + 20
    assert union_ps(times(0, 2, 20, 25), times(10, 5, 30, 40)) == 30
    assert covered_before_ps(times(10, 5, 30, 40)).tolist() == [0, 10, 10, 30]
    assert union_ps(times(), times()) == 0


def test_a_span_takes_the_lowest_slot_free_at_its_start():
    # depth 2: third starts as the second ends; fourth as the first ends
    use = assign_slots(times(0, 1, 4, 9), times(9, 4, 12, 11), 2)
    assert use.slot.tolist() == [0, 1, 1, 0]
    assert use.free_ps.tolist() == [0, 0, 4, 9]
    assert use.freed_by.tolist() == [-1, -1, 1, 0]


def test_more_spans_than_slots_are_refused():
    with pytest.raises(SimulationError, match="at most 2 overlap"):
        assign_slots(times(0, 1, 2), times(9, 9, 9), 2)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40)), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_slots_equal_a_plain_count(spans, depth):
    """Spans issued as soon as allowed; slots and free times as counted the slow way."""
    starts, ends = [], []
    at = 0
    for gap, length in spans:
        in_flight = sorted(ends, reverse=True)
        free = in_flight[depth - 1] if len(ends) >= depth else 0
        at = max(at + gap, free)
        starts.append(at)
        ends.append(at + length)
    use = assign_slots(times(*starts), times(*ends), depth)
    for index, start in enumerate(starts):
        held = {int(use.slot[i]) for i in range(index) if starts[i] <= start < ends[i]}
        assert int(use.slot[index]) == min(set(range(depth)) - held)
        before = sorted(ends[:index], reverse=True)
        assert int(use.free_ps[index]) == (before[depth - 1] if len(before) >= depth else 0)
