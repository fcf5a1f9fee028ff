"""Tables of compared runs, as texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from npusim.units import format_bytes, format_time_ps

if TYPE_CHECKING:
    from npusim.insight.comparison import Comparison, Difference, Number

    Headings = tuple[tuple[str, bool], ...]

_LEAST_FRAC = 0.0005  # of the phase; what shows as 0.1 % or more


def setting_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row per differing setting: its path and its value in every run."""
    return [
        (s.path, *(v if isinstance(v, str) else json.dumps(v) for v in s.values))
        for s in comparison.settings or ()
    ]


def setting_headings(comparison: Comparison) -> Headings:
    """Path, then runs."""
    return (("setting", False), *((name, False) for name in comparison.names))


def difference_headings(comparison: Comparison, what: str) -> Headings:
    """What, the baseline's value, then the signed differences of the others."""
    first, *others = comparison.names
    return ((what, False), (first, True), *((name, True) for name in others))


def difference_rows(
    comparison: Comparison, group: str, phase: str | None = None
) -> list[tuple[str, ...]]:
    """One row per quantity of a group; waits that show nowhere are left out."""
    rows = comparison.of(group, phase)
    if group in ("family", "cause"):
        whole = comparison.of("phase", phase)[0]
        rows = [row for row in rows if _shows(row, whole)]
    return [_row(row) for row in rows]


def _shows(row: Difference, whole: Difference) -> bool:
    """Whether a wait is at least the least share of the phase in some run."""
    pairs = zip(row.values, whole.values, strict=True)
    return any(v is not None and w and v >= _LEAST_FRAC * w for v, w in pairs)


def _row(row: Difference) -> tuple[str, ...]:
    first, deltas = row.values[0], row.deltas[1:]
    texts = [_signed(delta, first, row.unit) for delta in deltas]
    return (row.name, _text(first, row.unit), *texts)


def _text(value: Number | None, unit: str) -> str:
    if value is None:
        return "-"
    return format_bytes(round(value)) if unit == "bytes" else format_time_ps(round(value))


def _signed(delta: Number | None, first: Number | None, unit: str) -> str:
    """A difference with its sign, and as a share of the baseline's value."""
    if delta is None or first is None:
        return "-"
    if not delta:
        return "0"
    sign = "+" if delta > 0 else "-"
    share = f" ({100 * float(delta) / float(first):+.1f} %)" if first else ""
    size = delta if delta > 0 else -delta
    return f"{sign}{_text(size, unit)}{share}"
