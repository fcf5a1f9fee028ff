"""An operator trace in the place of a model and its lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.graph import OperatorGraph
from npusim.workload.operator import Phase
from npusim.workload.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Hashable

    from npusim.workload.operator import Operator
    from npusim.workload.trace import OperatorTrace

_LAYER_NAME = re.compile(r"^(layers\.)(\d+)(\.)")


@dataclass(frozen=True)
class TraceModel:
    """What results say of the model behind a trace."""

    name: str
    dtype: str
    num_layers: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TracePrecision:
    """Precision of a trace, as its header names it."""

    name: str


class TraceWorkload:
    """A trace as a run sees it: the same questions as to a `Workload`.

    Layers fold as those of a model if operators and tensors of layer i are named ``layers.i.*`` and
    are equal but for that number.
    """

    def __init__(self, trace: OperatorTrace) -> None:
        self.trace = trace
        header = trace.header
        self.prompt_len, self.context_len = header.prompt_len, header.context_len
        self.generate_len, self.batch = header.generate_len, header.batch
        self.draft, self.speculation, self.mtp_layers = None, None, 0
        self.cached_tokens = header.batch * header.capacity_tokens + header.chunk_capacity_tokens
        self.chunk_tokens = header.chunk_tokens
        self.chunk_context_len = header.chunk_context_len
        self.kv_dtype, self.capacity_tokens = header.kv_dtype, header.capacity_tokens
        self.parameters = header.parameters
        self.notes = tuple(header.notes)
        self.kv_bytes_per_token = header.kv_bytes_per_token
        self.weight_bytes_by_dtype = dict(header.weight_bytes_by_dtype)
        self.weight_bytes = sum(header.weight_bytes_by_dtype.values())
        self.quant = TracePrecision(header.quant)
        layers = {op.layer for operators in trace.steps for op in operators}
        count = len(layers - {None})
        self.model = TraceModel(header.model, header.dtype, max(count, 1), tuple(header.notes))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases that run, in order."""
        return tuple(dict.fromkeys(Phase(step.phase) for step in self.trace.header.steps))

    @property
    def step_phase(self) -> Phase:
        """What the steps after the prefill are."""
        return Phase.MIXED if Phase.MIXED in self.phases else Phase.DECODE

    @property
    def decode_contexts(self) -> range:
        """Tokens cached at the start of each decode step."""
        contexts = [s.context_len for s in self.trace.header.steps if s.phase != "prefill"]
        return range(contexts[0], contexts[-1] + 1) if contexts else range(0)

    def prefill_graph(self, num_layers: int | None = None) -> OperatorGraph:
        """Operators of the prefill, over fewer layers if `num_layers` says so."""
        if self.trace.header.steps[0].phase != "prefill":
            raise WorkloadError("trace", "this trace has no prefill")
        return self._graph(0, num_layers)

    def decode_graph(self, context_len: int, num_layers: int | None = None) -> OperatorGraph:
        """Operators of the decode step with `context_len` cached tokens per sequence."""
        contexts = self.decode_contexts
        first = len(self.trace.steps) - len(contexts)
        return self._graph(first + context_len - contexts.start, num_layers)

    @cached_property
    def layer_kinds(self) -> tuple[Hashable, ...]:
        """Per layer what makes its work differ; layers that do not fold are all different."""
        count = self.model.num_layers
        by_layer: list[list[Hashable]] = [[] for _ in range(count)]
        for index, operators in enumerate(self.trace.steps):
            layers = [op.layer for op in operators if op.layer is not None]
            if layers != sorted(layers) or set(layers) != set(range(count)):
                return tuple(range(count))
            for op in operators:
                if op.layer is not None:
                    by_layer[op.layer].append((index, _unnumbered(op)))
        return tuple(tuple(kinds) for kinds in by_layer)

    def _graph(self, step: int, num_layers: int | None) -> OperatorGraph:
        operators = self.trace.steps[step]
        if num_layers is None or num_layers >= self.model.num_layers:
            return OperatorGraph(operators)
        last = self.model.num_layers - 1
        kept = [op for op in operators if op.layer is None or op.layer < num_layers]
        return OperatorGraph(
            op if op.layer is not None else _renumbered(op, last, num_layers - 1) for op in kept
        )


def _unnumbered(operator: Operator) -> Hashable:
    """An operator without the number of its layer; other layers' tensors count by distance."""
    layer = operator.layer
    assert layer is not None

    def plain(name: str) -> str:
        return _LAYER_NAME.sub(lambda m: f"layers.<{int(m[2]) - layer}>.", name)

    def tensors(group: tuple[Tensor, ...]) -> Hashable:
        return tuple(replace(t, name=_entry(plain(t.name))) for t in group)

    return (
        replace(operator, name=plain(operator.name), layer=0, inputs=(), outputs=()),
        tensors(operator.inputs),
        tensors(operator.outputs),
    )


def _entry(name: str) -> str:
    """A tensor from outside the layer: the hidden state, whatever it is called."""
    return name if name.startswith("layers.<0>.") else "<entry>"


def _renumbered(operator: Operator, layer: int, new: int) -> Operator:
    """An operator after the layers, reading layer `new` in the place of the last one."""
    prefix = f"layers.{layer}."

    def tensor(old: Tensor) -> Tensor:
        is_last = old.name.startswith(prefix)
        name = f"layers.{new}.{old.name.removeprefix(prefix)}"
        return replace(old, name=name) if is_last else old

    return replace(operator, inputs=tuple(map(tensor, operator.inputs)))
