"""``npusim sweep``: many runs from one file."""

from __future__ import annotations

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.cli.sweep_progress import show_sweep_progress


def sweep(
    spec: given.SweepFile,
    out: given.SweepFolder,
    jobs: given.Jobs = None,
    resume: given.Resume = False,
    json: given.Json = False,
) -> None:
    """Run every point of a sweep file; finished points survive whatever happens.

    For example:

    npusim sweep edge-small --out runs/edge --jobs 2

    npusim sweep my-sweep.yaml --out runs/mine --resume --json
    """
    from npusim.explore.sweep import sweep as run_sweep  # pyarrow is slow to load

    with show_sweep_progress() as progress:
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
