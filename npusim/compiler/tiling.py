"""Choosing how a matmul is split over cores and tiled: a closed-form search over what fits.

Predicted cost of a candidate, in device cycles, for the busiest core::

    max(matrix, DMA, DRAM, shared SRAM, convert) + first tile in + last tile out

(`tile_costs` has the terms.) Every term falls or stays when a rate or a capacity rises, and more
scratchpad or more cores only add candidates, so the cost of the cheapest is monotone. Among
candidates as good as the cheapest, the one with the fewest commands is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.core_grids import Triple, core_grids, granule_of
from npusim.compiler.kernel_costs import NEAR_BEST_FRAC
from npusim.compiler.matmul_traits import ACCUMULATOR_BITS
from npusim.compiler.staging import restage
from npusim.compiler.tile_costs import M_OUTER, N_OUTER, TileCosts
from npusim.compiler.unit_timing import matrix_array_cycles
from npusim.errors import MappingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.matmul_traits import MatmulTraits
    from npusim.compiler.target import Target
    from npusim.config.compiler import SplitPolicy
    from npusim.workload.operator import MatmulShape

    Floats = NDArray[np.float64]


class LoopOrder(IntEnum):
    """Which tile index is outermost; the k loop is always innermost."""

    N_OUTER = N_OUTER
    M_OUTER = M_OUTER


@dataclass(frozen=True)
class MatmulPlan:
    """Split and tiles of one matmul. `grid` is cores along (batch, m, n).

    `predicted_cycles` is the cost of the cheapest candidate; the one taken may cost up to
    `NEAR_BEST_FRAC` more.
    """

    grid: Triple
    chunk: Triple  # batch, m, n of the largest core
    tile: Triple  # m, k, n
    order: LoopOrder
    a_resident: bool
    w_resident: bool
    predicted_cycles: float
    predicted_dram_bytes: int
    candidates: int
    is_staged: bool = False  # the first product of a batch entry waits for its whole operands
    slot_bytes: int = 0  # scratchpad of a staged matmul

    @property
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
    staging_tile_bytes: int | None = None,
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
    staging_tile_bytes : int, optional
        Largest output tile of a staged matmul, see `staging`; None: tiles are pipelined.
    ideal : bool
        Ideal memory: one tile per core, whatever its size.

    Raises
    ------
    MappingError
        If not even the smallest tile fits the scratchpad, or one block the unit's own buffers;
        states need and budget.
    """
    _check_unit_buffers(name, traits, target)
    grids = core_grids(shape, target.active_cores, split, granule_of(target.core.matrix, traits))
    costs = [TileCosts(shape, grid, share, traits, target, buffers) for grid, share in grids]
    if ideal:
        return min((_whole(c) for c in costs), key=lambda plan: plan.predicted_cycles)
    search = _Search(budget_bytes)
    for bound, cost in sorted(((c.least_cycles(), c) for c in costs), key=lambda pair: pair[0]):
        if bound > search.limit_cycles:
            break
        search.try_grid(cost)
    if not search.found:
        raise MappingError(
            name,
            f"the smallest tile needs {search.smallest_need_bytes} bytes of scratchpad, "
            f"{budget_bytes} bytes are free",
            hint="use a larger scratchpad, fewer compiler.buffers or a narrower format",
        )
    plan = search.pick()
    if staging_tile_bytes is None:
        return plan
    costs_of = {cost.grid: cost for cost in costs}
    return restage(plan, costs_of[plan.grid], budget_bytes, staging_tile_bytes)


def _check_unit_buffers(name: str, traits: MatmulTraits, target: Target) -> None:
    """Refuse a unit that cannot hold the operands or sums of a single pass."""
    spec = target.core.matrix
    if spec.cube is not None:
        cube = spec.cube[traits.compute_dtype]
        sums, operands = cube.m * cube.n, cube.k * cube.n
    else:
        assert spec.rows is not None and spec.cols is not None
        sums, operands = spec.cols, spec.rows
    bits = traits.expanded_bits or traits.a_bits
    for key, need, have in (
        ("accumulator_buffer_bytes", sums * ACCUMULATOR_BITS // 8, spec.accumulator_buffer_bytes),
        ("operand_buffer_bytes", -(-operands * bits // 8), spec.operand_buffer_bytes),
    ):
        if need > have:
            raise MappingError(name, f"one pass needs {need} bytes of core.matrix.{key}", have)


def _whole(costs: TileCosts) -> MatmulPlan:
    """One tile per core and batch entry."""
    batch, m, n = costs.share
    matrix, dtype, k = costs.target.core.matrix, costs.traits.compute_dtype, costs.shape.k
    cycles = batch * int(matrix_array_cycles(matrix, dtype, m, k, n))
    order = LoopOrder.N_OUTER
    return MatmulPlan(costs.grid, costs.share, (m, k, n), order, True, True, cycles, 0, 1)


class _Search:
    """The cheapest tilings of the grids tried so far."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._best_cycles = np.inf
        self._tried = 0
        self.smallest_need_bytes: int | None = None
        self.found: list[tuple[TileCosts, Floats]] = []

    @property
    def limit_cycles(self) -> float:
        """Most a tiling may cost to be taken."""
        return float(self._best_cycles * (1 + NEAR_BEST_FRAC))

    def try_grid(self, costs: TileCosts) -> None:
        """Cost of every tiling of a grid that fits."""
        need = costs.need_bytes()
        fits = (need <= self._budget_bytes) & costs.accumulators_hold()
        self._tried += fits.size
        smallest = int(need.min())
        if self.smallest_need_bytes is None or smallest < self.smallest_need_bytes:
            self.smallest_need_bytes = smallest
        if not fits.any():
            return
        cycles = np.where(fits, costs.cycles(), np.inf)
        self._best_cycles = min(self._best_cycles, float(cycles.min()))
        self.found.append((costs, cycles))

    def pick(self) -> MatmulPlan:
        """Fewest commands of all cores among the cheapest; then fewest DRAM bytes, then cycles.

        A matmul that DRAM bounds costs the same on many cores as on a few; the few disturb each
        other's rows less.
        """
        best: tuple[tuple[float, ...], TileCosts, int] | None = None
        for costs, cycles in self.found:
            near = np.flatnonzero(cycles <= self.limit_cycles)
            if not len(near):
                continue
            keys = [
                np.broadcast_to(array, cycles.shape).ravel()[near]
                for array in (costs.commands * prod(costs.grid), costs.dram_bytes(), cycles)
            ]
            first = np.lexsort(keys[::-1])[0]
            key = tuple(float(array[first]) for array in keys)
            if best is None or key < best[0]:
                best = (key, costs, int(near[first]))
        assert best is not None
        (_, dram_bytes, _), costs, index = best
        return self._plan(costs, index, int(dram_bytes))

    def _plan(self, costs: TileCosts, index: int, dram_bytes: int) -> MatmulPlan:
        shape = tuple(axis.size for axis in costs.axes)
        at = np.unravel_index(index, shape)
        tm, tk, tn, order, a_res, w_res = (
            int(axis.ravel()[i]) for axis, i in zip(costs.axes, at, strict=True)
        )
        return MatmulPlan(
            costs.grid,
            costs.share,
            (tm, tk, tn),
            LoopOrder(order),
            bool(a_res),
            bool(w_res),
            self._best_cycles,
            dram_bytes,
            self._tried,
        )
