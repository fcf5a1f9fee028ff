"""Operators of one attention block, unfused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.workload import vector_counts
from npusim.workload.operator import MatmulShape, Operator, OperatorKind
from npusim.workload.tensor import Role, Tensor, packed_bytes

if TYPE_CHECKING:
    from npusim.workload.forward_pass import ForwardPass
    from npusim.workload.weights import LayerWeights


def attention_operators(
    run: ForwardPass, layer: int, hidden: Tensor, weights: LayerWeights
) -> list[Operator]:
    """From attention norm to residual; the last operator's output is the new hidden state."""
    name = f"layers.{layer}"
    norm = run.norm(f"{name}.attn_norm", "attn_norm", layer, hidden, weights.attn_norm)
    projections = _projections(run, layer, norm.outputs[0], weights)
    query, key, value = projections[-1].outputs[0], projections[-1].outputs[1], _value(projections)
    appends = _appends(run, layer, key, value)
    core = attention_core(run, layer, query, run.attended_tokens(layer))
    operands = (core[-1].outputs[0], weights.o, weights.o_bias)
    out = run.activation(f"{name}.o_proj.out", run.tokens, run.model.hidden_size)
    o_proj = run.linear(f"{name}.o_proj", "o_proj", layer, operands, (out,))
    residual = run.residual(f"{name}.attn_residual", layer, hidden, out)
    return [norm, *projections, *appends, *core, o_proj, residual]


def _value(projections: list[Operator]) -> Tensor:
    """The value tensor: third output of the qkv projection."""
    return projections[0].outputs[2]


def _projections(
    run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights
) -> list[Operator]:
    """Project, norm q and k if the model does, rotate; the last operator yields q and k."""
    name, model = f"layers.{layer}", run.model
    query = run.activation(f"{name}.q", run.tokens, model.q_width)
    key = run.activation(f"{name}.k", run.tokens, model.kv_width)
    value = run.activation(f"{name}.v", run.tokens, model.kv_width)
    operators = [
        run.linear(
            f"{name}.qkv_proj",
            "qkv",
            layer,
            (normed, weights.qkv, weights.qkv_bias),
            (query, key, value),
        )
    ]
    if weights.q_norm is not None and weights.k_norm is not None:
        norms = (weights.q_norm, weights.k_norm)
        operators.append(_qk_norm(run, layer, query, key, norms))
        query, key = operators[-1].outputs
    operators.append(_rope(run, layer, query, key))
    return operators


def _qk_norm(
    run: ForwardPass, layer: int, query: Tensor, key: Tensor, weights: tuple[Tensor, Tensor]
) -> Operator:
    """RMS norm of each head of q and k."""
    name, model = f"layers.{layer}.qk_norm", run.model
    heads = run.tokens * (model.num_heads + model.num_kv_heads)
    outputs = tuple(replace(t, name=f"{t.name}_normed") for t in (query, key))
    return run.vector(
        name,
        "qk_norm",
        layer,
        (query, key, *weights),
        outputs,
        vector_counts.rms_norm(heads, model.head_dim),
        run.tokens * model.num_kv_heads,
    )


def _rope(run: ForwardPass, layer: int, query: Tensor, key: Tensor) -> Operator:
    """Rotate q and k; q leaves in the format of the attention matmuls."""
    name = f"layers.{layer}"
    rotated_query = Tensor(f"{name}.q_rot", query.shape, run.attention_dtype, Role.ACTIVATION)
    rotated_key = run.activation(f"{name}.k_rot", *key.shape)
    counts = vector_counts.merge(
        vector_counts.rope(query.elems + key.elems),
        run.narrow_ops(query.elems, run.attention_dtype),
    )
    rows = run.tokens * run.model.num_kv_heads
    return run.vector(
        f"{name}.rope", "rope", layer, (query, key), (rotated_query, rotated_key), counts, rows
    )


