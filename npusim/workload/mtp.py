"""Multi-token-prediction layers behind a pass (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.workload.transformer import HIDDEN_INPUT
from npusim.workload.weights import SHARED_BY_MTP

if TYPE_CHECKING:
    from npusim.workload.graph import OperatorGraph
    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor


def append_mtp(graph: OperatorGraph, module: OperatorGraph, count: int) -> None:
    """Add `count` modules to a pass, each reading the hidden state of the one before.

    Operators and tensors are named ``mtp.<index>.*`` and belong to no layer of the model; the
    embedding and the head are the model's own weights.
    """
    hidden = _hidden(graph)
    for index in range(count):
        for operator in module:
            graph.add(_renamed(operator, f"mtp.{index}.", hidden))
        hidden = f"mtp.{index}.{_hidden(module)}"


def _hidden(graph: OperatorGraph) -> str:
    """Name of the hidden state that the final norm reads."""
    return graph["final_norm"].inputs[0].name


def _renamed(operator: Operator, prefix: str, hidden: str) -> Operator:
    """An operator of a module under its own names."""

    def tensor(old: Tensor) -> Tensor:
        if old.name == HIDDEN_INPUT:
            return replace(old, name=hidden)
        return old if old.name in SHARED_BY_MTP else replace(old, name=f"{prefix}{old.name}")

    return replace(
        operator,
        name=f"{prefix}{operator.name}",
        layer=None,
        inputs=tuple(map(tensor, operator.inputs)),
        outputs=tuple(map(tensor, operator.outputs)),
    )
