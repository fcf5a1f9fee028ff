"""The timeline as one HTML file that opens without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.report.page import figure_html, page_html, paragraphs
from npusim.report.tables import headline
from npusim.report.timeline import result_figure
from npusim.results.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.results.run import RunResult


def write_timeline_html(result: RunResult, path: Path) -> None:
    """Write the timeline of a run as one self-contained page.

    Parameters
    ----------
    result : RunResult
        A run with recorded spans.
    path : Path
        File to write; replaced in one step.

    Raises
    ------
    ResultError
        If no spans were recorded or the file cannot be written.
    """
    replace_file(path, timeline_html(result).encode())


def timeline_html(result: RunResult) -> str:
    """The page as text; equal for equal runs apart from the wall-clock time."""
    title, *facts = headline(result)
    figure = figure_html(result_figure(result), "timeline", is_first=True)
    return page_html(title, [paragraphs(facts), figure])
