"""Spans summed into time bins: what fills most of each bin, for drawings of long runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.results.records import BUSY  # category of a span that is no stall

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.results.records import SpanTable


@dataclass(frozen=True)
class Bins:
    """What dominates each bin of each row.

    Attributes
    ----------
    names : tuple[str, ...]
        Categories.
    edges_ps : ndarray, shape (bins + 1,)
        Borders of the bins.
    dominant : ndarray, shape (rows, bins)
        Index into `names` of the category with most time; -1 where nothing happened.
    share_frac : ndarray, shape (rows, bins)
        Its share of the bin, at most 1.
    """

    names: tuple[str, ...]
    edges_ps: NDArray[np.int64]
    dominant: NDArray[np.int32]
    share_frac: NDArray[np.float64]


def span_categories(spans: SpanTable) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Categories, busy first and causes by name, and the category of every span."""
    causes = sorted({spans.labels[i] for i in np.unique(spans.label[spans.is_stall]).tolist()})
    names = (BUSY, *causes)
    index = {name: i for i, name in enumerate(names)}
    of_label = np.array([index.get(label, 0) for label in spans.labels], dtype=np.int32)
    return names, np.where(spans.is_stall, of_label[spans.label], 0).astype(np.int32)


def engine_bins(spans: SpanTable, elapsed_ps: int, num_bins: int) -> Bins:
    """Bins of each engine by category.

    Parameters
    ----------
    spans : SpanTable
        Recorded spans.
    elapsed_ps : int
        End of the last bin.
    num_bins : int
        Bins of equal length up to one picosecond.

    Returns
    -------
    Bins
        One row per engine of `spans`. Nothing (idle) never wins against something.
    """
    names, category = span_categories(spans)
    edges = bin_edges(elapsed_ps, num_bins)
    time = _time_in_bins(spans, spans.engine * len(names) + category, edges)
    filled = np.zeros((len(spans.engines) * len(names), num_bins), dtype=np.int64)
    for key, row in time.items():
        filled[key] = row
    return _dominant(names, edges, filled.reshape(len(spans.engines), len(names), num_bins))


def stage_bins(spans: SpanTable, elapsed_ps: int, num_bins: int) -> Bins:
    """One row: the stage with most busy time of all engines in each bin."""
    is_work = ~spans.is_stall & (spans.stage >= 0)
    edges = bin_edges(elapsed_ps, num_bins)
    time = _time_in_bins(spans, np.where(is_work, spans.stage, -1), edges)
    filled = np.zeros((1, max(len(spans.stages), 1), num_bins), dtype=np.int64)
    for key, row in time.items():
        if key >= 0:
            filled[0, key] = row
    return _dominant(spans.stages, edges, filled)


def bin_edges(elapsed_ps: int, num_bins: int) -> NDArray[np.int64]:
    """Borders of `num_bins` bins over the time from 0."""
    return np.array([elapsed_ps * i // num_bins for i in range(num_bins + 1)], dtype=np.int64)


def _time_in_bins(
    spans: SpanTable, keys: NDArray[np.int32], edges: NDArray[np.int64]
) -> dict[int, NDArray[np.int64]]:
    """Span time per bin for each key; overlapping spans add up."""
    order = np.argsort(keys, kind="stable")
    found, first = np.unique(keys[order], return_index=True)
    groups = np.split(order, first[1:])
    return {
        int(key): np.diff(_time_before(spans.start_ps[group], spans.end_ps[group], edges))
        for key, group in zip(found.tolist(), groups, strict=False)
    }


def _time_before(
    start_ps: NDArray[np.int64], end_ps: NDArray[np.int64], edges: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Span time before each edge: the time since all starts less the time since all ends.

    Sums may wrap around 2^64; the difference is small and comes out right.
    """
    result: NDArray[np.int64] = _time_since(start_ps, edges) - _time_since(end_ps, edges)
    return result


def _time_since(moments: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum over all moments before an edge of the time from moment to edge."""
    ordered = np.sort(moments)
    count = np.searchsorted(ordered, edges, side="right")
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(ordered)))
    result: NDArray[np.int64] = edges * count - total[count]
    return result


def _dominant(names: tuple[str, ...], edges: NDArray[np.int64], filled: NDArray[np.int64]) -> Bins:
    """Largest category per row and bin of an array (rows, categories, bins)."""
    largest = filled.max(axis=1)
    share = largest / np.maximum(np.diff(edges), 1)
    dominant = np.where(largest > 0, filled.argmax(axis=1), -1).astype(np.int32)
    return Bins(names, edges, dominant, np.minimum(share, 1.0))
