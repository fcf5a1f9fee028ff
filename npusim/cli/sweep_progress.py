"""How far many runs are."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from npusim.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

LINE_EVERY_S = 5.0


class _Bar:
    """One bar with rate, time left and failures."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("points", total=None, rate="", failed=0)
        self._started = time.monotonic()

    def update(self, done: int, failed: int, total: int, earlier: int) -> None:
        """Move the bar."""
        rate = (done - earlier) / max(time.monotonic() - self._started, 1e-9)
        self._progress.update(
            self._task, completed=done, total=total, failed=failed, rate=f"{rate:.2f}/s"
        )


class _Lines:
    """A line every few seconds; for pipes and logs."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()

    def update(self, done: int, failed: int, total: int, earlier: int) -> None:
        """Say how far the sweep is, if it is time."""
        now = time.monotonic()
        if now - self._last < LINE_EVERY_S and done < total:
            return
        self._last = now
        rate = (done - earlier) / max(now - self._started, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        note(f"{done}/{total} points, {rate:.2f}/s{left}, {failed} failed")


@contextmanager
def show_sweep_progress() -> Iterator[_Bar | _Lines]:
    """Bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    # slow to load
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)
