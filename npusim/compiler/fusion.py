"""Fusion: several operators become one kernel, so that what passes between them stays on chip.

Two patterns, each with a switch of its own:

attention
    scores, softmax and context over the same cache (`attention_plan`, `emit_attention`).
activation
    a gated activation whose only input is the output of the matmul before it moves into that
    matmul's epilogue; gate and up columns of a tile lie side by side in the weight's layout.

What stands in the way of a pattern is logged. No pattern changes MACs or compulsory bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npusim.compiler.attention_plan import AttentionPlan, plan_attention, unfused_cycles
from npusim.compiler.staging import staging_tile_bytes
from npusim.config.compiler import Fusion, FusionMode
from npusim.errors import MappingError
from npusim.workload.graph import OperatorGraph
from npusim.workload.operator import Operator, OperatorKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.compiler.target import Target
    from npusim.config.compiler import CompilerConfig
    from npusim.config.host import LaunchMode


@dataclass(frozen=True)
class FusedAttention:
    """A fused attention: its plan and the matmuls it is made of."""

    plan: AttentionPlan
    scores: Operator
    softmax: Operator
    context: Operator


@dataclass(frozen=True)
class Fused:
    """A graph after fusion. `attention` is keyed by the fused operator's name."""

    graph: OperatorGraph
    attention: dict[str, FusedAttention]
    log: tuple[str, ...]


def fusion_mode(config: CompilerConfig, target: Target) -> FusionMode:
    """The run's mode, or the device's, or off."""
    if config.fusion is Fusion.SYSTEM:
        return target.device.fusion or FusionMode.OFF
    return FusionMode(config.fusion.value)


def fuse(graph: OperatorGraph, target: Target, config: CompilerConfig, launch: LaunchMode) -> Fused:
    """Apply the patterns that are switched on; the graph itself if none is."""
    mode = fusion_mode(config, target)
    if mode is FusionMode.OFF:
        return Fused(graph, {}, ())
    fuser = _Fuser(graph, target, config, launch, mode)
    operators = list(fuser.run())
    if not fuser.count:
        return Fused(graph, {}, tuple(fuser.log))
    fuser.log.append(f"fusion: {len(graph)} operators became {len(operators)}")
    return Fused(OperatorGraph(operators), fuser.attention, tuple(fuser.log))


class _Fuser:
    """One walk over a graph."""

    def __init__(
        self,
        graph: OperatorGraph,
        target: Target,
        config: CompilerConfig,
        launch: LaunchMode,
        mode: FusionMode,
    ) -> None:
        self._graph, self._target, self._config = graph, target, config
        self._launch, self._mode = launch, mode
        self._plans: dict[object, tuple[AttentionPlan | None, str]] = {}
        self._said: set[str] = set()
        self.attention: dict[str, FusedAttention] = {}
        self.log: list[str] = []
        self.count = 0

    def run(self) -> Iterator[Operator]:
        """Operators of the fused graph."""
        operators = self._graph.operators
        index = 0
        while index < len(operators):
            fused, taken = self._fused_at(operators, index)
            yield fused
            self.count += taken > 1
            index += taken

    def _fused_at(self, operators: tuple[Operator, ...], index: int) -> tuple[Operator, int]:
        """What starts at an index, and how many operators it replaces."""
        config = self._config
        if config.fuse_attention and is_attention(self._graph, operators[index : index + 3]):
            fused = self._fused_attention(*operators[index : index + 3])
            if fused is not None:
                return fused, 3
        if config.fuse_activation and self._is_gated(operators[index : index + 2]):
            matmul, gate = operators[index : index + 2]
            ops = (*matmul.vector_ops, *gate.vector_ops)
            fused = replace(matmul, outputs=gate.outputs, vector_ops=ops)
            self._say(f"fusion: {gate.stage} in the epilogue of {matmul.stage}")
            return fused, 2
        return operators[index], 1

    def _is_gated(self, pair: tuple[Operator, ...]) -> bool:
        """A matmul, then an activation that halves its columns and is its only reader."""
        if len(pair) < 2:
            return False
        matmul, gate = pair
        if matmul.kind is not OperatorKind.MATMUL or gate.kind is not OperatorKind.VECTOR:
            return False
        if gate.inputs != matmul.outputs or self._graph.consumers(matmul) != (gate,):
            return False
        assert matmul.matmul is not None
        halves = 2 * gate.outputs[0].elems == matmul.outputs[0].elems
        return halves and len(gate.outputs) == 1 and matmul.matmul.batch == 1

    def _fused_attention(
        self, scores: Operator, softmax: Operator, context: Operator
    ) -> Operator | None:
        formats = (scores.inputs[0].dtype, scores.inputs[1].dtype, scores.compute_dtype)
        key = (scores.matmul, scores.inputs[1].shape, formats, softmax.vector_ops)
        if key not in self._plans:
            self._plans[key] = self._plan(scores, softmax, context)
        plan, reason = self._plans[key]
        self._say(f"fusion: attention {reason}")
        if plan is None:
            return None
        name = f"{scores.name.removesuffix('scores')}attention"
        fused = replace(
            scores,
            name=name,
            kind=OperatorKind.ATTENTION,
            stage="attention",
            inputs=(*scores.inputs, context.inputs[1]),
            outputs=context.outputs,
        )
        self.attention[name] = FusedAttention(plan, scores, softmax, context)
        return fused

    def _plan(
        self, scores: Operator, softmax: Operator, context: Operator
    ) -> tuple[AttentionPlan | None, str]:
        """The plan, or None and why there is none."""
        target = self._target
        try:
            plan = plan_attention(scores, softmax, context, target, self._config.buffers)
        except MappingError as error:
            return None, f"stays in three kernels: {error}"
        is_staged = staging_tile_bytes(target, self._config.staging) is not None
        apart = unfused_cycles(scores, softmax, context, target, self._launch, is_staged=is_staged)
        said = f"predicted {plan.predicted_cycles:.0f} cycles fused, {apart:.0f} apart"
        if self._mode is FusionMode.AUTO and plan.predicted_cycles > apart:
            return None, f"stays in three kernels: {said}"
        return plan, f"in one kernel, tile {plan.tile} (batch, rows, keys): {said}"

    def _say(self, line: str) -> None:
        """Log a line once."""
        if line not in self._said:
            self._said.add(line)
            self.log.append(line)


def is_attention(graph: OperatorGraph, operators: tuple[Operator, ...]) -> bool:
    """Scores, softmax and context, each the only reader of the one before."""
    if len(operators) < 3:
        return False
    scores, softmax, context = operators
    kinds = (OperatorKind.MATMUL, OperatorKind.VECTOR, OperatorKind.MATMUL)
    if tuple(op.kind for op in operators) != kinds or not scores.b_is_transposed:
        return False
    return (
        softmax.inputs == scores.outputs
        and context.inputs[:1] == softmax.outputs
        and graph.consumers(scores) == (softmax,)
        and graph.consumers(softmax) == (context,)
    )
