"""An analysed sweep as figures and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plotly.graph_objects import Bar, Figure, Heatmap, Parcoords, Scatter

from npusim.report.page import (
    figure_html,
    heading,
    page_html,
    paragraphs,
    plain_layout,
    table_html,
)
from npusim.report.palette import line_color
from npusim.report.sweep_tables import (
    BUDGET_HEADINGS,
    EFFECT_HEADINGS,
    INTERACTION_HEADINGS,
    budget_rows,
    effect_rows,
    headline,
    interaction_rows,
    pareto_headings,
    pareto_rows,
    short,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Summary = Mapping[str, Any]
    Points = Sequence[Mapping[str, Any]]

_HEIGHT_PX = 460


def pareto_figure(summary: Summary, points: Points) -> Figure:
    """Every point over the first two objectives (of one: over its number), the front marked."""
    first, *others = summary["objectives"]
    x = others[0] if others else "point"
    front = {row["point"] for row in summary["pareto"]}
    figure = Figure()
    for index, name in enumerate(("points", "front")):
        rows = [row for row in points if (row["point"] in front) == bool(index)]
        figure.add_trace(
            Scatter(
                x=[row[x] for row in rows],
                y=[row[first] for row in rows],
                mode="markers",
                name=name,
                text=[_description(summary, row) for row in rows],
                hovertemplate="%{text}<extra></extra>",
                marker={"color": line_color(1 - index), "size": 6 + 4 * index},
            )
        )
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=first)
    plain_layout(figure, _HEIGHT_PX)
    return figure


def parallel_figure(summary: Summary, points: Points) -> Figure:
    """A line per point through its axes and objectives, coloured by the first objective."""
    first = next(iter(summary["objectives"]))
    columns = (*summary["axes"], *summary["objectives"])
    color = [float(row[first]) for row in points]
    lines = Parcoords(
        line={"color": color, "colorscale": "Viridis", "showscale": True},
        dimensions=[_dimension(points, name) for name in columns],
        labelangle=-15,
    )
    figure = Figure(lines)
    plain_layout(figure, _HEIGHT_PX)
    figure.update_layout(margin={"l": 80, "r": 60, "t": 110, "b": 30})
    return figure


def effects_figure(summary: Summary) -> Figure:
    """Share of variance of every objective by axis."""
    figure = Figure()
    for index, column in enumerate(summary["objectives"]):
        mine = [effect for effect in summary["main_effects"] if effect["column"] == column]
        figure.add_trace(
            Bar(
                x=[short(effect["axis"]) for effect in mine],
                y=[100 * effect["share_frac"] for effect in mine],
                name=column,
                marker={"color": line_color(index)},
            )
        )
    figure.update_yaxes(title="share of variance", ticksuffix=" %")
    plain_layout(figure, _HEIGHT_PX)
    return figure


def heatmap_figure(summary: Summary, points: Points) -> Figure | None:
    """Mean of the first objective over the two axes that interact most; None with one axis."""
    first = next(iter(summary["objectives"]))
    pairs = [i for i in summary["interactions"] if i["column"] == first]
    if not pairs:
        return None
    row, column = max(pairs, key=lambda i: i["share_frac"])["axes"]
    across, down = _levels(points, column), _levels(points, row)
    cells: dict[tuple[Any, Any], list[float]] = {}
    for point in points:
        cells.setdefault((point[row], point[column]), []).append(float(point[first]))
    means = {cell: sum(values) / len(values) for cell, values in cells.items()}
    figure = Figure(
        Heatmap(
            z=[[means.get((y, x)) for x in across] for y in down],
            x=[str(value) for value in across],
            y=[str(value) for value in down],
            colorscale="Viridis",
            colorbar={"title": first},
        )
    )
    figure.update_xaxes(title=short(column), type="category")
    figure.update_yaxes(title=short(row), type="category")
    plain_layout(figure, _HEIGHT_PX)
    return figure


def sweep_html(summary: Summary, points: Points) -> str:
    """A page with every figure and table.

    Parameters
    ----------
    summary : Mapping
        Of `npusim.explore.analysis.SweepAnalysis`.
    points : sequence of mappings
        Its rows.
    """
    parts = [paragraphs(headline(summary)), heading("Best trade-offs")]
    parts.append(figure_html(pareto_figure(summary, points), "pareto", is_first=True))
    parts.append(table_html(pareto_headings(summary), pareto_rows(summary)))
    if summary["axes"]:
        parts += [heading("Every point")]
        parts.append(figure_html(parallel_figure(summary, points), "parallel", is_first=False))
        parts += [heading("Which axis matters")]
        parts.append(figure_html(effects_figure(summary), "effects", is_first=False))
        parts.append(table_html(EFFECT_HEADINGS, effect_rows(summary)))
    if (heatmap := heatmap_figure(summary, points)) is not None:
        parts += [heading("Interactions")]
        parts.append(figure_html(heatmap, "heatmap", is_first=False))
        parts.append(table_html(INTERACTION_HEADINGS, interaction_rows(summary)))
    if summary["best_per_budget"]:
        parts += [heading("Best per budget"), table_html(BUDGET_HEADINGS, budget_rows(summary))]
    return page_html(f"Sweep {summary['name']}", parts)


def _description(summary: Summary, row: Mapping[Any, Any]) -> str:
    columns = (*summary["axes"], *summary["objectives"])
    return "<br>".join([f"point {row['point']}", *(f"{short(c)} {row[c]}" for c in columns)])


def _dimension(points: Points, name: str) -> dict[str, Any]:
    """One vertical axis; texts become numbers with tick labels."""
    values, levels = [row[name] for row in points], _levels(points, name)
    if all(isinstance(value, (int, float)) for value in values):
        return {"label": short(name), "values": [float(value) for value in values]}
    place = {level: index for index, level in enumerate(levels)}
    return {
        "label": short(name),
        "values": [place[value] for value in values],
        "tickvals": list(range(len(levels))),
        "ticktext": [str(level) for level in levels],
    }


def _levels(points: Points, name: str) -> list[Any]:
    """Different values of a column; numbers in their order, texts in theirs."""
    return sorted({row[name] for row in points}, key=lambda v: (isinstance(v, str), v))
