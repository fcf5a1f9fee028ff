"""Operators of one attention block, unfused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.workload import vector_counts
from npusim.workload.model_config import Norm, Positions
from npusim.workload.operator import MatmulShape, Operator, OperatorKind
from npusim.workload.tensor import Role, Tensor, packed_bytes

if TYPE_CHECKING:
    from npusim.workload.forward_pass import ForwardPass, SequenceGroup
    from npusim.workload.weights import LayerWeights


def attention_operators(
    run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights
) -> list[Operator]:
    """From the projections of the normed hidden state to the output projection."""
    name = f"layers.{layer}"
    projections, (query, key, value) = _projections(run, layer, normed, weights)
    appends = cache_appends(run, layer, (("k", key), ("v", value)))
    sinks = weights.get("sinks")
    core: list[Operator] = []
    for group in run.groups:
        keys = run.attended_tokens(layer, group)
        core += attention_core(run, group, layer, query, keys, sinks)
    operands = (_context(run, layer), weights["o_proj"], weights.get("o_proj.bias"))
    out = run.activation(f"{name}.o_proj.out", run.tokens, run.model.hidden_size)
    o_proj = run.linear(f"{name}.o_proj", "o_proj", layer, operands, (out,))
    return [*projections, *appends, *core, o_proj]


def _projections(
    run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights
) -> tuple[list[Operator], tuple[Tensor, Tensor, Tensor]]:
    """Project, norm q and k if the model does, rotate; with the resulting q, k and v."""
    name, model = f"layers.{layer}", run.model
    query = run.activation(f"{name}.q", run.tokens, model.q_width)
    key = run.activation(f"{name}.k", run.tokens, model.kv_width)
    value = run.activation(f"{name}.v", run.tokens, model.kv_width)
    operands = (normed, weights["qkv_proj"], weights.get("qkv_proj.bias"))
    operators = [run.linear(f"{name}.qkv_proj", "qkv", layer, operands, (query, key, value))]
    if model.qk_norm:
        norms = tuple(
            tensor for part in ("q_norm", "q_norm.bias", "k_norm", "k_norm.bias")
            if (tensor := weights.get(part)) is not None
        )  # fmt: skip
        operators.append(_qk_norm(run, layer, query, key, norms))
        query, key = operators[-1].outputs
    if model.positions is Positions.ROTARY:
        operators.append(_rope(run, layer, query, key))
        query, key = operators[-1].outputs
    elif run.attention_dtype != run.dtype:
        operators.append(_narrow_query(run, layer, query))
        (query,) = operators[-1].outputs
    return operators, (query, key, value)


def _qk_norm(
    run: ForwardPass, layer: int, query: Tensor, key: Tensor, weights: tuple[Tensor, ...]
) -> Operator:
    """Norm of each head of q and k."""
    name, model = f"layers.{layer}.qk_norm", run.model
    heads = run.tokens * (model.num_heads + model.num_kv_heads)
    outputs = tuple(replace(t, name=f"{t.name}_normed") for t in (query, key))
    is_rms = model.norm is Norm.RMS
    of_norm = vector_counts.rms_norm if is_rms else vector_counts.layer_norm
    return run.vector(
        name,
        "qk_norm",
        layer,
        (query, key, *weights),
        outputs,
        of_norm(heads, model.head_dim),
        run.tokens * model.num_kv_heads,
    )


def _rope(run: ForwardPass, layer: int, query: Tensor, key: Tensor) -> Operator:
    """Rotate q and k; q leaves in the format of the attention matmuls."""
    name = f"layers.{layer}"
    rotated_query = Tensor(f"{name}.q_rot", query.shape, run.attention_dtype, Role.ACTIVATION)
    rotated_key = run.activation(f"{name}.k_rot", *key.shape)
    head_dim = run.model.head_dim
    rotated = (query.elems + key.elems) // head_dim * (run.model.rotary_dim or head_dim)
    counts = vector_counts.merge(
        vector_counts.rope(rotated),
        run.narrow_ops(query.elems, run.attention_dtype),
    )
    rows = run.tokens * run.model.num_kv_heads
    return run.vector(
        f"{name}.rope", "rope", layer, (query, key), (rotated_query, rotated_key), counts, rows
    )


def _narrow_query(run: ForwardPass, layer: int, query: Tensor) -> Operator:
    """Without rotation: q in the format of the attention matmuls."""
    name = f"layers.{layer}"
    narrow = Tensor(f"{name}.q_narrow", query.shape, run.attention_dtype, Role.ACTIVATION)
    counts = run.narrow_ops(query.elems, run.attention_dtype)
    rows = run.tokens * run.model.num_kv_heads
    return run.vector(f"{name}.q_quantize", "rope", layer, (query,), (narrow,), counts, rows)


def cache_appends(
    run: ForwardPass, layer: int, parts: tuple[tuple[str, Tensor], ...]
) -> list[Operator]:
    """Write the new rows of each part into the cache, quantised first if its format is narrower."""
    if run.kv_dtype == run.dtype:
        return [_append(run, g, layer, part, rows) for g in run.groups for part, rows in parts]
    wide = tuple(rows for _, rows in parts)
    narrow = tuple(replace(t, name=f"{t.name}_kv", dtype=run.kv_dtype) for t in wide)
    quantize = run.vector(
        f"layers.{layer}.kv_quantize",
        "kv_append",
        layer,
        wide,
        narrow,
        run.narrow_ops(sum(t.elems for t in wide), run.kv_dtype),
        run.tokens * run.model.cache_shape[1],
    )
    named = [(part, rows) for (part, _), rows in zip(parts, narrow, strict=True)]
    return [quantize, *(_append(run, g, layer, *each) for g in run.groups for each in named)]


def _append(
    run: ForwardPass, group: SequenceGroup, layer: int, part: str, rows: Tensor
) -> Operator:
    """One contiguous run of new tokens per sequence and KV head."""
    _, heads, width = run.model.cache_shape
    num_runs = group.batch * heads
    shape = (group.batch, heads, group.new_tokens, width)
    name = f"layers.{layer}.{group.prefix}{part}"
    return Operator(
        name=f"{name}_append",
        kind=OperatorKind.KV_APPEND,
        stage="kv_append",
        phase=run.phase,
        layer=layer,
        inputs=(run.rows_of(rows, group),),
        outputs=(Tensor(f"{name}_cache", shape, run.kv_dtype, Role.KV),),
        compute_dtype=run.dtype,
        rows=num_runs * group.new_tokens,
        kv_runs=(packed_bytes(group.new_tokens * width, run.kv_dtype), num_runs),
        kv_slot=group.kv_slot,
    )


def _context(run: ForwardPass, layer: int) -> Tensor:
    """What attention hands to the output projection, a row per token."""
    name, width = f"layers.{layer}.context.out", run.model.q_width
    return run.activation(name, run.tokens, width, dtype=run.matmul_dtype)


def attention_core(
    run: ForwardPass,
    group: SequenceGroup,
    layer: int,
    query: Tensor,
    keys: int,
    sinks: Tensor | None = None,
) -> list[Operator]:
    """Scores (q k^T), softmax, context (p v); heads that share a KV head share one matmul."""
    name, model = f"layers.{layer}.{group.prefix}", run.model
    cache_shape = (group.batch, model.num_kv_heads, keys, model.head_dim)
    k_cache = Tensor(f"{name}k_cache", cache_shape, run.kv_dtype, Role.KV)
    v_cache = replace(k_cache, name=f"{name}v_cache")
    query, out = (run.rows_of(tensor, group) for tensor in (query, _context(run, layer)))
    m = model.heads_per_kv * group.new_tokens
    batch = group.batch * model.num_kv_heads
    scores = MatmulShape(batch, m, model.head_dim, keys)
    context = MatmulShape(batch, m, keys, model.head_dim)
    return attention_square(
        run, group, layer, (query, k_cache, v_cache), out, (scores, context), sinks=sinks
    )


def attention_square(
    run: ForwardPass,
    group: SequenceGroup,
    layer: int,
    operands: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    shapes: tuple[MatmulShape, MatmulShape],
    *,
    sinks: Tensor | None = None,
) -> list[Operator]:
    """Scores, softmax and context of q, keys and values with the two products' shapes."""
    name, model = f"layers.{layer}.{group.prefix}", run.model
    query, keys, values = operands
    square = (group.batch, model.num_heads, group.new_tokens, shapes[0].n)
    scores = run.activation(f"{name}scores.out", *square)
    probabilities = run.activation(f"{name}softmax.out", *square, dtype=run.attention_dtype)
    return [
        _attention_matmul(run, layer, f"{name}scores", (query, keys), scores, shapes[0]),
        _softmax(run, layer, f"{name}softmax", (scores, probabilities), sinks),
        _attention_matmul(run, layer, f"{name}context", (probabilities, values), out, shapes[1]),
    ]


def _attention_matmul(
    run: ForwardPass,
    layer: int,
    name: str,
    inputs: tuple[Tensor, Tensor],
    output: Tensor,
    shape: MatmulShape,
) -> Operator:
    """A matmul with the cache; no part of the square is skipped."""
    stage = "scores" if name.endswith("scores") else "context"
    return Operator(
        name=name,
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


def _softmax(
    run: ForwardPass,
    layer: int,
    name: str,
    square: tuple[Tensor, Tensor],
    sinks: Tensor | None,
) -> Operator:
    """Scale, cap, mask and softmax of every query row."""
    scores, probabilities = square
    width = scores.shape[-1]
    rows = scores.elems // width
    counts = vector_counts.merge(
        vector_counts.softmax(rows, width, scaled_and_masked=True),
        vector_counts.soft_cap(scores.elems) if run.model.attention_softcap else (),
        vector_counts.sinks(rows) if sinks is not None else (),
        run.narrow_ops(scores.elems, probabilities.dtype),
    )
    inputs = (scores,) if sinks is None else (scores, sinks)
    return run.vector(name, "softmax", layer, inputs, (probabilities,), counts, rows)
