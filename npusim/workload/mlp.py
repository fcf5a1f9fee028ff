"""Operators of an MLP: dense, shared or as routed experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npusim.workload import vector_counts
from npusim.workload.model_config import Activation
from npusim.workload.operator import MatmulShape, Operator

if TYPE_CHECKING:
    from npusim.workload.forward_pass import ForwardPass
    from npusim.workload.tensor import Tensor
    from npusim.workload.weights import LayerWeights


@dataclass(frozen=True, slots=True)
class _Mlp:
    """Names of one MLP: its weights' prefix and its stage labels."""

    prefix: str
    stages: tuple[str, str, str]


_SHARED = _Mlp("shared.", ("shared_gate_up", "shared_activation", "shared_down"))
_EXPERTS = _Mlp("experts.", ("expert_gate_up", "expert_activation", "expert_down"))


def mlp_operators(
    run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights
) -> list[Operator]:
    """The MLP of a layer, dense or of experts; the last operator yields its output."""
    if "router" in weights:
        return expert_mlp(run, layer, normed, weights)
    return dense_mlp(run, layer, normed, weights)


def dense_mlp(
    run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights
) -> list[Operator]:
    """Up (and gate) as one matmul, activation, down."""
    is_silu = run.model.is_gated and run.model.activation is Activation.SILU
    up = "gate_up" if run.model.is_gated else "up"
    return _mlp(
        run, layer, normed, weights, _Mlp("", (up, "silu_mul" if is_silu else "activation", "down"))
    )


def _mlp(
    run: ForwardPass,
    layer: int,
    moving: Tensor,
    weights: LayerWeights,
    names: _Mlp,
    group_rows: tuple[int, ...] = (),
) -> list[Operator]:
    """The three operators; `group_rows` are the rows of each product of stacked weights."""
    model, prefix = run.model, names.prefix
    up = f"{prefix}{'gate_up_proj' if model.is_gated else 'up_proj'}"
    down = f"{prefix}down_proj"
    label, rows = f"layers.{layer}", moving.shape[0]
    width, hidden = weights[down].shape[-2:]

    def product(part: str, stage: str, operand: Tensor, out: Tensor) -> Operator:
        weight, bias = weights[part], weights.get(f"{part}.bias")
        k, n = weight.shape[-2:]
        shape = MatmulShape(1, rows, k, n)
        if group_rows:
            shape = MatmulShape.grouped(group_rows, k, n)
        operands = (operand, weight, bias)
        return run.product(f"{label}.{part}", stage, layer, operands, (out,), shape)

    both = run.activation(f"{label}.{up}.out", rows, (2 if model.is_gated else 1) * width)
    acted_name = f"{label}.{prefix}{names.stages[1].rpartition('_')[2]}"
    if names.stages[1] == "silu_mul":
        acted_name = f"{label}.silu_mul"
    acted = run.activation(f"{acted_name}.out", rows, width, dtype=run.matmul_dtype)
    out = run.activation(f"{label}.{down}.out", rows, hidden)
    of = vector_counts.gated_activation if model.is_gated else vector_counts.activation
    counts = vector_counts.merge(
        of(model.activation, acted.elems), run.narrow_ops(acted.elems, acted.dtype)
    )
    return [
        product(up, names.stages[0], moving, both),
        run.vector(acted_name, names.stages[1], layer, (both,), (acted,), counts, acted.elems),
        product(down, names.stages[2], acted, out),
    ]


def expert_mlp(
    run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights
) -> list[Operator]:
    """Router, dispatch of tokens to experts, one grouped matmul each way, weighted sum.

    Only the experts that got tokens are read: their weights are a slice of the stored stack.
    """
    experts = run.model.experts
    assert experts is not None
    number = run.model.first_layer + layer
    loads = run.routing.loads(experts.num_experts, experts.top_k, run.tokens, number)
    group_rows = tuple(rows for rows in loads if rows)
    router = _router(run, layer, normed, weights)
    choices = router[-1].outputs[0]
    dispatch = _dispatch(run, layer, normed, choices)
    routed = _mlp(
        run,
        layer,
        dispatch.outputs[0],
        {part: _slice(t, len(group_rows)) for part, t in weights.items() if "experts." in part},
        _EXPERTS,
        group_rows,
    )
    shared = _shared(run, layer, normed, weights)
    parts = [routed[-1].outputs[0], choices, *(op.outputs[0] for op in shared[2:])]
    return [*router, dispatch, *routed, *shared, _combine(run, layer, parts)]


def _slice(stack: Tensor, count: int) -> Tensor:
    """The first `count` entries of stacked weights."""
    return replace(stack, shape=(count, *stack.shape[1:]))


def _router(run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights) -> list[Operator]:
    """Scores of every expert, softmax, the best k with their normalised weights."""
    experts, name = run.model.experts, f"layers.{layer}.router"
    assert experts is not None
    scores = run.activation(f"{name}.out", run.tokens, experts.num_experts)
    operands = (normed, weights["router"], weights.get("router.bias"))
    chosen = run.activation(f"layers.{layer}.top_k.out", run.tokens, 2 * experts.top_k)
    counts = vector_counts.merge(
        vector_counts.softmax(run.tokens, experts.num_experts, scaled_and_masked=False),
        vector_counts.top_k(run.tokens, experts.num_experts, experts.top_k),
    )
    return [
        run.linear(name, "router", layer, operands, (scores,)),
        run.vector(
            f"layers.{layer}.top_k", "router", layer, (scores,), (chosen,), counts, run.tokens
        ),
    ]


def _dispatch(run: ForwardPass, layer: int, normed: Tensor, choices: Tensor) -> Operator:
    """Copy every token to each of its experts, tokens of an expert side by side."""
    experts, name = run.model.experts, f"layers.{layer}.dispatch"
    assert experts is not None
    rows = run.tokens * experts.top_k
    out = run.activation(f"{name}.out", rows, normed.shape[1], dtype=normed.dtype)
    counts = (("copy", out.elems),)
    return run.vector(name, "dispatch", layer, (normed, choices), (out,), counts, run.tokens)


def _shared(run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights) -> list[Operator]:
    """Experts that every token visits, and their gate."""
    experts = run.model.experts
    assert experts is not None
    if not experts.shared_width:
        return []
    operators = _mlp(run, layer, normed, weights, _SHARED)
    if experts.has_shared_gate:
        gate = run.activation(f"layers.{layer}.shared_gate.out", run.tokens, 1)
        operands = (normed, weights["shared_gate"], None)
        name = f"layers.{layer}.shared_gate"
        operators.append(run.linear(name, "shared_gate_up", layer, operands, (gate,)))
    return operators


def _combine(run: ForwardPass, layer: int, parts: list[Tensor]) -> Operator:
    """Weighted sum of a token's experts, plus the shared ones."""
    experts, name = run.model.experts, f"layers.{layer}.combine"
    assert experts is not None
    out = run.activation(f"{name}.out", run.tokens, run.model.hidden_size)
    shared = out.elems if experts.shared_width else 0
    gate = out.elems if experts.has_shared_gate else 0
    counts = vector_counts.merge(
        (("mul", experts.top_k * out.elems + gate), ("add", (experts.top_k - 1) * out.elems)),
        (("add", shared),),
        vector_counts.activation(Activation.SILU, run.tokens if gate else 0),
    )
    return run.vector(name, "combine", layer, tuple(parts), (out,), counts, run.tokens)
