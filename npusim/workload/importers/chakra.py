"""MLCommons Chakra traces: binary `.et` (protobuf) and the JSON form.

Field numbers are those of mlcommons/chakra `schema/protobuf`. Nodes that came from PyTorch carry
names and shapes and become operators; nodes that carry only a size (memory, communication,
abstract compute) are computed by the host for their bytes; a trace without shapes and sizes says
nothing about other hardware and is refused.
"""

from __future__ import annotations

import ast
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npusim.errors import WorkloadError
from npusim.workload.importers.aten import FREE, AtenCall, add_call, is_known
from npusim.workload.importers.binary import Reader
from npusim.workload.importers.builder import TraceBuilder
from npusim.workload.importers.imported import Imported

if TYPE_CHECKING:
    from pathlib import Path

MAX_NODES = 2_000_000
_TYPES = (
    "invalid",
    "metadata",
    "memory_load",
    "memory_store",
    "compute",
    "send",
    "receive",
    "collective",
)
_SIZE_KEYS = ("tensor_size", "comm_size", "num_bytes")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass
class _Node:
    """One node."""

    id: int = 0
    name: str = ""
    kind: str = "invalid"
    deps: list[int] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes the node moves; 0 if it does not say."""
        sizes = [self.attributes.get(key) for key in _SIZE_KEYS]
        return next((int(s) for s in sizes if isinstance(s, int) and 0 < s < 1 << 50), 0)


def is_chakra(data: Any) -> bool:
    """Whether parsed JSON looks like the JSON form."""
    return isinstance(data, dict) and isinstance(data.get("workload_graph"), list)


def import_chakra_json(path: Path, data: Any, *, strict: bool = False) -> Imported:
    """The JSON form."""
    nodes = [_json_node(f"{path}: node {i}", raw) for i, raw in enumerate(data["workload_graph"])]
    return _imported(path, nodes, "Chakra JSON trace", strict=strict)


def import_chakra(path: Path, data: bytes, *, strict: bool = False) -> Imported:
    """The binary form: messages after their length, first metadata, then nodes."""
    reader = Reader(data, str(path))
    messages = []
    while reader.at < len(data):
        messages.append(reader.take(reader.varint()))
        if len(messages) > MAX_NODES:
            reader.fail(f"more than {MAX_NODES} nodes")
    nodes = [_binary_node(message, str(path)) for message in messages[1:]]
    return _imported(path, nodes, "Chakra execution trace", strict=strict)


def _imported(path: Path, nodes: list[_Node], kind: str, *, strict: bool) -> Imported:
    where = str(path)
    work = [n for n in nodes if n.kind != "metadata"]
    if not work:
        raise WorkloadError(where, "has no nodes to run")
    known = {n.id for n in nodes}
    _refuse_cycles(where, nodes, known)
    build = TraceBuilder(where, path.name.partition(".")[0])
    for node in work:
        _add(build, node)
    if not build.operators:
        rule = (
            f"none of its {len(work)} nodes has shapes or a size, only durations on the machine "
            "that recorded it; they say nothing about another one"
        )
        raise WorkloadError(where, rule, None, "record the trace with shapes")
    skipped = len(work) - len(build.operators)
    if skipped:
        build.notes.append(f"{skipped} of {len(work)} nodes without shapes or size cost nothing")
    return Imported(kind, build.finish(strict=strict), dict(build.fallbacks))


def _refuse_cycles(where: str, nodes: list[_Node], known: set[int]) -> None:
    """Refuse nodes that wait for each other."""
    waiting = {n.id: {d for d in n.deps if d in known and d != n.id} for n in nodes}
    users: dict[int, list[int]] = {}
    for node, deps in waiting.items():
        for dep in deps:
            users.setdefault(dep, []).append(node)
    ready = [node for node, deps in waiting.items() if not deps]
    done = 0
    left = {node: len(deps) for node, deps in waiting.items()}
    while ready:
        done += 1
        for user in users.get(ready.pop(), ()):
            left[user] -= 1
            if left[user] == 0:
                ready.append(user)
    if done < len(waiting):
        stuck = next(node for node, count in left.items() if count > 0)
        raise WorkloadError(where, f"node {stuck} waits for itself over its dependencies")


def _add(build: TraceBuilder, node: _Node) -> None:
    index = len(build.operators)
    name = node.name.removeprefix("aten::").partition("(")[0].partition(".")[0]
    shapes = _tensor_shapes(node.shapes.get("inputs")), _tensor_shapes(node.shapes.get("outputs"))
    if node.kind == "compute" and shapes[0] and shapes[1] and name not in FREE and is_known(name):
        tensors = [build.tensor(f"n{index}.in{i}", s) for i, s in enumerate(shapes[0])]
        out = build.tensor(f"n{index}.out", shapes[1][0])
        add_call(build, AtenCall(name, tuple(tensors), out))
        return
    if node.nbytes:
        elems = max(node.nbytes // 2, 1)
        tensor = build.tensor(f"n{index}.in", (elems,))
        out = build.tensor(f"n{index}.out", (elems,))
        build.fallback(node.name or f"node{node.id}", node.kind, (tensor,), (out,))


def _tensor_shapes(text: Any) -> list[tuple[int, ...]]:
    """Shapes of a text such as "[[4, 8], []]"; empty lists are scalars and count for nothing."""
    if isinstance(text, str):
        if len(text) > 1 << 16:
            return []
        try:
            text = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return []
    if not isinstance(text, (list, tuple)):
        return []
    return [
        tuple(s)
        for s in text
        if isinstance(s, (list, tuple)) and s and all(type(n) is int and n > 0 for n in s)
    ]


def _json_node(where: str, raw: Any) -> _Node:
    if not isinstance(raw, dict):
        raise WorkloadError(where, "must be an object", type(raw).__name__)
    lower = {str(key).lower(): value for key, value in raw.items()}
    if not isinstance(lower.get("id"), int):
        raise WorkloadError(where, "needs an integer id")
    kind = lower.get("nodetype", lower.get("type", 0))
    node = _Node(id=lower["id"], name=str(lower.get("name", "")))
    node.kind = _TYPES[kind] if type(kind) is int and 0 <= kind < len(_TYPES) else "invalid"
    for key in ("ctrldeps", "ctrl_deps", "data_deps", "datadeps"):
        deps = lower.get(key) or []
        if isinstance(deps, list):
            node.deps += [d for d in deps if isinstance(d, int)]
    node.attributes = {k: v for k, v in lower.items() if k in _SIZE_KEYS}
    for side in ("inputs", "outputs"):
        value = lower.get(side)
        if isinstance(value, dict):
            node.shapes[side] = value.get("shapes")
    return node


def _fields(message: bytes, where: str) -> list[tuple[int, int, Any]]:
    """(number, wire type, value) of every field of a message."""
    reader, found = Reader(message, where), []
    while reader.at < len(message):
        key = reader.varint()
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value: Any = reader.varint()
        elif wire == _BYTES:
            value = reader.take(reader.varint())
        elif wire in (_FIXED64, _FIXED32):
            value = reader.take(8 if wire == _FIXED64 else 4)
        else:
            reader.fail(f"wire type {wire} is not one of protobuf; is this a Chakra trace?")
        found.append((number, wire, value))
    return found


def _binary_node(message: bytes, where: str) -> _Node:
    node = _Node()
    for number, wire, value in _fields(message, where):
        if number == 1 and wire == _VARINT:
            node.id = value
        elif number == 2 and wire == _BYTES:
            node.name = value.decode(errors="replace")
        elif number == 3 and wire == _VARINT:
            node.kind = _TYPES[value] if value < len(_TYPES) else "invalid"
        elif number in (4, 5):
            node.deps += [value] if wire == _VARINT else _packed(value, where)
        elif number in (8, 9) and wire == _BYTES:
            side = "inputs" if number == 8 else "outputs"
            texts = {n: v for n, w, v in _fields(value, where) if w == _BYTES}
            node.shapes[side] = texts.get(2, b"").decode(errors="replace")
        elif number == 10 and wire == _BYTES:
            name, attribute = _attribute(value, where)
            node.attributes[name] = attribute
    return node


def _packed(data: Any, where: str) -> list[int]:
    """Packed varints."""
    if not isinstance(data, bytes):
        return []
    reader, values = Reader(data, where), []
    while reader.at < len(data):
        values.append(reader.varint())
    return values


def _attribute(message: bytes, where: str) -> tuple[str, Any]:
    """Name and scalar value; lists are left out."""
    name, value = "", None
    for number, _, raw in _fields(message, where):
        if number == 1 and isinstance(raw, bytes):
            name = raw.decode(errors="replace")
        elif number in (7, 9, 11, 13, 27):
            value = raw
        elif number in (15, 17) and isinstance(raw, int):
            value = (raw >> 1) ^ -(raw & 1)
        elif number in (19, 21, 23, 25) and isinstance(raw, bytes):
            value = int.from_bytes(raw, "little")
        elif number == 3 and isinstance(raw, bytes) and len(raw) == 8:
            (value,) = struct.unpack("<d", raw)
    return name, value
