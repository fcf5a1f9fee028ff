"""Scratchpad slots across kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npusim.compiler.slots import Scratchpad, uncovered
from npusim.program import ProgramBuilder


def test_a_later_kernel_waits_for_whoever_used_its_bytes() -> None:
    pad = Scratchpad(ProgramBuilder((), (), ()), 0, reserved_bytes=100)
    ring = pad.slots(10, 2)
    assert ring.at([0, 1, 2]).tolist() == [100, 110, 100]
    pad.release(ring.at([0, 1]), 10, np.array([7, 8]))
    pad.open_kernel()
    wide = pad.slots(15, 2)  # 100..115 meets both users, 115..130 the second
    ordinals, users = pad._earlier_users(wide, uses=5)
    assert list(zip(ordinals.tolist(), users.tolist(), strict=True)) == [(0, 7), (0, 8), (1, 8)]
    pad.release(wide.at([0]), 15, np.array([9]))
    pad.open_kernel()
    _, users = pad._earlier_users(pad.slots(20, 1), uses=1)
    assert users.tolist() == [8, 9]  # 7's bytes were taken over whole by 9


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=8)


@given(ranges, ranges)
def test_uncovered_parts_are_the_bytes_no_new_range_covers(
    old: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    def rows(spans: list[tuple[int, int]]) -> np.ndarray:
        return np.array([(s, s + n, user) for user, (s, n) in enumerate(spans)])

    parts = uncovered(rows(old), rows(new))
    taken = {byte for s, n in new for byte in range(s, s + n)}
    want = sorted((b, u) for u, (s, n) in enumerate(old) for b in range(s, s + n) if b not in taken)
    assert sorted((b, u) for s, e, u in parts.tolist() for b in range(s, e)) == want
