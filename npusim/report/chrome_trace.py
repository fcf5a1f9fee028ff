"""A trace in the JSON format of Chrome's trace viewer, which Perfetto reads as well.

Source: "Trace Event Format" (Chromium): complete events ``X``, counters ``C``, flows ``s`` and
``f``, metadata ``M``; times in microseconds, here with six digits: exact picoseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.report.trace_model import TraceModel, Track

_PS_PER_US = 10**6


def chrome_trace(model: TraceModel) -> str:
    """The whole file: one event per line, in order of time."""
    head = ",\n".join(json.dumps(event) for event in _metadata(model))
    body = ",\n".join(line for _, line in sorted(_events(model)))
    other = json.dumps({"title": model.title, "notes": model.notes})
    return (
        f'{{"displayTimeUnit": "ns", "otherData": {other}, "traceEvents": [\n{head},\n{body}\n]}}\n'
    )


def _metadata(model: TraceModel) -> Iterator[dict[str, Any]]:
    """Names of processes (top tracks) and threads (all tracks)."""
    processes = _processes(model)
    for track in model.tracks:
        own = {"pid": processes[track.number], "tid": track.number}
        if not track.parent:
            yield {"ph": "M", "name": "process_name", **own, "args": {"name": track.name}}
        if track.unit is None:
            yield {"ph": "M", "name": "thread_name", **own, "args": {"name": track.name}}
            order = {"sort_index": track.number}
            yield {"ph": "M", "name": "thread_sort_index", **own, "args": order}


def _processes(model: TraceModel) -> dict[int, int]:
    """Topmost track of every track."""
    found: dict[int, int] = {}
    for track in model.tracks:
        found[track.number] = found[track.parent] if track.parent else track.number
    return found


def _events(model: TraceModel) -> Iterator[tuple[tuple[int, int, int], str]]:
    """Lines with their place: time, kind, order of appearance."""
    processes, tracks = _processes(model), {track.number: track for track in model.tracks}
    for index, item in enumerate(model.slices):
        args = {} if item.stage is None else {"stage": item.stage}
        event: dict[str, Any] = {"ph": "X", "name": item.name, "cat": item.category, "args": args}
        where = _where(tracks[item.track], processes)
        length = _us(item.end_ps - item.start_ps)
        line = _line(event | where, item.start_ps, f', "dur": {length}')
        yield (item.start_ps, 0, index), line
    for index, flow in enumerate(model.flows):
        event = {"cat": "flow", "name": flow.kind, "id": index + 1}
        for phase, end in (({"ph": "s"}, flow.producer), ({"ph": "f", "bp": "e"}, flow.consumer)):
            item = model.slices[end]
            where = _where(tracks[item.track], processes)
            rank = 1 if end == flow.producer else 2
            yield (item.start_ps, rank, index), _line(phase | event | where, item.start_ps)
    for index, sample in enumerate(model.samples):
        track = tracks[sample.track]
        event = {"ph": "C", "name": track.name, "args": {str(track.unit): sample.value}}
        line = _line(event | _where(track, processes), sample.time_ps)
        yield (sample.time_ps, 3, index), line


def _where(track: Track, processes: dict[int, int]) -> dict[str, Any]:
    """Process and thread of a track."""
    return {"pid": processes[track.number], "tid": track.number}


def _line(event: dict[str, Any], time_ps: int, more: str = "") -> str:
    """An event as JSON with its time, which no binary fraction would hold exactly."""
    return f'{json.dumps(event)[:-1]}, "ts": {_us(time_ps)}{more}}}'


def _us(time_ps: int) -> str:
    """Microseconds in decimal, exact."""
    return f"{time_ps // _PS_PER_US}.{time_ps % _PS_PER_US:06d}"
