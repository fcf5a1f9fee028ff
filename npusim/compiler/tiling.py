"""Choosing how a matmul is split over cores and tiled: a closed-form search over what fits.

Predicted cost of a candidate, in device cycles, for the busiest core::

    max(matrix, load, store, convert, vector, DRAM) + first tile in + last tile out

Every term falls or stays when a rate or a capacity rises, and a larger scratchpad only adds
candidates, so predicted cost is monotone. Left out: bank conflicts, row misses, contention.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.unit_timing import ceil_div, matrix_array_cycles, matrix_cycles
from npusim.config.compiler import SplitPolicy
from npusim.config.compute import ComputeDtype, MatrixKind
from npusim.errors import MappingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.target import Target
    from npusim.config.compute import MatrixSpec
    from npusim.workload.operator import MatmulShape

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

ACCUMULATOR_BITS = 32

#: of all tilings predicted to be this near to the best, the one with the fewest tiles is taken
NEAR_BEST_FRAC = 0.01


class LoopOrder(IntEnum):
    """Which tile index is outermost; the k loop is always innermost."""

    N_OUTER = 0
    M_OUTER = 1


@dataclass(frozen=True, slots=True)
class MatmulTraits:
    """What the tiler must know of a matmul beside its shape, in bits per element.

    `a_on_chip` / `c_on_chip`: the operand lives in the scratchpad already, no slots and no DMA.
    `expanded_bits` > 0: the stationary operand is also held in that format after dequantisation.
    `converted`: accumulators are converted by a command, so a 32-bit tile is held beside the output.
    """

    a_bits: int
    w_bits: float  # as held in the scratchpad slot that DMA fills
    w_dram_bits: float  # as stored in DRAM, scales included
    out_bits: int
    compute_dtype: ComputeDtype
    expanded_bits: int = 0
    converted: bool = False
    a_on_chip: bool = False
    c_on_chip: bool = False
    a_bytes_per_cycle: int = 1  # rate of one DMA engine towards the operand's home
    w_bytes_per_cycle: int = 1
    c_bytes_per_cycle: int = 1
    k_group: int = 1  # tiles along k hold whole scale groups


@dataclass(frozen=True)
class MatmulPlan:
    """Split and tiles of one matmul. `grid` is cores along (batch, m, n)."""

    grid: tuple[int, int, int]
    chunk: tuple[int, int, int]  # batch, m, n of the largest core
    tile: tuple[int, int, int]  # m, k, n
    order: LoopOrder
    a_resident: bool
    w_resident: bool
    predicted_cycles: float
    predicted_dram_bytes: int
    candidates: int

    @cached_property
    def cores(self) -> int:
        """Cores that get work."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def plan_matmul(
    name: str,
    shape: MatmulShape,
    traits: MatmulTraits,
    target: Target,
    *,
    budget_bytes: int,
    buffers: int,
    split: SplitPolicy,
    ideal: bool = False,
) -> MatmulPlan:
    """Cheapest split and tiling by predicted cycles.

    Parameters
    ----------
    name : str
        Operator, for the error message.
    budget_bytes : int
        Scratchpad bytes one core may use for slots.
    buffers : int
        Slots per streamed operand.
    ideal : bool
        Ideal memory: one tile per core, whatever its size.

    Raises
    ------
    MappingError
        If not even the smallest tile fits; states need and budget.
    """
    best: MatmulPlan | None = None
    smallest_need = None
    total = 0
    for grid in core_grids(shape, target.cores, split, _granule(target.core.matrix, traits)):
        chunk = (
            int(ceil_div(shape.batch, grid[0])),
            _chunk(shape.m, grid[1], _granule(target.core.matrix, traits)[0]),
            _chunk(shape.n, grid[2], _granule(target.core.matrix, traits)[2]),
        )
        search = _Search(shape, chunk, grid, traits, target, buffers)
        plan, need, tried = search.ideal() if ideal else search.best(budget_bytes)
        total += tried
        smallest_need = need if smallest_need is None else min(need, smallest_need)
        if plan is not None and (best is None or plan.predicted_cycles < best.predicted_cycles):
            best = plan
    if best is None:
        raise MappingError(
            name,
            f"the smallest tile needs {smallest_need} bytes of scratchpad, "
            f"{budget_bytes} bytes are free",
            hint="use a larger scratchpad, fewer compiler.buffers or a narrower format",
        )
    return MatmulPlan(**{**best.__dict__, "candidates": total})


