"""Operators of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), unfused.

A prefill without cached tokens expands keys and values of every head from the latent; every other
pass works on the cached latents, with the up-projections absorbed into query and output
(section 2.1.2 of the paper).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npusim.workload import vector_counts
from npusim.workload.attention import attention_square, cache_appends
from npusim.workload.operator import MatmulShape, Operator
from npusim.workload.tensor import Role, Tensor

if TYPE_CHECKING:
    from npusim.workload.forward_pass import ForwardPass, SequenceGroup
    from npusim.workload.model_config import LatentAttention
    from npusim.workload.weights import LayerWeights


class _Pass:
    """Operators of one layer, collected in program order."""

    def __init__(self, run: ForwardPass, layer: int, weights: LayerWeights) -> None:
        assert run.model.latent is not None
        self.run, self.layer, self.weights = run, layer, weights
        self.latent: LatentAttention = run.model.latent
        self.heads = run.model.num_heads
        self.name = f"layers.{layer}"
        self.operators: list[Operator] = []

    def linear(self, part: str, stage: str, moving: Tensor, outputs: tuple[Tensor, ...]) -> None:
        """A projection."""
        operands = (moving, self.weights[part], self.weights.get(f"{part}.bias"))
        name = f"{self.name}.{part}"
        self.operators.append(self.run.linear(name, stage, self.layer, operands, outputs))

    def norm(self, part: str, rows: Tensor) -> Tensor:
        """RMS norm of a compressed row."""
        name = f"{self.name}.{part}"
        weight = (self.weights[part], None)
        self.operators.append(self.run.norm(name, "latent_norm", self.layer, rows, weight))
        return self.operators[-1].outputs[0]

    def per_head(self, part: str, stage: str, moving: Tensor) -> Tensor:
        """One product per head, rows head by head."""
        weight = self.weights[part]
        heads, k, n = weight.shape
        rows = self.run.tokens
        operand = replace(moving, shape=(heads, rows, k))
        out = self.run.activation(f"{self.name}.{part}.out", heads, rows, n)
        shape = MatmulShape(heads, rows, k, n)
        name, operands = f"{self.name}.{part}", (operand, weight, None)
        self.operators.append(self.run.product(name, stage, self.layer, operands, (out,), shape))
        return out

    def up(self, part: str, latent: Tensor, columns: int) -> Tensor:
        """Latent rows times a per-head weight read as one (kv_rank x columns) matrix."""
        weight = replace(self.weights[part], shape=(self.latent.kv_rank, columns))
        out = self.run.activation(f"{self.name}.{part}.out", self.run.tokens, columns)
        operands = (latent, weight, None)
        name = f"{self.name}.{part}"
        self.operators.append(self.run.linear(name, "kv_b", self.layer, operands, (out,)))
        return out

    def vector(
        self, part: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], rotated: int
    ) -> None:
        """Rotate and lay out side by side; what is not rotated is copied."""
        copied = sum(t.elems for t in outputs) - rotated
        narrow = sum(t.elems for t in outputs if t.dtype != self.run.dtype)
        counts = vector_counts.merge(
            vector_counts.rope(rotated),
            (("copy", copied),),
            self.run.narrow_ops(narrow, self.run.attention_dtype),
        )
        name = f"{self.name}.{part}"
        self.operators.append(
            self.run.vector(name, "rope", self.layer, inputs, outputs, counts, self.run.tokens)
        )


def latent_attention_operators(
    run: ForwardPass, layer: int, normed: Tensor, weights: LayerWeights
) -> list[Operator]:
    """From the projections of the normed hidden state to the output projection."""
    build = _Pass(run, layer, weights)
    query, key_rope, latent = _compressed(build, normed)
    is_expanded = run.context_len == 0 and run.new_tokens > 1 and run.chunk is None
    attend = _expanded if is_expanded else _absorbed
    context = attend(build, query, key_rope, latent)
    out = run.activation(f"{build.name}.o_proj.out", run.tokens, run.model.hidden_size)
    build.linear("o_proj", "o_proj", context, (out,))
    return build.operators


def _compressed(build: _Pass, normed: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """(query without, with rotation), rotary key, normed latent."""
    run, latent = build.run, build.latent
    rows = run.tokens
    nope = run.activation(f"{build.name}.q_nope", rows, build.heads * latent.nope_dim)
    rope = run.activation(f"{build.name}.q_rope", rows, build.heads * latent.rope_dim)
    if latent.q_rank is None:
        build.linear("q_proj", "q_b", normed, (nope, rope))
    else:
        low = run.activation(f"{build.name}.q_a", rows, latent.q_rank)
        build.linear("q_a_proj", "q_a", normed, (low,))
        build.linear("q_b_proj", "q_b", build.norm("q_a_norm", low), (nope, rope))
    row = run.activation(f"{build.name}.latent", rows, latent.kv_rank)
    key_rope = run.activation(f"{build.name}.k_rope", rows, latent.rope_dim)
    build.linear("kv_a_proj", "kv_a", normed, (row, key_rope))
    return (nope, rope), key_rope, build.norm("kv_a_norm", row)


def _append(build: _Pass, key_rope: Tensor, latent: Tensor) -> None:
    """Write latent and rotated key, side by side, into the cache."""
    run = build.run
    rows = run.activation(f"{build.name}.kv_row", run.tokens, build.latent.cache_width)
    build.vector("k_rope_cat", (latent, key_rope), (rows,), key_rope.elems)
    build.operators.extend(cache_appends(run, build.layer, (("kv", rows),)))


def _absorbed(
    build: _Pass, query: tuple[Tensor, Tensor], key_rope: Tensor, latent: Tensor
) -> Tensor:
    """Queries in the latent's space; all heads share the cached rows as keys and as values."""
    run, dims, heads = build.run, build.latent, build.heads
    _append(build, key_rope, latent)
    absorbed = build.per_head("w_uk", "q_absorb", query[0])
    full = Tensor(
        f"{build.name}.q_rot",
        (run.tokens, heads * dims.cache_width),
        run.attention_dtype,
        Role.ACTIVATION,
    )
    build.vector("rope", (absorbed, query[1]), (full,), query[1].elems)
    out = run.activation(
        f"{build.name}.context.out", run.tokens, heads * dims.kv_rank, dtype=run.matmul_dtype
    )
    for group in run.groups:
        build.operators.extend(_absorbed_square(build, group, full, out))
    context = build.per_head("w_uv", "v_absorb", out)
    return replace(context, shape=(run.tokens, heads * dims.v_dim))


