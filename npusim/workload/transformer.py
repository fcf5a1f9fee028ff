"""Operator graphs of a decoder: prefill, or one decode step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError, nearest
from npusim.workload import vector_counts
from npusim.workload.attention import attention_operators
from npusim.workload.forward_pass import ForwardPass, PromptChunk
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

#: hidden state that a multi-token-prediction module reads
HIDDEN_INPUT = "hidden"


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
    chunk: PromptChunk | None = None,
    speculated_tokens: int = 0,
) -> OperatorGraph:
    """Operators of one forward pass.

    Parameters
    ----------
    model : ModelConfig
        Architecture.
    phase : Phase or str
        "prefill" or "decode"; decode computes exactly one new token per sequence. "mixed" is a
        decode step with a chunk, "draft" one of a draft model.
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
    chunk : PromptChunk, optional
        Tokens of another sequence's prompt in the same step (phase "mixed"): one matmul over the
        rows of both, attention apart.
    speculated_tokens : int, optional
        Proposed tokens per sequence that a decode step checks beside its own; lm_head covers all.

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
    run = replace(run, routing=routing or UNIFORM_ROUTING, chunk=_checked(chunk, run))
    if speculated_tokens:
        check_length("speculated_tokens", speculated_tokens, 1)
        run = replace(run, new_tokens=new_tokens + speculated_tokens)
        _check_positions(model, context_len + run.new_tokens)
    layers = model.num_layers if num_layers is None else num_layers
    if not 1 <= layers <= model.num_layers:
        raise WorkloadError("num_layers", f"must be 1 to {model.num_layers}", layers)
    graph = OperatorGraph(_embedding(run))
    hidden = graph.operators[-1].outputs[0]
    for layer in range(layers):
        for operator in _layer(run, layer, hidden):
            graph.add(operator)
        hidden = operator.outputs[0]
    every = all_logits or speculated_tokens > 0
    for operator in _head(run, hidden, run.tokens if every else run.sequences):
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
    if kind is not Phase.PREFILL and new_tokens != 1:
        raise WorkloadError("new_tokens", "a decode step computes 1 token", new_tokens)
    _check_positions(model, context_len + new_tokens)
    cache_dtype = resolve_kv_dtype(kv_dtype, model.dtype)
    precision = parse_quantization(quant)
    return ForwardPass(model, kind, batch, new_tokens, context_len, precision, cache_dtype)


def _check_positions(model: ModelConfig, positions: int) -> None:
    """Refuse more tokens than the model has positions."""
    if positions > model.max_positions:
        rule = f"{model.name} has at most {model.max_positions} positions"
        raise WorkloadError("context_len + new_tokens", rule, positions)


def _checked(chunk: PromptChunk | None, run: ForwardPass) -> PromptChunk | None:
    """Refuse a chunk outside a mixed step, or one without room."""
    if (chunk is not None) != (run.phase is Phase.MIXED):
        raise WorkloadError("chunk", "a mixed step, and no other, has a chunk", chunk)
    if chunk is not None:
        check_length("chunk_tokens", chunk.tokens, 1)
        check_length("chunk_context_len", chunk.context_len, 0)
        check_length("chunk capacity", chunk.capacity_tokens, chunk.context_len + chunk.tokens)
        _check_positions(run.model, chunk.context_len + chunk.tokens)
    return chunk


def _embedding(run: ForwardPass) -> list[Operator]:
    """Rows of the embedding table, one per token; scaled, or with position rows added.

    A multi-token-prediction module then joins them with the hidden state it is given.
    """
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
    if run.model.is_mtp:
        operators += _joined(run, operators[-1].outputs[0])
    return operators


def _joined(run: ForwardPass, embedded: Tensor) -> list[Operator]:
    """Norms of embedding and hidden state, side by side, and their projection to one width."""
    weights = model_weights(run.model, run.quant)
    assert weights.embedding_norm and weights.hidden_norm and weights.mtp_proj
    rows, width = embedded.shape
    hidden = run.activation(HIDDEN_INPUT, rows, width)
    both = run.activation("mtp_norm.out", rows, 2 * width, dtype=run.matmul_dtype)
    counts = vector_counts.merge(
        vector_counts.rms_norm(2 * rows, width), run.narrow_ops(both.elems, both.dtype)
    )
    inputs = (embedded, hidden, weights.embedding_norm, weights.hidden_norm)
    out = run.activation("mtp_proj.out", rows, width)
    return [
        run.vector("mtp_norm", "mtp_norm", None, inputs, (both,), counts, rows),
        run.linear("mtp_proj", "mtp_proj", None, (both, weights.mtp_proj, None), (out,)),
    ]


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
