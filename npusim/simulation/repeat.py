"""The program whose spans and operators a result shows, simulated once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.config.run_spec import Fidelity
from npusim.errors import ResultError, SimulationError
from npusim.simulation.phase import simulate_source
from npusim.simulation.run import first_source

if TYPE_CHECKING:
    from npusim.results.run import RunResult
    from npusim.simulation.piece import Piece


def repeat_phase(result: RunResult, phase: str) -> Piece:
    """Program and execution of a phase: its first pass, folded as in the run.

    Parameters
    ----------
    result : RunResult
        A finished run with its specification.
    phase : str
        One of its phases.

    Raises
    ------
    ResultError
        If the phase did not run, or the run's specification is missing or simulates no program.
    SimulationError
        If the program does not take the time it took in the run.
    """
    record = result.phase(phase)
    if result.spec is None:
        hint = "run it again with this version"
        raise ResultError("run", "was saved without its specification", None, hint)
    if result.spec.simulation.fidelity is Fidelity.ANALYTIC:
        hint = "run at 'burst' or 'transfer'"
        raise ResultError("run", "fidelity 'analytic' executes no program", None, hint)
    piece = simulate_source(first_source(result.spec, phase), result.spec).piece
    was = [(item.name, int(item.elapsed_ps)) for item in record.operators]
    names = (kernel.name for kernel in piece.program.kernels)
    times = (row["elapsed_ps"] for row in piece.kernel_rows())
    if list(zip(names, times, strict=True)) != was:
        rule = f"takes the time of the run of version {result.npusim_version} again"
        raise SimulationError(f"phase {phase}", rule, piece.execution.elapsed_ps)
    return piece
