"""``npusim compare``: what differs between finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from npusim.insight.comparison import Comparison

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN_A RUN_B [RUN]...", help="Folders that `npusim run --out` wrote; A is the base."
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page with figures there."),
]


def compare(runs: Runs, html: Html = None, json: given.Json = False) -> None:
    """Compare finished runs: settings, stages and waits, signed against the first one.

    For example:

    npusim run rk3588 smollm2-135m --prompt 16 --out runs/a

    npusim run rk3588 smollm2-135m --prompt 16 --set compiler.max_cores=1 --out runs/b

    npusim compare runs/a runs/b --html compare.html
    """
    names = [str(run) for run in runs]
    if len(names) < 2:
        raise ConfigError("RUN", "must name at least two runs", ", ".join(names))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError("RUN", "must name every run once", twice)
    # pandas and pyarrow are slow to load
    from npusim.insight.comparison import compare as compare_runs
    from npusim.results.loading import load_result

    found = compare_runs({name: load_result(name) for name in names})
    if html is not None:
        # plotly is slow to load
        from npusim.report.compare_figure import compare_html
        from npusim.results.files import replace_file

        replace_file(html, compare_html(found).encode())
        note(f"{html} written")
    if json:
        print_json(found.summary())
    else:
        _print(found, result_console())


def _print(found: Comparison, console: Console) -> None:
    """Settings, headline, then stages and waits of each phase."""
    # rich is slow to load
    from npusim.cli.show_run import print_rows
    from npusim.report.compare_tables import (
        difference_headings,
        difference_rows,
        setting_headings,
        setting_rows,
    )

    if found.settings is None:
        console.print("settings: a run was saved without its specification", markup=False)
    elif not found.settings:
        console.print("settings: no difference", markup=False)
    else:
        print_rows(setting_headings(found), setting_rows(found), console)
    print_rows(difference_headings(found, "run"), difference_rows(found, "run"), console)
    for phase in found.phases:
        for group, title in (
            ("phase", f"{phase}"),
            ("stage", f"{phase} stages"),
            ("cause", f"{phase}, mean time per engine"),
            ("memory", f"{phase} bytes"),
        ):
            rows = difference_rows(found, group, phase)
            print_rows(difference_headings(found, title), rows, console)
