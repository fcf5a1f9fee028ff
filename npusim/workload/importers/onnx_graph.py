"""ONNX files as operators.

Weights are never read: an initializer counts by its shape and type, so files stripped of their
external data import as well, and no path a file names is ever opened. Nodes that hang on nothing
but initializers (dequantisation of stored weights, say) belong to the weights and cost nothing at
run time; the weight has the bytes that are stored. Reshape, transpose and slice name bytes anew.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from npusim.errors import WorkloadError
from npusim.workload.importers.binary import read_bytes
from npusim.workload.importers.builder import TraceBuilder
from npusim.workload.importers.imported import Imported
from npusim.workload.importers.onnx_nodes import add_node
from npusim.workload.importers.onnx_shapes import Inference, Known, graph_input, initializer
from npusim.workload.tensor import Tensor, packed_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_NODES = 500_000
_MAX_FILE_BYTES = 1 << 31

#: format by element type; absent ones are the import's 16-bit format
DTYPES: dict[int, str] = {
    onnx.TensorProto.INT8: "int8", onnx.TensorProto.UINT8: "int8", onnx.TensorProto.BOOL: "int8",
    onnx.TensorProto.INT16: "int16", onnx.TensorProto.UINT16: "int16",
    onnx.TensorProto.INT32: "int32", onnx.TensorProto.UINT32: "int32",
    onnx.TensorProto.INT64: "int64", onnx.TensorProto.UINT64: "int64",
    onnx.TensorProto.FLOAT8E4M3FN: "fp8", onnx.TensorProto.FLOAT8E5M2: "fp8",
    onnx.TensorProto.INT4: "int4", onnx.TensorProto.UINT4: "int4",
}  # fmt: skip


class OnnxGraph:
    """Tensors of a graph while its nodes become operators."""

    def __init__(self, build: TraceBuilder, known: dict[str, Known]) -> None:
        self.build, self.known = build, known
        self._names: dict[str, Tensor] = {}  # tensors that are views of another
        self._stored: dict[str, tuple[str, int]] = {}  # constant: format and bytes as stored

    def is_constant(self, name: str) -> bool:
        """Whether a tensor hangs on nothing but initializers."""
        return name in self.known and self.known[name].is_constant

    def note_stored(self, name: str, kind: int) -> None:
        """An initializer's format and bytes."""
        dtype = DTYPES.get(kind, self.build.dtype)
        self._stored[name] = (dtype, packed_bytes(self.known[name].elems, dtype))

    def fold(self, node: onnx.NodeProto) -> None:
        """Constants made from constants are stored as the largest of these and the rest."""
        parts = [self._stored[n] for n in node.input if n in self._stored]
        if not parts:
            return
        dtype = max(parts, key=lambda part: part[1])[0]
        for name in node.output:
            if name in self.known:
                elems = self.known[name].elems
                total = sum(nbytes for _, nbytes in parts)
                least = packed_bytes(elems, dtype)
                # a cast or a scale: as large as its largest part; anything else is taken as made
                nbytes = total if least <= total <= 2 * least else least
                self._stored[name] = (dtype, nbytes)

    def tensor(self, name: str) -> Tensor:
        """The tensor of a name, a weight if it is constant."""
        if name in self._names:
            return replace(self._names[name], shape=self.known[name].shape or (1,))
        facts = self.known[name]
        dtype = DTYPES.get(facts.elem_type, self.build.dtype)
        if not facts.is_constant:
            return self.build.tensor(name, facts.shape, dtype)
        stored, nbytes = self._stored.get(name, (dtype, packed_bytes(facts.elems, dtype)))
        made = self.build.tensor(name, facts.shape, stored)
        is_plain = nbytes == packed_bytes(made.elems, stored)
        return self.build.weight(replace(made, stored_bytes=None if is_plain else max(nbytes, 1)))

    def alias(self, name: str, source: str) -> None:
        """`name` is a view of `source`."""
        self._names[name] = self.tensor(source)


