"""PyTorch execution traces: nodes with tensors, both schemas.

Schema 1.0: a node has `inputs`, `input_shapes`, `input_types`, the same of outputs, and `parent`.
Schema 1.1 and later: `inputs` and `outputs` are objects of `values`, `shapes`, `types` (and
`strides`), and `ctrl_deps` is the parent. A tensor value is [tensor id, storage id, offset,
elements, bytes per element, device]. Tensors of one storage are one tensor here; every write makes
a new version of it. The topmost call that is known counts, and what it calls inside does not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from npusim.errors import WorkloadError
from npusim.workload.importers.aten import FREE, AtenCall, add_call, is_known
from npusim.workload.importers.builder import TraceBuilder
from npusim.workload.importers.imported import Imported

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.workload.tensor import Tensor

MAX_NODES = 5_000_000
_MAX_DEPTH = 500

_DTYPES = {
    "float": None, "double": None, "half": None, "c10::half": None, "bfloat16": None,
    "c10::bfloat16": None, "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "char": "int8",
    "signed char": "int8", "unsigned char": "int8", "byte": "int8", "bool": "int8", "int": "int32",
    "long": "int64", "long int": "int64", "short": "int16", "c10::qint8": "int8",
    "c10::quint8": "int8",
}  # fmt: skip


@dataclass(frozen=True)
class _Node:
    """One call of the trace."""

    id: int
    parent: int
    name: str
    inputs: tuple[Any, ...]
    input_types: tuple[Any, ...]
    input_shapes: tuple[Any, ...]
    outputs: tuple[Any, ...]
    output_types: tuple[Any, ...]
    output_shapes: tuple[Any, ...]


class _Storages:
    """Current version of every storage, and the elements it was made with."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._version: defaultdict[int, int] = defaultdict(int)

    def read(self, value: Any, shape: Any, kind: Any) -> Tensor | None:
        """Tensor of an argument, None if it is none."""
        if not _is_tensor(value, kind) or not prod(shape or [1]):
            return None
        return self._tensor(value, shape, kind)

    def write(self, value: Any, shape: Any, kind: Any) -> Tensor | None:
        """A new version of an output's storage."""
        if not _is_tensor(value, kind) or not prod(shape or [1]):
            return None
        self._version[value[1]] += 1
        return self._tensor(value, shape, kind)

    def _tensor(self, value: Any, shape: Any, kind: Any) -> Tensor:
        name = f"s{value[1]}.v{self._version[value[1]]}"
        return self._build.tensor(name, shape or (1,), _dtype(kind))


def is_execution_trace(data: Any) -> bool:
    """Whether parsed JSON looks like one."""
    if not (isinstance(data, dict) and isinstance(data.get("nodes"), list) and "schema" in data):
        return False
    return bool(data["nodes"]) and isinstance(data["nodes"][0], dict)


def import_execution_trace(path: Path, data: Any, *, strict: bool = False) -> Imported:
    """Operators of an execution trace in the order of their ids.

    Raises
    ------
    WorkloadError
        If a node lacks a key, parents form a cycle, or no known call is found.
    """
    where = str(path)
    if len(data["nodes"]) > MAX_NODES:
        raise WorkloadError(where, f"has more than {MAX_NODES} nodes", len(data["nodes"]))
    nodes = [_node(where, index, raw) for index, raw in enumerate(data["nodes"])]
    build = TraceBuilder(where, path.name.partition(".")[0])
    build.notes.append(
        f"floating-point tensors run as {build.dtype}, whatever they were recorded in"
    )
    storages = _Storages(build)
    for node in _topmost(where, nodes):
        _add(build, storages, node)
    return Imported(
        f"PyTorch execution trace {data['schema']}",
        build.finish(strict=strict),
        dict(build.fallbacks),
    )


def _node(where: str, index: int, raw: Any) -> _Node:
    """One node of either schema."""
    place = f"{where}: node {index}"
    if not isinstance(raw, dict):
        raise WorkloadError(place, "must be an object", type(raw).__name__)
    for key in ("id", "name", "inputs", "outputs"):
        if key not in raw:
            raise WorkloadError(place, f"{key} is missing")
    if not isinstance(raw["id"], int) or not isinstance(raw["name"], str):
        raise WorkloadError(place, "id must be an integer and name a text")
    parent = raw.get("parent", raw.get("ctrl_deps", 0))
    if not isinstance(parent, int):
        raise WorkloadError(place, "parent must be an integer", str(parent)[:40])
    lists = [*_values(place, raw, "input"), *_values(place, raw, "output")]
    return _Node(raw["id"], parent, raw["name"], *lists)


