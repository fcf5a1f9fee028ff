"""``npusim export``: a finished run in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json

Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="perfetto|chrome|csv|parquet",
        help="perfetto, chrome: a trace of the recorded spans. csv, parquet: all tables.",
    ),
]
OutPath = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="PATH",
        help="File of a trace, folder of tables. Default: in RUN, trace.pftrace, trace.json, csv "
        "or parquet.",
    ),
]
Phase = Annotated[
    str | None,
    typer.Option("--phase", metavar="prefill|decode", help="Only this phase. Default: all."),
]


def export(
    run: given.RunFolder,
    format_name: Format = "perfetto",
    out: OutPath = None,
    phase: Phase = None,
    json: given.Json = False,
) -> None:
    """Write a finished run as a Perfetto or Chrome trace, or its tables as CSV or Parquet.

    For example:

    npusim run rk3588 smollm2-135m --prompt 16 --generate 4 --out runs/a

    npusim export runs/a --format perfetto --out a.pftrace

    npusim export runs/a --format csv --out tables --phase decode
    """
    # plotly and pyarrow are slow to load
    from npusim.report.export import DEFAULT_NAMES, export_result
    from npusim.results.loading import load_result

    result = load_result(run)
    target = out if out is not None else run / DEFAULT_NAMES.get(format_name, "")
    missing = export_result(result, format_name, target, phase)
    for line in missing:
        note(line)
    if json:
        print_json(
            {"run": str(run), "format": format_name, "path": str(target), "missing": missing}
        )
    else:
        note(f"{target} written")
