"""Operator graphs of a decoder: prefill, or one decode step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError, nearest
from npusim.workload import vector_counts
from npusim.workload.attention import attention_operators
from npusim.workload.forward_pass import ForwardPass
from npusim.workload.graph import OperatorGraph
from npusim.workload.latent_attention import latent_attention_operators
from npusim.workload.mlp import mlp_operators
from npusim.workload.operator import Operator, OperatorKind, Phase
from npusim.workload.quantization import Quantization, parse_quantization, resolve_kv_dtype
from npusim.workload.routing import UNIFORM_ROUTING, ExpertRouting
from npusim.workload.tensor import Role, Tensor
from npusim.workload.weights import layer_weights, model_weights

if TYPE_CHECKING:
    from npusim.workload.model_config import ModelConfig
    from npusim.workload.weights import LayerWeights


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
    routing: ExpertRouting | None = None,
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
    routing : ExpertRouting, optional
        Which experts tokens visit; None draws them uniformly.

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
    run = replace(run, routing=routing or UNIFORM_ROUTING)
    layers = model.num_layers if num_layers is None else num_layers
    if not 1 <= layers <= model.num_layers:
        raise WorkloadError("num_layers", f"must be 1 to {model.num_layers}", layers)
    graph = OperatorGraph(_embedding(run))
    hidden = graph.operators[-1].outputs[0]
    for layer in range(layers):
        for operator in _layer(run, layer, hidden):
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
    """Rows of the embedding table, one per token; scaled, or with position rows added."""
    weights = model_weights(run.model, run.quant)
    out = run.activation("embedding.out", run.tokens, run.model.hidden_size)
    gather = _gather(run, "embedding", "token_ids", weights.embedding, out)
    operators = [gather]
    if run.model.scaled_embedding:
        scaled = run.activation("embedding_scale.out", *out.shape)
        counts = vector_counts.scale(out.elems)
        name = "embedding_scale"
        operators.append(run.vector(name, "embedding", None, (out,), (scaled,), counts, out.elems))
        out = scaled
    if weights.positions is not None:
        rows = run.activation("positions.out", *out.shape)
        operators.append(_gather(run, "positions", "position_ids", weights.positions, rows))
        total = run.activation("position_add.out", *out.shape)
        counts = vector_counts.add(out.elems)
        operators.append(
            run.vector("position_add", "embedding", None, (out, rows), (total,), counts, out.elems)
        )
    return operators


def _gather(run: ForwardPass, name: str, ids: str, table: Tensor, out: Tensor) -> Operator:
    """One row of a table per token."""
    return Operator(
        name=name,
        kind=OperatorKind.GATHER,
        stage="embedding",
        phase=run.phase,
        layer=None,
        inputs=(Tensor(ids, (run.tokens,), "int32", Role.ACTIVATION), table),
        outputs=(out,),
        compute_dtype=run.dtype,
        rows=run.tokens,
    )


def _layer(run: ForwardPass, layer: int, hidden: Tensor) -> list[Operator]:
    """One decoder layer; the last operator's output is the new hidden state."""
    model = run.model
    weights = layer_weights(model, run.quant, layer)
    attend = attention_operators if model.latent is None else latent_attention_operators
    norm = _norm(run, layer, "attn_norm", hidden, weights)
    attention = [norm, *attend(run, layer, norm.outputs[0], weights)]
    if model.is_parallel:
        mlp = mlp_operators(run, layer, norm.outputs[0], weights)
        updates = (attention[-1].outputs[0], mlp[-1].outputs[0])
        return [*attention, *mlp, run.residual(f"layers.{layer}.residual", layer, hidden, *updates)]
    attention = _with_residual(run, layer, "attn", hidden, weights, attention)
    hidden = attention[-1].outputs[0]
    norm = _norm(run, layer, "mlp_norm", hidden, weights)
    mlp = [norm, *mlp_operators(run, layer, norm.outputs[0], weights)]
    return [*attention, *_with_residual(run, layer, "mlp", hidden, weights, mlp)]


def _norm(
    run: ForwardPass,
    layer: int,
    part: str,
    hidden: Tensor,
    weights: LayerWeights,
    dtype: str | None = None,
) -> Operator:
    """A norm of the layer."""
    pair = (weights[part], weights.get(f"{part}.bias"))
    return run.norm(f"layers.{layer}.{part}", part, layer, hidden, pair, dtype)


def _with_residual(
    run: ForwardPass,
    layer: int,
    half: str,
    hidden: Tensor,
    weights: LayerWeights,
    operators: list[Operator],
) -> list[Operator]:
    """Operators of half a layer, their output normed again where the model does, and the sum."""
    if run.model.has_post_norms:
        update, part = operators[-1].outputs[0], f"post_{half}_norm"
        operators = [*operators, _norm(run, layer, part, update, weights, run.dtype)]
    update = operators[-1].outputs[0]
    return [*operators, run.residual(f"layers.{layer}.{half}_residual", layer, hidden, update)]


def _head(run: ForwardPass, hidden: Tensor, positions: int) -> list[Operator]:
    """Final norm and lm_head over `positions` rows of the hidden state (a slice of it)."""
    weights = model_weights(run.model, run.quant)
    rows = run.activation(hidden.name, positions, run.model.hidden_size)
    pair = (weights.final_norm, weights.final_norm_bias)
    norm = run.norm("final_norm", "final_norm", None, rows, pair)
    if run.model.scaled_logits:
        scaled = vector_counts.scale(rows.elems)
        norm = replace(norm, vector_ops=vector_counts.merge(norm.vector_ops, scaled))
    logits = run.activation("logits", positions, run.model.vocab_size)
    operands = (norm.outputs[0], weights.lm_head, weights.lm_head_bias)
    head = run.linear("lm_head", "lm_head", None, operands, (logits,))
    if run.model.logit_softcap:
        counts = vector_counts.merge(head.vector_ops, vector_counts.soft_cap(logits.elems))
        head = replace(head, vector_ops=counts)
    return [norm, head]
