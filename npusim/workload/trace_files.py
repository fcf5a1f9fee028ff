"""Operator traces on disk: JSONL and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.trace import OperatorTrace

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

MAX_LINE_CHARS = 1 << 24


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
    try:
        with where.open(encoding="utf-8") as file:
            return OperatorTrace.from_lines(_bounded(file, str(where)), str(where))
    except UnicodeDecodeError as error:
        raise WorkloadError(str(where), f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise WorkloadError(str(where), f"cannot be read: {error.strerror}") from None


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


def _bounded(file: Iterable[str], where: str) -> Iterator[str]:
    """Lines, refused when one is absurdly long."""
    for number, line in enumerate(file, 1):
        if len(line) > MAX_LINE_CHARS:
            rule = f"line {number}: a line has at most {MAX_LINE_CHARS} characters"
            raise WorkloadError(where, rule)
        yield line
