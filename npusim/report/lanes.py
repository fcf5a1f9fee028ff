"""Traces of the timeline: the stage lane, engine tracks, bandwidth curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plotly.graph_objects import Bar, Heatmap, Scatter

from npusim.report.palette import line_color, stage_color, style_of
from npusim.results.binning import engine_bins, span_categories, stage_bins

if TYPE_CHECKING:
    from npusim.results.binning import Bins
    from npusim.results.records import PhaseRecord, SpanTable

#: spans drawn one by one; a browser stays fluent up to about this many marks
MAX_EXACT_SPANS = 3000

_STAGE_BINS = 800
_HEATMAP_CELLS, _MIN_BINS, _MAX_BINS = 60_000, 120, 1200
_UNITS = (("ns", 10**3), ("us", 10**6), ("ms", 10**9))
_SPAN_HOVER = (
    "<b>%{customdata[0]}</b><br>%{y}<br>stage %{customdata[1]}<br>"
    "%{customdata[2]:,.1f} cycles = %{customdata[3]:,.3f} ns<br>"
    "from %{base:.6f}<extra>%{fullData.name}</extra>"
)


@dataclass(frozen=True, slots=True)
class Axis:
    """Scale of the time axis of a phase."""

    unit: str
    ps_per_unit: int
    clock_hz: int
    end_ps: int

    @classmethod
    def of(cls, record: PhaseRecord) -> Axis:
        """Largest unit that gives at least ten units to the whole axis."""
        spans = record.spans
        assert spans is not None
        end_ps = _end_ps(spans) or int(record.elapsed_ps)
        fitting = [entry for entry in _UNITS if end_ps >= 10 * entry[1]] or [_UNITS[0]]
        return cls(*fitting[-1], record.clock_hz, end_ps)

    @property
    def end(self) -> float:
        """End of the axis in its unit."""
        return self.end_ps / self.ps_per_unit

    def cycles(self, ps: int) -> float:
        """Cycles of the phase's clock, for hovers."""
        return ps * self.clock_hz / 10**12


def _end_ps(spans: SpanTable) -> int:
    """End of the last span; of a cut recording, the last moment before which nothing is missing."""
    if not len(spans):
        return 0
    return int(spans.start_ps.max() if spans.truncated else spans.end_ps.max())


def stage_traces(record: PhaseRecord, axis: Axis) -> list[Bar]:
    """One bar per stretch of time in which a stage has most of the work."""
    spans = record.spans
    if spans is None or not spans.stages:
        return []
    bins = stage_bins(spans, axis.end_ps, _STAGE_BINS)
    pieces = _stretches(bins, 0)
    traces = []
    for index, stage in enumerate(spans.stages):
        own = [(start, end) for start, end, found in pieces if found == index]
        if own:
            traces.append(_stage_trace(stage, stage_color(index), own, axis))
    return traces


def _stage_trace(stage: str, color: str, pieces: list[tuple[int, int]], axis: Axis) -> Bar:
    """Bars of one stage."""
    return Bar(
        orientation="h",
        name=stage,
        showlegend=False,
        y=["stage"] * len(pieces),
        base=[start / axis.ps_per_unit for start, _ in pieces],
        x=[(end - start) / axis.ps_per_unit for start, end in pieces],
        customdata=[[axis.cycles(end - start), (end - start) / 1000] for start, end in pieces],
        hovertemplate="<b>%{fullData.name}</b><br>about %{customdata[0]:,.0f} cycles = "
        "%{customdata[1]:,.1f} ns<extra></extra>",
        marker={"color": color, "line": {"width": 0}},
        text=[stage] * len(pieces),
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont={"color": "#202020", "size": 10},
        textangle=0,
    )


def _stretches(bins: Bins, row: int) -> list[tuple[int, int, int]]:
    """Neighbouring bins of one row with the same category, joined: start, end, category."""
    found: list[tuple[int, int, int]] = []
    edges = bins.edges_ps.tolist()
    for i, category in enumerate(bins.dominant[row].tolist()):
        if found and found[-1][2] == category:
            found[-1] = (found[-1][0], edges[i + 1], category)
        else:
            found.append((edges[i], edges[i + 1], category))
    return [piece for piece in found if piece[2] >= 0]


def engine_traces(record: PhaseRecord, axis: Axis) -> list[Any]:
    """Spans one by one, or time bins when there are too many."""
    spans = record.spans
    if spans is None:
        return []
    if len(spans) > MAX_EXACT_SPANS:
        return [_heatmap(spans, axis)]
    return _span_traces(spans, axis)


