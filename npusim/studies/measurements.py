"""Measured rows: operators and token rates of real devices, as CSV files."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DATA = Path(__file__).resolve().parent / "data"

#: operators a measured row may name: ours, and the columns that make its shape
OPERATORS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "gemm": ("matmul", ("m", "k", "n")),
        "ffn_gated": ("ffn_gated", ("m", "k", "n")),
        "attention": (
            "attention",
            ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim"),
        ),
    }
)
#: phases of a model that a row may name
PHASES = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured row. `op` is the row's own word; `shape` is as `npusim op` takes it.

    Rows of a phase have a `model`; their shape is ``batch x tokens`` (cached, or of the prompt).
    """

    op: str
    shape: str
    measured_ns: float
    model: str = ""
    quant: str = "w16a16"

    @property
    def name(self) -> str:
        """Id of the row: what was measured."""
        return " ".join(part for part in (self.op, self.model, self.shape) if part)

    @property
    def primitive(self) -> str:
        """Our name of the operator."""
        return OPERATORS[self.op][0]


def operator_rows(path: Path) -> tuple[Measurement, ...]:
    """Rows of a file with the columns of the shipped TPU file.

    Raises
    ------
    ConfigError
        If the file cannot be read, or a row is not an operator with sizes and a time.
    """
    return _distinct(path, (_operator(path, n, row) for n, row in _read(path)))


def device_rows(system: str) -> tuple[Measurement, ...]:
    """Shipped rows of a system.

    Raises
    ------
    ConfigError
        If none is shipped.
    """
    if system == "tpu-v6e":
        return operator_rows(DATA / "tpu_v6e_ops.csv")
    path = DATA / "other_devices.csv"
    table = [(n, row) for n, row in _read(path)]
    rows = [_device(path, n, row) for n, row in table if row["system"] == system]
    if not rows:
        known = sorted({row["system"] for _, row in table} | {"tpu-v6e"})
        rule = f"no measured rows of it are shipped; there are rows of {', '.join(known)}"
        raise ConfigError("system", rule, system, nearest(system, known) or "use --data FILE")
    return _distinct(path, rows)


def _read(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line numbers and rows."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from None
    reader = csv.DictReader(text.splitlines(), restval="")
    rows = [(n, row) for n, row in enumerate(reader, start=2) if any(row.values())]
    if not rows:
        raise ConfigError(str(path), "holds no rows")
    return rows


def _operator(path: Path, line: int, row: dict[str, str]) -> Measurement:
    where = f"{path}:{line}"
    op = row.get("op", "")
    if op not in OPERATORS:
        rule = f"op must be one of {', '.join(OPERATORS)}"
        raise ConfigError(where, rule, op, nearest(op, OPERATORS))
    sizes = [_size(where, row, column) for column in OPERATORS[op][1]]
    return Measurement(op, "x".join(sizes), _latency(where, row))


def _device(path: Path, line: int, row: dict[str, str]) -> Measurement:
    where = f"{path}:{line}"
    if row["op"] not in (*OPERATORS, *PHASES):
        raise ConfigError(where, "op is neither operator nor phase", row["op"])
    return Measurement(row["op"], row["shape"], _latency(where, row), row["model"], row["quant"])


def _size(where: str, row: dict[str, str], column: str) -> str:
    text = (row.get(column) or "").strip()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(where, f"{column} must be a whole number of at least 1", text)
    return text


def _latency(where: str, row: dict[str, str]) -> float:
    try:
        value = float(row.get("latency_ns") or "")
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ConfigError(where, "latency_ns must be a positive number", row.get("latency_ns"))
    return value


def _distinct(path: Path, rows: Iterable[Measurement]) -> tuple[Measurement, ...]:
    found = tuple(rows)
    seen: set[str] = set()
    for row in found:
        if row.name in seen:
            raise ConfigError(str(path), "two rows measure the same", row.name)
        seen.add(row.name)
    return found
