"""Arithmetic on half-open time spans."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npusim.errors import SimulationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.int64]


class SlotUse(NamedTuple):
    """Queue slots of spans in issue order, shape (n,) each."""

    slot: NDArray[np.int32]  # lowest slot free at the span's start
    free_ps: Times  # when fewer than `depth` of the earlier spans were left
    freed_by: NDArray[np.int64]  # the span whose end made it so, -1 for none


def covered_before_ps(end_ps: Times) -> Times:
    """Latest end of all earlier spans, 0 for the first."""
    result = np.zeros_like(end_ps)
    if len(end_ps) > 1:
        result[1:] = np.maximum.accumulate(end_ps[:-1])
    return result


def union_ps(start_ps: Times, end_ps: Times) -> int:
    """Length of the union of spans; spans in order of start."""
    fresh = end_ps - np.maximum(start_ps, covered_before_ps(end_ps))
    return int(np.maximum(fresh, 0).sum())


def assign_slots(start_ps: Times, end_ps: Times, depth: int) -> SlotUse:
    """Give each span the lowest slot that is free when it starts.

    Parameters
    ----------
    start_ps, end_ps : array of int, shape (n,)
        Spans in issue order.
    depth : int
        Number of slots.

    Raises
    ------
    SimulationError
        If more than `depth` spans overlap.
    """
    slots: list[int] = []
    free_ps: list[int] = []
    freed_by: list[int] = []
    free = list(range(depth))
    held: list[tuple[int, int]] = []  # (end, slot), a heap
    latest: list[tuple[int, int]] = [(0, -1)] * depth  # the latest ends so far, a heap
    for index, (start, end) in enumerate(zip(start_ps.tolist(), end_ps.tolist(), strict=True)):
        while held and held[0][0] <= start:
            heappush(free, heappop(held)[1])
        if not free:
            raise SimulationError("spans", f"at most {depth} overlap", index)
        slot = heappop(free)
        slots.append(slot)
        heappush(held, (end, slot))
        free_ps.append(latest[0][0])
        freed_by.append(latest[0][1])
        if end > latest[0][0]:
            heapreplace(latest, (end, index))
    return SlotUse(
        np.array(slots, dtype=np.int32),
        np.array(free_ps, dtype=np.int64),
        np.array(freed_by, dtype=np.int64),
    )
