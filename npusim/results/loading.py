"""A result back from its folder, checked as when it was made."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from npusim.config.run_spec import RunSpec
from npusim.errors import ResultError, SimulationError
from npusim.results.invariants import ROLES
from npusim.results.records import (
    Approximation,
    BarrierRecord,
    EngineRecord,
    MemoryRecord,
    OperatorRecord,
    PhaseRecord,
    SpanTable,
    SramRecord,
    StageRecord,
    StageTimeRecord,
    TierRecord,
)
from npusim.results.run import SCHEMA_VERSION, RunResult
from npusim.results.saving import NAMES_KEY, RESULT_FILE, SPEC_FILE, TABLES
from npusim.results.series import (
    bandwidth_from_rows,
    flows_from_columns,
    occupancy_from_rows,
    spans_from_columns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Rows = list[dict[str, Any]]


def load_result(directory: Path | str) -> RunResult:
    """Read a result that `RunResult.save` wrote; its invariants are checked again.

    Parameters
    ----------
    directory : Path or str
        The folder.

    Returns
    -------
    RunResult
        Equal to the saved one, spans included.

    Raises
    ------
    ResultError
        If the folder holds no complete result, one of another schema version, or a damaged one.
    """
    folder = Path(directory)
    summary = _read_summary(folder / RESULT_FILE)
    try:
        tables = {name: pq.read_table(folder / f"{name}.parquet") for name in TABLES}
        phases = {name: _phase(name, raw, tables) for name, raw in summary["phases"].items()}
        result = _result(summary, phases, _read_spec(folder / SPEC_FILE))
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException, SimulationError) as error:
        raise ResultError(str(folder), f"holds a damaged result: {error}") from error
    if result.summary() != summary:
        raise ResultError(str(folder), f"{RESULT_FILE} and the tables must tell the same")
    return result


def _read_summary(path: Path) -> dict[str, Any]:
    """result.json of a supported schema version."""
    try:
        summary = json.loads(path.read_text("utf-8"))
    except OSError:
        hint = f"a finished run has {RESULT_FILE}; write one with --out"
        raise ResultError(str(path.parent), "must hold a finished run", hint=hint) from None
    except ValueError as error:
        raise ResultError(str(path), f"must be JSON: {error}") from None
    version = summary.get("schema_version") if isinstance(summary, dict) else None
    if version != SCHEMA_VERSION:
        raise ResultError(str(path), f"schema_version must be {SCHEMA_VERSION}", version)
    found: dict[str, Any] = summary
    return found


def _read_spec(path: Path) -> RunSpec | None:
    """The specification of the run, if it was kept."""
    text = path.read_text("utf-8")
    return None if text.strip() == "null" else RunSpec.model_validate_json(text)


def _result(
    summary: Mapping[str, Any], phases: Mapping[str, PhaseRecord], spec: RunSpec | None
) -> RunResult:
    """The object around the phases."""
    same = ("npusim_version", "seed", "fidelity", "executor", "hashes", "workload", "ttft_ps")
    return RunResult(
        **{key: summary[key] for key in (*same, "wall_s")},
        overrides=tuple(summary["overrides"]),
        system=summary["system"]["name"],
        clock=summary["system"]["clock"],
        phases=phases,
        spec=spec,
    )


def _phase(name: str, raw: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> PhaseRecord:
    """One phase from its scalars in the summary and its rows in the tables."""
    rows = {
        key: _rows_of(name, table) for key, table in tables.items() if key not in ("spans", "flows")
    }
    scalars = (
        *("elapsed_ps", "clock", "clock_hz", "bound_ps", "tokens", "steps", "commands"),
        *("kernels", "macs", "peak_macs_per_cycle", "kernels_per_layer"),
    )
    spans = _spans(name, tables["spans"])
    return PhaseRecord(
        phase=name,
        **{key: raw[key] for key in scalars},
        stages=_build(StageRecord, rows["stages"]),
        operators=_build(OperatorRecord, rows["operators"]),
        engines=_build(EngineRecord, _with_stalls(rows["engines"], rows["stalls"])),
        memories=_build(MemoryRecord, _with_roles(rows["memories"])),
        sram=_build(SramRecord, _with_conflicts(rows["sram"], rows["sram_conflicts"])),
        barriers=_build(BarrierRecord, rows["barriers"]),
        approximations=_build(Approximation, rows["approximations"]),
        spans=spans,
        flows=None if spans is None else flows_from_columns(_columns_of(name, tables["flows"])),
        bandwidth=bandwidth_from_rows(rows["bandwidth"]),
        occupancy=occupancy_from_rows(rows["occupancy"]),
        tiers=_build(TierRecord, rows["tiers"]),
        stage_times=_build(StageTimeRecord, rows["stage_times"]),
        log=tuple(row["line"] for row in rows["log"]),
    )


def _rows_of(phase: str, table: pa.Table) -> Rows:
    """Rows of one phase."""
    return [row for row in table.to_pylist() if row["phase"] == phase]


def _build(kind: type, rows: Rows) -> tuple[Any, ...]:
    """Records from rows; derived columns are left out."""
    names = [field.name for field in fields(kind)]
    return tuple(kind(**{name: row[name] for name in names}) for row in rows)


def _with_stalls(engines: Rows, stalls: Rows) -> Rows:
    """Engine rows with their causes gathered."""
    by_engine: dict[str, dict[str, int]] = {row["engine"]: {} for row in engines}
    for row in stalls:
        by_engine[row["engine"]][row["cause"]] = row["stall_ps"]
    return [{**row, "stalls_ps": by_engine[row["engine"]]} for row in engines]


def _with_conflicts(srams: Rows, pairs: Rows) -> Rows:
    """SRAM rows with the engines that lost time to each other gathered."""
    by_sram: dict[str, list[tuple[str, str, int]]] = {row["name"]: [] for row in srams}
    for row in pairs:
        by_sram[row["name"]].append((row["engine"], row["by"], row["lost_ps"]))
    return [{**row, "conflicts": tuple(by_sram[row["name"]])} for row in srams]


def _with_roles(memories: Rows) -> Rows:
    """Memory rows with their bytes by role gathered."""
    return [
        {**row, "bytes_by_role": {role: row[f"{role}_bytes"] for role in ROLES}} for row in memories
    ]


def _spans(phase: str, table: pa.Table) -> SpanTable | None:
    """Spans of one phase, None when none were recorded."""
    names = json.loads((table.schema.metadata or {}).get(NAMES_KEY, b"{}"))
    if phase not in names:
        return None
    return spans_from_columns(_columns_of(phase, table), names[phase])


def _columns_of(phase: str, table: pa.Table) -> dict[str, Sequence[Any]]:
    """Columns of one phase."""
    where = [found == phase for found in table["phase"].to_pylist()]
    columns: dict[str, Sequence[Any]] = table.filter(pa.array(where, pa.bool_())).to_pydict()
    return columns
