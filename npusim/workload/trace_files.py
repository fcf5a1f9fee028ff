"""Operator traces on disk: JSONL and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.lines import read_lines
from npusim.workload.trace import OperatorTrace

if TYPE_CHECKING:
    import os


def read_trace(path: str | os.PathLike[str]) -> OperatorTrace:
    """Read a trace, `.jsonl` or `.parquet`.

    Raises
    ------
    WorkloadError
        If the file cannot be read or is not a valid trace.
    """
    where = Path(path)
    if where.suffix == ".parquet":
        # pyarrow is slow to load
        from npusim.workload.importers.trace_parquet import read_parquet

        return read_parquet(where)
    return OperatorTrace.from_lines(read_lines(where), str(where))


def write_trace(trace: OperatorTrace, path: str | os.PathLike[str]) -> None:
    """Write a trace whole or not at all; the ending says how, `.jsonl` or `.parquet`.

    Raises
    ------
    WorkloadError
        If the ending is unknown or the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in (".jsonl", ".parquet"):
        rule = "a trace ends in .jsonl or .parquet"
        raise WorkloadError("trace file", rule, str(target))
    partial = target.with_name(f".{target.name}.partial")
    try:
        if target.suffix == ".parquet":
            # pyarrow is slow to load
            from npusim.workload.importers.trace_parquet import write_parquet

            write_parquet(trace, partial)
        else:
            with partial.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in trace.lines())
        partial.replace(target)
    except OSError as error:
        raise WorkloadError(str(target), f"cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
