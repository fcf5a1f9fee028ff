"""A finished run as one HTML page that needs no network."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from npusim.insight.explain import explain
from npusim.insight.settings import setting_rows
from npusim.report.explain_tables import (
    OPERATOR_HEADINGS,
    ROOFLINE_HEADINGS,
    operator_rows,
    roofline_rows,
    tree_headings,
    tree_rows,
)
from npusim.report.page import (
    details,
    figure_html,
    heading,
    page_html,
    paragraphs,
    table_html,
)
from npusim.report.roofline_figure import roofline_figure
from npusim.report.run_figures import (
    bandwidth_figure,
    occupancy_figure,
    stages_figure,
    stall_tree_figure,
)
from npusim.report.tables import (
    HEADINGS,
    bandwidth_facts,
    engine_rows,
    headline,
    memory_rows,
    phase_facts,
    stage_rows,
    tier_rows,
)
from npusim.results.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plotly.graph_objects import Figure

    from npusim.insight.explain import Explanation
    from npusim.results.run import RunResult

APPROXIMATION_HEADINGS = (
    *(("phase", False), ("estimate", False), ("scope", False), ("error", True)),
    ("basis", False),
)
SETTING_HEADINGS = (("setting", False), ("value", False), ("source", False))


def write_report(result: RunResult, path: Path | str, timeline: Path | None = None) -> None:
    """Write the report of a run.

    Parameters
    ----------
    result : RunResult
        A finished run.
    path : Path or str
        File to write; replaced in one step.
    timeline : Path, optional
        Timeline page to link to; the link is relative to `path`.

    Raises
    ------
    ResultError
        If the file cannot be written.
    """
    target = Path(path)
    link = None
    if timeline is not None:
        link = Path(os.path.relpath(timeline, target.parent)).as_posix()
    replace_file(target, report_html(result, link).encode())


def report_html(result: RunResult, timeline: str | None = None) -> str:
    """The page as text; equal for equal runs apart from the wall-clock time.

    Parameters
    ----------
    result : RunResult
        A finished run.
    timeline : str, optional
        Relative path of a timeline page to link to.
    """
    title, *facts = headline(result)
    parts = [paragraphs(facts)]
    if timeline is not None:
        parts.append(
            f'<p><a href="{html.escape(quote(timeline))}">Timeline of every engine</a></p>'
        )
    figures = _Figures()
    for found in explain(result):
        parts.extend(_phase(found, figures))
    parts.append(heading("What was estimated"))
    parts.append(_approximations(result))
    parts.append(heading("Configuration"))
    parts.extend(_configuration(result))
    return page_html(title, parts)


class _Figures:
    """Names figures, the first of which brings the library."""

    def __init__(self) -> None:
        self._count = 0

    def html(self, figure: Figure) -> str:
        """A figure with a name of its own, of letters only."""
        name = "figure" + "x" * self._count
        self._count += 1
        return figure_html(figure, name, is_first=self._count == 1)


def _phase(found: Explanation, figures: _Figures) -> Iterator[str]:
    """All about one phase."""
    record = found.record
    yield heading(record.phase)
    yield paragraphs([line.strip() for line in phase_facts(record)])
    yield _list([finding.text for finding in found.findings])
    yield heading(f"{record.phase}: stages")
    yield figures.html(stages_figure(found))
    yield table_html(HEADINGS["stages"], stage_rows(record))
    yield heading(f"{record.phase}: where the time of all engines went")
    if found.tree is None:
        yield paragraphs(["No engines were simulated, so there is no stall tree."])
    else:
        yield figures.html(stall_tree_figure(found.tree))
        yield details("As a table", table_html(tree_headings(found.tree), tree_rows(found.tree)))
        yield details("By kind of engine", table_html(HEADINGS["engines"], engine_rows(record)))
    yield heading(f"{record.phase}: roofline")
    yield figures.html(roofline_figure(found.roofline))
    rows = roofline_rows(found.roofline, found.roofline.points)
    yield details("As a table", table_html(ROOFLINE_HEADINGS, rows))
    yield from _memory(found, figures)
    if found.operators:
        yield heading(f"{record.phase}: longest operators of the simulated program")
        yield table_html(OPERATOR_HEADINGS, operator_rows(found))


def _memory(found: Explanation, figures: _Figures) -> Iterator[str]:
    """Bytes, and bandwidth and occupancy over time."""
    record = found.record
    yield heading(f"{record.phase}: memory")
    yield table_html(HEADINGS["memories"], memory_rows(record))
    tiers = tier_rows(record)
    if tiers:
        yield table_html(HEADINGS["tiers"], tiers)
        yield paragraphs([line.strip() for line in bandwidth_facts(record)])
    for title, figure in (
        ("bandwidth", bandwidth_figure(record)),
        ("scratchpad occupancy", occupancy_figure(record)),
    ):
        if figure is not None:
            yield heading(f"{record.phase}: {title} over time")
            yield figures.html(figure)


def _list(lines: list[str]) -> str:
    """Lines of text as a list."""
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"


def _approximations(result: RunResult) -> str:
    """Every estimate with its error; a sentence if there is none."""
    rows = [
        (
            phase,
            item.kind,
            item.scope,
            "not quantified"
            if item.estimated_error_frac is None
            else f"{item.estimated_error_frac * 100:.2g} %",
            item.basis,
        )
        for phase, record in result.phases.items()
        for item in record.approximations
    ]
    return table_html(APPROXIMATION_HEADINGS, rows) if rows else paragraphs(["Nothing."])


def _configuration(result: RunResult) -> Iterator[str]:
    """What ran: version, seed, overrides, hashes, and every setting with its source."""
    rows = [
        ("npusim", result.npusim_version),
        ("seed", str(result.seed)),
        ("fidelity, executor", f"{result.fidelity}, {result.executor}"),
        *(("override", text) for text in result.overrides),
        *((f"hash of {name}", value or "-") for name, value in result.hashes.items()),
    ]
    yield table_html((("what", False), ("value", False)), rows)
    if result.spec is None:
        yield paragraphs(["The run was saved without its specification."])
        return
    for part, settings in setting_rows(result.spec).items():
        yield details(f"{part}: {len(settings)} settings", table_html(SETTING_HEADINGS, settings))
