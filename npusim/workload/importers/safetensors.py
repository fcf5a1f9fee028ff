"""safetensors headers: names, formats and shapes of weights, with the config.json beside them.

Format: eight bytes of little-endian header length, then that many bytes of JSON.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from npusim.errors import WorkloadError
from npusim.workload.facts import read_facts
from npusim.workload.importers.binary import Reader, read_bytes
from npusim.workload.importers.imported import Imported
from npusim.workload.importers.lengths import model_workload
from npusim.workload.model_reader import read_model
from npusim.workload.trace import OperatorTrace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_HEADER_BYTES = 100_000_000  # the limit of the format
_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8,
    "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


def read_safetensors(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Format and shape of every tensor.

    Raises
    ------
    WorkloadError
        If the header is cut off, malformed, or disagrees with its offsets.
    """
    where = str(path)
    reader = Reader(read_bytes(path, MAX_HEADER_BYTES + 8), where)
    size = reader.size("Q", MAX_HEADER_BYTES, "length of the header")
    try:
        header = json.loads(reader.take(size))
    except (ValueError, RecursionError) as error:
        raise WorkloadError(where, f"its header is not valid JSON: {error}"[:200]) from None
    if not isinstance(header, dict):
        raise WorkloadError(where, "its header must be a JSON object")
    header.pop("__metadata__", None)
    if not header:
        raise WorkloadError(where, "names no tensors")
    return {
        name: _entry(f"{where}: tensor {name!r}"[:300], entry) for name, entry in header.items()
    }


def import_safetensors(path: Path, lengths: Mapping[str, int | None]) -> Imported:
    """The model of the config.json beside the file, with the file's bytes in its facts.

    Raises
    ------
    WorkloadError
        If there is no config.json, or it describes a model this package does not build.
    """
    tensors = read_safetensors(path)
    stem = path.name.removesuffix(".safetensors").removesuffix(".header")
    candidates = [path.with_name(f"{stem}.config.json"), path.with_name("config.json")]
    config = next((c for c in candidates if c.is_file()), None)
    split: dict[str, int] = {}
    for kind, shape in tensors.values():
        split[kind] = split.get(kind, 0) + prod(shape) * _BYTES[kind]
    total = sum(prod(shape) for _, shape in tensors.values())
    if config is None:
        rule = (
            f"holds {len(tensors)} tensors with {total} parameters ({sum(split.values())} bytes) "
            "but says nothing of the architecture; put its config.json beside it"
        )
        raise WorkloadError(str(path), rule)
    model = read_model(stem, read_facts(config))
    trace = OperatorTrace.of(model_workload(model, lengths))
    notes = [*trace.header.notes, f"architecture from {config.name}"]
    update: dict[str, Any] = {
        "parameters": total, "weight_bytes_by_dtype": dict(sorted(split.items())), "notes": notes,
    }  # fmt: skip
    return Imported(
        "safetensors header", OperatorTrace(trace.header.model_copy(update=update), trace.steps)
    )


def _entry(where: str, entry: Any) -> tuple[str, tuple[int, ...]]:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise WorkloadError(where, "needs dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if kind not in _BYTES:
        raise WorkloadError(where, f"dtype must be one of {', '.join(_BYTES)}", kind)
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise WorkloadError(
            where, "shape must be a list of integers of at least 0", str(shape)[:80]
        )
    if not (
        isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)
    ):
        raise WorkloadError(where, "data_offsets must be two integers", str(offsets)[:80])
    if offsets[1] - offsets[0] != prod(shape) * _BYTES[kind]:
        rule = f"data_offsets span {offsets[1] - offsets[0]} bytes, shape and dtype another number"
        raise WorkloadError(where, rule, prod(shape) * _BYTES[kind])
    return kind, tuple(shape)
