"""Tables of a critical path, as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.report.tables import percent
from npusim.units import format_time_ps

if TYPE_CHECKING:
    from npusim.insight.critical_path import CriticalPath, OperatorSlack
    from npusim.report.explain_tables import Headings

TOP = 10
STRETCH_HEADINGS: Headings = (
    *(("longest stretches", False), ("engine", False), ("from", True), ("time", True)),
    *(("share", True), ("releases the next by", False)),
)
OPERATOR_HEADINGS: Headings = (
    *(("operator", False), ("stage", False), ("on the path", True), ("share", True)),
    ("slack", True),
)


def path_lines(found: CriticalPath) -> list[str]:
    """Length, and its parts by kind of engine and by how one command released the next."""
    length = format_time_ps(found.elapsed_ps)
    lines = [f"critical path of {len(found.steps):,} commands, {length}"]
    for what, title in (("kind", "by engine"), ("reason", "by release")):
        shares = found.share_by(what).items()
        parts = (f"{k} {percent(ps, found.elapsed_ps)}" for k, ps in shares if ps)
        lines.append(f"  {title}: {', '.join(parts)}")
    return lines


def stretch_rows(found: CriticalPath) -> list[tuple[str, ...]]:
    """The longest stretches of one operator on one engine, longest first."""
    longest = sorted(found.stretches(), key=lambda step: (-step.time_ps, step.from_ps))[:TOP]
    return [
        (
            step.operator,
            step.engine,
            format_time_ps(step.from_ps),
            format_time_ps(step.time_ps),
            percent(step.time_ps, found.elapsed_ps),
            step.reason,
        )
        for step in longest
    ]


def operator_slack_rows(found: CriticalPath) -> list[tuple[str, ...]]:
    """Operators with most of the path, then those with most slack."""
    by_path = sorted(found.operators, key=lambda item: (-item.path_ps, item.slack_ps))[:TOP]
    by_slack = sorted(found.operators, key=lambda item: -item.slack_ps)[:TOP]
    loose = [item for item in by_slack if item.slack_ps and item not in by_path]
    return [_operator_row(found, item) for item in (*by_path, *loose)]


def _operator_row(found: CriticalPath, item: OperatorSlack) -> tuple[str, ...]:
    return (
        item.operator,
        item.stage,
        format_time_ps(item.path_ps) if item.path_ps else "-",
        percent(item.path_ps, found.elapsed_ps) if item.path_ps else "-",
        format_time_ps(item.slack_ps) if item.slack_ps else "none",
    )
