"""Progress of a simulation on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, TaskID


class PhaseBars:
    """One bar per phase; what `simulate_run` reports to."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def update(self, phase: str, done: float, text: str) -> None:
        """Move the bar of a phase to `done`, 0 to 1, with a word on what happens."""
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=1.0, text=text)
        self._progress.update(self._tasks[phase], completed=done, text=text)


class PhaseLines:
    """One line when a phase starts; for pipes and logs."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def update(self, phase: str, done: float, text: str) -> None:
        """Say that a phase started."""
        if phase not in self._seen:
            self._seen.add(phase)
            print(f"{phase}: {text}" if text else phase, file=sys.stderr)


@contextmanager
def show_progress() -> Iterator[PhaseBars | PhaseLines]:
    """Bars on a terminal, lines elsewhere; the bars vanish when the work is done."""
    if not sys.stderr.isatty():
        yield PhaseLines()
        return
    # slow to load
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield PhaseBars(progress)
