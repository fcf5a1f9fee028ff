"""Tilings for compilers that stage operands: whole operands first, then products, outputs in tiles.

A compiler that assigns memory spaces before it schedules copies the operands of an operator whole
into the scratchpad; the loop over tiles that follows overlaps only products and stores::

    operands in + max(products, stores, convert) + last tile out

Output tiles are as large as `devices.*.staging_tile_bytes` allows, in whole rows where these fit.
Operands that do not fit the scratchpad together are streamed in the fewest tiles that do. A product
of one row on the vector unit streams its matrix in the fewest tiles of that size. Slots lie beside
those of the matmul before, where both fit, so that weights arrive while it still computes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.core_grids import granule_of
from npusim.compiler.matmul_traits import bits_to_bytes, product_cycles
from npusim.compiler.tile_costs import TileCosts
from npusim.config.compiler import Staging
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.target import Target
    from npusim.compiler.tiling import MatmulPlan

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]


def staging_tile_bytes(target: Target, staging: Staging) -> int | None:
    """Largest output tile of staged matmuls; None where tiles are pipelined.

    Raises
    ------
    ConfigError
        If whole operands are asked for on a device that names no tile size.
    """
    if staging is Staging.TILES:
        return None
    limit = target.device.staging_tile_bytes
    if limit is None and staging is Staging.WHOLE:
        raise ConfigError(
            f"devices.{target.device_name}.staging_tile_bytes",
            "is required for compiler.staging=whole",
            hint="name the largest output tile",
        )
    return limit


class StagedCosts(TileCosts):
    """Tilings of one grid whose outputs leave in tiles of at most `limit_bytes`."""

    limit_bytes: int

    def allowed(self, budget_bytes: int) -> Bools:
        """What fits the scratchpad and the accumulators with small enough output tiles."""
        tm, tk, tn = self.axes[:3]
        granule = granule_of(self.target.core.matrix, self.traits)
        nbytes, smallest = bits_to_bytes(tm * tn * self.traits.out_bits), tm <= granule[0]
        if self.traits.vector_dtype is not None:
            nbytes, smallest = bits_to_bytes(tk * tn * self.traits.w_bits), tk <= granule[1]
        small = (nbytes <= self.limit_bytes) | (smallest & (tn <= granule[2]))
        fits: Bools = (self.need_bytes() <= budget_bytes) & self.accumulators_hold() & small
        return fits

    def staged(self) -> Bools:
        """Both operands stay in the scratchpad; outputs leave in whole rows, if there are many."""
        _, nk, nn = self.counts
        *_, a_res, w_res = self.axes
        is_flat = self.share[1] <= granule_of(self.target.core.matrix, self.traits)[0]
        whole: Bools = (nk == 1) & (a_res == 1) & (w_res == 1) & ((nn == 1) | is_flat)
        return whole

    def is_strided(self) -> Ints:
        """1 where an output tile is cut out of rows."""
        strided: Ints = (self.counts[2] > 1).astype(np.int64)
        return strided

    def staged_cycles(self) -> Floats:
        """Predicted device cycles of one batch entry after the other, operands first."""
        target, traits, batch = self.target, self.traits, self.share[0]
        tm, tk, tn = self.axes[:3]
        nm, _, nn = self.counts
        rate = min(float(target.dram_bytes_per_cycle), traits.w_bytes_per_cycle)
        moved = self.traffic.w_total + self.traffic.a_total * traits.a_in_dram
        stores = self.traffic.c_total * traits.c_in_dram / rate
        per_tile = product_cycles(target.core, traits, tm, tk, tn)
        products = batch * nm * nn * per_tile
        tail = bits_to_bytes(tm * tn * traits.out_bits) / rate
        loop = np.maximum(np.maximum(products, stores), self._convert_cycles())
        first = float(target.dram_latency_cycles) + moved / rate
        cycles: Floats = loop + tail + first
        return cycles


def restage(plan: MatmulPlan, costs: TileCosts, budget_bytes: int, limit_bytes: int) -> MatmulPlan:
    """The staged plan on a plan's grid; the plan as it is if no tiling has small enough outputs."""
    mine = StagedCosts(
        costs.shape, costs.grid, costs.share, costs.traits, costs.target, costs.buffers
    )
    mine.limit_bytes = limit_bytes
    allowed = mine.allowed(budget_bytes)
    is_staged = costs.traits.vector_dtype is None and bool((allowed & mine.staged()).any())
    cycles = mine.staged_cycles() if is_staged else mine.cycles()
    chosen = allowed & mine.staged() if is_staged else allowed
    if not chosen.any():
        return plan
    index = _fewest(mine, chosen, cycles)
    at = np.unravel_index(index, chosen.shape)
    tm, tk, tn, order, a_res, w_res = (
        int(axis.ravel()[i]) for axis, i in zip(mine.axes, at, strict=True)
    )
    return replace(
        plan,
        tile=(tm, tk, tn),
        order=type(plan.order)(order),
        a_resident=bool(a_res),
        w_resident=bool(w_res),
        predicted_cycles=float(np.broadcast_to(cycles, chosen.shape).ravel()[index]),
        predicted_dram_bytes=int(np.broadcast_to(mine.dram_bytes(), chosen.shape).ravel()[index]),
        is_staged=is_staged,
        slot_bytes=int(np.broadcast_to(mine.need_bytes(), chosen.shape).ravel()[index]),
    )


def _fewest(costs: StagedCosts, chosen: Bools, cycles: Floats) -> int:
    """Whole rows, then fewest commands, then fewest DRAM bytes, then cycles."""
    candidates = np.flatnonzero(chosen)
    keys = [
        np.broadcast_to(array, chosen.shape).ravel()[candidates]
        for array in (costs.is_strided(), costs.commands, costs.dram_bytes(), cycles)
    ]
    return int(candidates[np.lexsort(keys[::-1])[0]])
