"""Colours of the timeline, told apart with any colour vision.

Okabe and Ito's eight colours; causes of one family share a hue and differ in lightness and hatch,
so that no difference rests on hue alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Style:
    """Fill colour and hatching of a category."""

    color: str
    pattern: str = ""


#: style by category; the keys besides ``busy`` are stall causes
STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "busy": Style("#0072B2"),
        "dependency": Style("#56B4E9", "/"),
        "order": Style("#9AD0F0", "\\"),
        "convert": Style("#009E73", "/"),
        "buffer_free": Style("#F0E442", "/"),
        "buffer_full": Style("#C9BE1E", "x"),
        "dma_issue": Style("#8C8413", "-"),
        "barrier": Style("#CC79A7", "/"),
        "launch": Style("#7F7F7F", "/"),
        "dram_data": Style("#E69F00", "/"),
        "dram_other": Style("#F2C464", "\\"),
        "dram_arbitration": Style("#B87F00", "x"),
        "dram_latency": Style("#F7DDA8", "-"),
        "dram_row": Style("#D55E00", "/"),
        "dram_bank_conflict": Style("#993F00", "x"),
        "dram_refresh": Style("#E98B4A", "|"),
        "dram_turnaround": Style("#F1B68C", "-"),
        "dram_command": Style("#6B2E00", "+"),
        "sram": Style("#66C2A5", "x"),
        "sram_conflict": Style("#1B7F5C", "+"),
        "bus": Style("#A05C84", "\\"),
    }
)
_UNKNOWN = Style("#B0B0B0", ".")

# Tol's light scheme: paler than the categories, dark text reads on all of them
_STAGE_COLORS = (
    *("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00"),
    "#DDDDDD",
)
_LINE_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")


def style_of(category: str) -> Style:
    """Style of a category; a cause the palette does not know is grey and dotted."""
    return STYLES.get(category, _UNKNOWN)


def stage_color(index: int) -> str:
    """Colour of the stage lane; neighbours in program order differ."""
    return _STAGE_COLORS[index % len(_STAGE_COLORS)]


def line_color(index: int) -> str:
    """Colour of a memory's curve."""
    return _LINE_COLORS[index % len(_LINE_COLORS)]
