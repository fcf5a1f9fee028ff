"""Drawings of a result, which live in a package above it.

`RunResult.timeline()` is a method people expect, while `npusim.report` draws from results and may
not be imported by them. So the package root, which knows both, hands the drawing function down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npusim.errors import ResultError

#: takes a result and a phase (None: all) and returns a figure
View = Callable[[Any, str | None], Any]

_VIEWS: dict[str, View] = {}


def register_timeline_view(view: View) -> None:
    """Say what draws a timeline; called once, by the package root."""
    _VIEWS["timeline"] = view


def timeline_view() -> View:
    """What draws a timeline; ResultError if nothing does."""
    if "timeline" not in _VIEWS:
        raise ResultError("timeline", "npusim must be imported as a whole")
    return _VIEWS["timeline"]