def _values(place: str, raw: dict[str, Any], side: str) -> list[tuple[Any, ...]]:
    """Values, types and shapes of one side."""
    given = raw[f"{side}s"]
    if isinstance(given, dict):
        parts = [given.get("values"), given.get("types"), given.get("shapes")]
    else:
        parts = [given, raw.get(f"{side}_types"), raw.get(f"{side}_shapes")]
    lists = [part for part in parts if isinstance(part, list)]
    if len(lists) != len(parts):
        raise WorkloadError(place, f"{side}s need values, types and shapes as lists")
    if len({len(part) for part in lists}) != 1:
        raise WorkloadError(place, f"{side}s have unequal numbers of values, types and shapes")
    return [tuple(part) for part in lists]


def _topmost(where: str, nodes: list[_Node]) -> list[_Node]:
    """Calls that count: known ones below no other, and unknown ones that call nothing."""
    by_id = {node.id: node for node in nodes}
    callers = {node.parent for node in nodes if node.parent != node.id}
    taken: dict[int, bool] = {}

    def is_inside(node: _Node) -> bool:
        """Whether a known call is above the node."""
        chain = []
        at = by_id.get(node.parent)
        while at is not None and at.id not in taken:
            chain.append(at)
            if len(chain) > _MAX_DEPTH:
                raise WorkloadError(where, f"node {node.id}: calls nest too deeply or in a circle")
            at = by_id.get(at.parent) if at.parent != at.id else None
        inside = taken[at.id] if at is not None else False
        for above in reversed(chain):
            inside = inside or is_known(_plain(above.name))
            taken[above.id] = inside
        return inside

    chosen = []
    for node in sorted(nodes, key=lambda n: n.id):
        if is_inside(node):
            continue
        name = _plain(node.name)
        is_leaf = node.id not in callers and node.name.startswith("aten::")
        if is_known(name) or (is_leaf and name not in FREE):
            chosen.append(node)
    return chosen


def _plain(name: str) -> str:
    """`aten::add_.Tensor` as `add_`; a name of another namespace as it is."""
    if not name.startswith("aten::"):
        return f"<{name}>"
    return name.removeprefix("aten::").partition(".")[0]


def _add(build: TraceBuilder, storages: _Storages, node: _Node) -> None:
    """Operators of one call that yields a tensor."""
    inputs = _flat(node.inputs, node.input_shapes, node.input_types)
    tensors = tuple(t for item in inputs if (t := storages.read(*item)) is not None)
    outputs = _flat(node.outputs, node.output_shapes, node.output_types)
    made = [t for item in outputs if (t := storages.write(*item)) is not None]
    if made:
        add_call(build, AtenCall(_plain(node.name), tensors, made[0]))


def _flat(values: tuple[Any, ...], shapes: tuple[Any, ...], kinds: tuple[Any, ...]) -> list[Any]:
    """Arguments, those of a list of tensors one by one."""
    flat = []
    for value, shape, kind in zip(values, shapes, kinds, strict=True):
        text = kind if isinstance(kind, str) else ""
        if text.startswith("GenericList[") and isinstance(value, list):
            inner = text[len("GenericList[") : -1].split(",")
            if len(inner) == len(value) and isinstance(shape, list) and len(shape) == len(value):
                flat += list(zip(value, shape, inner, strict=True))
            continue
        flat.append((value, shape, kind))
    return flat


def _is_tensor(value: Any, kind: Any) -> bool:
    return (
        isinstance(kind, str)
        and kind.strip().startswith("Tensor(")
        and isinstance(value, list)
        and len(value) >= 5
        and isinstance(value[1], int)
    )


def _dtype(kind: str) -> str | None:
    """Format of "Tensor(float)"; None is the import's 16-bit format."""
    return _DTYPES.get(kind.strip()[len("Tensor(") : -1].lower())
