"""Where the elements of an operand lie in memory, and the runs of bytes a tile of it touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class View:
    """A batch of matrices in memory, `row_bits` wide rows of `elem_bits` elements.

    Byte address of row r of matrix b::

        base + (b // batch_div) * batch_outer + (b % batch_div) * batch_inner
             + (r // row_div) * row_outer + (r % row_div) * row_inner

    A plain row-major matrix has ``row_div`` rows and ``row_inner`` bytes from row to row; attention
    heads interleaved in a token-major tensor need both levels.
    """

    space: int
    base: int
    columns: int
    row_bytes: int
    row_div: int
    row_inner: int
    row_outer: int = 0
    batch_div: int = 1
    batch_outer: int = 0
    batch_inner: int = 0

    def tile_runs(
        self, b: ArrayLike, r0: ArrayLike, r1: ArrayLike, c0: ArrayLike, c1: ArrayLike
    ) -> tuple[Ints, Ints]:
        """Runs of each tile ``[b, r0:r1, c0:c1]``.

        Sub-byte columns are cut at ``floor(column * row_bytes / columns)``, so that the tiles of a
        matrix share its bytes exactly.

        Returns
        -------
        runs : int64, shape (r, 4)
            Columns base, bytes, stride, count.
        owner : int64, shape (r,)
            Tile each run belongs to, ascending.
        """
        b, r0, r1, c0, c1 = (
            np.atleast_1d(x).astype(np.int64) for x in np.broadcast_arrays(b, r0, r1, c0, c1)
        )
        first_group, last_group = r0 // self.row_div, (r1 - 1) // self.row_div
        pieces = last_group - first_group + 1
        owner = np.repeat(np.arange(len(b)), pieces)
        group = (
            np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        ) + first_group[owner]
        row_from = np.maximum(r0[owner], group * self.row_div)
        row_to = np.minimum(r1[owner], (group + 1) * self.row_div)
        byte_from = c0[owner] * self.row_bytes // self.columns
        byte_to = c1[owner] * self.row_bytes // self.columns
        base = (
            self.base
            + (b[owner] // self.batch_div) * self.batch_outer
            + (b[owner] % self.batch_div) * self.batch_inner
            + group * self.row_outer
            + (row_from - group * self.row_div) * self.row_inner
            + byte_from
        )
        count = row_to - row_from
        nbytes = byte_to - byte_from
        joined = (nbytes == self.row_inner) & (count > 1)
        runs = np.stack(
            (
                base,
                np.where(joined, nbytes * count, nbytes),
                np.where(joined, 0, np.full_like(base, self.row_inner)),
                np.where(joined, 1, count),
            ),
            axis=1,
        )
        runs[runs[:, 3] == 1, 2] = 0
        return runs, owner


@dataclass(frozen=True, slots=True)
class LinearView:
    """A tensor read or written as a range of its bytes."""

    space: int
    base: int
    nbytes: int

    def runs(self, start: ArrayLike, stop: ArrayLike) -> Ints:
        """One run per byte range ``[start, stop)``."""
        start, stop = np.broadcast_arrays(
            np.atleast_1d(start).astype(np.int64), np.atleast_1d(stop).astype(np.int64)
        )
        zeros, ones = np.zeros_like(start), np.ones_like(start)
        return np.stack((self.base + start, stop - start, zeros, ones), axis=1)
