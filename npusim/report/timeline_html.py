"""The timeline as one HTML file that opens without a network."""

from __future__ import annotations

import html
from string import Template
from typing import TYPE_CHECKING

from npusim.report.tables import headline
from npusim.report.timeline import result_figure
from npusim.results.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.results.run import RunResult

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #d8dee4; } }
body { background: var(--paper); color: var(--ink); font: 14px system-ui, sans-serif; margin: 1em; }
h1 { font-size: 1.2em; }
p { margin: 0.2em 0; }
</style>
</head>
<body>
<h1>$title</h1>
$facts
$figure
</body>
</html>
""")

# runs when the figure is drawn, and again when the reader switches between light and dark
_PAINT = """
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  Plotly.relayout("timeline", { "font.color": ink, "title.font.color": ink });
}
dark.addEventListener("change", paint);
paint();
"""


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
    lines = [html.escape(line) for line in headline(result)]
    figure = result_figure(result).to_html(
        full_html=False,
        include_plotlyjs=True,
        div_id="timeline",
        config={"displaylogo": False},
        post_script=_PAINT,
    )
    facts = "\n".join(f"<p>{line}</p>" for line in lines[1:])
    return _PAGE.substitute(title=lines[0], facts=facts, figure=figure)
