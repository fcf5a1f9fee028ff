"""Operator graphs of a dense decoder: prefill, or one decode step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError, nearest
from npusim.workload import vector_counts
from npusim.workload.attention import attention_operators
from npusim.workload.forward_pass import ForwardPass
from npusim.workload.graph import OperatorGraph
from npusim.workload.operator import Operator, OperatorKind, Phase
from npusim.workload.quantization import Quantization, parse_quantization, resolve_kv_dtype
from npusim.workload.tensor import Role, Tensor
from npusim.workload.weights import LayerWeights, layer_weights, model_weights

if TYPE_CHECKING:
    from npusim.workload.model_config import ModelConfig


def build_graph(
    model: ModelConfig,
    phase: Phase | str,
    batch: int = 1,
    new_tokens: int = 1,
    context_len: int = 0,
    quant: str | Quantization = "w16a16",
    kv_dtype: str | None = None,
    *,
    num_layers: int | None = None,
    all_logits: bool = False,
) -> OperatorGraph:
    """Operators of one forward pass.

    Parameters
    ----------
    model : ModelConfig
        Architecture.
    phase : Phase or str
        "prefill" or "decode"; decode computes exactly one new token per sequence.
    batch, new_tokens, context_len : int
        Sequences; tokens computed per sequence; tokens per sequence already cached.
    quant : str or Quantization
        `wXaY[_gN]`.
    kv_dtype : str, optional
        Format of the KV cache; None is the model's 16-bit format.
    num_layers : int, optional
        Build only the first layers, for a run that folds identical ones.
    all_logits : bool, optional
        lm_head over every position, not only the last one of each sequence.

    Returns
    -------
    OperatorGraph
        Unfused operators in program order, stages from `STAGES`.

    Raises
    ------
    WorkloadError
        If a length is out of range, the precision unknown, or decode has several new tokens.
    """
    run = _forward_pass(model, phase, batch, new_tokens, context_len, quant, kv_dtype)
    layers = model.num_layers if num_layers is None else num_layers
    if not 1 <= layers <= model.num_layers:
        raise WorkloadError("num_layers", f"must be 1 to {model.num_layers}", layers)
    graph = OperatorGraph(_embedding(run))
    hidden = graph.operators[-1].outputs[0]
    for layer in range(layers):
        weights = layer_weights(model, run.quant, layer)
        for operator in attention_operators(run, layer, hidden, weights):
            graph.add(operator)
        hidden = operator.outputs[0]
        for operator in _mlp_operators(run, layer, hidden, weights):
            graph.add(operator)
        hidden = operator.outputs[0]
    for operator in _head(run, hidden, run.tokens if all_logits else run.batch):
        graph.add(operator)
    return graph


def parse_phase(text: Phase | str) -> Phase:
    """Phase of a text.

    Raises
    ------
    WorkloadError
        If it is none.
    """
    try:
        return Phase(text)
    except ValueError:
        rule = f"must be one of {', '.join(Phase)}"
        raise WorkloadError("phase", rule, text, nearest(text, [p.value for p in Phase])) from None


def check_length(where: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise WorkloadError(where, f"must be an integer of at least {least}", value)


def _forward_pass(
    model: ModelConfig,
    phase: Phase | str,
    batch: int,
    new_tokens: int,
    context_len: int,
    quant: str | Quantization,
    kv_dtype: str | None,
) -> ForwardPass:
    """Check lengths and formats."""
    for where, value, least in (
        ("batch", batch, 1),
        ("new_tokens", new_tokens, 1),
        ("context_len", context_len, 0),
    ):
        check_length(where, value, least)
    kind = parse_phase(phase)
    if kind is Phase.DECODE and new_tokens != 1:
        raise WorkloadError("new_tokens", "a decode step computes 1 token", new_tokens)
    if context_len + new_tokens > model.max_positions:
        rule = f"{model.name} has at most {model.max_positions} positions"
        raise WorkloadError("context_len + new_tokens", rule, context_len + new_tokens)
    cache_dtype = resolve_kv_dtype(kv_dtype, model.dtype)
    precision = parse_quantization(quant)
    return ForwardPass(model, kind, batch, new_tokens, context_len, precision, cache_dtype)


def _embedding(run: ForwardPass) -> list[Operator]:
    """Rows of the embedding table, one per token; scaled where the model says so."""
    token_ids = Tensor("token_ids", (run.tokens,), "int32", Role.ACTIVATION)
    table = model_weights(run.model, run.quant).embedding
    out = run.activation("embedding.out", run.tokens, run.model.hidden_size)
    gather = Operator(
        name="embedding",
        kind=OperatorKind.GATHER,
        stage="embedding",
        phase=run.phase,
        layer=None,
        inputs=(token_ids, table),
        outputs=(out,),
        compute_dtype=run.dtype,
        rows=run.tokens,
    )
    if not run.model.scaled_embedding:
        return [gather]
    scaled = run.activation("embedding_scale.out", *out.shape)
    counts = vector_counts.scale(out.elems)
    name = "embedding_scale"
    return [gather, run.vector(name, "embedding", None, (out,), (scaled,), counts, out.elems)]


def _mlp_operators(
    run: ForwardPass, layer: int, hidden: Tensor, weights: LayerWeights
) -> list[Operator]:
    """Norm, gate and up as one matmul, silu(gate) * up, down, residual."""
    name = f"layers.{layer}"
    norm = run.norm(f"{name}.mlp_norm", "mlp_norm", layer, hidden, weights.mlp_norm)
    gated = gated_mlp_operators(
        run,
        layer,
        norm.outputs[0],
        (weights.gate_up, weights.gate_up_bias),
        (weights.down, weights.down_bias),
    )
    residual = run.residual(f"{name}.mlp_residual", layer, hidden, gated[-1].outputs[0])
    return [norm, *gated, residual]


def gated_mlp_operators(
    run: ForwardPass,
    layer: int,
    normed: Tensor,
    gate_up: tuple[Tensor, Tensor | None],
    down: tuple[Tensor, Tensor | None],
) -> list[Operator]:
    """gate_up (k x 2n), silu(gate) * up, down (n x k)."""
    name = f"layers.{layer}"
    rows, width = normed.shape[0], down[0].shape[0]
    both = run.activation(f"{name}.gate_up.out", rows, 2 * width)
    gated = run.activation(f"{name}.silu_mul.out", rows, width, dtype=run.matmul_dtype)
    out = run.activation(f"{name}.down.out", rows, down[0].shape[1])
    counts = vector_counts.merge(
        vector_counts.silu_mul(gated.elems), run.narrow_ops(gated.elems, gated.dtype)
    )
    return [
        run.linear(f"{name}.gate_up_proj", "gate_up", layer, (normed, *gate_up), (both,)),
        run.vector(f"{name}.silu_mul", "silu_mul", layer, (both,), (gated,), counts, gated.elems),
        run.linear(f"{name}.down_proj", "down", layer, (gated, *down), (out,)),
    ]


def _head(run: ForwardPass, hidden: Tensor, positions: int) -> list[Operator]:
    """Final norm and lm_head over `positions` rows of the hidden state (a slice of it)."""
    weights = model_weights(run.model, run.quant)
    rows = run.activation(hidden.name, positions, run.model.hidden_size)
    norm = run.norm("final_norm", "final_norm", None, rows, weights.final_norm)
    if run.model.scaled_logits:
        scaled = vector_counts.scale(rows.elems)
        norm = replace(norm, vector_ops=vector_counts.merge(norm.vector_ops, scaled))
    logits = run.activation("logits", positions, run.model.vocab_size)
    operands = (norm.outputs[0], weights.lm_head, None)
    return [norm, run.linear("lm_head", "lm_head", None, operands, (logits,))]
