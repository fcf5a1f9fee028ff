"""Tables of what is recorded over time: spans and bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.results.records import SpanTable
from npusim.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from npusim.results.records import PhaseRecord

    Bandwidth = tuple[tuple[str, int, NDArray[np.int64]], ...]

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


def _named(names: Sequence[str], index: NDArray[np.int32]) -> list[str | None]:
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


def bandwidth_table(phases: Mapping[str, PhaseRecord]) -> Table:
    """One row per memory and time bin: bytes that moved in the bin."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("phase", "memory", "bin_ps", "start_ps", "moved_bytes")
    }
    for phase, record in phases.items():
        for memory, bin_ps, moved in record.bandwidth:
            columns["phase"] += [phase] * len(moved)
            columns["memory"] += [memory] * len(moved)
            columns["bin_ps"] += [bin_ps] * len(moved)
            columns["start_ps"] += [bin_ps * i for i in range(len(moved))]
            columns["moved_bytes"] += moved.tolist()
    return Table("bandwidth", columns)


def bandwidth_from_rows(rows: Sequence[Mapping[str, Any]]) -> Bandwidth:
    """The bandwidth series of one phase back from the rows of `bandwidth_table`."""
    series: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        series.setdefault((row["memory"], row["bin_ps"]), []).append(row["moved_bytes"])
    return tuple(
        (memory, bin_ps, np.asarray(moved, dtype=np.int64))
        for (memory, bin_ps), moved in series.items()
    )
