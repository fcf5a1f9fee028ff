"""Tables of what is recorded over time: spans, flows, bandwidth, occupancy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.results.records import FLOW_KINDS, FlowTable, SpanTable
from npusim.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from npusim.results.records import PhaseRecord

    Series = tuple[tuple[str, int, NDArray[np.int64]], ...]

_SPAN_COLUMNS = ("phase", "engine", "start_ps", "end_ps", "label", "stage", "is_stall", "queue")


def span_table(phases: Mapping[str, PhaseRecord]) -> Table:
    """One row per recorded span; a stall's label is its cause."""
    columns: dict[str, list[Any]] = {name: [] for name in _SPAN_COLUMNS}
    for phase, record in phases.items():
        spans = record.spans
        if spans is None:
            continue
        columns["phase"] += [phase] * len(spans)
        columns["engine"] += _named(spans.engines, spans.engine)
        columns["label"] += _named(spans.labels, spans.label)
        columns["stage"] += _named(spans.stages, spans.stage)
        for name in ("start_ps", "end_ps", "is_stall", "queue"):
            columns[name] += getattr(spans, name).tolist()
    return Table("spans", columns)


def _named(names: Sequence[str], index: NDArray[np.integer[Any]]) -> list[str | None]:
    """Names by index; -1 is None."""
    return [names[i] if i >= 0 else None for i in index.tolist()]


def span_names(spans: SpanTable) -> dict[str, Any]:
    """What the rows of `span_table` do not tell: order of the names, and the cap."""
    return {
        "engines": list(spans.engines),
        "labels": list(spans.labels),
        "stages": list(spans.stages),
        "truncated": spans.truncated,
    }


def spans_from_columns(columns: Mapping[str, Sequence[Any]], names: Mapping[str, Any]) -> SpanTable:
    """The spans of one phase back from the rows of `span_table` and from `span_names`."""
    return SpanTable(
        engines=tuple(names["engines"]),
        labels=tuple(names["labels"]),
        stages=tuple(names["stages"]),
        engine=_indexed(names["engines"], columns["engine"]),
        start_ps=np.asarray(columns["start_ps"], dtype=np.int64),
        end_ps=np.asarray(columns["end_ps"], dtype=np.int64),
        label=_indexed(names["labels"], columns["label"]),
        stage=_indexed(names["stages"], columns["stage"]),
        is_stall=np.asarray(columns["is_stall"], dtype=np.bool_),
        queue=np.asarray(columns["queue"], dtype=np.int32),
        truncated=bool(names["truncated"]),
    )


def _indexed(names: Sequence[str], values: Sequence[str | None]) -> NDArray[np.int32]:
    """Index of each value among the names; -1 for None."""
    index: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    index[None] = -1
    return np.array([index[value] for value in values], dtype=np.int32)


def flow_table(phases: Mapping[str, PhaseRecord]) -> Table:
    """One row per edge; `producer` and `consumer` are rows of the phase's spans."""
    columns: dict[str, list[Any]] = {name: [] for name in ("phase", "producer", "consumer", "kind")}
    for phase, record in phases.items():
        flows = record.flows
        if flows is None:
            continue
        columns["phase"] += [phase] * len(flows)
        columns["producer"] += flows.producer.tolist()
        columns["consumer"] += flows.consumer.tolist()
        columns["kind"] += _named(FLOW_KINDS, flows.kind)
    return Table("flows", columns)


def flows_from_columns(columns: Mapping[str, Sequence[Any]]) -> FlowTable:
    """The flows of one phase back from the rows of `flow_table`."""
    return FlowTable(
        producer=np.asarray(columns["producer"], dtype=np.int32),
        consumer=np.asarray(columns["consumer"], dtype=np.int32),
        kind=_indexed(FLOW_KINDS, columns["kind"]).astype(np.int8),
    )


def bandwidth_table(phases: Mapping[str, PhaseRecord]) -> Table:
    """One row per memory and time bin: bytes that moved in the bin."""
    return _series_table("bandwidth", phases, "memory", "moved_bytes")


def occupancy_table(phases: Mapping[str, PhaseRecord]) -> Table:
    """One row per scratchpad and time bin: most bytes held at once in the bin."""
    return _series_table("occupancy", phases, "space", "held_bytes")


def _series_table(name: str, phases: Mapping[str, PhaseRecord], whose: str, what: str) -> Table:
    """One row per bin of the series that a phase has by this name."""
    columns: dict[str, list[Any]] = {
        column: [] for column in ("phase", whose, "bin_ps", "start_ps", what)
    }
    for phase, record in phases.items():
        for item, bin_ps, values in getattr(record, name):
            columns["phase"] += [phase] * len(values)
            columns[whose] += [item] * len(values)
            columns["bin_ps"] += [bin_ps] * len(values)
            columns["start_ps"] += [bin_ps * i for i in range(len(values))]
            columns[what] += values.tolist()
    return Table(name, columns)


def bandwidth_from_rows(rows: Sequence[Mapping[str, Any]]) -> Series:
    """The bandwidth series of one phase back from the rows of `bandwidth_table`."""
    return _series_from_rows(rows, "memory", "moved_bytes")


def occupancy_from_rows(rows: Sequence[Mapping[str, Any]]) -> Series:
    """The occupancy series of one phase back from the rows of `occupancy_table`."""
    return _series_from_rows(rows, "space", "held_bytes")


def _series_from_rows(rows: Sequence[Mapping[str, Any]], whose: str, what: str) -> Series:
    """The series of one phase back from the rows of `_series_table`."""
    series: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        series.setdefault((row[whose], row["bin_ps"]), []).append(row[what])
    return tuple(
        (item, bin_ps, np.asarray(values, dtype=np.int64))
        for (item, bin_ps), values in series.items()
    )
