"""The tidy table of a sweep, and the folder it is kept in.

The table has one row per point in the order of the plan: ``point``, ``key``, ``status``, ``error``,
``system``, ``model``, a column per axis path, per metric and per derived value. It holds nothing
that depends on when, where or by how many workers a point was computed.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from npusim._version import __version__
from npusim.errors import ResultError
from npusim.results.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from npusim.explore.plan import Plan, Point
    from npusim.explore.worker import Outcome

TABLE_FILE = "points.parquet"
SUMMARY_FILE = "sweep.json"
CONFIG_FILE = "configs.jsonl"


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep in its folder.

    Attributes
    ----------
    folder : Path
        Where it is.
    summary : dict
        Counts, columns and objectives, as in ``sweep.json``.
    table : pyarrow.Table
        One row per point.
    """

    folder: Path
    summary: dict[str, Any]
    table: pa.Table

    def to_frame(self) -> pd.DataFrame:
        """One row per point; whole numbers stay whole, missing ones are NA."""
        import pandas as pd  # slow to load

        frame: pd.DataFrame = self.table.to_pandas()
        for field in self.table.schema:
            if pa.types.is_integer(field.type) and self.table[field.name].null_count:
                values = self.table[field.name].to_pylist()
                frame[field.name] = pd.array(values, dtype="Int64")
        return frame


def write_sweep(
    folder: Path, plan: Plan, outcomes: Mapping[str, Outcome], excluded: int
) -> SweepResult:
    """Write table, configurations and summary, each whole; the summary goes last."""
    table = _table(plan, outcomes)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    replace_file(folder / CONFIG_FILE, _configs(plan).encode())
    replace_file(folder / TABLE_FILE, buffer.getvalue())
    failed = table.column("status").to_pylist().count("failed")
    summary = {
        "schema_version": 1,
        "npusim_version": __version__,
        "name": plan.spec.name,
        "description": plan.spec.description,
        "plan": plan.digest,
        "points": len(plan.points),
        "done": len(plan.points) - failed,
        "failed": failed,
        "excluded_by_constraints": excluded,
        "axes": list(plan.axes),
        "metrics": list(plan.spec.metrics),
        "derived": list(plan.spec.derived),
        "objectives": {name: goal.value for name, goal in plan.spec.objectives.items()},
    }
    replace_file(folder / SUMMARY_FILE, (json.dumps(summary, indent=1) + "\n").encode())
    return SweepResult(folder, summary, table)


def load_sweep(folder: str | Path) -> SweepResult:
    """A finished sweep.

    Raises
    ------
    ResultError
        If the folder has no finished sweep, or a file of it cannot be read.
    """
    place = Path(folder)
    try:
        summary = json.loads((place / SUMMARY_FILE).read_text("utf-8"))
        return SweepResult(place, summary, pq.read_table(place / TABLE_FILE))
    except FileNotFoundError as error:
        hint = "npusim sweep SPEC --out DIR --resume finishes one"
        raise ResultError(str(error.filename), "no finished sweep here", hint=hint) from None
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ResultError(str(place), f"must be a finished sweep: {error}") from None


def _table(plan: Plan, outcomes: Mapping[str, Outcome]) -> pa.Table:
    """Columns in the order of the module's text."""
    points = plan.points
    errors = [_error(point, outcomes) for point in points]
    columns: dict[str, list[Any]] = {
        "point": [point.index for point in points],
        "key": [point.key for point in points],
        "status": ["done" if error is None else "failed" for error in errors],
        "error": errors,
        "system": [point.system for point in points],
        "model": [point.model for point in points],
    }
    for i, name in enumerate(plan.axes):
        columns[name] = [point.values[i] for point in points]
    for name in plan.spec.metrics:
        found = [outcomes[p.key].metrics.get(name) if p.run else None for p in points]
        columns[name] = found
    for i, name in enumerate(plan.spec.derived):
        columns[name] = [point.derived[i] for point in points]
    arrays = {name: _array(values, is_text=name == "error") for name, values in columns.items()}
    return pa.table(arrays)


def _error(point: Point, outcomes: Mapping[str, Outcome]) -> str | None:
    return point.error if point.run is None else outcomes[point.key].error


def _array(values: list[Any], *, is_text: bool) -> pa.Array:
    """Arrow column: one type if the values have one, otherwise their JSON."""
    kinds = {type(value) for value in values if value is not None}
    if is_text:
        return pa.array(values, pa.string())
    if not kinds:
        return pa.array(values, pa.float64())
    if kinds == {int, float}:
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if len(kinds) == 1 and kinds <= {int, float, str, bool}:
        return pa.array(values)
    return pa.array([None if v is None else json.dumps(v) for v in values], pa.string())


def _configs(plan: Plan) -> str:
    """One line per point with its whole configuration; the same key, the same line."""
    lines = {
        point.key: json.dumps({"key": point.key, "run": point.run.model_dump(mode="json")})
        for point in plan.points
        if point.run is not None
    }
    return "".join(line + "\n" for line in lines.values())
