"""Graphs of single operators, for measuring a device without a model."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError, nearest
from npusim.workload import vector_counts
from npusim.workload.attention import attention_core
from npusim.workload.facts import MAX_SIZE
from npusim.workload.forward_pass import ForwardPass
from npusim.workload.graph import OperatorGraph
from npusim.workload.mlp import dense_mlp
from npusim.workload.model_config import ModelConfig
from npusim.workload.operator import MatmulShape, Operator, OperatorKind, Phase
from npusim.workload.quantization import Quantization, parse_quantization, resolve_kv_dtype
from npusim.workload.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

#: dimensions of each primitive, as its shape text lists them
PRIMITIVE_SHAPES: Mapping[str, str] = MappingProxyType(
    {
        "matmul": "MxKxN",
        "attention": "BxHxKVHxLqxLkxD",
        "softmax": "RxC",
        "ffn_gated": "MxKxN",
    }
)

#: 16-bit format of primitives, which have no model to say so
DEFAULT_DTYPE = "bf16"


def primitive_graph(
    kind: str,
    shape: str,
    batch: int = 1,
    quant: str | Quantization = "w16a16",
    kv_dtype: str | None = None,
    dtype: str = DEFAULT_DTYPE,
) -> OperatorGraph:
    """Graph of one primitive.

    Parameters
    ----------
    kind : str
        "matmul": (M x K) by a (K x N) weight. "attention": B sequences, H query heads on KVH cached
        KV heads, Lq queries, Lk keys, head size D; nothing is appended. "softmax": R rows of C,
        neither scaled nor masked. "ffn_gated": M tokens, model width K, hidden width N.
    shape : str
        Sizes joined by "x", in the order of `PRIMITIVE_SHAPES`.
    batch : int, optional
        Independent products of a matmul, each with its own weight; only "matmul" takes it.
    quant : str or Quantization, optional
        `wXaY[_gN]`; the moving operand comes in already quantised.
    kv_dtype : str, optional
        Format of the keys and values of "attention"; None is the 16-bit format.
    dtype : str, optional
        The 16-bit format, "bf16" or "fp16".

    Raises
    ------
    WorkloadError
        If the kind, shape, batch or precision is wrong.
    """
    if kind not in PRIMITIVE_SHAPES:
        rule = f"must be one of {', '.join(PRIMITIVE_SHAPES)}"
        raise WorkloadError("operator", rule, kind, nearest(kind, PRIMITIVE_SHAPES))
    sizes = _parse_shape(kind, shape)
    if batch < 1 or (batch > 1 and kind != "matmul"):
        rule = "must be at least 1" if batch < 1 else f"does not apply to {kind}"
        raise WorkloadError("batch", rule, batch)
    precision = parse_quantization(quant)
    kv = resolve_kv_dtype(kv_dtype, dtype)
    if kind == "matmul":
        return OperatorGraph([_matmul(_run(precision, kv, dtype), batch, *sizes)])
    if kind == "softmax":
        return OperatorGraph([_softmax(_run(precision, kv, dtype), *sizes)])
    if kind == "ffn_gated":
        return OperatorGraph(_ffn_gated(_run(precision, kv, dtype), *sizes))
    return OperatorGraph(_attention(precision, kv, dtype, sizes))


def _parse_shape(kind: str, shape: str) -> tuple[int, ...]:
    """Sizes of a shape text."""
    names = PRIMITIVE_SHAPES[kind]
    fields = shape.lower().split("x")
    rule = f"{kind} needs {names}: integers from 1 to {MAX_SIZE} joined by 'x'"
    if len(fields) != names.count("x") + 1:
        raise WorkloadError("shape", rule, shape)
    for field in fields:
        is_number = field.isascii() and field.isdigit() and len(field) <= len(str(MAX_SIZE))
        if not is_number or not 1 <= int(field) <= MAX_SIZE:
            raise WorkloadError("shape", rule, shape)
    return tuple(int(field) for field in fields)


def _run(
    quant: Quantization,
    kv_dtype: str,
    dtype: str,
    heads: tuple[int, int, int] = (1, 1, 2),
    lengths: tuple[int, int] = (1, 1),
) -> ForwardPass:
    """A pass of a stand-in model: (query heads, KV heads, head size) and (batch, queries)."""
    num_heads, num_kv_heads, head_dim = heads
    model = ModelConfig(
        name="primitive",
        model_type="primitive",
        hidden_size=num_heads * head_dim,
        intermediate_size=1,
        num_layers=1,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=1,
        max_positions=MAX_SIZE,
        dtype=dtype,
        tie_word_embeddings=False,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        windows=(None,),
    )
    batch, queries = lengths
    phase = Phase.DECODE if queries == 1 else Phase.PREFILL
    return ForwardPass(model, phase, batch, queries, 0, quant, kv_dtype)


def _matmul(run: ForwardPass, batch: int, m: int, k: int, n: int) -> Operator:
    """(M x K) by (K x N), `batch` of them."""
    stack = () if batch == 1 else (batch,)
    weight = run.quant.weight("matmul.weight", k, n, run.dtype, stack)
    return Operator(
        name="matmul",
        kind=OperatorKind.MATMUL,
        stage="matmul",
        phase=Phase.PREFILL if m > 1 else Phase.DECODE,
        layer=None,
        inputs=(run.activation("matmul.in", *stack, m, k, dtype=run.matmul_dtype), weight),
        outputs=(run.activation("matmul.out", *stack, m, n),),
        matmul=MatmulShape(batch, m, k, n),
        compute_dtype=run.matmul_dtype,
        rows=batch * m,
    )


def _softmax(run: ForwardPass, rows: int, width: int) -> Operator:
    """R rows of C."""
    scores = run.activation("softmax.in", rows, width)
    out = run.activation("softmax.out", rows, width)
    counts = vector_counts.softmax(rows, width, scaled_and_masked=False)
    return run.vector("softmax", "softmax", None, (scores,), (out,), counts, rows)


def _ffn_gated(run: ForwardPass, m: int, k: int, n: int) -> list[Operator]:
    """Gate and up (K x 2N), silu(gate) * up, down (N x K)."""
    normed = run.activation("ffn_gated.in", m, k, dtype=run.matmul_dtype)
    weights = {
        "gate_up_proj": run.quant.weight("layers.0.gate_up_proj.weight", k, 2 * n, run.dtype),
        "down_proj": run.quant.weight("layers.0.down_proj.weight", n, k, run.dtype),
    }
    return dense_mlp(run, 0, normed, weights)


def _attention(
    quant: Quantization, kv_dtype: str, dtype: str, sizes: tuple[int, ...]
) -> list[Operator]:
    """Scores, softmax and context over cached keys and values."""
    batch, heads, kv_heads, queries, keys, head_dim = sizes
    run = _run(quant, kv_dtype, dtype, (heads, kv_heads, head_dim), (batch, queries))
    query: Tensor = run.activation("attention.in", run.tokens, run.model.q_width)
    return attention_core(run, run.groups[0], 0, query, keys)
