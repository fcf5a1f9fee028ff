"""A result as a folder: result.json, run_spec.json and one Parquet file per table.

Every file is written beside its final name and renamed; result.json goes last and is removed first,
so that a folder with a result.json is complete, whatever interrupted a writer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from npusim.results.files import prepare_directory, remove_file, replace_file
from npusim.results.series import span_names

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.results.run import RunResult
    from npusim.results.tables import Table

RESULT_FILE = "result.json"
SPEC_FILE = "run_spec.json"
TABLES = (
    *("stages", "operators", "engines", "stalls", "memories", "sram", "tiers"),
    *("barriers", "sram_conflicts", "stage_times"),
    *("approximations", "spans", "flows", "bandwidth", "occupancy", "log"),
)
#: Parquet metadata: order of span names per phase
NAMES_KEY = b"npusim"


def save_result(result: RunResult, directory: Path | str) -> Path:
    """Write a result so that `load_result` gives an equal one back.

    Parameters
    ----------
    result : RunResult
        What to save.
    directory : Path or str
        An earlier result in it is replaced.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ResultError
        If the folder cannot be written.
    """
    folder = prepare_directory(directory)
    remove_file(folder / RESULT_FILE)
    for name in TABLES:
        replace_file(folder / f"{name}.parquet", _parquet(getattr(result, name), result))
    spec = "null" if result.spec is None else result.spec.model_dump_json(indent=2)
    replace_file(folder / SPEC_FILE, f"{spec}\n".encode())
    replace_file(folder / RESULT_FILE, f"{json.dumps(result.summary(), indent=2)}\n".encode())
    return folder


def _parquet(table: Table, result: RunResult) -> bytes:
    """A table as Parquet; spans also carry the order of their names."""
    if table.name != "spans":
        return parquet_bytes(table)
    names = {p: span_names(r.spans) for p, r in result.phases.items() if r.spans is not None}
    return parquet_bytes(table, {NAMES_KEY: json.dumps(names)})


def parquet_bytes(table: Table, metadata: dict[bytes, str] | None = None) -> bytes:
    """A table as a Parquet file."""
    arrow = pa.table({name: list(values) for name, values in table.columns.items()})
    if metadata is not None:
        arrow = arrow.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    pq.write_table(arrow, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
