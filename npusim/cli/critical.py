"""``npusim explain --critical-path``: the chain of commands that set when a phase ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npusim.cli.output import print_json, result_console

if TYPE_CHECKING:
    from rich.console import Console

    from npusim.insight.critical_path import CriticalPath
    from npusim.results.run import RunResult

DIVISOR = 2


@dataclass(frozen=True)
class Shortened:
    """What half the length of an operator's commands gives."""

    operator: str
    commands: int
    elapsed_ps: int
    held_ps: int  # all other durations as they were
    simulated_ps: int


def explain_critical(
    name: str, result: RunResult, phase: str | None, shorten: str | None, *, as_json: bool
) -> None:
    """Simulate the phases of a run again and print their critical paths."""
    phases = [phase] if phase is not None else list(result.phases)
    found = [_of_phase(result, each, shorten) for each in phases]
    if as_json:
        print_json({"run": name, "phases": [_summary(*entry) for entry in found]})
        return
    console = result_console()
    for path, shortened in found:
        _print(path, shortened, console)


def _of_phase(
    result: RunResult, phase: str, shorten: str | None
) -> tuple[CriticalPath, Shortened | None]:
    # numba is slow to load
    from npusim.insight.critical_path import critical_path
    from npusim.simulation import repeat_phase
    from npusim.simulation.shorten import commands_to_shorten, simulate_shorter

    piece = repeat_phase(result, phase)
    program, spec = piece.program, result.spec
    assert spec is not None  # repeat_phase needs it
    path = critical_path(program, piece.execution, phase)
    if shorten is None:
        return path, None
    commands = commands_to_shorten(program, shorten)
    length_ps = path.graph.length_ps.copy()
    ticks = program.duration_ticks[commands]
    length_ps[commands] = length_ps[commands] * (ticks // DIVISOR) // ticks
    held_ps = path.graph.finish_ps(length_ps)
    simulated = simulate_shorter(program, spec, commands, DIVISOR)
    times = (path.elapsed_ps, held_ps, simulated.elapsed_ps)
    return path, Shortened(shorten, len(commands), *times)


def _summary(path: CriticalPath, shortened: Shortened | None) -> dict[str, Any]:
    found = {"phase": path.phase, **path.summary()}
    if shortened is not None:
        found["shortened"] = vars(shortened)
    return found


def _print(path: CriticalPath, shortened: Shortened | None, console: Console) -> None:
    # rich is slow to load
    from npusim.cli.show_run import print_rows
    from npusim.report.critical_tables import (
        OPERATOR_HEADINGS,
        STRETCH_HEADINGS,
        operator_slack_rows,
        path_lines,
        stretch_rows,
    )
    from npusim.units import format_time_ps  # beside the others

    first, *lines = path_lines(path)
    for line in (f"{path.phase}: {first}", *lines):
        console.print(line, markup=False)
    print_rows(STRETCH_HEADINGS, stretch_rows(path), console)
    print_rows(OPERATOR_HEADINGS, operator_slack_rows(path), console)
    if shortened is not None:
        was, held, simulated = (
            format_time_ps(ps)
            for ps in (shortened.elapsed_ps, shortened.held_ps, shortened.simulated_ps)
        )
        console.print(
            f"{shortened.operator} with {shortened.commands} commands of half the length: "
            f"{was} -> {held} with all else held, {simulated} simulated",
            markup=False,
        )
