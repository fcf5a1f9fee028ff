"""Pages that open without a network, in light and dark, around Plotly figures."""

from __future__ import annotations

import html
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plotly.graph_objects import Figure

#: of the page, so that a figure suits a light and a dark one
CLEAR, INK, GRID = "rgba(0,0,0,0)", "#808080", "rgba(128,128,128,0.25)"

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
h2 { font-size: 1.1em; margin: 1.4em 0 0.3em; }
p { margin: 0.2em 0; }
table { border-collapse: collapse; margin: 0.5em 0; }
th, td { padding: 0.15em 0.7em; text-align: left; border-bottom: 1px solid #80808040; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td { white-space: pre-wrap; }
a { color: inherit; }
summary { cursor: pointer; margin: 0.3em 0; }
</style>
</head>
<body>
<h1>$title</h1>
$body
</body>
</html>
""")

# runs when the figure is drawn, and again when the reader switches between light and dark
_PAINT = Template("""
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function paint() {
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    Plotly.relayout("$name", { "font.color": ink, "title.font.color": ink });
  }
  dark.addEventListener("change", paint);
  paint();
})();
""")


def page_html(title: str, parts: Sequence[str]) -> str:
    """A page; `parts` are HTML, the title is text."""
    return _PAGE.substitute(title=html.escape(title), body="\n".join(parts))


def paragraphs(lines: Sequence[str]) -> str:
    """Lines of text as paragraphs."""
    return "\n".join(f"<p>{html.escape(line)}</p>" for line in lines)


def heading(text: str) -> str:
    """A section's heading."""
    return f"<h2>{html.escape(text)}</h2>"


def details(summary: str, content: str) -> str:
    """HTML behind a line of text that opens it."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"


def plain_text(text: str) -> str:
    """Text for a figure, where markup would be drawn as such."""
    return html.escape(text, quote=False)


def table_html(headings: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> str:
    """Rows of text below headings, each with whether its column holds numbers."""
    kinds = [' class="number"' if is_number else "" for _, is_number in headings]
    head = "".join(
        f"<th{kind}>{html.escape(text)}</th>"
        for kind, (text, _) in zip(kinds, headings, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{html.escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def figure_html(figure: Figure, name: str, *, is_first: bool) -> str:
    """A figure; the first one of a page brings the library with it.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        What to show.
    name : str
        Its name on the page, letters only.
    is_first : bool
        Whether no earlier figure brought the library.
    """
    text: str = figure.to_html(
        full_html=False,
        include_plotlyjs=is_first,
        div_id=name,
        config={"displaylogo": False},
        post_script=_PAINT.substitute(name=name),
    )
    return text


def plain_layout(figure: Figure, height_px: int) -> None:
    """Colours and margins that suit a light and a dark page."""
    figure.update_layout(
        height=height_px,
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font={"color": INK},
        margin={"l": 10, "r": 10, "t": 50, "b": 40},
    )
    figure.update_xaxes(gridcolor=GRID, zerolinecolor=INK, automargin=True)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor=INK, automargin=True)
