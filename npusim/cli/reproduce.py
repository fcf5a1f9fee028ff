"""``npusim reproduce``: published figures beside simulated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import print_json, result_console

if TYPE_CHECKING:
    from rich.console import Console

    from npusim.studies.reproduction import Figure, Reproduction

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="Name from `npusim reproduce --list`, or a changed copy of its YAML file.",
        show_default=False,
    ),
]
List = Annotated[bool, typer.Option("--list", help="List what can be reproduced.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="config.KEY=VALUE",
        help="Change a number of the configuration; may be repeated.",
        show_default=False,
    ),
]


def reproduce(
    name: Name = None,
    list_: List = False,
    changes: Changes = None,
    json: given.Json = False,
) -> None:
    """Simulate the configuration behind published figures and print both.

    Exit code 1 if a figure is off by more than its tolerance, or a check fails.

    For example:

    npusim reproduce --list

    npusim reproduce a8-mixed-precision

    npusim reproduce a4-fusion --set config.register_file_bytes="64 KiB" --json
    """
    # pydantic and numba are slow to load
    from npusim.errors import ConfigError
    from npusim.studies.reproductions import reproduce as run

    if list_:
        if name is not None or changes:
            raise ConfigError("--list", "stands alone", name or changes)
        _list(json=json)
        return
    if name is None:
        raise ConfigError("NAME", "is required", hint="npusim reproduce --list shows the names")
    result = run(name, tuple(changes or ()))
    if json:
        print_json(result.summary())
    else:
        _print(result, result_console())
    if not result.holds:
        raise typer.Exit(1)


def _list(*, json: bool) -> None:
    from npusim.studies.reproductions import STUDIES, load_reproduction  # slow to load

    files = [load_reproduction(name) for name in STUDIES]
    if json:
        print_json([{"name": f.name, "title": f.title, "origin": f.origin} for f in files])
        return
    console = result_console()
    for file in files:
        console.print(f"{file.name:<22}{file.title}", markup=False)


def _print(result: Reproduction, console: Console) -> None:
    """Figures, checks, freedom and what to know about the source."""
    from rich.table import Table  # slow to load

    for line in (f"{result.name}: {result.title}", f"published: {result.origin}"):
        console.print(line, markup=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("figure", "published", "ours", "difference", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "") else "right")
    for figure in result.figures:
        table.add_row(*_cells(figure))
    console.print(table)
    for check in result.checks:
        console.print(f"{'holds' if check.holds else 'FAILS'}: {check.text}", markup=False)
    for remark in result.remarks:
        console.print(f"seen: {remark}", markup=False)
    free = ", ".join(f"{p.path.removeprefix('config.')}={p.value}" for p in result.free_parameters)
    said = f"{result.num_reproduced} of {result.num_published} published figures reproduced"
    console.print(f"{said} with {len(result.free_parameters)} free numbers: {free}", markup=False)
    for note in result.notes:
        console.print(f"note: {note}", markup=False)
    console.print(f"configuration {result.config_hash[:12]}", markup=False)


def _cells(figure: Figure) -> tuple[str, ...]:
    difference = figure.difference_frac
    shown = "-" if difference is None else f"{100 * difference:+.1f} %"
    published = "-" if figure.published is None else f"{figure.published:g}"
    if figure.published_range is not None:
        published = " to ".join(f"{end:g}" for end in figure.published_range)
    return figure.name, published, f"{figure.ours:g}", shown, "" if figure.holds else "off"
