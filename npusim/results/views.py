"""Drawings and exports of a result, which live in a package above it.

`RunResult.timeline()`, `.export()` and `.report()` are methods people expect, while `npusim.report`
works on results and may not be imported by them. So the package root, which knows both, hands its
functions down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npusim.errors import ResultError

#: takes a result and further arguments
View = Callable[..., Any]

_VIEWS: dict[str, View] = {}


def register_view(name: str, view: View) -> None:
    """Say what makes a view of this name; called by the package root."""
    _VIEWS[name] = view


def view_named(name: str) -> View:
    """What makes a view; ResultError if nothing does."""
    if name not in _VIEWS:
        raise ResultError(name, "npusim must be imported as a whole")
    return _VIEWS[name]
