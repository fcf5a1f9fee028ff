"""Kineto (Chrome) traces of PyTorch that were recorded with shapes.

Events carry shapes and types but no tensor identities, so operators are run one after the other
without data edges. Outputs follow from the inputs' shapes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from npusim.errors import WorkloadError
from npusim.workload.importers.aten import FREE, AtenCall, add_call, is_known, matmul_shape
from npusim.workload.importers.builder import TraceBuilder
from npusim.workload.importers.imported import Imported

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.workload.tensor import Tensor

HOW = "record it with torch.profiler.profile(record_shapes=True)"
_INTEGERS = {"long": "int64", "long int": "int64", "int": "int32", "bool": "int8", "char": "int8"}


def is_kineto(data: Any) -> bool:
    """Whether parsed JSON looks like a Chrome trace."""
    return isinstance(data, dict) and isinstance(data.get("traceEvents"), list)


def import_kineto(path: Path, data: Any, *, strict: bool = False) -> Imported:
    """CPU operators of a trace in order of time.

    Raises
    ------
    WorkloadError
        If no operator carries shapes; the message says how to record them.
    """
    where = str(path)
    events = [e for e in data["traceEvents"] if _is_call(e)]
    if not events:
        raise WorkloadError(where, "has no cpu_op events; is this a PyTorch trace?", None, HOW)
    if not any("Input Dims" in e["args"] or "Input dims" in e["args"] for e in events):
        raise WorkloadError(where, "its operators carry no shapes", None, HOW)
    build = TraceBuilder(where, path.name.partition(".")[0])
    build.notes.append("no tensor identities: operators run one after the other, inputs from DRAM")
    for event in _topmost(events):
        _add(build, event)
    return Imported("Kineto trace", build.finish(strict=strict), dict(build.fallbacks))


def _is_call(event: Any) -> bool:
    """A complete event of a CPU operator."""
    return (
        isinstance(event, dict)
        and event.get("ph") == "X"
        and event.get("cat") in ("cpu_op", "Operator")
        and isinstance(event.get("name"), str)
        and isinstance(event.get("args"), dict)
        and all(isinstance(event.get(key), (int, float)) for key in ("ts", "dur"))
    )


def _topmost(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Known calls that lie in no other known one on their thread, and unknown leaves."""
    chosen = []
    ends: dict[Any, float] = {}
    ordered = sorted(events, key=lambda e: (e["ts"], -e["dur"]))
    next_start: dict[int, float] = {}
    following: dict[Any, float] = {}
    for index in range(len(ordered) - 1, -1, -1):
        thread = (ordered[index].get("pid"), ordered[index].get("tid"))
        next_start[index] = following.get(thread, float("inf"))
        following[thread] = ordered[index]["ts"]
    for index, event in enumerate(ordered):
        thread, end = (event.get("pid"), event.get("tid")), event["ts"] + event["dur"]
        if event["ts"] < ends.get(thread, float("-inf")):
            continue
        name = _plain(event["name"])
        is_leaf = next_start[index] >= end and event["name"].startswith("aten::")
        if is_known(name) or (is_leaf and name not in FREE):
            ends[thread] = end
            chosen.append(event)
    return chosen


def _plain(name: str) -> str:
    return name.removeprefix("aten::") if name.startswith("aten::") else f"<{name}>"


def _add(build: TraceBuilder, event: dict[str, Any]) -> None:
    args = event["args"]
    dims = args.get("Input Dims", args.get("Input dims", []))
    kinds = args.get("Input type", [""] * len(dims))
    name, index = _plain(event["name"]), len(build.operators)
    tensors: list[Tensor] = []
    for i, (shape, kind) in enumerate(zip(dims, kinds, strict=False)):
        if _is_shape(shape) and prod(shape) and str(kind) not in ("Scalar", "ScalarList", ""):
            dtype = _INTEGERS.get(str(kind).lower())
            tensors.append(build.tensor(f"op{index}.in{i}", shape, dtype))
    if not tensors or name in FREE:
        return
    out = build.tensor(f"op{index}.out", _output_shape(name, tensors))
    add_call(build, AtenCall(name, tuple(tensors), out))


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and bool(shape) and all(isinstance(n, int) for n in shape)


def _output_shape(name: str, tensors: list[Tensor]) -> tuple[int, ...]:
    """Shape of the result of the calls that are known."""
    shapes = [t.shape for t in tensors]
    if name in ("addmm", "baddbmm") and len(shapes) >= 3:
        shapes = shapes[1:]
    if name in ("mm", "bmm", "matmul", "addmm", "baddbmm", "linear") and len(shapes) >= 2:
        shape, _ = matmul_shape(shapes[0], shapes[1], is_linear=name == "linear")
        return (shape.rows, shape.n)
    if name == "embedding" and len(shapes) >= 2:
        return (*shapes[1], shapes[0][-1])
    if "conv" in name and len(shapes) >= 2 and len(shapes[0]) >= 3:
        # padding and stride are not in the event: an output as large as the input, one filter each
        return (shapes[0][0], shapes[1][0], *shapes[0][2:])
    return max(shapes, key=prod)
