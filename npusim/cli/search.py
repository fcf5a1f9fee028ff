"""``npusim search``: the best trade-offs of a grid that is too large to sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.cli.sweep_progress import show_sweep_progress

if TYPE_CHECKING:
    from npusim.explore.table import SweepResult


def search(
    spec: given.SweepFile,
    out: given.SweepFolder,
    jobs: given.Jobs = None,
    resume: given.Resume = False,
    json: given.Json = False,
) -> None:
    """Search the grid of a sweep file for the best trade-offs of its objectives.

    For example:

    npusim search edge-search --out runs/search --jobs 2

    npusim sweep-report runs/search --html search.html
    """
    from npusim.explore.search import search as run_search  # pyarrow is slow to load

    with show_sweep_progress() as progress:
        result = run_search(spec, out=out, jobs=jobs, resume=resume, progress=progress)
    if json:
        print_json(result.summary)
    else:
        _print(result)


def _print(result: SweepResult) -> None:
    """Counts and the front."""
    # pandas and rich are slow to load
    from npusim.cli.show_run import print_rows
    from npusim.explore.analysis import analyse
    from npusim.report.sweep_tables import pareto_headings, pareto_rows

    summary = result.summary
    console = result_console()
    console.print(
        f"{summary['name']}: {summary['points']} points of {summary['proposals']} proposals, "
        f"{summary['done']} done, {summary['failed']} failed, "
        f"{summary['excluded_by_constraints']} proposals against constraints; "
        f"{summary['computed']} computed now",
        markup=False,
    )
    if summary["done"]:
        found = analyse(result).summary()
        print_rows(pareto_headings(found), pareto_rows(found), console)
    note(f"npusim sweep-report {result.folder} says more")