def core_grids(
    shape: MatmulShape, cores: int, split: SplitPolicy, granule: tuple[int, int, int]
) -> list[tuple[int, int, int]]:
    """Cores along (batch, m, n): for each pair, as many along the third as are left and useful."""
    max_m = int(ceil_div(shape.m, granule[0])) if split is not SplitPolicy.N else 1
    max_n = int(ceil_div(shape.n, granule[2])) if split is not SplitPolicy.M else 1
    grids = set()
    for along_batch in range(1, min(cores, shape.batch) + 1):
        for along_m in range(1, min(cores // along_batch, max_m) + 1):
            along_n = min(cores // (along_batch * along_m), max_n)
            grids.add((along_batch, along_m, along_n))
    return sorted(grids)


def _granule(spec: MatrixSpec, traits: MatmulTraits) -> tuple[int, int, int]:
    """Smallest useful (m, k, n) of a tile: the array's or cube's own size."""
    if spec.kind is MatrixKind.CUBE:
        assert spec.cube is not None
        cube = spec.cube[traits.compute_dtype]
        m, k, n = cube.m, cube.k, cube.n
    else:
        assert spec.rows is not None and spec.cols is not None
        m, k, n = spec.rows, spec.rows, spec.cols
    return max(m, 1), max(k, traits.k_group), max(n, 2)


def _chunk(extent: int, parts: int, granule: int) -> int:
    """Largest part when `extent` is dealt to `parts` cores in whole granules."""
    blocks = int(ceil_div(extent, granule))
    return min(int(ceil_div(blocks, parts)) * granule, extent)


class _Search:
    """All tilings of one core grid, evaluated at once as arrays."""

    def __init__(
        self,
        shape: MatmulShape,
        chunk: tuple[int, int, int],
        grid: tuple[int, int, int],
        traits: MatmulTraits,
        target: Target,
        buffers: int,
    ) -> None:
        self.shape, self.chunk, self.grid = shape, chunk, grid
        self.traits, self.target, self.buffers = traits, target, buffers

    def ideal(self) -> tuple[MatmulPlan, int, int]:
        """One tile per core and batch entry."""
        batch, m, n = self.chunk
        cycles = batch * int(
            matrix_array_cycles(
                self.target.core.matrix, self.traits.compute_dtype, m, self.shape.k, n
            )
        )
        plan = MatmulPlan(
            self.grid, self.chunk, (m, self.shape.k, n), LoopOrder.N_OUTER, True, True, cycles, 0, 1
        )
        return plan, 0, 1

    def best(self, budget_bytes: int) -> tuple[MatmulPlan | None, int, int]:
        """Cheapest plan that fits, the smallest need seen, and how many tilings were tried."""
        tm, tk, tn, order, a_res, w_res = self._candidates()
        need = self._need_bytes(tm, tk, tn, order, a_res, w_res)
        fits = (need <= budget_bytes) & self._accumulators_hold(tm, tk, tn)
        if not fits.any():
            return None, int(need.min()), len(tm)
        tm, tk, tn, order, a_res, w_res = (x[fits] for x in (tm, tk, tn, order, a_res, w_res))
        cycles, dram_bytes = self._cost(tm, tk, tn, order, a_res, w_res)
        near = cycles <= cycles.min() * (1 + NEAR_BEST_FRAC)
        steps = np.where(near, self._steps(tm, tk, tn), np.iinfo(np.int64).max)
        pick = int(np.lexsort((dram_bytes, cycles, steps))[0])
        plan = MatmulPlan(
            self.grid,
            self.chunk,
            (int(tm[pick]), int(tk[pick]), int(tn[pick])),
            LoopOrder(int(order[pick])),
            bool(a_res[pick]),
            bool(w_res[pick]),
            float(cycles.min()),
            int(dram_bytes[pick]),
            len(tm),
        )
        return plan, int(need[fits].min()), len(tm)

    def _candidates(self) -> tuple[Ints, ...]:
        granule = _granule(self.target.core.matrix, self.traits)
        _, m, n = self.chunk
        extents = (
            _extents(m, granule[0]),
            _extents(self.shape.k, granule[1]),
            _extents(n, granule[2]),
            [LoopOrder.N_OUTER, LoopOrder.M_OUTER],
            [0, 1],
            [0, 1],
        )
        mesh = np.meshgrid(*(np.array(e, dtype=np.int64) for e in extents), indexing="ij")
        return tuple(axis.ravel() for axis in mesh)

    def _steps(self, tm: Ints, tk: Ints, tn: Ints) -> Ints:
        nm, nk, nn = self._tiles(tm, tk, tn)
        return nm * nk * nn

    def _tiles(self, tm: Ints, tk: Ints, tn: Ints) -> tuple[Ints, Ints, Ints]:
        return ceil_div(self.chunk[1], tm), ceil_div(self.shape.k, tk), ceil_div(self.chunk[2], tn)

    def _need_bytes(
        self, tm: Ints, tk: Ints, tn: Ints, order: Ints, a_res: Ints, w_res: Ints
    ) -> Ints:
        traits, buffers = self.traits, self.buffers
        nm, nk, nn = self._tiles(tm, tk, tn)
        a_loads, w_loads = _loads(nm, nk, nn, order, a_res, w_res)
        a_slots = np.where(a_res == 1, nm * nk, np.minimum(buffers, a_loads * self.chunk[0]))
        w_slots = np.where(w_res == 1, nn * nk, np.minimum(buffers, w_loads * self.chunk[0]))
        a_tile = 0 if traits.a_on_chip else bits_to_bytes(tm * tk * traits.a_bits)
        w_tile = bits_to_bytes(tk * tn * traits.w_bits)
        expanded = bits_to_bytes(tk * tn * traits.expanded_bits)
        c_slots = np.minimum(buffers, nm * nn * self.chunk[0])
        c_tile = 0 if traits.c_on_chip else bits_to_bytes(tm * tn * traits.out_bits)
        if traits.converted:
            c_tile = c_tile + bits_to_bytes(tm * tn * ACCUMULATOR_BITS)
        bias = self.chunk[2] * 4
        return a_slots * a_tile + w_slots * (w_tile + expanded) + c_slots * c_tile + bias

    def _accumulators_hold(self, tm: Ints, tk: Ints, tn: Ints) -> NDArray[np.bool_]:
        partial = tm * tn * ACCUMULATOR_BITS // 8
        held: NDArray[np.bool_] = partial <= self.target.core.matrix.accumulator_buffer_bytes
        return held | (tk >= self.shape.k)

    def _cost(
        self, tm: Ints, tk: Ints, tn: Ints, order: Ints, a_res: Ints, w_res: Ints
    ) -> tuple[Floats, Ints]:
        traits, target = self.traits, self.target
        batch = self.chunk[0]
        nm, nk, nn = self._tiles(tm, tk, tn)
        a_loads, w_loads = _loads(nm, nk, nn, order, a_res, w_res)
        a_bytes = 0 * tm if traits.a_on_chip else self._a_bytes(a_loads, nm * nk)
        w_bytes = self._w_bytes(w_loads, nn * nk)
        _, m, n = self.chunk
        c_bytes = bits_to_bytes(0 if traits.c_on_chip else m * n * traits.out_bits)
        # cheap upper estimate of array cycles: every tile at full tile size
        per_tile = matrix_cycles(
            target.core, traits.compute_dtype, tm, tk, tn, _operand_bits(traits)
        )
        matrix = batch * nm * nk * nn * per_tile
        load = batch * (
            self._dma_cycles(a_bytes, a_loads, traits.a_bytes_per_cycle)
            + self._dma_cycles(w_bytes, w_loads, traits.w_bytes_per_cycle)
        )
        store = batch * self._dma_cycles(c_bytes, nm * nn, traits.c_bytes_per_cycle)
        dram_bytes = (batch * (a_bytes + w_bytes + c_bytes)) * self._active()
        dram = dram_bytes / float(target.dram_bytes_per_cycle)
        dequant = self._dequant_cycles(batch * w_loads, tk * tn)
        first = (
            bits_to_bytes(tk * tn * traits.w_dram_bits) + bits_to_bytes(tm * tk * traits.a_bits)
        ) / min(traits.w_bytes_per_cycle, float(target.dram_bytes_per_cycle) / self._active())
        last = per_tile + bits_to_bytes(tm * tn * traits.out_bits) / traits.c_bytes_per_cycle
        steady = np.maximum.reduce([matrix, load, store, dram, dequant])
        return steady + first + last, dram_bytes.astype(np.int64)

    def _dma_cycles(self, nbytes: Ints | Floats, loads: Ints, bytes_per_cycle: int) -> Floats:
        """Cycles of `loads` equal transfers with `buffers` of them in flight.

        ``max(issue, bytes / rate, (latency + bytes / rate) / in flight)`` each.
        """
        dma = self.target.core.dma
        each = nbytes / loads / bytes_per_cycle
        in_flight = min(self.buffers, dma.queue_depth)
        hidden = (float(self.target.dram_latency_cycles) + each) / in_flight
        result: Floats = loads * np.maximum(np.maximum(each, hidden), dma.issue_cycles)
        return result

    def _active(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def _a_bytes(self, loads: Ints, distinct: Ints) -> Floats:
        chunk_bits = self.chunk[1] * self.shape.k * self.traits.a_bits
        result: Floats = loads / distinct * chunk_bits / 8
        return result

    def _w_bytes(self, loads: Ints, distinct: Ints) -> Floats:
        chunk_bits = self.shape.k * self.chunk[2] * self.traits.w_dram_bits
        result: Floats = loads / distinct * chunk_bits / 8
        return result

    def _dequant_cycles(self, loads: Ints, elems: Ints) -> Floats:
        core = self.target.core
        if not self.traits.expanded_bits:
            return np.zeros(len(loads))
        if core.convert is not None:
            rate, fixed = core.convert.elems_per_cycle, float(core.convert.fixed_cycles)
        else:
            rate = max(core.vector.lanes.values())
            fixed = core.vector.latency_cycles
        result: Floats = loads * (fixed + elems / rate)
        return result


def bits_to_bytes(bits: Ints | Floats | float) -> Ints:
    """Whole bytes that hold `bits`."""
    result: Ints = np.ceil(np.asarray(bits) / 8).astype(np.int64)
    return result


def _operand_bits(traits: MatmulTraits) -> int:
    return traits.expanded_bits or traits.a_bits


def _loads(
    nm: Ints, nk: Ints, nn: Ints, order: Ints, a_res: Ints, w_res: Ints
) -> tuple[Ints, Ints]:
    """Tile loads of each operand: one whenever the tile changes, unless it is resident."""
    n_outer = order == LoopOrder.N_OUTER
    a_repeats = np.where(n_outer, np.where(nm * nk == 1, 1, nn), np.where(nk == 1, 1, nn))
    w_repeats = np.where(n_outer, np.where(nk == 1, 1, nm), np.where(nn * nk == 1, 1, nm))
    a_loads = nm * nk * np.where(a_res == 1, 1, a_repeats)
    w_loads = nn * nk * np.where(w_res == 1, 1, w_repeats)
    return a_loads, w_loads


def _extents(extent: int, granule: int) -> list[int]:
    """Tile extents tried along one dimension: the whole, and granule times powers of two."""
    sizes = {extent}
    size = granule
    while size < extent:
        sizes.add(size)
        size *= 2
    # three quarters of the way between powers of two, and halves of the whole
    sizes.update(s + s // 2 // granule * granule for s in list(sizes) if s + s // 2 < extent)
    return sorted(sizes)
