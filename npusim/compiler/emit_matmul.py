"""Commands of a matmul kernel, core by core: operand loads, dequantisation, products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.emit import STEP, Emission
from npusim.compiler.emit_core import CoreEmission
from npusim.compiler.emit_outputs import OutputEmitter, add_converts
from npusim.compiler.matmul_loop import (
    Loads,
    Rank,
    Steps,
    resident_loads,
    steps_of,
    streamed_loads,
)
from npusim.compiler.matmul_traits import bits_to_bytes, matmul_traits, product_cycles
from npusim.compiler.operands import WeightTiles, moving_view, stationary_operand
from npusim.compiler.shared_tiles import SharedTileLoads
from npusim.compiler.unit_timing import matrix_array_cycles
from npusim.config.compute import WeightDequant
from npusim.program import EdgeKind, Opcode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.matmul_traits import MatmulTraits
    from npusim.compiler.slots import Slots
    from npusim.compiler.tiling import MatmulPlan
    from npusim.workload.operator import MatmulShape, Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]


class MatmulEmitter:
    """Emits one operator; `emit` may be called once."""

    def __init__(self, emission: Emission, operator: Operator, plan: MatmulPlan) -> None:
        assert operator.matmul is not None
        self.emission, self.operator, self.plan = emission, operator, plan
        self.shape: MatmulShape = operator.matmul
        self.traits: MatmulTraits = matmul_traits(emission, operator)
        a = operator.inputs[0]
        self.a_view = moving_view(operator, a, emission.home(a), self.shape.k)
        self.w_operand = stationary_operand(
            operator,
            emission.home(operator.inputs[1]),
            emission.config.weight_layout,
            emission.layout.capacity_tokens(operator.inputs[1]),
            WeightTiles(plan.chunk[2], plan.tile[1], plan.tile[2]),
        )
        self.w_transfers = SharedTileLoads(emission, operator.inputs[1])
        self.a_transfers = SharedTileLoads(emission, a)

    def emit(self) -> None:
        """All cores of the grid."""
        for core, position in enumerate(np.ndindex(self.plan.grid)):
            steps = steps_of(self.plan, self.shape, position)
            if steps is not None:
                _CoreMatmul(self, core, steps).emit()
        self.w_transfers.attach()
        self.a_transfers.attach()


class _CoreMatmul(CoreEmission):
    """One core's share of a matmul."""

    def __init__(self, parent: MatmulEmitter, core: int, steps: Steps) -> None:
        super().__init__(parent.emission, core)
        self.parent, self.steps = parent, steps
        self.traits, self.plan, self.operator = parent.traits, parent.plan, parent.operator
        self.target = self.emission.target

    def emit(self) -> None:
        """Stationary operand, moving operand, products, outputs."""
        traits, steps = self.traits, self.steps
        tm, tk, tn = self.plan.tile
        if self.plan.is_staged:
            self.pad.place_beside(self.plan.slot_bytes, self.target.core.scratchpad.capacity_bytes)
        w_loads = self._loads(steps.w_key, resident=self.plan.w_resident)
        w_ring = self._ring(tk * tn * traits.w_bits, w_loads)
        w_ids = self._emit_w_loads(w_loads, w_ring)
        a_loads = self._loads(steps.a_key, resident=self.plan.a_resident)
        a_ring = a_ids = None
        if not traits.a_on_chip:
            a_ring = self._ring(tm * tk * traits.a_bits, a_loads)
            a_ids = self._emit_a_loads(a_loads, a_ring)
        ready_ids, ready_ring = w_ids, w_ring
        if traits.expanded_bits:
            ready_ring = self._ring(tk * tn * traits.expanded_bits, w_loads)
            ready_ids = self._emit_dequant(w_loads, w_ids, w_ring, ready_ring)
        products = self._emit_products()
        self._wire_operand(products, w_loads, ready_ids, ready_ring)
        if ready_ids is not w_ids:
            self.pad.recycle(w_ring, w_ids, ready_ids)
        if a_ids is None or a_ring is None:
            self.emission.wait_for_tensor(products, self.operator.inputs[0])
        else:
            self._wire_operand(products, a_loads, a_ids, a_ring)
            self._stage(products, a_loads, a_ids)
        self._stage(products, w_loads, ready_ids)
        outputs = OutputEmitter(self, self.operator, self.plan, traits, steps)
        outputs.emit(products)

    def _loads(self, keys: Ints, *, resident: bool) -> Loads:
        if resident:
            return resident_loads(keys, self.steps.b)
        return streamed_loads(keys, self.emission.config.buffers)

    def _ring(self, tile_bits: float, loads: Loads) -> Slots:
        return self.pad.slots(int(bits_to_bytes(tile_bits)), loads.slots)

    def _emit_w_loads(self, loads: Loads, ring: Slots) -> Ints:
        """Weights by every load engine but the first, which the moving operand takes."""
        engines = np.array(self.engines.loads[1:] or self.engines.loads, dtype=np.int64)
        engine = engines[np.arange(len(loads)) % len(engines)]
        steps, first = self.steps, loads.first
        runs, owner = self.parent.w_operand.tile_runs(
            steps.b[first] if self.parent.shape.batch > 1 else 0 * first,
            steps.k0[first],
            steps.k1[first],
            steps.n0[first],
            steps.n1[first],
        )
        tensor = self.operator.inputs[1]
        ids, order = self._add_loads(engine, loads, Rank.LOAD_W, tensor, ring)
        self.parent.w_transfers.add(ids, order, steps.w_key[first], runs, owner)
        return ids

    def _emit_a_loads(self, loads: Loads, ring: Slots) -> Ints:
        steps, first = self.steps, loads.first
        runs, owner = self.parent.a_view.tile_runs(
            steps.b[first], steps.m0[first], steps.m1[first], steps.k0[first], steps.k1[first]
        )
        tensor = self.operator.inputs[0]
        ids, order = self._add_loads(self.engines.loads[0], loads, Rank.LOAD_A, tensor, ring)
        self.parent.a_transfers.add(ids, order, steps.a_key[first], runs, owner)
        return ids

    def _add_loads(
        self, engine: Ints | int, loads: Loads, rank: Rank, tensor: Tensor, ring: Slots
    ) -> tuple[Ints, Ints]:
        """LOAD commands and their order keys."""
        order = loads.order(self.emission.config.buffers) + rank
        ids = self.emission.add(engine, Opcode.LOAD, order)
        self.emission.wait_for_tensor(ids, tensor)
        self.pad.fill(ids, ring)
        return ids, order

    def _emit_dequant(self, loads: Loads, w_ids: Ints, packed: Slots, expanded: Slots) -> Ints:
        steps, first = self.steps, loads.first
        elems = (steps.k1 - steps.k0)[first] * (steps.n1 - steps.n0)[first]
        on_vector = self.target.core.weight_dequant is WeightDequant.VECTOR_UNIT
        ids = add_converts(
            self,
            self.operator,
            elems,
            loads.order(self.emission.config.buffers) + Rank.DEQUANT,
            on_vector=on_vector,
        )
        self.builder.edges(ids, w_ids, EdgeKind.DATA)
        self.pad.read(ids, packed)
        self.pad.fill(ids, expanded)
        return ids

    def _emit_products(self) -> Ints:
        steps, core, dtype = self.steps, self.target.core, self.traits.compute_dtype
        m, k, n = steps.m1 - steps.m0, steps.k1 - steps.k0, steps.n1 - steps.n0
        if self.emission.ideal:
            cycles = matrix_array_cycles(core.matrix, dtype, m, k, n)
        else:
            cycles = product_cycles(core, self.traits, m, k, n)
        on_vector = self.traits.vector_dtype is not None
        return self.emission.add(
            self.engines.vector if on_vector else self.engines.matrix,
            Opcode.VECTOR if on_vector else Opcode.MATMUL,
            np.arange(len(steps)) * STEP + Rank.MATMUL,
            duration_ticks=cycles * self.target.ticks_per_cycle,
            macs=m * k * n,
        )

    def _wire_operand(self, products: Ints, loads: Loads, ready: Ints, ring: Slots) -> None:
        """Products wait for their operand; its slots wait for the last product that read them."""
        self.builder.edges(products, ready[loads.of_step], EdgeKind.DATA)
        self.pad.read(products, ring, loads.of_step)
        self.pad.recycle(ring, ready, products[loads.last])

    def _stage(self, products: Ints, loads: Loads, ready: Ints) -> None:
        """Staged: the first product of each batch entry waits for all of its operand."""
        if not self.plan.is_staged:
            return
        b = self.steps.b
        first = np.searchsorted(b, b[loads.first])
        later = loads.first > first
        self.builder.edges(products[first[later]], ready[later], EdgeKind.DATA)
