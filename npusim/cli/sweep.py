"""``npusim sweep``: many runs from one file."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

LINE_EVERY_S = 5.0

Spec = Annotated[
    str, typer.Argument(metavar="SPEC", help="Name in workloads/sweeps, or a YAML file.")
]
Out = Annotated[
    Path,
    typer.Option("--out", parser=given.folder, metavar="DIR", help="Folder of the sweep."),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        parser=given.at_least(1),
        metavar="N",
        help="Worker processes. Default: one per CPU.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the sweep in DIR: only what is missing runs.")
]


def sweep(
    spec: Spec, out: Out, jobs: Jobs = None, resume: Resume = False, json: given.Json = False
) -> None:
    """Run every point of a sweep file; finished points survive whatever happens.

    For example:

    npusim sweep edge-small --out runs/edge --jobs 2

    npusim sweep my-sweep.yaml --out runs/mine --resume --json
    """
    from npusim.explore.sweep import sweep as run_sweep  # pyarrow is slow to load

    with _shown() as progress:
        result = run_sweep(spec, out=out, jobs=jobs, resume=resume, progress=progress)
    summary = result.summary
    if json:
        print_json(summary)
        return
    console = result_console()
    console.print(
        f"{summary['name']}: {summary['points']} points, {summary['done']} done, "
        f"{summary['failed']} failed, {summary['excluded_by_constraints']} excluded by "
        f"constraints; {summary['computed']} computed now",
        markup=False,
    )
    console.print(f"files   {out}/ (points.parquet, configs.jsonl, sweep.json)", markup=False)
    if summary["failed"]:
        first = next(text for text in result.table["error"].to_pylist() if text)
        note(f"first failure: {first}")


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
def _shown() -> Iterator[_Bar | _Lines]:
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
