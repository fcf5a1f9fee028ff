"""Views of a matmul's operands: how batch, rows and columns map to the bytes of each tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.views import View
from npusim.config.compiler import WeightLayout
from npusim.errors import MappingError
from npusim.workload.tensor import DTYPE_BITS, Role, packed_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.layout import Home
    from npusim.workload.operator import MatmulShape, Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]


def _share(elems: Ints, nbytes: int, total: int) -> Ints:
    """``floor(elems * nbytes / total)`` without overflow."""
    common = gcd(nbytes, total)
    nbytes, total = nbytes // common, total // common
    if len(elems) and int(elems.max()) * nbytes >= 1 << 63:
        return np.array([int(e) * nbytes // total for e in elems], dtype=np.int64)
    result: Ints = elems * nbytes // total
    return result


@dataclass(frozen=True, slots=True)
class WeightTiles:
    """How columns are dealt to cores, `core_n` each, and cut into tiles."""

    core_n: int
    tile_k: int
    tile_n: int


@dataclass(frozen=True)
class TiledWeight:
    """A weight stored tile by tile in the order it is read, scales included.

    Cores read side by side: the first tile of every core comes first, then the second of every
    core, so that together they stream through memory. A core reads its columns tile by tile, along
    k first. Bytes are the tensor's bytes in proportion to the elements, so that the tiles share
    them exactly.
    """

    space: int
    base: int
    nbytes: int
    batch: int
    k: int
    n: int
    tiles: WeightTiles

    def tile_runs(self, b: Ints, k0: Ints, k1: Ints, n0: Ints, n1: Ints) -> tuple[Ints, Ints]:
        """One contiguous run per tile."""
        tiles, elems = self.tiles, self.batch * self.k * self.n
        core = n0 // tiles.core_n
        column = (n0 - core * tiles.core_n) // tiles.tile_n
        before = b * self.k * self.n + self._before[column, k0 // tiles.tile_k, core]
        after = before + (n1 - n0) * (k1 - k0)
        start, stop = _share(before, self.nbytes, elems), _share(after, self.nbytes, elems)
        zeros, ones = np.zeros_like(start), np.ones_like(start)
        runs = np.stack((self.base + start, stop - start, zeros, ones), axis=1)
        return runs, np.arange(len(runs))

    @cached_property
    def _before(self) -> Ints:
        """Elements of one matrix before each tile, by tile along n and along k, and core."""
        tiles = self.tiles
        first = np.arange(0, self.n, tiles.core_n)[None, :]
        last = np.minimum(first + tiles.core_n, self.n)
        left = np.arange(0, tiles.core_n, tiles.tile_n)[:, None] + first
        width = np.clip(last - left, 0, tiles.tile_n)
        top = np.arange(0, self.k, tiles.tile_k)
        height = np.minimum(self.k - top, tiles.tile_k)
        sizes = (width[:, None, :] * height[None, :, None]).astype(np.int64)
        before: Ints = np.cumsum(sizes.ravel()) - sizes.ravel()
        return before.reshape(sizes.shape)


@dataclass(frozen=True, slots=True)
class RowMajorWeight:
    """A weight stored row by row, scales in proportion to the elements.

    Element (r, c) of matrix b starts at byte ``floor(((b * k + r) * n + c) * nbytes / elements)``,
    so that tiles share the bytes exactly.
    """

    space: int
    base: int
    nbytes: int
    batch: int
    k: int
    n: int

    def tile_runs(self, b: Ints, k0: Ints, k1: Ints, n0: Ints, n1: Ints) -> tuple[Ints, Ints]:
        """One run per row of a tile, or one in all for a tile of whole rows."""
        is_whole = n1 - n0 == self.n
        rows = np.where(is_whole, 1, k1 - k0)
        owner = np.repeat(np.arange(len(rows)), rows)
        row = np.arange(len(owner)) - np.repeat(np.cumsum(rows) - rows, rows)
        first = ((b * self.k + k0)[owner] + row) * self.n + n0[owner]
        elems = np.where(is_whole, (k1 - k0) * self.n, n1 - n0)[owner]
        total = self.batch * self.k * self.n
        start = _share(first, self.nbytes, total)
        stop = _share(first + elems, self.nbytes, total)
        zeros, ones = np.zeros_like(start), np.ones_like(start)
        runs = np.stack((self.base + start, stop - start, zeros, ones), axis=1)
        is_some = stop > start  # part of a sub-byte element belongs to a neighbour
        return runs[is_some], owner[is_some]


@dataclass(frozen=True, slots=True)
class PlainOperand:
    """A stationary operand stored as a matrix, (k, n) or transposed (n, k)."""

    view: View
    transposed: bool

    def tile_runs(self, b: Ints, k0: Ints, k1: Ints, n0: Ints, n1: Ints) -> tuple[Ints, Ints]:
        """Runs of each tile ``[b, k0:k1, n0:n1]``."""
        if self.transposed:
            return self.view.tile_runs(b, n0, n1, k0, k1)
        return self.view.tile_runs(b, k0, k1, n0, n1)


@dataclass(frozen=True, slots=True)
class RaggedView:
    """Matrices of unequal numbers of rows, one after another; `starts` are their first rows."""

    space: int
    base: int
    columns: int
    row_bytes: int
    starts: tuple[int, ...]

    def tile_runs(self, b: Ints, r0: Ints, r1: Ints, c0: Ints, c1: Ints) -> tuple[Ints, Ints]:
        """Runs of each tile ``[b, r0:r1, c0:c1]``, and the tile each belongs to."""
        first = np.array(self.starts, dtype=np.int64)[b]
        rows = View(self.space, self.base, self.columns, self.row_bytes, 1 << 40, self.row_bytes)
        return rows.tile_runs(0 * first, first + r0, first + r1, c0, c1)


def moving_view(operator: Operator, tensor: Tensor, home: Home, columns: int) -> View | RaggedView:
    """View of the moving operand or of an output, both (batch, m, columns).

    Products of unequal rows lie one after another.
    A token-major tensor of interleaved heads (two dimensions, batched matmul) has row
    ``r = head * new_tokens + token`` of sequence-and-KV-head b at token row ``token``.
    """
    assert operator.matmul is not None
    shape, bits = operator.matmul, DTYPE_BITS[tensor.dtype]
    row_bytes = -(-columns * bits // 8)
    if shape.group_rows:
        starts = (0, *accumulate(shape.group_rows[:-1]))
        return RaggedView(home.space, home.offset, columns, row_bytes, starts)
    is_plain = len(tensor.shape) != 2 or operator.inputs[1].role is Role.WEIGHT
    if shape.batch == 1 or is_plain:
        return View(
            home.space,
            home.offset,
            columns,
            row_bytes,
            row_div=shape.m,
            row_inner=row_bytes,
            batch_outer=shape.m * row_bytes,
        )
    sequences, kv_heads = operator.inputs[1].shape[:2]
    tokens, width = tensor.shape
    new_tokens = tokens // sequences
    pitch = packed_bytes(width, tensor.dtype)
    group_bytes = shape.m // new_tokens * row_bytes
    return View(
        home.space,
        home.offset,
        columns,
        row_bytes,
        row_div=new_tokens,
        row_inner=pitch,
        row_outer=row_bytes,
        batch_div=kv_heads,
        batch_outer=new_tokens * pitch,
        batch_inner=group_bytes,
    )


def stationary_operand(
    operator: Operator,
    home: Home,
    layout: WeightLayout,
    kv_capacity_tokens: int,
    tiles: WeightTiles | None = None,
) -> TiledWeight | RowMajorWeight | PlainOperand:
    """Operand `inputs[1]`: a weight in the configured layout, a KV cache or an activation.

    `tiles` of a weight that is stored by tiles; default: one tile.
    """
    assert operator.matmul is not None
    shape, tensor = operator.matmul, operator.inputs[1]
    if tensor.role is Role.WEIGHT:
        tiles = tiles or WeightTiles(shape.n, shape.k, shape.n)
        return _weight(shape, tensor, home, layout, tiles)
    rows, columns = (shape.n, shape.k) if operator.b_is_transposed else (shape.k, shape.n)
    row_bytes = packed_bytes(columns, tensor.dtype)
    capacity = max(rows, kv_capacity_tokens) if tensor.role is Role.KV else rows
    view = View(
        home.space,
        home.offset,
        columns,
        row_bytes,
        row_div=rows,
        row_inner=row_bytes,
        batch_outer=capacity * row_bytes,
    )
    return PlainOperand(view, operator.b_is_transposed)


def _weight(
    shape: MatmulShape, tensor: Tensor, home: Home, layout: WeightLayout, tiles: WeightTiles
) -> TiledWeight | RowMajorWeight | PlainOperand:
    batch = max(tensor.elems // (shape.k * shape.n), 1)
    if tensor.elems != batch * shape.k * shape.n:
        raise MappingError(tensor.name, f"holds no {shape.k} x {shape.n} matrices", tensor.shape)
    if layout is WeightLayout.TILED:
        return TiledWeight(home.space, home.offset, tensor.nbytes, batch, shape.k, shape.n, tiles)
    row_bytes, rest = divmod(tensor.nbytes, batch * shape.k)
    if rest or row_bytes == 0:  # rows of unequal size
        return RowMajorWeight(home.space, home.offset, tensor.nbytes, batch, shape.k, shape.n)
    # a row holds its share of scales and zero points after its elements
    view = View(
        home.space,
        home.offset,
        shape.n,
        row_bytes,
        row_div=shape.k,
        row_inner=row_bytes,
        batch_outer=shape.k * row_bytes,
    )
    return PlainOperand(view, transposed=False)
