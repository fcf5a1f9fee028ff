"""Graph to `Program`: lay out, plan, emit, schedule launches; each pass logs what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.compiler.emit import Emission
from npusim.compiler.emit_attention import emit_attention
from npusim.compiler.emit_fallback import emit_fallback
from npusim.compiler.emit_matmul import MatmulEmitter
from npusim.compiler.emit_moves import emit_gather, emit_kv_append
from npusim.compiler.emit_vector import emit_vector
from npusim.compiler.fusion import fuse
from npusim.compiler.layout import Layout
from npusim.compiler.matmul_traits import matmul_traits
from npusim.compiler.staging import staging_tile_bytes
from npusim.compiler.target import Target
from npusim.compiler.tiling import plan_matmul
from npusim.config.compiler import Launch
from npusim.config.host import LaunchMode
from npusim.errors import MappingError
from npusim.workload.operator import OperatorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.compiler.matmul_traits import MatmulTraits
    from npusim.compiler.tiling import MatmulPlan
    from npusim.config.compiler import CompilerConfig
    from npusim.config.system import SystemConfig
    from npusim.program import Program
    from npusim.workload.graph import OperatorGraph
    from npusim.workload.operator import MatmulShape, Operator


@dataclass(frozen=True)
class Compiled:
    """A program and what the compiler decided."""

    program: Program
    plans: dict[str, MatmulPlan]  # by operator name
    launch: LaunchMode
    footprint_bytes: int
    activation_space: str
    peak_macs_per_cycle: int  # all cores, at the fastest format the program multiplies in


def compile_graph(
    graph: OperatorGraph,
    system: SystemConfig,
    config: CompilerConfig,
    dram_bytes_per_s: Mapping[str, int],
    *,
    kv_capacity_tokens: int = 0,
    cached_tokens: int = 0,
    ideal_memory: bool = False,
) -> Compiled:
    """Compile one phase.

    Parameters
    ----------
    dram_bytes_per_s : mapping of str to int
        Peak rate of every memory, for predicted cost.
    kv_capacity_tokens : int
        Token rows reserved per sequence and head in the KV cache.
    cached_tokens : int
        Tokens already in the cache; new ones are appended after them.
    ideal_memory : bool
        One tile per core; operand paths cost nothing.

    Raises
    ------
    MappingError
        If something does not fit or is not supported by a unit.
    """
    if len(graph) == 0:
        raise MappingError("graph", "there is nothing to compile: no operators")
    target = Target(system, dram_bytes_per_s, config.max_cores, is_memory_ideal=ideal_memory)
    launch = (
        system.host.launch if config.launch is Launch.SYSTEM else LaunchMode(config.launch.value)
    )
    fused = fuse(graph, target, config, launch)
    graph = fused.graph
    layout = Layout(graph, target, config, launch, kv_capacity_tokens)
    emission = Emission(
        graph, target, layout, config, launch, cached_tokens=cached_tokens, ideal=ideal_memory
    )
    planner = _Planner(emission)
    for operator in graph:
        emission.open_kernel(operator)
        if operator.kind is OperatorKind.ATTENTION:
            emit_attention(emission, operator, fused.attention[operator.name])
        else:
            _emit(emission, planner, operator)
        emission.close_kernel(operator)
    emission.builder.log.extend(
        (*fused.log, *_described(graph, layout, target, launch), *planner.log)
    )
    return Compiled(
        emission.finish(),
        planner.plans,
        launch,
        layout.footprint_bytes(),
        target.spaces[layout.activation_space].name,
        _peak_macs_per_cycle(graph, target),
    )


def _described(
    graph: OperatorGraph, layout: Layout, target: Target, launch: LaunchMode
) -> tuple[str, ...]:
    activation_space = target.spaces[layout.activation_space].name
    return (
        f"layout: {layout.footprint_bytes()} bytes of {target.dram_name}, "
        f"activations in {activation_space}",
        f"launch: {launch.value}, {len(graph)} kernels",
    )


def _peak_macs_per_cycle(graph: OperatorGraph, target: Target) -> int:
    formats = {
        target.compute_dtype(op.compute_dtype, op.name)
        for op in graph
        if op.matmul is not None and op.compute_dtype is not None
    }
    per_core = max((target.core.matrix.macs_per_cycle(f) for f in formats), default=0)
    return per_core * target.device.cores


def _emit(emission: Emission, planner: _Planner, operator: Operator) -> None:
    match operator.kind:
        case OperatorKind.MATMUL:
            MatmulEmitter(emission, operator, planner.plan(operator)).emit()
        case OperatorKind.VECTOR:
            emit_vector(emission, operator)
        case OperatorKind.GATHER:
            emit_gather(emission, operator)
        case OperatorKind.KV_APPEND:
            emit_kv_append(emission, operator)
        case OperatorKind.FALLBACK:
            emit_fallback(emission, operator)


class _Planner:
    """Plans matmuls, once per distinct shape and traits."""

    def __init__(self, emission: Emission) -> None:
        self._emission = emission
        self._known: dict[tuple[MatmulShape, MatmulTraits], MatmulPlan] = {}
        self.plans: dict[str, MatmulPlan] = {}
        self.log: list[str] = []

    def plan(self, operator: Operator) -> MatmulPlan:
        """Plan of an operator."""
        emission = self._emission
        assert operator.matmul is not None
        traits = matmul_traits(emission, operator)
        key = (operator.matmul, traits)
        if key not in self._known:
            plan = plan_matmul(
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
            self._known[key] = plan
            self.log.append(_describe(operator, plan))
        self.plans[operator.name] = self._known[key]
        return self._known[key]


def _describe(operator: Operator, plan: MatmulPlan) -> str:
    shape = operator.matmul
    assert shape is not None
    return (
        f"tiling: {operator.name} {shape.batch} x ({shape.m} x {shape.k} x {shape.n}) on "
        f"{plan.grid} cores (batch, m, n), tile {plan.tile} (m, k, n), {plan.order.name.lower()}, "
        f"resident a={plan.a_resident} w={plan.w_resident}, {'staged, ' * plan.is_staged}"
        f"predicted {plan.predicted_cycles:.0f} cycles, best of {plan.candidates}"
    )
