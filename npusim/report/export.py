"""A run in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npusim.errors import ResultError, nearest
from npusim.report.chrome_trace import chrome_trace
from npusim.report.perfetto import perfetto_trace
from npusim.report.trace_model import trace_model
from npusim.results.exporting import export_tables
from npusim.results.files import replace_file

if TYPE_CHECKING:
    from npusim.results.run import RunResult

#: file or folder by format
DEFAULT_NAMES = {
    "perfetto": "trace.pftrace",
    "chrome": "trace.json",
    "csv": "csv",
    "parquet": "parquet",
}


def export_result(
    result: RunResult, format_name: str, path: Path | str, phase: str | None = None
) -> tuple[str, ...]:
    """Write a run for another tool.

    Parameters
    ----------
    result : RunResult
        A finished run.
    format_name : str
        ``perfetto`` or ``chrome``: a trace of the recorded spans; ``csv`` or ``parquet``: a folder
        with all tables.
    path : Path or str
        File of a trace, folder of tables.
    phase : str, optional
        Only this phase.

    Returns
    -------
    tuple[str, ...]
        What is missing from a trace; empty if nothing is.

    Raises
    ------
    ResultError
        If there is no such format or phase, nothing was recorded, or it cannot be written.
    """
    if format_name not in DEFAULT_NAMES:
        rule = f"must be one of {', '.join(DEFAULT_NAMES)}"
        raise ResultError("format", rule, format_name, nearest(format_name, DEFAULT_NAMES))
    target = Path(path)
    if format_name in ("csv", "parquet"):
        export_tables(result, target, format_name, phase)
        return ()
    model = trace_model(result, phase)
    is_perfetto = format_name == "perfetto"
    replace_file(target, perfetto_trace(model) if is_perfetto else chrome_trace(model).encode())
    return tuple(model.notes)
