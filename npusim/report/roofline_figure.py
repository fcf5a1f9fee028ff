"""A roofline as a figure: roofs as lines, stages as points, both axes logarithmic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plotly.graph_objects import Figure, Scatter

from npusim.report.page import plain_layout, plain_text
from npusim.report.palette import line_color, stage_color

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.insight.roofline import MemoryRoof, Roofline

_GIGA = 10**9
_HEIGHT_PX = 480
#: marker and dash by memory level, so that no difference rests on colour alone
_SYMBOLS = {"dram": "circle", "shared_sram": "square", "scratchpad": "diamond-open"}
_DASHES = {"dram": "solid", "shared_sram": "dash", "scratchpad": "dot"}
_HOVER = (
    "<b>%{customdata[0]}</b>, %{customdata[1]}<br>%{x:.4g} FLOP/byte<br>%{y:.4g} GFLOP/s, "
    "%{customdata[2]:.1%} of what %{customdata[3]} allows<extra></extra>"
)


def roofline_figure(found: Roofline) -> Figure:
    """Figure of a roofline.

    Parameters
    ----------
    found : Roofline
        Of a phase.

    Returns
    -------
    plotly.graph_objects.Figure
        A sloped line per memory level, a level line per format, a marker per stage and level.
    """
    figure = Figure()
    low, high = _range(found)
    for index, roof in enumerate(found.memory_roofs):
        figure.add_trace(_memory_line(found, roof, low, high, line_color(index)))
    for name, rate in _compute_lines(found):
        figure.add_trace(_line([low, high], [rate / _GIGA] * 2, name, "#808080", "solid"))
    for trace in _stages(found):
        figure.add_trace(trace)
    plain_layout(figure, _HEIGHT_PX)
    figure.update_layout(hovermode="closest", legend={"itemsizing": "constant"})
    figure.update_xaxes(type="log", title_text="FLOPs per byte of the memory level")
    figure.update_yaxes(type="log", title_text="GFLOP/s", exponentformat="none")
    return figure


def _range(found: Roofline) -> tuple[float, float]:
    """Intensities shown: those of the points and of the ridges, with room beside them."""
    shown = [point.intensity_flops_per_byte for point in found.points]
    ridges = (found.peak.flops_per_s / r.bytes_per_s for r in found.memory_roofs if r.bytes_per_s)
    shown = [value for value in (*shown, *ridges) if value > 0] or [1.0]
    return min(shown) / 2, max(shown) * 2


def _compute_lines(found: Roofline) -> Iterator[tuple[str, int]]:
    """Name and rate of each level line; formats of the same rate share one."""
    roofs = found.compute_roofs or (found.peak,)
    for rate in sorted({roof.flops_per_s for roof in roofs if roof.flops_per_s}):
        names = [roof.name for roof in roofs if roof.flops_per_s == rate]
        used = ", used" if found.compute_roofs and rate == found.peak.flops_per_s else ""
        yield f"{' and '.join(names)}{used}", rate


def _memory_line(found: Roofline, roof: MemoryRoof, low: float, high: float, color: str) -> Scatter:
    """Slope of a memory up to the highest compute roof."""
    top = max(roof.flops_per_s for roof in (*found.compute_roofs, found.peak))
    end = min(high, top / roof.bytes_per_s) if top and roof.bytes_per_s else high
    rates = [max(x, 0) * roof.bytes_per_s / _GIGA for x in (low, end)]
    name = f"{roof.level} {roof.bytes_per_s / _GIGA:.4g} GB/s"
    return _line([low, end], rates, name, color, _DASHES[roof.level])


def _line(x: list[float], y: list[float], name: str, color: str, dash: str) -> Scatter:
    line = {"color": color, "dash": dash, "width": 1.5}
    return Scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="name")


def _stages(found: Roofline) -> Iterator[Scatter]:
    """One trace per stage, a marker per level; stages share a legend entry."""
    for index, stage in enumerate(dict.fromkeys(point.stage for point in found.points)):
        points = [point for point in found.points if point.stage == stage]
        yield Scatter(
            x=[point.intensity_flops_per_byte for point in points],
            y=[point.achieved_flops_per_s / _GIGA for point in points],
            mode="markers",
            name=plain_text(stage),
            customdata=[
                [plain_text(stage), point.level, found.reached_frac(point), found.limit(point)]
                for point in points
            ],
            hovertemplate=_HOVER,
            marker={
                "color": stage_color(index),
                "symbol": [_SYMBOLS[point.level] for point in points],
                "size": 10,
                "line": {"width": 1.5, "color": stage_color(index)},
            },
        )
