"""Compared runs as a figure: per phase its stages, and what moved against the first run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plotly.graph_objects import Bar, Figure
from plotly.subplots import make_subplots

from npusim.report.compare_tables import (
    difference_headings,
    difference_rows,
    setting_headings,
    setting_rows,
)
from npusim.report.page import (
    figure_html,
    heading,
    page_html,
    paragraphs,
    plain_layout,
    table_html,
)
from npusim.report.palette import line_color, stage_color

if TYPE_CHECKING:
    from npusim.insight.comparison import Comparison

_PS_PER_MS = 10**9
_ROW_PX, _TOP_PX = 420, 90


def compare_figure(comparison: Comparison) -> Figure:
    """Figure of compared runs.

    Returns
    -------
    plotly.graph_objects.Figure
        A row per phase: time of each run stacked by stage; signed differences by stage; signed
        differences of the mean time per engine by family of waiting, work and idle time.
    """
    phases = comparison.phases
    parts = ("time by stage", "difference by stage", "difference of mean engine time")
    figure = make_subplots(
        rows=len(phases),
        cols=3,
        subplot_titles=[f"{phase}: {part}" for phase in phases for part in parts],
        horizontal_spacing=0.09,
    )
    stages = list(dict.fromkeys(d.name for d in comparison.of("stage")))
    for row, phase in enumerate(phases, start=1):
        for d in comparison.of("stage", phase):
            color = stage_color(stages.index(d.name))
            shown = [None if v is None else float(v) / _PS_PER_MS for v in d.values]
            bar = Bar(x=list(comparison.names), y=shown, name=d.name, marker={"color": color})
            bar.update(showlegend=False, hovertemplate=f"{d.name} %{{y:.4f}} ms<extra></extra>")
            bar.update(offsetgroup="stages")
            figure.add_trace(bar, row=row, col=1)
        for col, group in ((2, "stage"), (3, "family")):
            _add_deltas(figure, comparison, group, phase, row, col)
    plain_layout(figure, _TOP_PX + _ROW_PX * len(phases))
    figure.update_layout(barmode="relative", legend={"orientation": "h", "y": -0.06})
    figure.update_yaxes(title_text="ms", col=1)
    figure.update_yaxes(autorange="reversed", col=2)
    figure.update_yaxes(autorange="reversed", col=3)
    figure.update_xaxes(title_text="ms against the first run", col=2)
    figure.update_xaxes(title_text="ms against the first run", col=3)
    return figure


def _add_deltas(
    figure: Figure, comparison: Comparison, group: str, phase: str, row: int, col: int
) -> None:
    """Horizontal bars, a colour per run."""
    found = comparison.of(group, phase)
    for index, name in enumerate(comparison.names[1:], start=1):
        values = [d.deltas[index] for d in found]
        bar = Bar(
            orientation="h",
            y=[d.name for d in found],
            x=[None if v is None else float(v) / _PS_PER_MS for v in values],
            name=name,
            legendgroup=name,
            offsetgroup=name,
            showlegend=row == 1 and col == 2,
            marker={"color": line_color(index - 1)},
            hovertemplate="%{y} %{x:+.4f} ms<extra>%{fullData.name}</extra>",
        )
        figure.add_trace(bar, row=row, col=col)


def compare_html(comparison: Comparison) -> str:
    """One self-contained page: settings, figure, tables."""
    parts = [heading("Settings that differ")]
    if comparison.settings is None:
        parts.append(paragraphs(["A run was saved without its specification."]))
    else:
        parts.append(table_html(setting_headings(comparison), setting_rows(comparison)))
    parts.append(figure_html(compare_figure(comparison), "compare", is_first=True))
    for phase in comparison.phases:
        for group, title in (("stage", "stages"), ("cause", "mean engine time")):
            parts.append(heading(f"{phase}: {title}"))
            rows = difference_rows(comparison, group, phase)
            parts.append(table_html(difference_headings(comparison, title), rows))
    return page_html(f"{comparison.names[0]} and {len(comparison.names) - 1} more", parts)
