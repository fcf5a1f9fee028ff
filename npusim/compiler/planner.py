"""Plans of every kernel of a program, once per distinct shape, and what the program is to cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.compiler.kernel_costs import VectorPlan, move_kernel_cycles, plan_vector
from npusim.compiler.matmul_traits import matmul_traits
from npusim.compiler.staging import staging_tile_bytes
from npusim.compiler.tiling import plan_matmul
from npusim.workload.operator import OperatorKind

if TYPE_CHECKING:
    from npusim.compiler.emit import Emission
    from npusim.compiler.fusion import Fused
    from npusim.compiler.matmul_traits import MatmulTraits
    from npusim.compiler.tiling import MatmulPlan
    from npusim.workload.operator import MatmulShape, Operator


class Planner:
    """Plans the kernels of one emission.

    Attributes
    ----------
    emission : Emission
        What the plans are for.
    fused : Fused
        The graph, with the plans of fused operators.
    plans : dict of str to MatmulPlan
        By operator name, of the operators planned so far.
    log : list of str
        One line per distinct matmul.
    """

    def __init__(self, emission: Emission, fused: Fused) -> None:
        self.emission = emission
        self.fused = fused
        self._matmuls: dict[tuple[MatmulShape, MatmulTraits], MatmulPlan] = {}
        self._vectors: dict[object, VectorPlan] = {}
        self.plans: dict[str, MatmulPlan] = {}
        self.log: list[str] = []

    def predicted_cycles(self, layers: int | None = None) -> float:
        """Predicted device cycles of all kernels, those of layers scaled up to `layers` layers.

        Launch, dispatch and barriers are left out: they are the same for every plan.
        """
        graph = self.emission.graph
        scale = 1.0
        if layers is not None and graph.layers:
            scale = layers / len(graph.layers)
        return sum(self._kernel_cycles(op) * (1.0 if op.layer is None else scale) for op in graph)

    def matmul(self, operator: Operator) -> MatmulPlan:
        """Plan of a matmul."""
        emission = self.emission
        assert operator.matmul is not None
        traits = matmul_traits(emission, operator)
        key = (operator.matmul, traits)
        if key not in self._matmuls:
            self._matmuls[key] = plan_matmul(
                operator.name,
                operator.matmul,
                traits,
                emission.target,
                budget_bytes=emission.budget_bytes(),
                buffers=emission.config.buffers,
                split=emission.config.split,
                staging_tile_bytes=staging_tile_bytes(emission.target, emission.config.staging),
                ideal=emission.ideal,
            )
            self.log.append(_describe(operator, self._matmuls[key]))
        self.plans[operator.name] = self._matmuls[key]
        return self._matmuls[key]

    def vector(self, operator: Operator) -> VectorPlan:
        """Cores of a vector kernel."""
        home = self.emission.home
        tensors = (*operator.inputs, *operator.outputs)
        key = (
            operator.rows,
            operator.vector_ops,
            operator.compute_dtype,
            tuple((t.nbytes, t.role, home(t).space) for t in tensors),
        )
        if key not in self._vectors:
            self._vectors[key] = plan_vector(self.emission, operator)
        return self._vectors[key]

    def _kernel_cycles(self, operator: Operator) -> float:
        match operator.kind:
            case OperatorKind.MATMUL:
                return self.matmul(operator).predicted_cycles
            case OperatorKind.VECTOR:
                return self.vector(operator).predicted_cycles
            case OperatorKind.ATTENTION:
                return self.fused.attention[operator.name].plan.predicted_cycles
            case OperatorKind.FALLBACK:
                return 0.0  # on the host, whatever the plan
            case _:
                return move_kernel_cycles(self.emission, operator)


def _describe(operator: Operator, plan: MatmulPlan) -> str:
    shape = operator.matmul
    assert shape is not None
    return (
        f"tiling: {operator.name} {shape.batch} x ({shape.m} x {shape.k} x {shape.n}) on "
        f"{plan.grid} cores (batch, m, n), tile {plan.tile} (m, k, n), {plan.order.name.lower()}, "
        f"resident a={plan.a_resident} w={plan.w_resident}, {'staged, ' * plan.is_staged}"
        f"predicted {plan.predicted_cycles:.0f} cycles, best of {plan.candidates}"
    )
