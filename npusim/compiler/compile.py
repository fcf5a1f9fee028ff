"""Graph to `Program`: lay out, plan, emit, schedule launches; each pass logs what it did.

A program may leave all cores but one idle: activations then stay in that core's scratchpad where
they fit. Both ways are planned, and the one predicted to be faster is emitted.
"""

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
from npusim.compiler.planner import Planner
from npusim.compiler.target import Target
from npusim.config.compiler import Launch
from npusim.config.host import LaunchMode
from npusim.errors import MappingError
from npusim.workload.operator import OperatorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npusim.compiler.tiling import MatmulPlan
    from npusim.config.compiler import CompilerConfig
    from npusim.config.system import SystemConfig
    from npusim.program import Program
    from npusim.workload.graph import OperatorGraph
    from npusim.workload.operator import Operator


@dataclass(frozen=True)
class Compiled:
    """A program and what the compiler decided."""

    program: Program
    plans: dict[str, MatmulPlan]  # by operator name
    launch: LaunchMode
    footprint_bytes: int
    activation_space: str
    predicted_cycles: float  # of all kernels, without launch and barriers
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
    whole: OperatorGraph | None = None,
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
    whole : OperatorGraph, optional
        The whole model, if the graph is only the first of its layers: addresses are the whole
        model's, and a choice between plans weighs layers as often as the whole model has them.

    Raises
    ------
    MappingError
        If something does not fit or is not supported by a unit.
    """
    if len(graph) == 0:
        raise MappingError("graph", "there is nothing to compile: no operators")
    launch = (
        system.host.launch if config.launch is Launch.SYSTEM else LaunchMode(config.launch.value)
    )

    def draft(active_cores: int | None) -> Planner:
        target = Target(
            system,
            dram_bytes_per_s,
            config.max_cores,
            active_cores=active_cores,
            is_memory_ideal=ideal_memory,
        )
        fused = fuse(graph, target, config, launch)
        layout = Layout(fused.graph, target, config, launch, kv_capacity_tokens, whole)
        emission = Emission(
            fused.graph,
            target,
            layout,
            config,
            launch,
            cached_tokens=cached_tokens,
            ideal=ideal_memory,
        )
        return Planner(emission, fused)

    planner = _fastest(draft, len((whole or graph).layers))
    emission, fused = planner.emission, planner.fused
    graph = fused.graph
    for operator in graph:
        emission.open_kernel(operator)
        if operator.kind is OperatorKind.ATTENTION:
            emit_attention(emission, operator, fused.attention[operator.name])
        else:
            _emit(emission, planner, operator)
        emission.close_kernel(operator)
    target, layout = emission.target, emission.layout
    emission.builder.log.extend(
        (*fused.log, *_described(graph, layout, target, launch), *planner.log)
    )
    return Compiled(
        emission.finish(),
        planner.plans,
        launch,
        layout.footprint_bytes(),
        target.spaces[layout.activation_space].name,
        planner.predicted_cycles(),
        _peak_macs_per_cycle(graph, target),
    )


def _fastest(draft: Callable[[int | None], Planner], layers: int) -> Planner:
    """All cores, or one that keeps activations to itself, whichever is predicted to be faster."""
    everyone = draft(None)
    target = everyone.emission.target
    if target.cores == 1 or everyone.emission.layout.activation_space != target.dram_space:
        return everyone
    alone = draft(1)
    if alone.emission.layout.activation_space == target.dram_space:
        return everyone
    try:
        alone_cycles = alone.predicted_cycles(layers)
    except MappingError:  # what is left of the scratchpad does not hold the smallest tiles
        return everyone
    if alone_cycles < everyone.predicted_cycles(layers):
        return alone
    return everyone


def _described(
    graph: OperatorGraph, layout: Layout, target: Target, launch: LaunchMode
) -> tuple[str, ...]:
    activation_space = target.spaces[layout.activation_space].name
    return (
        f"layout: {layout.footprint_bytes()} bytes of {target.dram_name}, "
        f"activations in {activation_space}",
        f"cores: {target.active_cores} of {target.device.cores}",
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


def _emit(emission: Emission, planner: Planner, operator: Operator) -> None:
    match operator.kind:
        case OperatorKind.MATMUL:
            MatmulEmitter(emission, operator, planner.matmul(operator)).emit()
        case OperatorKind.VECTOR:
            emit_vector(emission, operator, planner.vector(operator).cores)
        case OperatorKind.GATHER:
            emit_gather(emission, operator)
        case OperatorKind.KV_APPEND:
            emit_kv_append(emission, operator)
        case OperatorKind.FALLBACK:
            emit_fallback(emission, operator)