def import_onnx(path: Path, dims: Mapping[str, int], *, strict: bool = False) -> Imported:
    """Operators of a file's main graph.

    Parameters
    ----------
    dims : mapping of str to int
        Sizes of symbolic dimensions; others are guessed and noted.

    Raises
    ------
    WorkloadError
        If it is no ONNX file, has a cycle, or a shape cannot be found.
    """
    where = str(path)
    model = _parsed(path)
    nodes = _ordered(where, model.graph)
    assumed: dict[str, int] = {}
    known = {t.name: initializer(where, t) for t in model.graph.initializer}
    for info in model.graph.input:
        if info.name not in known:
            known[info.name] = graph_input(where, info, dims, assumed)
    build = TraceBuilder(where, path.stem)
    _note_dims(build, where, model.graph, dims, assumed)
    graph = OnnxGraph(build, known)
    for tensor in model.graph.initializer:
        graph.note_stored(tensor.name, tensor.data_type)
    inference = Inference(list(model.opset_import))
    declared = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    for index, node in enumerate(nodes):
        place = f"{where}: node {node.name or index} ({node.op_type})"
        _visit(graph, inference, node, place, declared, dims, assumed)
    trace = build.finish(strict=strict)
    return Imported("ONNX", trace, dict(build.fallbacks))


def _visit(
    graph: OnnxGraph,
    inference: Inference,
    node: onnx.NodeProto,
    place: str,
    declared: Mapping[str, onnx.ValueInfoProto],
    dims: Mapping[str, int],
    assumed: dict[str, int],
) -> None:
    """Infer one node's outputs and append its operators."""
    for name in node.input:
        if name and name not in graph.known:
            raise WorkloadError(place, "reads a tensor whose shape is not known", name)
    found = inference.outputs(node, graph.known)
    for name in node.output:
        if not name or name in found:
            continue
        if name in declared:
            found[name] = graph_input(place, declared[name], dims, dict(assumed))
        elif node.input and node.input[0]:
            found[name] = replace(graph.known[node.input[0]], value=None, is_constant=False)
            graph.build.notes.append(
                f"shape of {name!r} ({node.op_type}) is not inferable: taken from its first input"
            )
    graph.known.update(found)
    outputs = [name for name in node.output if name and name in found]
    if not outputs:
        raise WorkloadError(place, "the shape of its output cannot be found")
    if all(graph.is_constant(name) for name in outputs):
        graph.fold(node)
        return
    if any(found[name].elems == 0 for name in outputs[:1]):
        return
    add_node(graph, node, place)


def _parsed(path: Path) -> onnx.ModelProto:
    data = read_bytes(path, _MAX_FILE_BYTES)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        raise WorkloadError(str(path), f"is not an ONNX file: {error}"[:200]) from None
    if not model.graph.node or not model.opset_import:
        raise WorkloadError(str(path), "is not an ONNX file: it has no graph or no operator set")
    if len(model.graph.node) > MAX_NODES:
        rule = f"has more than {MAX_NODES} nodes"
        raise WorkloadError(str(path), rule, len(model.graph.node))
    return model


def _note_dims(
    build: TraceBuilder,
    where: str,
    graph: onnx.GraphProto,
    dims: Mapping[str, int],
    assumed: Mapping[str, int],
) -> None:
    """Note guesses; refuse sizes of dimensions the file does not have."""
    symbols = {
        dim.dim_param
        for info in (*graph.input, *graph.output, *graph.value_info)
        for dim in info.type.tensor_type.shape.dim
        if dim.dim_param
    }
    unknown = sorted(set(dims) - symbols - set(assumed))
    if unknown:
        rule = f"--dim: the file's symbolic dimensions are {', '.join(sorted(symbols)) or 'none'}"
        raise WorkloadError(where, rule, unknown[0])
    build.notes.append(f"floating-point tensors run as {build.dtype}, whatever the file has")
    for name, size in sorted(assumed.items()):
        build.notes.append(f"dimension {name}={size} assumed; give --dim {name}=N")


def _ordered(where: str, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes after the ones they read, file order where that allows.

    Raises
    ------
    WorkloadError
        If nodes wait for each other.
    """
    maker = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    waits = [
        {maker[name] for name in node.input if name in maker and maker[name] != i}
        for i, node in enumerate(graph.node)
    ]
    if all(not deps or max(deps) < i for i, deps in enumerate(waits)):
        return list(graph.node)
    users: list[list[int]] = [[] for _ in waits]
    for i, deps in enumerate(waits):
        for dep in deps:
            users[dep].append(i)
    left = [len(deps) for deps in waits]
    ready = deque(i for i, count in enumerate(left) if count == 0)
    order = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for user in users[index]:
            left[user] -= 1
            if left[user] == 0:
                ready.append(user)
    if len(order) < len(waits):
        stuck = next(i for i, count in enumerate(left) if count)
        name = graph.node[stuck].name or stuck
        raise WorkloadError(where, f"node {name} waits for its own output: the graph has a cycle")
    return [graph.node[i] for i in order]
