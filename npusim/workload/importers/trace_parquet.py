"""The Parquet form of an operator trace: one row per operator, nested values as JSON texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet

from npusim.errors import WorkloadError
from npusim.workload.trace import MARK, OperatorTrace, add_operator, finished, parse_line
from npusim.workload.trace_records import OperatorRecord, TraceHeader

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.workload.operator import Operator

_PLAIN = ("step", "name", "kind", "stage", "layer", "compute_dtype", "rows", "b_is_transposed")
_NESTED = ("inputs", "outputs", "matmul", "vector_ops", "kv_runs")


def write_parquet(trace: OperatorTrace, path: Path) -> None:
    """Write one row per operator; the header is in the file's metadata."""
    columns: dict[str, list[Any]] = {key: [] for key in (*_PLAIN, *_NESTED)}
    for index, operators in enumerate(trace.steps):
        for operator in operators:
            record = OperatorRecord.of(operator, index).model_dump()
            for key in _PLAIN:
                columns[key].append(record[key])
            for key in _NESTED:
                columns[key].append(json.dumps(record[key]))
    types = {"layer": pyarrow.int64(), "compute_dtype": pyarrow.string()}
    arrays = {key: pyarrow.array(values, type=types.get(key)) for key, values in columns.items()}
    table = pyarrow.table(arrays).replace_schema_metadata({MARK: trace.header.model_dump_json()})
    pyarrow.parquet.write_table(table, path)


def read_parquet(path: Path) -> OperatorTrace:
    """Read what `write_parquet` wrote; a row is named like a line of the JSONL form.

    Raises
    ------
    WorkloadError
        If the file is no Parquet file, has no header, or a row is wrong.
    """
    where = str(path)
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise WorkloadError(where, f"cannot be read as Parquet: {error}") from None
    metadata = table.schema.metadata or {}
    if MARK.encode() not in metadata:
        raise WorkloadError(where, f"has no {MARK} header in its metadata; not an operator trace")
    missing = sorted({*_PLAIN, *_NESTED} - set(table.column_names))
    if missing:
        raise WorkloadError(where, f"column {missing[0]!r} is missing")
    header = parse_line(TraceHeader, metadata[MARK.encode()].decode(errors="replace"), where)
    steps: list[list[Operator]] = [[] for _ in header.steps]
    for number, row in enumerate(table.to_pylist(), 1):
        place = f"{where}: row {number}"
        record = parse_line(OperatorRecord, _row_text(row, place), place)
        add_operator(header, steps, record, place)
    return OperatorTrace(*finished(header, steps, where))


def _row_text(row: dict[str, Any], place: str) -> str:
    """JSON of a row."""
    try:
        nested = {key: json.loads(row[key]) for key in _NESTED}
    except (TypeError, ValueError, RecursionError) as error:
        raise WorkloadError(place, f"nested values must be JSON texts: {error}") from None
    return json.dumps({**{key: row[key] for key in _PLAIN}, **nested})
