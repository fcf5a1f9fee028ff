"""Shapes and small constants of an ONNX graph, node by node.

Inference of a whole graph leaves shapes symbolic that hang on computed sizes. Here dimensions are
numbers from the start: every node is inferred alone from the concrete shapes and constants of its
inputs, and nodes whose inputs are all known constants are evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
from onnx.reference import ReferenceEvaluator

from npusim.errors import WorkloadError
from npusim.workload.importers.elementwise import PER_ELEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

#: constants with more elements are known by shape only
MAX_VALUE_ELEMS = 65536
MAX_DIM = 1 << 40

_KEEPS_SHAPE = frozenset("identity softmax logsoftmax dropout cast relu".split())


@dataclass(frozen=True)
class Known:
    """What is known of a tensor. `is_constant`: it hangs on nothing but initializers."""

    shape: tuple[int, ...]
    elem_type: int
    value: Any = None
    is_constant: bool = False

    @property
    def elems(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def initializer(where: str, tensor: onnx.TensorProto) -> Known:
    """An initializer; its data are looked at only when they are small and inside the file."""
    shape = tuple(tensor.dims)
    if any(n < 0 or n > MAX_DIM for n in shape):
        raise WorkloadError(where, f"initializer {tensor.name!r} has a bad shape", shape)
    value = None
    if prod(shape) <= MAX_VALUE_ELEMS and not tensor.external_data:
        try:
            value = onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError):
            value = None  # data were cut off: known by shape only
    return Known(shape, tensor.data_type, value, is_constant=True)


def graph_input(
    where: str, info: onnx.ValueInfoProto, dims: Mapping[str, int], assumed: dict[str, int]
) -> Known:
    """A graph input with its symbolic dimensions replaced; `assumed` collects guesses."""
    kind = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
        raise WorkloadError(where, f"input {info.name!r} has no tensor shape")
    shape = []
    for index, dim in enumerate(kind.shape.dim):
        if dim.HasField("dim_value"):
            size = dim.dim_value
        else:
            name = dim.dim_param or f"{info.name}.{index}"
            size = dims.get(name, assumed.get(name, -1))
            if size < 0:
                size = assumed[name] = _guess(name, index)
        if not 0 <= size <= MAX_DIM:
            raise WorkloadError(where, f"input {info.name!r} has a bad dimension {index}", size)
        shape.append(size)
    return Known(tuple(shape), kind.elem_type)


def _guess(name: str, index: int) -> int:
    """Size of a symbolic dimension nobody gave: one sequence of 128 tokens, nothing cached."""
    lower = name.lower()
    if "batch" in lower or lower in ("n", "b"):
        return 1
    if "past" in lower or lower == "p":
        return 0
    return 1 if index == 0 and "seq" not in lower and len(lower) > 1 else 128


class Inference:
    """Infers outputs of single nodes.

    Parameters
    ----------
    opsets : list
        Operator sets of the model.
    """

    def __init__(self, opsets: list[onnx.OperatorSetIdProto]) -> None:
        self._opsets = opsets

    def outputs(self, node: onnx.NodeProto, known: Mapping[str, Known]) -> dict[str, Known]:
        """What is known of a node's outputs; outputs nobody can infer are missing."""
        inputs = [known[name] if name else None for name in node.input]
        given = [k for k in inputs if k is not None]
        is_constant = bool(given) and all(k.is_constant for k in given)
        value = self._value(node, known, inputs)
        if value is not None:
            return {
                name: Known(tuple(np.shape(v)), _elem_type(v), v, is_constant=True)
                for name, v in zip(node.output, value, strict=False)
                if name
            }
        quick = _quick_shape(node, inputs)
        if quick is not None:
            return {node.output[0]: Known(*quick, is_constant=is_constant)}
        return self._inferred(node, known, is_constant=is_constant)

    def _value(
        self, node: onnx.NodeProto, known: Mapping[str, Known], inputs: list[Known | None]
    ) -> list[Any] | None:
        """Values of a node's outputs, None if they hang on unknown data."""
        if node.op_type == "Shape" and inputs and inputs[0] is not None:
            start, end = _attribute(node, "start", 0), _attribute(node, "end", None)
            return [np.array(inputs[0].shape[start:end], dtype=np.int64)]
        if node.op_type == "Size" and inputs and inputs[0] is not None:
            return [np.array(inputs[0].elems, dtype=np.int64)]
        if any(k is not None and k.value is None for k in inputs):
            return None
        if not inputs and node.op_type != "Constant":
            return None
        if not _stays_small(node, inputs):
            return None
        graph = onnx.helper.make_graph(
            [node],
            "one",
            [_value_info(name, known[name]) for name in dict.fromkeys(node.input) if name],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        try:
            model = onnx.helper.make_model(graph, opset_imports=self._opsets)
            feeds = {name: known[name].value for name in node.input if name}
            results = ReferenceEvaluator(model).run(None, feeds)
        except Exception:  # noqa: BLE001 - an evaluator of foreign nodes may raise anything
            return None
        if not isinstance(results, list) or not all(hasattr(r, "shape") for r in results):
            return None
        return results

    def _inferred(
        self, node: onnx.NodeProto, known: Mapping[str, Known], *, is_constant: bool
    ) -> dict[str, Known]:
        """Shapes from the library's inference of the single node."""
        names = [name for name in dict.fromkeys(node.input) if name]
        constants = [
            onnx.numpy_helper.from_array(np.asarray(known[name].value), name)
            for name in names
            if known[name].value is not None and known[name].elems <= MAX_VALUE_ELEMS
        ]
        graph = onnx.helper.make_graph(
            [node],
            "one",
            [_value_info(name, known[name]) for name in names],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
            initializer=constants,
        )
        try:
            model = onnx.helper.make_model(graph, opset_imports=self._opsets)
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except Exception:  # noqa: BLE001 - inference of foreign nodes may raise anything
            return {}
        found = {}
        for info in (*inferred.graph.output, *inferred.graph.value_info):
            kind = info.type.tensor_type
            dims = kind.shape.dim if kind.HasField("shape") else None
            if dims is not None and all(d.HasField("dim_value") for d in dims):
                shape = tuple(d.dim_value for d in dims)
                found[info.name] = Known(shape, kind.elem_type, is_constant=is_constant)
        return found


def _quick_shape(
    node: onnx.NodeProto, inputs: list[Known | None]
) -> tuple[tuple[int, ...], int] | None:
    """Shape and type of the most frequent nodes without the library."""
    name = node.op_type.lower()
    first = inputs[0] if inputs else None
    if first is None or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
        return None
    if name in _KEEPS_SHAPE:
        kind = _attribute(node, "to", first.elem_type) if name == "cast" else first.elem_type
        return first.shape, kind
    if name in PER_ELEMENT and "linear" not in name:
        try:
            shape = np.broadcast_shapes(*(k.shape for k in inputs if k is not None))
        except ValueError:
            return None
        is_test = name in ("equal", "less", "greater", "and", "or", "not", "isnan", "isinf")
        kind = onnx.TensorProto.BOOL if is_test or "orequal" in name else first.elem_type
        if name == "where" and inputs[-1] is not None:
            kind = inputs[-1].elem_type
        return tuple(int(n) for n in shape), kind
    return None


def _stays_small(node: onnx.NodeProto, inputs: list[Known | None]) -> bool:
    """Whether evaluating the node makes no large array."""
    if node.op_type in (
        "Expand",
        "ConstantOfShape",
        "Tile",
        "Range",
        "Pad",
        "Resize",
        "Loop",
        "If",
    ):
        values = [np.asarray(k.value) for k in inputs if k is not None]
        if node.op_type == "Range":
            span = np.abs(values[1] - values[0]) / max(float(np.abs(values[2])), 1e-9)
            return bool(span <= MAX_VALUE_ELEMS)
        if node.op_type in ("Expand", "ConstantOfShape"):
            target = values[-1].astype(float)
            return bool(np.prod(np.abs(target)) * values[0].size <= MAX_VALUE_ELEMS)
        return False
    return sum(k.elems for k in inputs if k is not None) <= MAX_VALUE_ELEMS


def _value_info(name: str, known: Known) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, known.elem_type, list(known.shape))


def _elem_type(value: Any) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype))


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """An attribute's value."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


attribute_of = _attribute
