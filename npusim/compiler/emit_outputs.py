"""What follows the products of one core: accumulator conversion, bias and activation, stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.emit import STEP
from npusim.compiler.matmul_loop import Rank
from npusim.compiler.matmul_traits import (
    ACCUMULATOR_BITS,
    bits_to_bytes,
    columns_per_output,
)
from npusim.compiler.operands import moving_view
from npusim.compiler.tile_costs import CONVERT_BYTES
from npusim.compiler.unit_timing import ceil_div, convert_ticks, vector_cycles
from npusim.config.compute import AccumulatorConvert
from npusim.program import EdgeKind, Opcode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.emit_core import CoreEmission
    from npusim.compiler.matmul_loop import Steps
    from npusim.compiler.matmul_traits import MatmulTraits
    from npusim.compiler.slots import Slots
    from npusim.compiler.tiling import MatmulPlan
    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]


def add_converts(
    core: CoreEmission, operator: Operator, elems: Ints, order: Ints, *, on_vector: bool
) -> Ints:
    """Commands that change the format of `elems` elements each, on the vector or convert unit."""
    target = core.emission.target
    if on_vector:
        dtype = target.vector_dtype(operator.compute_dtype, operator.name)
        cycles = vector_cycles(
            target.core.vector, (("convert", elems),), dtype, elems * CONVERT_BYTES
        )
        ticks = cycles * target.ticks_per_cycle
        return core.emission.add(core.engines.vector, Opcode.VECTOR, order, duration_ticks=ticks)
    assert target.core.convert is not None and core.engines.convert is not None
    ticks = convert_ticks(target.core.convert, elems, target.ticks_per_cycle)
    return core.emission.add(core.engines.convert, Opcode.CONVERT, order, duration_ticks=ticks)


class OutputEmitter:
    """Outputs of one core, a chain of commands per output tile."""

    def __init__(
        self,
        core: CoreEmission,
        operator: Operator,
        plan: MatmulPlan,
        traits: MatmulTraits,
        steps: Steps,
    ) -> None:
        assert operator.matmul is not None
        self.core, self.emission, self.pad = core, core.emission, core.pad
        self.operator, self.shape = operator, operator.matmul
        self.plan, self.traits, self.steps = plan, traits, steps
        self.last = steps.finishing
        self.per_output = columns_per_output(operator)
        self.elems = ((steps.m1 - steps.m0) * (steps.n1 - steps.n0))[self.last]

    def emit(self, products: Ints) -> None:
        """Convert, epilogue and store; or leave the result in the scratchpad."""
        traits, last = self.traits, self.last
        producers = products[last]
        if traits.converted:
            producers = self._emit_convert(producers, self._ring(ACCUMULATOR_BITS))
        ring = None
        if not traits.c_on_chip:
            ring = self._ring(traits.out_bits)
            self.pad.fill(producers, ring)
        writers = producers
        if self.operator.vector_ops:
            producers = self._emit_epilogue(producers, ring)
        if ring is None:
            self.emission.arrive(producers)
            return
        stores = self.core.add_stores(last * STEP + Rank.STORE)
        self._attach(stores)
        self.core.drain(stores, ring, producers, writers)

    def _ring(self, bits: int) -> Slots:
        tm, _, tn = self.plan.tile
        count = min(len(self.last), self.emission.config.buffers)
        return self.pad.slots(int(bits_to_bytes(tm * tn * bits)), count)

    def _emit_convert(self, products: Ints, ring: Slots) -> Ints:
        """Accumulators to the output format, from a 32-bit copy in the scratchpad."""
        where = self.emission.target.core.matrix.accumulator_convert
        self.pad.fill(products, ring)
        ids = add_converts(
            self.core,
            self.operator,
            self.elems,
            self.last * STEP + Rank.CONVERT,
            on_vector=where is AccumulatorConvert.VECTOR_UNIT,
        )
        self.core.builder.edges(ids, products, EdgeKind.DATA)
        self.pad.read(ids, ring)
        self.pad.recycle(ring, products, ids)
        return ids

    def _emit_epilogue(self, producers: Ints, ring: Slots | None) -> Ints:
        """Bias and activation on the vector unit, in place."""
        operator, target, elems = self.operator, self.emission.target, self.elems
        total = self.shape.rows * self.shape.n
        dtype = target.vector_dtype(operator.compute_dtype, operator.name)
        ops = tuple((op, ceil_div(n * elems, total)) for op, n in operator.vector_ops)
        moved = 2 * elems * self.traits.out_bits // 8
        cycles = vector_cycles(target.core.vector, ops, dtype, moved)
        ids = self.emission.add(
            self.core.engines.vector,
            Opcode.VECTOR,
            self.last * STEP + Rank.EPILOGUE,
            duration_ticks=cycles * target.ticks_per_cycle,
        )
        self.core.builder.edges(ids, producers, EdgeKind.DATA)
        if ring is not None:
            self.pad.read(ids, ring)
            self.pad.overwrite(ids, ring)
        for bias in operator.inputs[2:]:
            self._emit_bias(bias, ids)
        return ids

    def _emit_bias(self, bias: Tensor, readers: Ints) -> None:
        """The core's columns of a bias, once per kernel."""
        low, high = int(self.steps.n0.min()), int(self.steps.n1.max())
        n = self.shape.n
        load, slot = self.core.load_once(
            bias,
            self.core.engines.loads[0],
            Rank.LOAD_BIAS,
            low * bias.nbytes // n,
            high * bias.nbytes // n,
        )
        self.core.read_loaded(readers, load, slot, readers[-1:])

    def _attach(self, stores: Ints) -> None:
        runs, owner = self._runs()
        output = self.operator.outputs[0]
        self.core.builder.transfers(
            stores,
            space=self.emission.home(output).space,
            is_write=True,
            role=output.role.value,
            runs=runs,
            run_owner=owner,
        )

    def _runs(self) -> tuple[Ints, Ints]:
        """Runs of every output tile; a tile may straddle the columns of several outputs."""
        steps, last, outputs = self.steps, self.last, self.operator.outputs
        runs, owners = [], []
        column = 0
        for tensor in outputs:
            width = tensor.shape[-1] if len(outputs) > 1 else self.shape.n // self.per_output
            n0 = np.clip(steps.n0[last] // self.per_output - column, 0, width)
            n1 = np.clip(steps.n1[last] // self.per_output - column, 0, width)
            inside = np.flatnonzero(n1 > n0)
            column += width
            if not len(inside):
                continue
            view = moving_view(self.operator, tensor, self.emission.home(tensor), width)
            step = last[inside]
            part, owner = view.tile_runs(
                steps.b[step], steps.m0[step], steps.m1[step], n0[inside], n1[inside]
            )
            runs.append(part)
            owners.append(inside[owner])
        owner = np.concatenate(owners)
        by_tile = np.argsort(owner, kind="stable")
        return np.concatenate(runs)[by_tile], owner[by_tile]
