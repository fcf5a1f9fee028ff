"""``npusim sweep-report``: what a finished sweep says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.errors import ConfigError

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder that `npusim sweep --out` wrote.")
]
Objectives = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        metavar="COLUMN=min|max",
        help="Compare points by this column. May be repeated. Default: those of the sweep.",
        show_default=False,
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="COLUMN",
        help="What the first objective reaches within a budget of this column. May be repeated. "
        "Default: the other objectives that are minimised.",
        show_default=False,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page with figures there."),
]


def sweep_report(
    folder: Folder,
    objectives: Objectives = None,
    budgets: Budgets = None,
    html: Html = None,
    json: given.Json = False,
) -> None:
    """Say what a finished sweep found: Pareto front, which axes matter, the best per budget.

    For example:

    npusim sweep edge-small --out runs/edge

    npusim sweep-report runs/edge --html edge.html

    npusim sweep-report runs/edge --objective ttft_ps=min --budget dram_pins --json
    """
    goals = _goals(objectives)
    # pandas and pyarrow are slow to load
    from npusim.explore.analysis import analyse
    from npusim.explore.table import load_sweep

    found = analyse(load_sweep(folder), goals, budgets)
    summary = found.summary()
    if html is not None:
        # plotly is slow to load
        from npusim.report.sweep_figure import sweep_html
        from npusim.results.files import replace_file

        replace_file(html, sweep_html(summary, found.rows()).encode())
        note(f"{html} written")
    if json:
        print_json(summary)
    else:
        _print(summary)


def _goals(texts: list[str] | None) -> dict[str, str] | None:
    """Columns and goals of the options."""
    if not texts:
        return None
    goals = {}
    for text in texts:
        column, equals, goal = text.rpartition("=")
        if not equals:
            raise ConfigError("--objective", "must be COLUMN=min or COLUMN=max", text)
        goals[column] = goal
    return goals


def _print(summary: dict[str, Any]) -> None:
    """Counts and tables."""
    from npusim.cli.show_run import print_rows  # rich is slow to load
    from npusim.report import sweep_tables as tables  # beside the other

    console = result_console()
    for line in tables.headline(summary):
        console.print(line, markup=False)
    print_rows(tables.pareto_headings(summary), tables.pareto_rows(summary), console)
    print_rows(tables.EFFECT_HEADINGS, tables.effect_rows(summary), console)
    print_rows(tables.INTERACTION_HEADINGS, tables.interaction_rows(summary), console)
    print_rows(tables.BUDGET_HEADINGS, tables.budget_rows(summary), console)
