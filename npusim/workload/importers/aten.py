"""ATen calls (PyTorch) as operators: the same table for execution traces and Kineto traces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from npusim.workload import vector_counts
from npusim.workload.importers.convolution import convolution
from npusim.workload.importers.elementwise import PER_ELEMENT, REDUCTIONS
from npusim.workload.operator import MatmulShape

if TYPE_CHECKING:
    from npusim.workload.importers.builder import TraceBuilder
    from npusim.workload.tensor import Tensor

#: calls that only name bytes anew, or make constants
FREE = frozenset(
    "view reshape _reshape_alias _unsafe_view transpose t permute select slice narrow expand "
    "expand_as unsqueeze squeeze flatten unflatten as_strided split split_with_sizes chunk unbind "
    "detach detach_ alias resolve_conj resolve_neg empty empty_strided empty_like new_empty "
    "result_type item _local_scalar_dense is_nonzero size stride numel dim resize_ set_ lift_fresh "
    "arange zeros ones full zeros_like ones_like full_like scalar_tensor fill_ zero_ uniform_ "
    "normal_ rand randn random_ bernoulli_ movedim swapaxes numpy_T mT diagonal unfold "
    "_has_compatible_shallow_copy_type contiguous rand_like randn_like new_zeros new_ones "
    "requires_grad_".split()
)
_COPIES = frozenset(
    "cat concat stack copy_ clone _to_copy repeat repeat_interleave flip roll index_put_ "
    "index_copy_ scatter scatter_ gather index constant_pad_nd pad sort".split()
)
_MATMULS = frozenset("mm bmm addmm baddbmm matmul linear addbmm _addmm_activation".split())
_SOFTMAX = frozenset("softmax _softmax log_softmax _log_softmax _safe_softmax".split())
_NORMS = frozenset("layer_norm native_layer_norm group_norm native_group_norm batch_norm "
                   "native_batch_norm cudnn_batch_norm rms_norm".split())  # fmt: skip
_CONVS = frozenset("convolution _convolution conv1d conv2d cudnn_convolution mkldnn_convolution "
                   "convolution_overrideable".split())  # fmt: skip
_POOLS = frozenset("max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d "
                   "_adaptive_avg_pool2d".split())  # fmt: skip
_ATTENTION = "scaled_dot_product"


@dataclass(frozen=True)
class AtenCall:
    """One call: its tensors in argument order, its first output, and plain arguments."""

    name: str  # without namespace and overload
    inputs: tuple[Tensor, ...]
    output: Tensor
    arguments: tuple[object, ...] = ()


def is_known(name: str) -> bool:
    """Whether `add_call` models a call; a free one counts as known only to its own children."""
    plain = name.rstrip("_")
    return (
        name in _COPIES
        or any(name in group for group in (_MATMULS, _SOFTMAX, _NORMS, _CONVS, _POOLS))
        or plain in PER_ELEMENT
        or plain in REDUCTIONS
        or name in ("embedding", "index_select")
        or name.startswith((_ATTENTION, "_" + _ATTENTION))
    )


def add_call(build: TraceBuilder, call: AtenCall) -> None:
    """Append the operators of one call; what is not known falls back to the host."""
    name, plain, out = call.name, call.name.rstrip("_"), call.output
    if not call.inputs:
        build.fallback(name, name, call.inputs, (out,))
    elif name in _MATMULS and len(call.inputs) >= 2:
        _add_matmul(build, call)
    elif name.lstrip("_").startswith(_ATTENTION) and len(call.inputs) >= 3:
        _add_attention(build, call)
    elif name in _CONVS and len(call.inputs) >= 2:
        convolution(build, name, call.inputs[0], call.inputs[1], out, call.inputs[2:3])
    elif name in _SOFTMAX:
        width = out.shape[-1]
        rows = out.elems // width
        counts = vector_counts.softmax(rows, width, scaled_and_masked=False)
        build.vector(name, "softmax", call.inputs[:1], (out,), counts, rows)
    elif name in _NORMS:
        width = out.shape[-1]
        rows = out.elems // width
        weights = [build.weight(t) for t in call.inputs[1:] if t.elems <= width]
        of = vector_counts.rms_norm if name == "rms_norm" else vector_counts.layer_norm
        inputs = (call.inputs[0], *weights)
        build.vector(name, "norm", inputs, (out,), of(rows, width), rows)
    elif name in ("embedding", "index_select") and len(call.inputs) >= 2:
        _add_gather(build, call)
    elif name in _COPIES:
        build.copy(name, call.inputs, out)
    elif plain in PER_ELEMENT:
        counts = tuple((op, n * out.elems) for op, n in PER_ELEMENT[plain])
        build.vector(name, plain, call.inputs, (out,), counts, out.elems)
    elif plain in REDUCTIONS or name in _POOLS:
        elems = call.inputs[0].elems
        counts = tuple((op, n * elems) for op, n in REDUCTIONS.get(plain, (("max", 1),)))
        build.vector(name, plain, call.inputs[:1], (out,), counts, out.elems)
    else:
        build.fallback(name, name, call.inputs, (out,))


def _add_matmul(build: TraceBuilder, call: AtenCall) -> None:
    """mm, bmm, addmm(bias, a, b), linear(a, w, bias), matmul with broadcasting."""
    inputs, bias = call.inputs, None
    if call.name in ("addmm", "baddbmm", "addbmm", "_addmm_activation") and len(inputs) >= 3:
        bias, moving, stationary = inputs[:3]
    else:
        moving, stationary = inputs[:2]
        if call.name == "linear" and len(inputs) > 2:
            bias = inputs[2]
    shape, is_stacked = matmul_shape(
        moving.shape, stationary.shape, is_linear=call.name == "linear"
    )
    if (
        shape.rows * shape.n != call.output.elems
        or shape.batch * shape.k * shape.n != stationary.elems
    ):
        build.fallback(call.name, call.name, call.inputs, (call.output,))
        return
    if not is_stacked and not build.is_produced(stationary.name):
        stationary = build.weight(stationary)
    if bias is not None:
        bias = build.weight(bias)
    build.matmul(call.name, moving, stationary, call.output, shape, bias=bias)


def matmul_shape(
    a: tuple[int, ...], b: tuple[int, ...], *, is_linear: bool = False
) -> tuple[MatmulShape, bool]:
    """Shape of a product under the broadcasting of numpy, and whether `b` is a stack."""
    k = a[-1]
    if is_linear:
        return MatmulShape(1, prod(a[:-1]), k, b[0] if len(b) == 2 else 1), False
    if len(b) == 1:
        return MatmulShape(1, prod(a[:-1]), k, 1), False
    n = b[-1]
    if prod(b[:-2]) == 1:
        return MatmulShape(1, prod(a[:-1]), k, n), False
    return MatmulShape(prod(b[:-2]), prod(a[:-1]) // prod(b[:-2]) or 1, k, n), True


def _add_gather(build: TraceBuilder, call: AtenCall) -> None:
    table, ids = call.inputs[0], call.inputs[-1]
    if table.elems < ids.elems or len(table.shape) < 2:
        table, ids = ids, table
    table = replace(table, shape=(table.shape[0], table.elems // table.shape[0]))
    if not build.is_produced(table.name):
        table = build.weight(table)
    if ids.elems * table.shape[1] != call.output.elems:
        build.copy(call.name, (table,), call.output)
        return
    build.gather(call.name, "embedding", ids, table, call.output)


def _add_attention(build: TraceBuilder, call: AtenCall) -> None:
    """Scores, softmax, context of (batch, heads, tokens, width) tensors."""
    query, key, value = call.inputs[:3]
    if len(query.shape) != 4 or len(key.shape) != 4 or key.shape[-1] != query.shape[-1]:
        build.fallback(call.name, call.name, call.inputs, (call.output,))
        return
    *lead, queries, width = query.shape
    keys, groups = key.shape[-2], prod(key.shape[:2])
    m = prod(lead) * queries // groups
    label = f"{call.name}.{len(build.operators)}"
    scores = build.tensor(f"{label}.scores", (groups, m, keys))
    soft = build.tensor(f"{label}.softmax", (groups, m, keys))
    build.matmul(
        f"{label}.scores", query, key, scores, MatmulShape(groups, m, width, keys),
        stage="scores", transposed=True,
    )  # fmt: skip
    counts = vector_counts.softmax(groups * m, keys, scaled_and_masked=True)
    build.vector(f"{label}.softmax", "softmax", (scores,), (soft,), counts, groups * m)
    shape = MatmulShape(groups, m, keys, value.shape[-1])
    build.matmul(f"{label}.context", soft, value, call.output, shape, stage="context")
