"""A what-if study as a figure: parameters by effect, bounds beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plotly.graph_objects import Bar, Figure
from plotly.subplots import make_subplots

from npusim.report.page import figure_html, heading, page_html, plain_layout, table_html
from npusim.report.palette import line_color
from npusim.report.whatif_tables import (
    BOUND_HEADINGS,
    PARAMETER_HEADINGS,
    bound_rows,
    headline,
    parameter_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Summary = Mapping[str, Any]

_SHOWN = 20
_ROW_PX, _TOP_PX = 24, 90
_KINDS = {"parameter": "same program", "recompiled": "recompiled", "ideal": "bound"}


def whatif_figure(summary: Summary) -> Figure:
    """Bars of signed change of time: the parameters with the largest effects, and the bounds.

    Parameters
    ----------
    summary : Mapping
        Of `npusim.explore.whatif.WhatIf`.
    """
    figure = make_subplots(
        rows=1,
        cols=2,
        subplot_titles=("change of a parameter", "a cost taken away (same program)"),
        horizontal_spacing=0.25,
    )
    done = [e for e in summary["effects"] if e["change_frac"] is not None]
    columns = (
        (1, [e for e in done if e["kind"] != "ideal"][:_SHOWN]),
        (2, [e for e in done if e["kind"] == "ideal"]),
    )
    for column, effects in columns:
        for index, (kind, name) in enumerate(_KINDS.items()):
            mine = [effect for effect in effects if effect["kind"] == kind]
            if mine:
                figure.add_trace(_bars(mine, name, line_color(index)), row=1, col=column)
        names = [_label(effect) for effect in effects][::-1]
        figure.update_yaxes(categoryorder="array", categoryarray=names, row=1, col=column)
        figure.update_xaxes(ticksuffix=" %", title="change of time", row=1, col=column)
    rows = max(len(effects) for _, effects in columns)
    plain_layout(figure, _TOP_PX + _ROW_PX * max(rows, 4))
    return figure


def whatif_html(summary: Summary) -> str:
    """A page with the figure and every row that it comes from."""
    parts = [
        figure_html(whatif_figure(summary), "effects", is_first=True),
        heading("parameters"),
        table_html(PARAMETER_HEADINGS, parameter_rows(summary)),
        heading("bounds"),
        table_html(BOUND_HEADINGS, bound_rows(summary)),
    ]
    failed = [(e["name"], e["error"]) for e in summary["effects"] if e["error"] is not None]
    if failed:
        parts += [heading("not changed"), table_html((("name", False), ("why", False)), failed)]
    return page_html(f"What if: {headline(summary)}", parts)


def _bars(effects: list[dict[str, Any]], name: str, color: str) -> Bar:
    return Bar(
        x=[100 * effect["change_frac"] for effect in effects],
        y=[_label(effect) for effect in effects],
        customdata=[[effect["name"], effect["base"], effect["value"]] for effect in effects],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]} -> %{customdata[2]}: %{x:+.2f} %"
        "<extra></extra>",
        orientation="h",
        name=name,
        marker={"color": color},
    )


def _label(effect: Mapping[str, Any]) -> str:
    """The end of a path, which names the part and the key."""
    return ".".join(effect["name"].split(".")[-3:])
