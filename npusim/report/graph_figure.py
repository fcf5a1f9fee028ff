"""Operator graphs as Plotly figures: one column per stage position, layers folded or open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_NODES = 3000
_COLORS = {
    "matmul": "#0072B2", "vector": "#009E73", "gather": "#E69F00", "kv_append": "#CC79A7",
    "fallback": "#D55E00", "layer": "#7F7F7F",
}  # fmt: skip


def write_graph_html(graphs: Mapping[str, Any], path: Path, title: str) -> None:
    """One self-contained page with a choice of phase and of folded or open layers."""
    graph_figure(graphs, title).write_html(path, include_plotlyjs=True, full_html=True)


def graph_figure(graphs: Mapping[str, Any], title: str) -> go.Figure:
    """Figure of operator graphs by phase.

    Parameters
    ----------
    graphs : mapping of str to OperatorGraph
        A graph per phase; nodes of `digraph` have an attribute ``operator``.
    title : str
        Heading.

    Notes
    -----
    Folded, every layer is one node. Open, the operators of the first layer and of those outside
    layers are shown, others stay folded, and at most `MAX_NODES` nodes in all.
    """
    figure = go.Figure()
    views: list[tuple[str, int]] = []
    for phase, graph in graphs.items():
        for name, is_open in (("layers folded", False), ("first layer open", True)):
            nodes, edges = _collapsed(graph.digraph, is_open=is_open)
            for trace in _traces(nodes, edges):
                trace.visible = not views
                figure.add_trace(trace)
            views.append((f"{phase}, {name}", 2))
    buttons = [
        {
            "label": label,
            "method": "update",
            "args": [{"visible": [i // 2 == view for i in range(2 * len(views))]}],
        }
        for view, (label, _) in enumerate(views)
    ]
    figure.update_layout(
        title=title, showlegend=False, template="plotly_white", hovermode="closest",
        updatemenus=[{"buttons": buttons, "x": 1, "xanchor": "right", "y": 1.1}],
        xaxis={"title": "program order"}, yaxis={"visible": False},
    )  # fmt: skip
    return figure


def _collapsed(
    digraph: Any, *, is_open: bool
) -> tuple[dict[str, dict[str, Any]], set[tuple[str, str]]]:
    """Nodes with what to show of them, and edges between them."""
    place: dict[str, str] = {}
    nodes: dict[str, dict[str, Any]] = {}
    for name, data in digraph.nodes(data=True):
        operator = data["operator"]
        is_folded = operator.layer is not None and not (is_open and operator.layer == 0)
        label = f"layer {operator.layer}" if is_folded else name
        if len(nodes) >= MAX_NODES and label not in nodes:
            label = "further operators"
        place[name] = label
        facts = nodes.setdefault(
            label,
            {"kind": "layer" if is_folded else operator.kind.value, "count": 0, "macs": 0},
        )
        facts["count"] += 1
        facts["macs"] += operator.macs
    edges = {(place[a], place[b]) for a, b in digraph.edges if place[a] != place[b]}
    return nodes, edges


def _traces(nodes: dict[str, dict[str, Any]], edges: set[tuple[str, str]]) -> list[go.Scatter]:
    """Lines and marks."""
    at = {name: (i, (i % 5) / 5) for i, name in enumerate(nodes)}
    xs: list[float | None] = []
    ys: list[float | None] = []
    for a, b in sorted(edges):
        xs += [at[a][0], at[b][0], None]
        ys += [at[a][1], at[b][1], None]
    lines = go.Scatter(x=xs, y=ys, mode="lines", line={"color": "#C0C0C0"}, hoverinfo="skip")
    texts = [f"{n}<br>{f['count']} operators<br>{f['macs']:,} MACs" for n, f in nodes.items()]
    marks = go.Scatter(
        x=[at[n][0] for n in nodes],
        y=[at[n][1] for n in nodes],
        mode="markers+text",
        text=[n if len(nodes) <= 60 else "" for n in nodes],
        textposition="top center",
        hovertext=texts,
        hoverinfo="text",
        marker={"size": 12, "color": [_COLORS.get(f["kind"], "#B0B0B0") for f in nodes.values()]},
    )
    return [lines, marks]
