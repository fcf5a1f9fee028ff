"""``npusim report``: a finished run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json
from npusim.cli.run import TIMELINE_FILE

REPORT_FILE = "report.html"

Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help=f"Where to write the page. Default: RUN/{REPORT_FILE}."
    ),
]


def report(run: given.RunFolder, html: Html = None, json: given.Json = False) -> None:
    """Write a page about a finished run: stages, stalls, roofline, memory, configuration.

    For example:

    npusim run rk3588 qwen2-1.5b --prompt 128 --generate 8 --quant w8a8 --out runs/a

    npusim report runs/a

    npusim report runs/a --html a.html
    """
    # plotly and pyarrow are slow to load
    from npusim.report.run_page import write_report
    from npusim.results.loading import load_result

    result = load_result(run)
    target = html if html is not None else run / REPORT_FILE
    timeline = run / TIMELINE_FILE
    write_report(result, target, timeline if timeline.is_file() else None)
    if json:
        print_json({"run": str(run), "path": str(target)})
    else:
        note(f"{target} written")
