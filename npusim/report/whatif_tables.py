"""Tables of a what-if study, as texts, from its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.units import format_time_ps

if TYPE_CHECKING:
    from collections.abc import Mapping

    Summary = Mapping[str, Any]

PARAMETER_HEADINGS = (
    ("parameter", False),
    ("from", True),
    ("to", True),
    ("time", True),
    ("elasticity", True),
    ("program", False),
)
BOUND_HEADINGS = (("bound", False), ("time", True), ("what is gone", False))


def headline(summary: Summary) -> str:
    """What the effects are relative to."""
    time = format_time_ps(summary["elapsed_ps"])
    return f"{summary['model']} on {summary['system']}: {time} ({summary['fidelity']})"


def parameter_rows(summary: Summary) -> list[tuple[str, ...]]:
    """One row per parameter that could be changed, the largest effect first."""
    programs = {"parameter": "same", "recompiled": "recompiled"}
    return [
        (
            effect["name"].removeprefix("system."),
            effect["base"],
            effect["value"],
            _signed(effect["change_frac"]),
            "-" if effect["elasticity"] is None else f"{effect['elasticity']:+.3f}",
            programs[effect["kind"]],
        )
        for effect in summary["effects"]
        if effect["kind"] in programs and effect["change_frac"] is not None
    ]


def bound_rows(summary: Summary) -> list[tuple[str, ...]]:
    """One row per cost that was taken away."""
    return [
        (effect["name"], _signed(effect["change_frac"]), effect["note"] or effect["value"])
        for effect in summary["effects"]
        if effect["kind"] == "ideal" and effect["change_frac"] is not None
    ]


def _signed(change_frac: float) -> str:
    """Signed per cent; what rounds to nothing is 0."""
    text = f"{change_frac:+.2%}"
    return "0 %" if text in ("+0.00%", "-0.00%") else text.replace("%", " %")
