"""Tables of a result as CSV or Parquet files, one per table."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from npusim.errors import ResultError
from npusim.results.files import prepare_directory, replace_file
from npusim.results.saving import RESULT_FILE, TABLES, parquet_bytes
from npusim.results.tables import Table, phase_table

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.results.run import RunResult

EXPORTED = ("phases", *TABLES, "effective_bandwidth")


def export_tables(
    result: RunResult, folder: Path, suffix: str, phase: str | None = None
) -> tuple[Path, ...]:
    """Write every table of a result.

    Parameters
    ----------
    result : RunResult
        A finished run.
    folder : Path
        Where to; not the folder of a run, whose own files tell more.
    suffix : str
        ``csv`` or ``parquet``.
    phase : str, optional
        Only rows of this phase.

    Returns
    -------
    tuple[Path, ...]
        The files.

    Raises
    ------
    ResultError
        If the phase did not run or the folder cannot be used.
    """
    if phase is not None:
        result.phase(phase)
    if (folder / RESULT_FILE).exists():
        raise ResultError("output folder", "must not be the folder of a run", str(folder))
    encode = {"csv": _csv_bytes, "parquet": parquet_bytes}[suffix]
    prepare_directory(folder)
    paths = []
    for name in EXPORTED:
        table = phase_table(result.phases) if name == "phases" else getattr(result, name)
        paths.append(folder / f"{name}.{suffix}")
        replace_file(paths[-1], encode(table if phase is None else _of_phase(table, phase)))
    return tuple(paths)


def _of_phase(table: Table, phase: str) -> Table:
    """Rows of one phase."""
    keep = [i for i, found in enumerate(table.columns["phase"]) if found == phase]
    columns: dict[str, Any] = {
        name: [values[i] for i in keep] for name, values in table.columns.items()
    }
    return Table(table.name, columns)


def _csv_bytes(table: Table) -> bytes:
    """A header, then a line per row; a missing value is empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values(), strict=True))
    return sink.getvalue().encode()
