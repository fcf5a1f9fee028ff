"""What each tiling of one core grid needs and costs, in closed form, all tilings at once.

Every term falls or stays when a rate or a capacity rises. What tiles move is in `tile_moves`. Left
out: contention.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.core_grids import granule_of, tile_extents
from npusim.compiler.matmul_traits import ACCUMULATOR_BITS, bits_to_bytes, product_cycles
from npusim.compiler.tile_moves import TileMoves
from npusim.compiler.unit_timing import ceil_div, matrix_array_cycles
from npusim.config.compute import AccumulatorConvert, WeightDequant
from npusim.config.system import SharedTiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.core_grids import Triple
    from npusim.compiler.matmul_traits import MatmulTraits
    from npusim.compiler.target import Target
    from npusim.workload.operator import MatmulShape

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

N_OUTER, M_OUTER = 0, 1

#: bytes a vector unit moves per converted element: one in, two out
CONVERT_BYTES = 3


@dataclass(frozen=True)
class GridTraffic:
    """Bytes all cores of a grid move per pass over each operand.

    `*_total` counts every byte once, `*_copies` the cores that need each of them.
    """

    a_total: float
    w_total: float
    c_total: float
    a_copies: int
    w_copies: int

    @classmethod
    def of(cls, shape: MatmulShape, grid: Triple, traits: MatmulTraits) -> GridTraffic:
        """Traffic of a grid."""
        return cls(
            shape.batch * shape.m * shape.k * (0 if traits.a_on_chip else traits.a_bits) / 8,
            shape.batch * shape.k * shape.n * traits.w_dram_bits / 8,
            shape.batch * shape.m * shape.n * (0 if traits.c_on_chip else traits.out_bits) / 8,
            a_copies=grid[2],
            w_copies=grid[1],
        )


class TileCosts:
    """Tilings of one grid: axes tile m, k, n, loop order, a resident, w resident."""

    def __init__(
        self,
        shape: MatmulShape,
        grid: Triple,
        share: Triple,
        traits: MatmulTraits,
        target: Target,
        buffers: int,
    ) -> None:
        self.shape, self.grid, self.share = shape, grid, share
        self.traits, self.target, self.buffers = traits, target, buffers
        self.traffic = GridTraffic.of(shape, grid, traits)

    @property
    def cores(self) -> int:
        """Cores of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @cached_property
    def moves(self) -> TileMoves:
        """What the tilings move."""
        return TileMoves(self)

    @cached_property
    def axes(self) -> tuple[Ints, ...]:
        """Candidates along each axis, shaped to broadcast."""
        granule = granule_of(self.target.core.matrix, self.traits)
        _, m, n = self.share
        extents = (
            tile_extents(m, granule[0]),
            tile_extents(self.shape.k, granule[1]),
            tile_extents(n, granule[2]),
            [N_OUTER, M_OUTER],
            [0, 1],
            [0, 1],
        )
        arrays = [np.array(extent, dtype=np.int64) for extent in extents]
        return tuple(np.meshgrid(*arrays, indexing="ij", sparse=True))

    @cached_property
    def counts(self) -> tuple[Ints, Ints, Ints]:
        """Tiles along m, k, n of one core."""
        tm, tk, tn = self.axes[:3]
        return ceil_div(self.share[1], tm), ceil_div(self.shape.k, tk), ceil_div(self.share[2], tn)

    @cached_property
    def loads(self) -> tuple[Ints, Ints]:
        """Tile loads of a and w per batch entry: whenever the tile changes, once if resident."""
        nm, nk, nn = self.counts
        *_, order, a_res, w_res = self.axes
        n_outer = order == N_OUTER
        a_repeats = np.where(n_outer, np.where(nm * nk == 1, 1, nn), np.where(nk == 1, 1, nn))
        w_repeats = np.where(n_outer, np.where(nk == 1, 1, nm), np.where(nn * nk == 1, 1, nm))
        a_loads = nm * nk * np.where(a_res == 1, 1, a_repeats)
        w_loads = nn * nk * np.where(w_res == 1, 1, w_repeats)
        return a_loads, w_loads

    @cached_property
    def commands(self) -> Ints:
        """Commands of one core, without bias and epilogue."""
        nm, nk, nn = self.counts
        a_loads, w_loads = self.loads
        loads = w_loads * (2 if self.traits.expanded_bits else 1)
        if not self.traits.a_on_chip:
            loads = loads + a_loads
        outputs = nm * nn * ((not self.traits.c_on_chip) + self.traits.converted)
        result: Ints = self.share[0] * (nm * nk * nn + loads + outputs)
        return result

    def need_bytes(self) -> Ints:
        """Scratchpad bytes of all slots."""
        traits, buffers, batch = self.traits, self.buffers, self.share[0]
        tm, tk, tn, _, a_res, w_res = self.axes
        nm, nk, nn = self.counts
        a_loads, w_loads = self.loads
        a_slots = np.where(a_res == 1, nm * nk, np.minimum(buffers, a_loads * batch))
        w_slots = np.where(w_res == 1, nn * nk, np.minimum(buffers, w_loads * batch))
        c_slots = np.minimum(buffers, nm * nn * batch)
        a_tile = bits_to_bytes(tm * tk * (0 if traits.a_on_chip else traits.a_bits))
        w_tile = bits_to_bytes(tk * tn * traits.w_bits)
        w_tile = w_tile + bits_to_bytes(tk * tn * traits.expanded_bits)
        c_tile = bits_to_bytes(tm * tn * (0 if traits.c_on_chip else traits.out_bits))
        if traits.converted:
            c_tile = c_tile + bits_to_bytes(tm * tn * ACCUMULATOR_BITS)
        bias = self.share[2] * 4
        result: Ints = a_slots * a_tile + w_slots * w_tile + c_slots * c_tile + bias
        return result

    def accumulators_hold(self) -> NDArray[np.bool_]:
        """Whether partial sums of a tile stay in the accumulators between k tiles."""
        tm, tk, tn = self.axes[:3]
        held: NDArray[np.bool_] = (
            tm * tn * ACCUMULATOR_BITS // 8 <= self.target.core.matrix.accumulator_buffer_bytes
        )
        return held | (tk >= self.shape.k)

    def cycles(self) -> Floats:
        """Predicted device cycles: the busiest resource, plus first tile in and last tile out."""
        traits, target, batch = self.traits, self.target, self.share[0]
        tm, tk, tn = self.axes[:3]
        nm, nk, nn = self.counts
        # every tile at full tile size, an upper estimate
        per_tile = product_cycles(target.core, traits, tm, tk, tn)
        steady = np.maximum(batch * nm * nk * nn * per_tile, self.moves.dma_cycles())
        steady = np.maximum(steady, self.moves.memory_cycles())
        steady = np.maximum(steady, self._convert_cycles())
        result: Floats = steady + self.moves.first_cycles() + per_tile + self.moves.last_cycles()
        return result

    def dram_bytes(self) -> Floats:
        """Bytes between DRAM and all cores, both directions."""
        return self.moves.dram_bytes()

    def least_cycles(self) -> float:
        """Lower bound of `cycles` over all tilings: every operand once, one product."""
        traits, target, traffic = self.traits, self.target, self.traffic
        batch, m, n = self.share
        dma, k = target.core.dma, self.shape.k
        matrix = batch * int(matrix_array_cycles(target.core.matrix, traits.compute_dtype, m, k, n))
        if traits.vector_dtype is not None:
            matrix = 0
        a_bytes = batch * m * k * (0 if traits.a_on_chip else traits.a_bits) / 8
        w_bytes = batch * k * n * traits.w_dram_bits / 8
        shares = target.device.shared_tiles is SharedTiles.SHARED_SRAM
        is_read_once = target.device.shared_tiles is not SharedTiles.READ_PER_CORE
        rates = [traits.w_bytes_per_cycle]
        rates += [] if traits.a_on_chip else [traits.a_bytes_per_cycle]
        rates += [dma.bytes_per_cycle] if shares else []
        copies = (1, 1) if is_read_once else (traffic.a_copies, traffic.w_copies)
        dram = traffic.a_total * copies[0] * traits.a_in_dram
        dram += traffic.w_total * copies[1] * traits.w_in_dram
        moved = (a_bytes + w_bytes) / (max(rates) * dma.load_engines)
        return max(matrix, moved, dram / float(target.dram_bytes_per_cycle))

    def _convert_cycles(self) -> Floats:
        """Cycles of the unit that dequantises weights, converts accumulators, or adds a bias."""
        batch, core, traits = self.share[0], self.target.core, self.traits
        tm, tk, tn = self.axes[:3]
        nm, _, nn = self.counts
        _, w_loads = self.loads
        busy = {True: np.zeros((1,) * 6), False: np.zeros((1,) * 6)}
        if traits.expanded_bits:
            on_vector = core.weight_dequant is WeightDequant.VECTOR_UNIT
            busy[on_vector] = w_loads * self._convert(tk * tn, on_vector=on_vector)
        if traits.converted:
            on_vector = core.matrix.accumulator_convert is AccumulatorConvert.VECTOR_UNIT
            outputs = nm * nn * self._convert(tm * tn, on_vector=on_vector)
            busy[on_vector] = busy[on_vector] + outputs
        if traits.epilogue_cycles:
            epilogue = tm * tn * traits.epilogue_cycles + core.vector.latency_cycles
            busy[True] = busy[True] + nm * nn * epilogue
        return batch * np.maximum(busy[True], busy[False])

    def _convert(self, elems: Ints, *, on_vector: bool) -> Floats:
        """Cycles of one conversion."""
        core = self.target.core
        if not on_vector:
            assert core.convert is not None
            streamed = ceil_div(elems, core.convert.elems_per_cycle).astype(np.float64)
            return streamed + float(core.convert.fixed_cycles)
        work = elems * core.vector.op_cycles["convert"] / max(core.vector.lanes.values())
        moved = elems * CONVERT_BYTES / core.vector.bytes_per_cycle
        slower: Floats = np.maximum(work, moved)
        return slower + core.vector.latency_cycles
