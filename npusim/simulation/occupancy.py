"""Bytes that scratchpads hold over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from npusim.machine.execution import Execution
    from npusim.program import Program

    Ints = NDArray[np.int64]

_BINS = 256
_MAX_ENTRIES = 1 << 21  # accesses of segments looked at in one go, to bound memory


class _Accesses(NamedTuple):
    """Accesses of one scratchpad; `first` and `last` bound the segments they touch."""

    start_ps: Ints
    end_ps: Ints
    is_write: NDArray[np.bool_]
    first: Ints
    last: Ints


def occupancy_series(
    program: Program, execution: Execution
) -> tuple[tuple[str, int, NDArray[np.int64]], ...]:
    """(scratchpad, bin length, most bytes held at once in each bin).

    A byte is held from the start of the command that writes it to the end of the last command that
    uses it before the next write; a byte that is read and was never written, from time 0.
    """
    bin_ps = max(-(-execution.elapsed_ps // _BINS), 1)
    owner = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))
    series = []
    for index, space in enumerate(program.spaces):
        region = np.flatnonzero(program.region_space == index)
        if space.kind == "scratchpad" and len(region):
            time_ps, change_bytes = _changes(program, execution, region, owner[region])
            series.append((space.name, bin_ps, _most_per_bin(time_ps, change_bytes, bin_ps)))
    return tuple(series)


def _changes(
    program: Program, execution: Execution, region: Ints, command: Ints
) -> tuple[Ints, Ints]:
    """Times at which bytes begin or cease to be held, and how many."""
    low = program.region_offset[region]
    high = low + program.region_bytes[region]
    borders = np.unique(np.concatenate((low, high)))
    accesses = _Accesses(
        execution.start_ps[command],
        execution.end_ps[command],
        program.region_is_write[region],
        np.searchsorted(borders, low),
        np.searchsorted(borders, high),
    )
    sizes = np.diff(borders)
    times, changes = [], []
    for begin, end in _chunks(accesses, len(sizes)):
        segment, from_ps, to_ps = _held(accesses, begin, end)
        times += [from_ps, to_ps]
        changes += [sizes[segment], -sizes[segment]]
    return np.concatenate(times), np.concatenate(changes)


def _chunks(accesses: _Accesses, segments: int) -> Iterator[tuple[int, int]]:
    """Ranges of segments with a bounded number of accesses each."""
    steps = np.zeros(segments + 1, dtype=np.int64)
    np.add.at(steps, accesses.first, 1)
    np.add.at(steps, accesses.last, -1)
    so_far = np.cumsum(np.cumsum(steps)[:-1])
    begin = 0
    while begin < segments:
        done = int(so_far[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(so_far, done + _MAX_ENTRIES, side="right")), begin + 1)
        yield begin, end
        begin = end


def _held(accesses: _Accesses, begin: int, end: int) -> tuple[Ints, Ints, Ints]:
    """(segment, from, to) of every value in some segments."""
    first, last = np.clip(accesses.first, begin, end), np.clip(accesses.last, begin, end)
    size = last - first
    which = np.repeat(np.arange(len(size)), size)
    segment = np.arange(len(which)) - np.repeat(np.cumsum(size) - size, size) + first[which]
    # by time; a command that reads and writes reads the value before
    order = np.lexsort((accesses.is_write[which], accesses.start_ps[which], segment))
    which, segment = which[order], segment[order]
    is_new_segment = np.concatenate(([True], segment[1:] != segment[:-1]))[: len(segment)]
    is_write = accesses.is_write[which]
    opens = np.flatnonzero(is_write | is_new_segment)
    if not len(opens):
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    from_ps = np.where(is_write[opens], accesses.start_ps[which[opens]], 0)
    to_ps = np.maximum.reduceat(accesses.end_ps[which], opens)
    is_followed = segment[opens][1:] == segment[opens][:-1]
    to_ps[:-1] = np.where(is_followed, np.minimum(to_ps[:-1], from_ps[1:]), to_ps[:-1])
    return segment[opens], from_ps, to_ps


def _most_per_bin(time_ps: Ints, change_bytes: Ints, bin_ps: int) -> Ints:
    """Highest level in each bin; changes of one moment count together."""
    order = np.argsort(time_ps, kind="stable")
    moment, first = np.unique(time_ps[order], return_index=True)
    level = np.cumsum(np.add.reduceat(change_bytes[order], first))
    edges = np.arange(_BINS, dtype=np.int64) * bin_ps
    before = np.searchsorted(moment, edges, side="right") - 1  # the level at each bin's start
    most = np.where(before >= 0, level[np.maximum(before, 0)], 0)
    inside = moment < _BINS * bin_ps
    np.maximum.at(most, moment[inside] // bin_ps, level[inside])
    return most