def _appends(run: ForwardPass, layer: int, key: Tensor, value: Tensor) -> list[Operator]:
    """Write the new K and V rows into the cache, quantised first if its format is narrower."""
    if run.kv_dtype == run.dtype:
        return [_append(run, layer, "k", key), _append(run, layer, "v", value)]
    narrow = tuple(replace(t, name=f"{t.name}_kv", dtype=run.kv_dtype) for t in (key, value))
    quantize = run.vector(
        f"layers.{layer}.kv_quantize",
        "kv_append",
        layer,
        (key, value),
        narrow,
        run.narrow_ops(key.elems + value.elems, run.kv_dtype),
        run.tokens * run.model.num_kv_heads,
    )
    return [quantize, _append(run, layer, "k", narrow[0]), _append(run, layer, "v", narrow[1])]


def _append(run: ForwardPass, layer: int, part: str, rows: Tensor) -> Operator:
    """One contiguous run of new tokens per sequence and KV head."""
    model = run.model
    num_runs = run.batch * model.num_kv_heads
    shape = (run.batch, model.num_kv_heads, run.new_tokens, model.head_dim)
    return Operator(
        name=f"layers.{layer}.{part}_append",
        kind=OperatorKind.KV_APPEND,
        stage="kv_append",
        phase=run.phase,
        layer=layer,
        inputs=(rows,),
        outputs=(Tensor(f"layers.{layer}.{part}_cache", shape, run.kv_dtype, Role.KV),),
        compute_dtype=run.dtype,
        rows=num_runs * run.new_tokens,
        kv_runs=(packed_bytes(run.new_tokens * model.head_dim, run.kv_dtype), num_runs),
    )


def attention_core(run: ForwardPass, layer: int, query: Tensor, keys: int) -> list[Operator]:
    """Scores (q k^T), softmax, context (p v); heads that share a KV head share one matmul."""
    name, model = f"layers.{layer}", run.model
    cache_shape = (run.batch, model.num_kv_heads, keys, model.head_dim)
    k_cache = Tensor(f"{name}.k_cache", cache_shape, run.kv_dtype, Role.KV)
    v_cache = replace(k_cache, name=f"{name}.v_cache")
    square = (run.batch, model.num_heads, run.new_tokens, keys)
    scores = run.activation(f"{name}.scores.out", *square)
    probabilities = run.activation(f"{name}.softmax.out", *square, dtype=run.attention_dtype)
    out = run.activation(f"{name}.context.out", run.tokens, model.q_width, dtype=run.matmul_dtype)
    m = model.heads_per_kv * run.new_tokens
    batch = run.batch * model.num_kv_heads
    return [
        _attention_matmul(
            run,
            layer,
            "scores",
            (query, k_cache),
            scores,
            MatmulShape(batch, m, model.head_dim, keys),
        ),
        _softmax(run, layer, scores, probabilities),
        _attention_matmul(
            run,
            layer,
            "context",
            (probabilities, v_cache),
            out,
            MatmulShape(batch, m, keys, model.head_dim),
        ),
    ]


def _attention_matmul(
    run: ForwardPass,
    layer: int,
    stage: str,
    inputs: tuple[Tensor, Tensor],
    output: Tensor,
    shape: MatmulShape,
) -> Operator:
    """A matmul with the cache; no part of the square is skipped."""
    return Operator(
        name=f"layers.{layer}.{stage}",
        kind=OperatorKind.MATMUL,
        stage=stage,
        phase=run.phase,
        layer=layer,
        inputs=inputs,
        outputs=(output,),
        matmul=shape,
        compute_dtype=run.attention_dtype,
        rows=shape.batch * shape.m,
        b_is_transposed=stage == "scores",
    )


def _softmax(run: ForwardPass, layer: int, scores: Tensor, probabilities: Tensor) -> Operator:
    """Scale, mask and softmax of every query row."""
    width = scores.shape[-1]
    rows = scores.elems // width
    counts = vector_counts.merge(
        vector_counts.softmax(rows, width, scaled_and_masked=True),
        run.narrow_ops(scores.elems, probabilities.dtype),
    )
    name = f"layers.{layer}.softmax"
    return run.vector(name, "softmax", layer, (scores,), (probabilities,), counts, rows)
