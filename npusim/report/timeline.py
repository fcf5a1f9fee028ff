"""The timeline as a Plotly figure: stages, engines, memory bandwidth on one time axis.

Up to 3000 spans are drawn one by one; more are summed into time bins, each coloured by what fills
most of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from npusim.errors import ResultError
from npusim.report.lanes import Axis, bandwidth_traces, engine_traces, stage_traces, track_order
from npusim.report.page import CLEAR, GRID, INK

if TYPE_CHECKING:
    from npusim.results.records import PhaseRecord
    from npusim.results.run import RunResult

_ROW_PX, _LANE_PX, _BANDWIDTH_PX, _MARGIN_PX = 22, 40, 110, 190
_MIN_ENGINES_PX = 160


def timeline_figure(record: PhaseRecord) -> Figure:
    """Timeline of one phase.

    Parameters
    ----------
    record : PhaseRecord
        A phase with spans.

    Returns
    -------
    plotly.graph_objects.Figure
        Rows: stages, engines, bandwidth.

    Raises
    ------
    ResultError
        If no spans were recorded.
    """
    return _figure([record])


def result_figure(result: RunResult, phase: str | None = None) -> Figure:
    """Timeline of a run, with a button per phase.

    Parameters
    ----------
    result : RunResult
        A finished run.
    phase : str, optional
        Only this phase.

    Returns
    -------
    plotly.graph_objects.Figure
        The first phase is visible.

    Raises
    ------
    ResultError
        If the phase did not run or no spans were recorded.
    """
    if phase is not None:
        return timeline_figure(result.phase(phase))
    return _figure([record for record in result.phases.values() if record.spans is not None])


def _figure(records: list[PhaseRecord]) -> Figure:
    """Figure of some phases, the first one visible."""
    if not records or any(record.spans is None for record in records):
        hint = "run with simulation.max_spans above 0"
        raise ResultError("timeline", "needs recorded spans", hint=hint)
    traces = [_traces(record) for record in records]
    heights = _heights(records)
    figure = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.03,
        row_heights=[height / sum(heights) for height in heights],
    )
    for index, of_phase in enumerate(traces):
        for trace, row in of_phase:
            trace.visible = index == 0
            figure.add_trace(trace, row=row, col=1)
    _lay_out(figure, records, sum(heights))
    if len(records) > 1:
        counts = [len(of_phase) for of_phase in traces]
        figure.update_layout(updatemenus=[_phase_buttons(records, counts)])
    return figure


def _traces(record: PhaseRecord) -> list[tuple[Any, int]]:
    """Traces of one phase, each with its row."""
    axis = Axis.of(record)
    return [
        *((trace, 1) for trace in stage_traces(record, axis)),
        *((trace, 2) for trace in engine_traces(record, axis)),
        *((trace, 3) for trace in bandwidth_traces(record, axis)),
    ]


def _heights(records: list[PhaseRecord]) -> tuple[int, int, int]:
    """Pixels of the three rows."""
    tracks = max(len(track_order(record)) for record in records)
    return _LANE_PX, max(_ROW_PX * tracks, _MIN_ENGINES_PX), _BANDWIDTH_PX


def _lay_out(figure: Figure, records: list[PhaseRecord], height_px: int) -> None:
    """Axes, legend and colours."""
    figure.update_layout(
        barmode="overlay",
        bargap=0.15,
        height=height_px + _MARGIN_PX,
        margin={"l": 10, "r": 10, "t": 90, "b": 40},
        uniformtext={"minsize": 9, "mode": "hide"},  # stage names where they fit
        hovermode="closest",
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font={"color": INK},
        legend={"orientation": "h", "y": -0.12, "itemclick": False, "itemdoubleclick": False},
        title={"text": _title(records[0]), "x": 0.01, "y": 0.98, "font": {"size": 14}},
        dragmode="zoom",
    )
    end = Axis.of(records[0]).end
    figure.update_xaxes(gridcolor=GRID, zeroline=False, range=[0, end])
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True)
    figure.update_yaxes(autorange="reversed", fixedrange=True, row=1, col=1)
    tracks = list(dict.fromkeys(track for record in records for track in track_order(record)))
    figure.update_yaxes(autorange="reversed", categoryarray=tracks, row=2, col=1)
    figure.update_yaxes(title_text="GB/s", rangemode="tozero", row=3, col=1)
    figure.update_xaxes(title_text=f"time ({Axis.of(records[0]).unit})", row=3, col=1)


def _title(record: PhaseRecord) -> str:
    """Phase, and what its spans stand for."""
    spans = record.spans
    assert spans is not None
    text = f"{record.phase}: {len(spans):,} spans of what was simulated"
    cut = "; recording stops at the end of the axis (simulation.max_spans)"
    return text + cut if spans.truncated else text


def _phase_buttons(records: list[PhaseRecord], counts: list[int]) -> dict[str, Any]:
    """One button per phase that shows its traces only."""
    buttons = []
    for chosen, record in enumerate(records):
        shown = [index == chosen for index, count in enumerate(counts) for _ in range(count)]
        layout = {
            "title.text": _title(record),
            "xaxis3.title.text": f"time ({Axis.of(record).unit})",
            "xaxis.range": [0, Axis.of(record).end],
            "yaxis2.autorange": "reversed",
        }
        args = [{"visible": shown}, layout]
        buttons.append({"label": record.phase, "method": "update", "args": args})
    return {
        "type": "buttons",
        "direction": "right",
        "buttons": buttons,
        "x": 0.0,
        "xanchor": "left",
        "y": 1.0,
        "yanchor": "bottom",
        "pad": {"b": 8},
    }