def _span_traces(spans: SpanTable, axis: Axis) -> list[Bar]:
    """One trace per category, a bar per span; stalls are hatched."""
    names, category = span_categories(spans)
    tracks = _tracks(spans)
    traces = []
    for index, name in enumerate(names):
        own = (category == index).nonzero()[0].tolist()
        style = style_of(name)
        traces.append(
            Bar(
                orientation="h",
                name=name,
                y=[tracks[i] for i in own],
                base=[int(spans.start_ps[i]) / axis.ps_per_unit for i in own],
                x=[int(spans.end_ps[i] - spans.start_ps[i]) / axis.ps_per_unit for i in own],
                customdata=[_hover(spans, i, axis) for i in own],
                hovertemplate=_SPAN_HOVER,
                marker={
                    "color": style.color,
                    "line": {"width": 0},
                    "pattern": {"shape": style.pattern, "size": 5, "solidity": 0.25},
                },
            )
        )
    return traces


def _tracks(spans: SpanTable) -> list[str]:
    """Track of each span: its engine, and the slot if the engine has several in flight."""
    has_slots = set(spans.engine[spans.queue > 0].tolist())
    return [
        f"{spans.engines[engine]} #{slot}" if engine in has_slots else spans.engines[engine]
        for engine, slot in zip(spans.engine.tolist(), spans.queue.tolist(), strict=True)
    ]


def track_order(record: PhaseRecord) -> list[str]:
    """Tracks from top to bottom: engines as the program lists them, slots in turn."""
    spans = record.spans
    if spans is None:
        return []
    if len(spans) > MAX_EXACT_SPANS:
        return list(spans.engines)
    keys = zip(spans.engine.tolist(), spans.queue.tolist(), _tracks(spans), strict=True)
    return [track for _, _, track in sorted(set(keys))]


def _hover(spans: SpanTable, i: int, axis: Axis) -> list[Any]:
    """Operator or cause, stage, cycles and ns of one span."""
    length_ps = int(spans.end_ps[i] - spans.start_ps[i])
    stage = spans.stages[spans.stage[i]] if spans.stage[i] >= 0 else "-"
    return [spans.labels[spans.label[i]], stage, axis.cycles(length_ps), length_ps / 1000]


def _heatmap(spans: SpanTable, axis: Axis) -> Heatmap:
    """One cell per engine and bin, coloured by what fills most of it."""
    num_bins = min(max(_HEATMAP_CELLS // max(len(spans.engines), 1), _MIN_BINS), _MAX_BINS)
    bins = engine_bins(spans, axis.end_ps, num_bins)
    dominant, shares = bins.dominant.tolist(), bins.share_frac.tolist()
    texts = [
        [f"{bins.names[c]}, {share:.0%} of the bin" if c >= 0 else "" for c, share in zip(*row)]  # noqa: B905
        for row in zip(dominant, shares, strict=True)
    ]
    return Heatmap(
        x=[edge / axis.ps_per_unit for edge in bins.edges_ps.tolist()],
        y=list(spans.engines),
        z=[[c if c >= 0 else None for c in row] for row in dominant],
        text=texts,
        hovertemplate=f"<b>%{{text}}</b><br>%{{y}}<br>at %{{x:.6f}} {axis.unit}<extra></extra>",
        hoverongaps=False,
        zmin=-0.5,
        zmax=len(bins.names) - 0.5,
        colorscale=_steps([style_of(name).color for name in bins.names]),
        colorbar={"tickvals": list(range(len(bins.names))), "ticktext": list(bins.names)},
        ygap=2,
    )


def _steps(colors: list[str]) -> list[list[Any]]:
    """Colour scale that jumps from one colour to the next."""
    count = len(colors)
    return [[edge / count, c] for i, c in enumerate(colors) for edge in (i, i + 1)]


def bandwidth_traces(record: PhaseRecord, axis: Axis) -> list[Scatter]:
    """Mean rate of each memory per bin, and its peak."""
    peaks = {memory.name: memory.peak_bytes_per_s for memory in record.memories}
    traces = []
    for index, (memory, bin_ps, moved) in enumerate(record.bandwidth):
        color = line_color(index)
        shown = moved[: -(-axis.end_ps // bin_ps)].tolist()
        starts = [bin_ps * i / axis.ps_per_unit for i in range(len(shown))]
        rates = [count * 1000 / bin_ps for count in shown]  # bytes per ps to GB/s
        if shown:  # the last step needs an end
            starts.append(bin_ps * len(shown) / axis.ps_per_unit)
            rates.append(rates[-1])
        line = {"color": color, "shape": "hv", "width": 1}
        traces.append(Scatter(x=starts, y=rates, name=f"{memory} GB/s", mode="lines", line=line))
        if memory in peaks and starts:
            traces.append(_peak(memory, peaks[memory], starts[-1]))
    return traces


def _peak(memory: str, peak_bytes_per_s: int, end: float) -> Scatter:
    """Dotted line at the peak rate of a memory."""
    return Scatter(
        x=[0, end],
        y=[peak_bytes_per_s / 10**9] * 2,
        name=f"{memory} peak",
        mode="lines",
        line={"color": "#808080", "dash": "dot", "width": 1},
    )
