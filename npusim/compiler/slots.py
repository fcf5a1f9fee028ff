"""Scratchpad slots: rings of equal ranges, who fills and reads them, and when they are free again.

One discipline serves every kernel. Writers *fill* a ring in turn, readers *read* it, and a slot is
*recycled* when its last reader has ended: the next writer of this kernel has a BUFFER_FREE edge
from that reader, and so have writers of later kernels that take bytes of the slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.program import EdgeKind

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from npusim.program import ProgramBuilder

    Ints = NDArray[np.int64]

_START, _END, _USER = range(3)
_USER_BITS = 40  # command ids are smaller
_BEYOND = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Slots:
    """A ring of equal scratchpad slots."""

    offset: int
    nbytes: int
    count: int

    def at(self, ordinal: ArrayLike) -> Ints:
        """Offset of the slot that the n-th use takes."""
        result: Ints = (
            self.offset + (np.asarray(ordinal, dtype=np.int64) % self.count) * self.nbytes
        )
        return result


class Scratchpad:
    """Slots of one core's scratchpad, and who must be done before they are overwritten.

    Parameters
    ----------
    builder : ProgramBuilder
        Receives regions and edges.
    space : int
        The scratchpad.
    reserved_bytes : int
        Bytes at its start that tensors occupy for the whole program.
    """

    def __init__(self, builder: ProgramBuilder, space: int, reserved_bytes: int) -> None:
        self.space = space
        self._builder = builder
        self._reserved = reserved_bytes
        self._next = self._previous_end = reserved_bytes
        self._past = np.empty((0, 3), dtype=np.int64)  # start, end, last user of earlier kernels
        self._now: list[Ints] = []

    def open_kernel(self) -> None:
        """Forget this kernel's slots; keep what must be waited for."""
        if self._now:
            now = np.concatenate(self._now)
            self._past = np.concatenate((now, uncovered(self._past, now)))
        self._now = []
        self._previous_end, self._next = self._next, self._reserved

    def place_beside(self, nbytes: int, capacity_bytes: int) -> None:
        """Put this kernel's slots after those of the kernel before, if `nbytes` of them fit there.

        Then its loads need not wait until that kernel has read its operands.
        """
        if self._previous_end + nbytes <= capacity_bytes:
            self._next = self._previous_end

    def slots(self, nbytes: int, count: int) -> Slots:
        """Take `count` slots of `nbytes`."""
        ring = Slots(self._next, nbytes, count)
        self._next += nbytes * count
        return ring

    def fill(self, writers: Ints, ring: Slots) -> None:
        """Writers take the slots in turn, after whoever used them in earlier kernels."""
        self.overwrite(writers, ring)
        first, users = self._earlier_users(ring, len(writers))
        if len(first):
            self._builder.edges(writers[first], users, EdgeKind.BUFFER_FREE)

    def overwrite(self, writers: Ints, ring: Slots) -> None:
        """Writers change the slots in place, in turn."""
        ordinals = np.arange(len(writers))
        self._builder.regions(writers, self.space, ring.at(ordinals), ring.nbytes, is_write=True)

    def read(self, readers: Ints, ring: Slots, ordinals: Ints | None = None) -> None:
        """Readers read the slots in turn, or the ones of these ordinals."""
        if ordinals is None:
            ordinals = np.arange(len(readers))
        self._builder.regions(readers, self.space, ring.at(ordinals), ring.nbytes, is_write=False)

    def recycle(self, ring: Slots, writers: Ints, last_readers: Ints) -> None:
        """The n-th slot filled is free again when its last reader has ended."""
        count, uses = ring.count, len(last_readers)
        if uses > count:
            self._builder.edges(writers[count:], last_readers[: uses - count], EdgeKind.BUFFER_FREE)
        used = min(count, uses)
        self.release(
            ring.at(np.arange(uses - used, uses)), ring.nbytes, last_readers[uses - used :]
        )

    def release(self, offsets: ArrayLike, nbytes: int, last_users: Ints) -> None:
        """Record last users of ranges of this kernel (offsets broadcast)."""
        starts = np.broadcast_to(np.asarray(offsets, dtype=np.int64), last_users.shape)
        self._now.append(np.stack((starts, starts + nbytes, last_users), axis=1))

    def _earlier_users(self, ring: Slots, uses: int) -> tuple[Ints, Ints]:
        """Ordinals of first uses, and commands of earlier kernels each must wait for."""
        past, used = self._past, min(ring.count, uses)
        stop = ring.offset + used * ring.nbytes
        past = past[(past[:, _START] < stop) & (ring.offset < past[:, _END])]
        if not len(past):
            return past[:, _START], past[:, _USER]
        starts = ring.at(np.arange(used))[:, np.newaxis]
        overlaps = (past[:, _START] < starts + ring.nbytes) & (starts < past[:, _END])
        ordinal, which = np.nonzero(overlaps)
        pairs = np.unique((ordinal << _USER_BITS) + past[which, _USER])
        return pairs >> _USER_BITS, pairs & ((1 << _USER_BITS) - 1)


def uncovered(old: Ints, new: Ints) -> Ints:
    """Parts of old ranges that no new range covers; rows are start, end, user."""
    by_start = new[np.argsort(new[:, _START], kind="stable")]
    reach = np.maximum.accumulate(by_start[:, _END])
    opens = np.concatenate(([True], by_start[1:, _START] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    gap_end = np.append(by_start[opens, _START], _BEYOND)
    gap_start = np.insert(reach[closes], 0, 0)
    first = np.searchsorted(gap_end, old[:, _START], side="right")
    last = np.searchsorted(gap_start, old[:, _END], side="left")
    pieces = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(old)), pieces)
    gap = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[row]
    parts = np.stack(
        (
            np.maximum(old[row, _START], gap_start[gap]),
            np.minimum(old[row, _END], gap_end[gap]),
            old[row, _USER],
        ),
        axis=1,
    )
    return parts[parts[:, _START] < parts[:, _END]]
