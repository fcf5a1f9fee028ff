"""Tables of an analysed sweep, as texts, from its summary."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from npusim.units import dimension_of_key, format_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    Summary = Mapping[str, Any]
    Headings = tuple[tuple[str, bool], ...]

EFFECT_HEADINGS: Headings = (
    *(("column", False), ("axis", False)),
    *(("variance", True), ("means", False)),
)
INTERACTION_HEADINGS: Headings = (("column", False), ("axes", False), ("variance", True))
BUDGET_HEADINGS: Headings = (
    *(("objective", False), ("within", False)),
    *(("budget", True), ("best", True), ("point", True)),
)
LEAST_INTERACTION = 0.005
MAX_LEVELS = 8


def headline(summary: Summary) -> list[str]:
    """Counts, and what is compared."""
    goals = ", ".join(f"{name} {goal}" for name, goal in summary["objectives"].items())
    left_out = f", {summary['left_out']} left out (failed)" if summary["left_out"] else ""
    lines = [f"{summary['name']}: {summary['points']} points{left_out}; objectives {goals}"]
    lines += [f"{a} changes with {b}, and stands for both" for a, b in _with_aliases(summary)]
    if not summary["is_balanced"]:
        lines.append("combinations are not equally frequent, so shares of variance overlap")
    return lines


def pareto_headings(summary: Summary) -> Headings:
    """Point, axes, objectives, and how many more points of the front have the same objectives."""
    columns = (*summary["axes"], *summary["objectives"])
    return (("point", True), *((short(name), True) for name in columns), ("equal", True))


def pareto_rows(summary: Summary) -> list[tuple[str, ...]]:
    """One row per different point of the front."""
    columns = ("point", *summary["axes"], *summary["objectives"])
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in summary["pareto"]:
        groups.setdefault(tuple(row[name] for name in summary["objectives"]), []).append(row)
    return [
        (*(quantity(name, rows[0][name]) for name in columns), f"+{len(rows) - 1}")
        for rows in groups.values()
    ]


def effect_rows(summary: Summary) -> list[tuple[str, ...]]:
    """One row per column and axis, the strongest axis first."""
    effects = sorted(summary["main_effects"], key=lambda e: (_place(summary, e), -e["share_frac"]))
    return [
        (
            effect["column"],
            short(effect["axis"]),
            f"{effect['share_frac']:.1%}",
            _means(effect),
        )
        for effect in effects
    ]


def interaction_rows(summary: Summary) -> list[tuple[str, ...]]:
    """One row per pair of axes that matters."""
    found = sorted(summary["interactions"], key=lambda i: (_place(summary, i), -i["share_frac"]))
    return [
        (i["column"], " x ".join(short(axis) for axis in i["axes"]), f"{i['share_frac']:.1%}")
        for i in found
        if abs(i["share_frac"]) >= LEAST_INTERACTION
    ]


def budget_rows(summary: Summary) -> list[tuple[str, ...]]:
    """One row per budget at which the objective improves."""
    return [
        (
            entry["objective"],
            entry["budget"],
            quantity(entry["budget"], step["budget"]),
            quantity(entry["objective"], step["best"]),
            str(step["point"]),
        )
        for entry in summary["best_per_budget"]
        for step in entry["steps"]
    ]


def short(path: str) -> str:
    """The end of a dotted path."""
    return ".".join(path.split(".")[-2:])


def quantity(name: str, value: Any) -> str:
    """A value of a column with the unit that its name ends in, to four digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    dimension = dimension_of_key(name.rpartition(".")[2])
    if dimension is not None:
        return format_quantity(Fraction(value).limit_denominator(10**6), dimension, 4)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.5g}"


def _means(effect: Mapping[str, Any]) -> str:
    """Mean of a column at every level, the first few."""
    axis, column, levels = effect["axis"], effect["column"], effect["levels"]
    shown = [
        f"{quantity(axis, level['value'])}: {quantity(column, level['mean'])}"
        for level in levels[:MAX_LEVELS]
    ]
    more = [f"({len(levels) - MAX_LEVELS} more)"] if len(levels) > MAX_LEVELS else []
    return ", ".join([*shown, *more])


def _with_aliases(summary: Summary) -> list[tuple[str, str]]:
    return [(axis, alias) for alias, axis in summary["aliases"].items()]


def _place(summary: Summary, entry: Mapping[str, Any]) -> int:
    return list(summary["objectives"]).index(entry["column"])
