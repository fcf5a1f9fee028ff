"""What a model or file computes, before any hardware: operators, MACs and bytes by stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npusim.workload.tensor import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npusim.workload.graph import OperatorGraph
    from npusim.workload.operator import Operator


@dataclass(frozen=True)
class StageWork:
    """Work of one stage; bytes are those of its operators' operands, each operator alone."""

    stage: str
    operators: int
    macs: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def macs_per_byte(self) -> float:
        """Arithmetic intensity in MACs per byte; 0 without bytes."""
        return self.macs / self.total_bytes if self.total_bytes else 0.0

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stage": self.stage,
            "operators": self.operators,
            "macs": self.macs,
            "weight_bytes": self.weight_bytes,
            "kv_bytes": self.kv_bytes,
            "activation_bytes": self.activation_bytes,
            "macs_per_byte": self.macs_per_byte,
        }


def stage_work(graph: OperatorGraph) -> list[StageWork]:
    """Work by stage, in order of first appearance."""
    by_stage: dict[str, list[Operator]] = {}
    for operator in graph:
        by_stage.setdefault(operator.stage, []).append(operator)
    return [_work(stage, operators) for stage, operators in by_stage.items()]


def phase_facts(graph: OperatorGraph) -> dict[str, Any]:
    """One phase for JSON."""
    stages = stage_work(graph)
    return {
        "macs": graph.macs,
        "operators": len(graph),
        "weight_bytes_read": sum(op.read_bytes(Role.WEIGHT) for op in graph),
        "kv_bytes_read": sum(op.read_bytes(Role.KV) for op in graph),
        "kv_bytes_written": sum(op.write_bytes(Role.KV) for op in graph),
        "stages": [stage.facts() for stage in stages],
    }


def _work(stage: str, operators: Iterable[Operator]) -> StageWork:
    operators = list(operators)

    def moved(role: Role) -> int:
        return sum(op.read_bytes(role) + op.write_bytes(role) for op in operators)

    return StageWork(
        stage=stage,
        operators=len(operators),
        macs=sum(op.macs for op in operators),
        weight_bytes=moved(Role.WEIGHT),
        kv_bytes=moved(Role.KV),
        activation_bytes=moved(Role.ACTIVATION),
    )
