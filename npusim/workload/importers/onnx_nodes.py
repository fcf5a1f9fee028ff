"""One ONNX node as operators."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload import vector_counts
from npusim.workload.importers.aten import matmul_shape
from npusim.workload.importers.convolution import convolution
from npusim.workload.importers.elementwise import PER_ELEMENT, REDUCTIONS
from npusim.workload.importers.onnx_shapes import attribute_of
from npusim.workload.operator import MatmulShape

if TYPE_CHECKING:
    import onnx

    from npusim.workload.importers.onnx_graph import OnnxGraph
    from npusim.workload.tensor import Tensor

_VIEWS = frozenset(
    "Reshape Flatten Squeeze Unsqueeze Identity Transpose Slice Dropout Split SequenceAt".split()
)
_COPIES = frozenset(
    "Concat Expand Tile Pad GatherND GatherElements ScatterND ScatterElements Resize DepthToSpace "
    "SpaceToDepth Compress ReverseSequence OneHot Upsample Trilu EyeLike CumSum".split()
)
_MATMULS = frozenset("MatMul FusedMatMul Gemm MatMulInteger QLinearMatMul MatMulNBits".split())
_CONVS = frozenset("Conv ConvInteger QLinearConv".split())
_POOLS = frozenset(
    "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool QLinearGlobalAveragePool".split()
)
_NORMS = frozenset(
    "LayerNormalization SimplifiedLayerNormalization RMSNormalization GroupNormalization "
    "InstanceNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization".split()
)
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
MAX_STEPS = 4096

#: positions of the moving and the stationary operand of quantised products
_QUANTISED_OPERANDS = {"QLinearMatMul": (0, 3), "QLinearConv": (0, 3)}


def add_node(graph: OnnxGraph, node: onnx.NodeProto, place: str) -> None:
    """Append the operators of a node whose output is not constant."""
    kind, name = node.op_type, node.name or node.output[0]
    if kind in _VIEWS:
        for output in node.output:
            if output and output in graph.known:
                graph.alias(output, node.input[0])
        return
    inputs = [n for n in node.input if n and graph.known[n].elems]
    if not inputs:
        return
    out = graph.tensor(node.output[0])
    lower = kind.lower().removeprefix("qlinear")
    if kind in _MATMULS:
        _matmul(graph, node, name, out)
    elif kind in _CONVS:
        x, w = (graph.tensor(node.input[i]) for i in _QUANTISED_OPERANDS.get(kind, (0, 1)))
        at = 8 if kind == "QLinearConv" else 2
        bias = [graph.tensor(n) for n in node.input[at : at + 1] if n and kind != "ConvInteger"]
        convolution(graph.build, name, x, w, out, bias)
    elif kind in ("Softmax", "LogSoftmax"):
        _softmax(graph, node, name, out)
    elif kind in _NORMS or kind == "BatchNormalization":
        _norm(graph, node, name, out)
    elif kind == "Gather":
        _gather(graph, node, name, out)
    elif kind in _COPIES:
        graph.build.copy(name, [graph.tensor(n) for n in inputs if _is_data(graph, n)], out)
    elif kind in _GATES:
        _recurrent(graph, node, name, place)
    elif lower in PER_ELEMENT:
        counts = tuple((op, n * out.elems) for op, n in PER_ELEMENT[lower])
        operands = [graph.tensor(n) for n in inputs]
        graph.build.vector(name, lower, operands, (out,), counts, out.elems)
    elif kind in _POOLS or lower in REDUCTIONS:
        source = graph.tensor(inputs[0])
        elems = (
            source.elems if kind not in _POOLS or "Global" in kind else out.elems * _window(node)
        )
        counts = tuple((op, n * elems) for op, n in REDUCTIONS.get(lower, (("max", 1),)))
        graph.build.vector(name, lower, (source,), (out,), counts, out.elems)
    else:
        outputs = [graph.tensor(n) for n in node.output if n and n in graph.known]
        graph.build.fallback(name, kind, [graph.tensor(n) for n in inputs], outputs)


def _is_data(graph: OnnxGraph, name: str) -> bool:
    """Whether an input of a copy is data rather than axes or sizes."""
    return graph.known[name].value is None or graph.known[name].elems > 64


def _window(node: onnx.NodeProto) -> int:
    """Elements a pooling window reads."""
    return prod(attribute_of(node, "kernel_shape", [1]))


def _matmul(graph: OnnxGraph, node: onnx.NodeProto, name: str, out: Tensor) -> None:
    """Products with numpy's broadcasting; Gemm may transpose and add a bias."""
    at = _QUANTISED_OPERANDS.get(node.op_type, (0, 1))
    moving, stationary = (graph.tensor(node.input[i]) for i in at)
    a, b = (list(graph.known[node.input[i]].shape) for i in at)
    if node.op_type == "Gemm" and len(a) == len(b) == 2:
        a = a[::-1] if attribute_of(node, "transA", 0) else a
        b = b[::-1] if attribute_of(node, "transB", 0) else b
    if node.op_type == "MatMulNBits":
        b = [attribute_of(node, "K", 1), attribute_of(node, "N", 1)]
        stationary = replace(stationary, dtype="int4", shape=tuple(b), stored_bytes=None)
    bias = None
    if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]:
        bias = graph.tensor(node.input[2])
    if not a or not b:
        graph.build.fallback(name, node.op_type, (moving, stationary), (out,))
        return
    shape, _ = matmul_shape(tuple(a) if len(a) > 1 else (1, a[0]), tuple(b))
    fits = shape.rows * shape.n == out.elems and shape.rows * shape.k == moving.elems
    if not fits or shape.batch * shape.k * shape.n != stationary.elems:
        graph.build.fallback(name, node.op_type, (moving, stationary), (out,))
        return
    dtype = "int8" if node.op_type in ("QLinearMatMul", "MatMulInteger") else None
    graph.build.matmul(name, moving, stationary, out, shape, bias=bias, dtype=dtype)


