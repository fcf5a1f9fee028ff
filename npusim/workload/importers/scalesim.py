"""SCALE-Sim topologies: layers as GEMMs (M, N, K) or as convolutions, one per line.

Convolutions are products of their im2col matrix: ``m = out height x out width x batch``,
``k = filter height x filter width x channels``, ``n = filters``, with
``out = (in - filter) // stride + 1`` (inputs are padded already). Layers of a topology are not
connected. A layer whose name contains ``DP`` is depthwise, as in SCALE-Sim.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.facts import MAX_SIZE
from npusim.workload.importers.binary import read_bytes
from npusim.workload.importers.builder import TraceBuilder
from npusim.workload.importers.imported import Imported
from npusim.workload.operator import MatmulShape
from npusim.workload.tensor import Role

if TYPE_CHECKING:
    from pathlib import Path

_GEMM = ("m", "n", "k")
_CONV = (
    "ifmap height", "ifmap width", "filter height", "filter width", "channels", "num filter",
    "strides",
)  # fmt: skip
_BATCH = "batch size"
_ALIASES = {
    "num filters": "num filter",
    "stride": "strides",
    "batch": _BATCH,
    "channel": "channels",
}


def import_scalesim(path: Path, *, strict: bool = False) -> Imported:
    """Every line one matmul.

    Raises
    ------
    WorkloadError
        If the heading is neither form, or a line lacks a number or has a wrong one.
    """
    rows = _rows(path)
    columns = _columns(rows[0][1])
    if columns is None:
        rule = (
            "line 1: the heading must be Layer,M,N,K or the convolution form of SCALE-Sim, or that "
            "of a request trace: arrival_ps,prompt_len,output_len or "
            "TIMESTAMP,ContextTokens,GeneratedTokens"
        )
        raise WorkloadError(str(path), rule, ",".join(rows[0][1])[:80])
    build = TraceBuilder(str(path), path.stem)
    build.notes.append("layers of a topology are independent; 16-bit operands assumed")
    for line, cells in rows[1:]:
        _add_layer(build, f"{path}: line {line}", columns, cells)
    return Imported("SCALE-Sim topology", build.finish(strict=strict))


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Non-empty lines by number, trailing commas dropped."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(str(path), f"is not UTF-8 text (byte {error.start})") from None
    rows = []
    for number, cells in enumerate(csv.reader(io.StringIO(text)), 1):
        stripped = [cell.strip() for cell in cells]
        while stripped and not stripped[-1]:
            stripped.pop()
        if stripped:
            rows.append((number, stripped))
    if not rows:
        raise WorkloadError(str(path), "the file is empty")
    return rows


def _columns(heading: list[str]) -> dict[str, int] | None:
    """Position of each column, None for another kind of file."""
    names = [re.sub(r"[\s_]+", " ", cell.strip().lower()) for cell in heading]
    found = {_ALIASES.get(name, name): i for i, name in enumerate(names)}
    wanted = _GEMM if set(_GEMM) <= set(found) else _CONV
    if not set(wanted) <= set(found) or not names[0].startswith("layer"):
        return None
    extra = (_BATCH,) if _BATCH in found else ()
    return {name: found[name] for name in (*wanted, *extra)}


def _add_layer(build: TraceBuilder, where: str, columns: dict[str, int], cells: list[str]) -> None:
    sizes = {
        name: _size(where, name, cells, at)
        for name, at in columns.items()
        if name != _BATCH or (at < len(cells) and cells[at])
    }
    name, groups = cells[0] or "layer", 1
    if "m" in sizes:
        m, k, n = sizes["m"], sizes["k"], sizes["n"]
    else:
        out = [
            (sizes[f"ifmap {side}"] - sizes[f"filter {side}"]) // sizes["strides"] + 1
            for side in ("height", "width")
        ]
        if min(out) < 1:
            raise WorkloadError(where, "the filter must not be larger than the input", cells[0])
        m = out[0] * out[1] * sizes.get(_BATCH, 1)
        k = sizes["filter height"] * sizes["filter width"] * sizes["channels"]
        n = sizes["num filter"]
        if "DP" in name:
            groups, k, n = sizes["channels"], k // sizes["channels"], 1
    label = f"{len(build.operators)}.{name}"
    shape = MatmulShape(groups, m, k, n)
    moving = build.tensor(f"{label}.in", (groups, m, k))
    weight = build.tensor(f"{label}.weight", (groups, k, n), role=Role.WEIGHT)
    build.matmul(name, moving, weight, build.tensor(f"{label}.out", (groups, m, n)), shape)


def _size(where: str, name: str, cells: list[str], at: int) -> int:
    """A positive integer of a line."""
    if at >= len(cells) or not cells[at]:
        raise WorkloadError(where, f"column {name!r} is missing")
    text = cells[at]
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) > 0):
        raise WorkloadError(where, f"column {name!r} must be an integer from 1 to {MAX_SIZE}", text)
    return int(text)