def _absorbed_square(
    build: _Pass, group: SequenceGroup, full: Tensor, out: Tensor
) -> list[Operator]:
    """Attention of a group's sequences over their cached rows."""
    run, dims = build.run, build.latent
    keys = run.attended_tokens(build.layer, group)
    name = f"{build.name}.{group.prefix}kv_cache"
    cache = Tensor(name, (group.batch, 1, keys, dims.cache_width), run.kv_dtype, Role.KV)
    values = replace(cache, shape=(group.batch, 1, keys, dims.kv_rank))
    rows = build.heads * group.new_tokens
    shapes = (
        MatmulShape(group.batch, rows, dims.cache_width, keys),
        MatmulShape(group.batch, rows, keys, dims.kv_rank),
    )
    operands = (run.rows_of(full, group), cache, values)
    return attention_square(run, group, build.layer, operands, run.rows_of(out, group), shapes)


def _expanded(
    build: _Pass, query: tuple[Tensor, Tensor], key_rope: Tensor, latent: Tensor
) -> Tensor:
    """Keys and values of every head from the latent; nothing of the cache is read."""
    run, dims, heads = build.run, build.latent, build.heads
    _append(build, key_rope, latent)
    keys_nope = build.up("w_uk", latent, heads * dims.nope_dim)
    values = build.up("w_uv", latent, heads * dims.v_dim)
    (group,), wide = run.groups, heads * dims.qk_dim
    dtype = run.attention_dtype
    full = Tensor(f"{build.name}.q_rot", (run.tokens, wide), dtype, Role.ACTIVATION)
    keys = Tensor(f"{build.name}.k_full", (run.tokens, wide), dtype, Role.ACTIVATION)
    inputs = (query[0], query[1], keys_nope, key_rope)
    build.vector("rope", inputs, (full, keys), query[1].elems + key_rope.elems)
    square = (run.batch, heads, run.new_tokens)
    out = run.activation(
        f"{build.name}.context.out", run.tokens, heads * dims.v_dim, dtype=run.matmul_dtype
    )
    shapes = (
        MatmulShape(run.batch * heads, run.new_tokens, dims.qk_dim, run.new_tokens),
        MatmulShape(run.batch * heads, run.new_tokens, run.new_tokens, dims.v_dim),
    )
    operands = (
        full,
        replace(keys, shape=(*square, dims.qk_dim)),
        replace(values, shape=(*square, dims.v_dim)),
    )
    build.operators.extend(attention_square(run, group, build.layer, operands, out, shapes))
    return out
