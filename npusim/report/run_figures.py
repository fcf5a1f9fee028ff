"""Figures of the report: stages split by cause, the stall tree, series over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plotly.graph_objects import Bar, Figure, Icicle, Scatter

from npusim.report.page import plain_layout, plain_text
from npusim.report.palette import line_color, style_of
from npusim.units import format_time_ps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npusim.insight.explain import Explanation
    from npusim.insight.stall_tree import Node, StallTree
    from npusim.results.records import PhaseRecord

_PS_PER_US, _PS_PER_MS, _GIGA, _KIB = 10**6, 10**9, 10**9, 1024
_STAGE_PX, _TOP_PX, _TREE_PX, _SERIES_PX = 30, 130, 360, 260


def stages_figure(found: Explanation) -> Figure:
    """A bar per stage, as long as its exclusive time, split by what engines did meanwhile.

    Parameters
    ----------
    found : Explanation
        Of a phase. Without simulated engines the bars are whole.

    Returns
    -------
    plotly.graph_objects.Figure
        Parts are means over all engines: they sum to the stage's exclusive time.
    """
    stages = [stage for stage in found.record.stages if stage.elapsed_ps]
    parts = {stage.stage: _parts(found.stages.get(stage.stage)) for stage in stages}
    names = dict.fromkeys(name for of_stage in parts.values() for name in of_stage)
    whole = {stage.stage: stage.elapsed_ps / _PS_PER_US for stage in stages}
    figure = Figure()
    for name in names or ("time",):
        shares = [parts[stage].get(name, 0.0) if names else 1.0 for stage in whole]
        lengths = [us * share for us, share in zip(whole.values(), shares, strict=True)]
        figure.add_trace(_bar(name, [*map(plain_text, whole)], lengths, shares))
    plain_layout(figure, _TOP_PX + _STAGE_PX * len(stages))
    figure.update_layout(barmode="stack", legend={"orientation": "h", "y": -0.25})
    figure.update_xaxes(title_text="exclusive time in us, split by the mean over all engines")
    figure.update_yaxes(autorange="reversed")
    return figure


def _parts(tree: StallTree | None) -> Mapping[str, float]:
    """Share of every single cause, of work and of idle time."""
    if tree is None:
        return {}
    return {node.name: tree.share_frac(node) for node in tree.root.walk() if not node.children}


def _bar(name: str, stages: list[str], lengths: list[float], shares: list[float]) -> Bar:
    """One cause over all stages."""
    style = style_of("busy" if name == "time" else name)
    return Bar(
        orientation="h",
        name=name,
        y=stages,
        x=lengths,
        customdata=shares,
        hovertemplate="%{y}: %{fullData.name} %{x:.4g} us, %{customdata:.1%}<extra></extra>",
        marker={
            "color": style.color,
            "line": {"width": 0},
            "pattern": {"shape": style.pattern, "size": 5, "solidity": 0.25},
        },
    )


def stall_tree_figure(tree: StallTree) -> Figure:
    """The stall tree as nested blocks; areas are exact shares of all engines' time."""
    nodes = list(tree.root.walk())
    figure = Figure(
        Icicle(
            ids=["/".join(("all", *node.path)) for node in nodes],
            labels=[node.name for node in nodes],
            parents=[_parent(node) for node in nodes],
            values=[node.time_ps for node in nodes],
            branchvalues="total",
            customdata=[[format_time_ps(node.time_ps), tree.share_frac(node)] for node in nodes],
            texttemplate="%{label} %{customdata[1]:.1%}",
            hovertemplate="%{label}: %{customdata[0]}, %{customdata[1]:.2%}<extra></extra>",
            marker={"colors": [_color(node) for node in nodes]},
            tiling={"orientation": "v"},
            sort=False,
        )
    )
    plain_layout(figure, _TREE_PX)
    return figure


def _parent(node: Node) -> str:
    """Identifier of the node above."""
    return "/".join(("all", *node.path[:-1])) if node.path else ""


def _color(node: Node) -> str:
    """Colour of a cause; of a family that of its largest cause."""
    if not node.path:
        return "#B0B0B0"
    if node.name == "idle":
        return "#DDDDDD"
    largest = max(node.children, key=lambda child: child.time_ps, default=node)
    return style_of(largest.name).color


def bandwidth_figure(record: PhaseRecord) -> Figure | None:
    """Rate of each memory over the simulated program, with its peak; None without a series."""
    peaks = {memory.name: memory.peak_bytes_per_s / _GIGA for memory in record.memories}
    figure = Figure()
    for index, (memory, bin_ps, moved) in enumerate(record.bandwidth):
        rates = [count * 1000 / bin_ps for count in moved.tolist()]  # bytes per ps to GB/s
        figure.add_trace(_steps(f"{memory} GB/s", bin_ps, rates, index))
        if memory in peaks:
            end = bin_ps * len(rates) / _PS_PER_MS
            figure.add_trace(_level(f"{memory} peak", peaks[memory], end))
    return _series(figure, "GB/s")


def occupancy_figure(record: PhaseRecord) -> Figure | None:
    """Most bytes held in each scratchpad, with its capacity; None without a series."""
    sizes = {sram.name: sram.capacity_bytes / _KIB for sram in record.sram}
    figure = Figure()
    for index, (space, bin_ps, held) in enumerate(record.occupancy):
        kib = [count / _KIB for count in held.tolist()]
        figure.add_trace(_steps(space, bin_ps, kib, index))
    if record.occupancy:
        _, bin_ps, held = record.occupancy[0]
        for size in sorted({sizes[name] for name, _, _ in record.occupancy if name in sizes}):
            figure.add_trace(_level("capacity", size, bin_ps * len(held) / _PS_PER_MS))
    return _series(figure, "KiB")


def _steps(name: str, bin_ps: int, values: Sequence[float], index: int) -> Scatter:
    """A value per bin."""
    edges = [bin_ps * i / _PS_PER_MS for i in range(len(values) + 1)]
    line = {"color": line_color(index), "shape": "hv", "width": 1}
    shown = [*values, values[-1]]
    return Scatter(x=edges, y=shown, name=plain_text(name), mode="lines", line=line)


def _level(name: str, value: float, end: float) -> Scatter:
    """Dotted line at a limit."""
    line = {"color": "#808080", "dash": "dot", "width": 1}
    return Scatter(x=[0, end], y=[value] * 2, name=plain_text(name), mode="lines", line=line)


def _series(figure: Figure, unit: str) -> Figure | None:
    """The figure over time, if it shows anything."""
    if not figure.data:
        return None
    plain_layout(figure, _SERIES_PX)
    figure.update_layout(legend={"orientation": "h", "y": -0.3})
    figure.update_xaxes(title_text="ms of the simulated program")
    figure.update_yaxes(title_text=unit, rangemode="tozero")
    return figure