def _softmax(graph: OnnxGraph, node: onnx.NodeProto, name: str, out: Tensor) -> None:
    source = graph.tensor(node.input[0])
    axis = attribute_of(node, "axis", -1)
    width = out.shape[axis] if -len(out.shape) <= axis < len(out.shape) else out.shape[-1]
    rows = out.elems // width
    counts = vector_counts.softmax(rows, width, scaled_and_masked=False)
    graph.build.vector(name, "softmax", (source,), (out,), counts, rows)


def _norm(graph: OnnxGraph, node: onnx.NodeProto, name: str, out: Tensor) -> None:
    source, *weights = [graph.tensor(n) for n in node.input if n and graph.known[n].elems]
    if node.op_type == "BatchNormalization":
        counts: vector_counts.OpCounts = (("mul", out.elems), ("add", out.elems))
        rows = out.elems // out.shape[-1]
    else:
        width = out.shape[-1]
        rows = out.elems // width
        is_rms = "Simplified" in node.op_type or "RMS" in node.op_type
        of = vector_counts.rms_norm if is_rms else vector_counts.layer_norm
        counts = of(rows, width)
    graph.build.vector(name, "norm", (source, *weights), (out,), counts, rows)


def _gather(graph: OnnxGraph, node: onnx.NodeProto, name: str, out: Tensor) -> None:
    """Rows of a constant table, or a copy of what is chosen."""
    table, ids = graph.tensor(node.input[0]), graph.tensor(node.input[1])
    axis = attribute_of(node, "axis", 0)
    rows = table.shape[0]
    width = table.elems // rows
    is_lookup = axis == 0 and graph.is_constant(node.input[0]) and ids.elems * width == out.elems
    if is_lookup and not graph.is_constant(node.input[1]):
        graph.build.gather(name, "embedding", ids, replace(table, shape=(rows, width)), out)
        return
    graph.build.copy(name, (replace(table, shape=out.shape, stored_bytes=None),), out)


def _recurrent(graph: OnnxGraph, node: onnx.NodeProto, name: str, place: str) -> None:
    """LSTM, GRU and RNN: one product for all inputs, then one per step on the state."""
    x, w, r = (graph.tensor(n) for n in node.input[:3])
    steps, batch, width = graph.known[node.input[0]].shape
    directions, gate_rows, hidden = graph.known[node.input[2]].shape
    if steps > MAX_STEPS:
        raise WorkloadError(place, f"a recurrence has at most {MAX_STEPS} steps here", steps)
    build, gates = graph.build, _GATES[node.op_type]
    n = directions * gate_rows
    inputs = build.tensor(f"{name}.gates", (steps * batch, n))
    build.matmul(f"{name}.input", x, w, inputs, MatmulShape(1, steps * batch, width, n))
    state = build.tensor(f"{name}.h0", (directions * batch, hidden))
    for step in range(steps):
        label = f"{name}.step{step}"
        mixed = build.tensor(f"{label}.gates", (directions * batch, gate_rows))
        shape = MatmulShape(directions, batch, hidden, gate_rows)
        build.matmul(label, state, r, mixed, shape)
        new = build.tensor(f"{label}.h", (directions * batch, hidden))
        elems = new.elems
        counts = vector_counts.merge(
            (("exp", gates * elems), ("add", 2 * gates * elems), ("div", gates * elems)),
            (("tanh", 2 * elems), ("mul", 3 * elems)),
        )
        part = replace(inputs, shape=(batch, n))
        build.vector(f"{label}.cell", node.op_type.lower(), (mixed, part), (new,), counts, elems)
        state = new
    for output in node.output:
        if output and output in graph.known:
            build.copy(f"{name}.{output}", (state,), graph.tensor(output))
