"""What ``npusim run`` prints: headline, stages, stalls, memory, approximations."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from npusim.results.records import Approximation, PhaseRecord
    from npusim.results.run import RunResult


def print_run(result: RunResult, console: Console) -> None:
    """Print a whole run.

    Parameters
    ----------
    result : RunResult
        A finished run.
    console : Console
        Where to.
    """
    for line in headline(result):
        console.print(line, markup=False)
    for record in result.phases.values():
        console.print()
        print_phase(record, console)
    print_approximations(list(result.phases.values()), console)


def print_phase(record: PhaseRecord, console: Console) -> None:
    """Print one phase: facts, stages, engines, memories, tiers."""
    for line in phase_facts(record):
        console.print(line, markup=False)
    print_table("stages", stage_rows(record), console)
    print_table("engines", engine_rows(record), console)
    print_table("memories", memory_rows(record), console)
    print_table("tiers", tier_rows(record), console)
    for line in bandwidth_facts(record):
        console.print(line, markup=False)


def print_table(name: str, rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print one table of a run."""
    print_rows(HEADINGS[name], rows, console)


def print_rows(
    headings: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]], console: Console
) -> None:
    """Print rows below headings; numbers to the right, never cut: rather a wider line."""
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, (heading, is_number) in enumerate(headings):
        table.add_column(
            heading,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            min_width=_number_width(index, heading, rows) if is_number else None,
        )
    for row in rows:
        table.add_row(*row)
    least = table.__rich_measure__(console, console.options.update(max_width=10**4)).minimum
    console.print(table, width=max(console.width, least), crop=False)


def _number_width(column: int, heading: str, rows: Sequence[Sequence[str]]) -> int:
    """Width at which no number of a column is cut."""
    return max(len(heading), *(len(row[column]) for row in rows))


def print_approximations(records: Sequence[PhaseRecord], console: Console) -> None:
    """Print what was estimated instead of simulated, each once with the phases it is about."""
    phases: dict[Approximation, list[str]] = {}
    for record in records:
        for item in record.approximations:
            phases.setdefault(item, []).append(record.phase)
    if not phases:
        return
    console.print("approximations")
    for item, names in phases.items():
        error = item.estimated_error_frac
        size = "not quantified" if error is None else f"error about {error * 100:.2g} %"
        line = f"  {item.kind} ({', '.join(names)}: {item.scope}), {size}; {item.basis}"
        console.print(fill(line, console.width, subsequent_indent="    "), markup=False)
