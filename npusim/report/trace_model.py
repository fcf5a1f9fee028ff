"""A recorded run as tracks, slices, counters and flows, for every trace format.

The phases of a run lie end to end on one time axis. A transfer in flight is a slice on a track of
its queue slot, below its DMA engine, because transfers overlap; all else lies on the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from npusim.errors import ResultError
from npusim.results.derived import PS_PER_S
from npusim.results.records import FLOW_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npusim.results.records import PhaseRecord, SpanTable
    from npusim.results.run import RunResult

#: engines with several commands in flight
QUEUED_KINDS = ("dma_load", "dma_store")
BUSY, STALL = "busy", "stall"


class Track(NamedTuple):
    """A line of the trace; `parent` is the number of the track it lies below, 0 for none."""

    number: int
    parent: int
    name: str
    unit: str | None = None  # of a counter


class Slice(NamedTuple):
    """A half-open time span on a track; slices of one track do not overlap."""

    track: int
    start_ps: int
    end_ps: int
    name: str
    category: str
    stage: str | None


class Sample(NamedTuple):
    """Value of a counter from a moment on."""

    track: int
    time_ps: int
    value: int


class Flow(NamedTuple):
    """An edge between two slices, by their index."""

    producer: int
    consumer: int
    kind: str


@dataclass
class TraceModel:
    """All that a trace shows; times are integer picoseconds from the start of the first phase.

    Attributes
    ----------
    title : str
        Model and system.
    tracks : list[Track]
        Parents before children.
    slices, samples, flows : list
        Flows name slices by index.
    notes : list[str]
        What is missing.
    """

    title: str
    tracks: list[Track] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _numbers: dict[tuple[int, str], int] = field(default_factory=dict)

    def track(self, name: str, parent: int = 0, unit: str | None = None) -> int:
        """Number of the track of this name and parent, made when it is first asked for."""
        key = (parent, name)
        if key not in self._numbers:
            self._numbers[key] = len(self.tracks) + 1
            self.tracks.append(Track(len(self.tracks) + 1, parent, name, unit))
        return self._numbers[key]


def trace_model(result: RunResult, phase: str | None = None) -> TraceModel:
    """Trace of a run.

    Parameters
    ----------
    result : RunResult
        A finished run.
    phase : str, optional
        Only this phase.

    Raises
    ------
    ResultError
        If the phase did not run or no spans were recorded.
    """
    records = [result.phase(phase)] if phase is not None else list(result.phases.values())
    recorded = [record for record in records if record.spans is not None]
    if not recorded:
        hint = "run with simulation.max_spans above 0"
        if result.fidelity == "analytic":
            hint = "fidelity 'analytic' simulates no commands; run at 'burst' or 'transfer'"
        raise ResultError("trace", "needs recorded spans", hint=hint)
    model = TraceModel(f"{result.workload['model']} on {result.system}")
    for record in records:
        if record.spans is None:
            model.notes.append(f"{record.phase}: no spans were recorded")
    start_ps = 0
    for record in recorded:
        start_ps = _add_phase(model, record, start_ps)
    return model


def _add_phase(model: TraceModel, record: PhaseRecord, start_ps: int) -> int:
    """Add one phase from `start_ps` on; returns where the next one may start."""
    spans = record.spans
    assert spans is not None
    program_ps = sum(int(operator.elapsed_ps) for operator in record.operators)
    end_ps: int = start_ps + max([program_ps, *spans.end_ps.tolist()])
    if spans.truncated:
        text = f"only the first {len(spans)} spans were recorded (simulation.max_spans)"
        model.notes.append(f"{record.phase}: {text}")
    track = model.track("phase")
    model.slices.append(Slice(track, start_ps, end_ps, record.phase, "phase", None))
    model.slices.extend(_frontier(model, record, start_ps))
    first = len(model.slices)
    model.slices.extend(_spans(model, record, spans, start_ps))
    if record.flows is not None:
        flows = record.flows
        columns = (flows.producer.tolist(), flows.consumer.tolist(), flows.kind.tolist())
        for producer, consumer, kind in zip(*columns, strict=True):
            model.flows.append(Flow(first + producer, first + consumer, FLOW_KINDS[kind]))
    model.samples.extend(_in_flight(model, record, spans, start_ps))
    model.samples.extend(_memories(model, record, start_ps))
    series_ps = (bin_ps * len(v) for _, bin_ps, v in (*record.bandwidth, *record.occupancy))
    return max([end_ps, *(start_ps + int(length_ps) for length_ps in series_ps)])


def _frontier(model: TraceModel, record: PhaseRecord, start_ps: int) -> Iterator[Slice]:
    """Advance of the completion frontier by operator, end to end."""
    track = model.track("completed operator")
    ends = accumulate((int(item.elapsed_ps) for item in record.operators), initial=start_ps)
    for item, begin_ps in zip(record.operators, ends, strict=False):
        if item.elapsed_ps:
            end_ps = begin_ps + int(item.elapsed_ps)
            yield Slice(track, begin_ps, end_ps, item.name, "operator", item.stage)


def _engine_tracks(model: TraceModel, record: PhaseRecord) -> dict[str, int]:
    """Track of every engine, below its device and core; below a DMA engine its queue slots."""
    spans = record.spans
    assert spans is not None
    in_use = set(zip(spans.engine.tolist(), spans.queue.tolist(), strict=True))
    slots: dict[str, list[int]] = {}
    for index, slot in sorted(in_use):
        slots.setdefault(spans.engines[index], []).append(slot)
    found = {}
    for engine in record.engines:
        parent = model.track(engine.device)
        if engine.core is not None:
            parent = model.track(f"{engine.device} core {engine.core}", parent)
        own = found[engine.engine] = model.track(engine.engine, parent)
        if engine.kind in QUEUED_KINDS:
            for slot in slots.get(engine.engine, ()):
                model.track(_slot_name(engine.engine, slot), own)
    return found


def _slot_name(engine: str, slot: int) -> str:
    return f"{engine} queue {slot}"


def _spans(
    model: TraceModel, record: PhaseRecord, spans: SpanTable, start_ps: int
) -> Iterator[Slice]:
    """One slice per span, in their order."""
    tracks = _engine_tracks(model, record)
    queued = {engine.engine for engine in record.engines if engine.kind in QUEUED_KINDS}
    for engine, begin, end, label, stage, is_stall, slot in _rows(spans):
        track = tracks[engine]
        if engine in queued and not is_stall:
            track = model.track(_slot_name(engine, slot), track)
        category = STALL if is_stall else BUSY
        yield Slice(track, start_ps + begin, start_ps + end, label, category, stage)


def _rows(spans: SpanTable) -> Iterable[tuple[str, int, int, str, str | None, bool, int]]:
    """Engine, start, end, label, stage, whether it is a stall, and queue slot of every span."""
    return zip(
        (spans.engines[i] for i in spans.engine.tolist()),
        spans.start_ps.tolist(),
        spans.end_ps.tolist(),
        (spans.labels[i] for i in spans.label.tolist()),
        (spans.stages[i] if i >= 0 else None for i in spans.stage.tolist()),
        spans.is_stall.tolist(),
        spans.queue.tolist(),
        strict=True,
    )


def _in_flight(
    model: TraceModel, record: PhaseRecord, spans: SpanTable, start_ps: int
) -> Iterator[Sample]:
    """Transfers in flight of each DMA engine, from 0 at the start, at every change."""
    tracks = _engine_tracks(model, record)
    changes: dict[str, dict[int, int]] = {
        e.engine: {0: 0} for e in record.engines if e.kind in QUEUED_KINDS
    }
    for engine, begin, end, _, _, is_stall, _ in _rows(spans):
        if engine in changes and not is_stall:
            of_engine = changes[engine]
            of_engine[begin] = of_engine.get(begin, 0) + 1
            of_engine[end] = of_engine.get(end, 0) - 1
    for engine, of_engine in changes.items():
        track = model.track(f"{engine} outstanding", tracks[engine], "transfers")
        level = 0
        for time_ps, change in sorted(of_engine.items()):
            level += change
            if change or not time_ps:
                yield Sample(track, start_ps + time_ps, level)


def _memories(model: TraceModel, record: PhaseRecord, start_ps: int) -> Iterator[Sample]:
    """Rate of each memory and occupancy of each scratchpad per bin, back to 0 at the end."""
    parent = model.track("memory")
    for memory, bin_ps, moved in record.bandwidth:
        track = model.track(f"{memory} bandwidth", parent, "bytes/s")
        rates = [count * PS_PER_S // bin_ps for count in moved.tolist()]
        yield from _bins(track, start_ps, bin_ps, rates)
    for space, bin_ps, held in record.occupancy:
        track = model.track(f"{space} occupancy", parent, "bytes")
        yield from _bins(track, start_ps, bin_ps, held.tolist())


def _bins(track: int, start_ps: int, bin_ps: int, values: list[int]) -> Iterator[Sample]:
    """A sample at the start of every bin, and 0 after the last one."""
    for index, value in enumerate([*values, 0]):
        yield Sample(track, start_ps + index * bin_ps, value)
