"""A simulated program once more with shorter commands of one operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ResultError, nearest
from npusim.program import EngineKind
from npusim.simulation.execute import run_machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.config.run_spec import RunSpec
    from npusim.machine.execution import Execution
    from npusim.program import Program

    Ints = NDArray[np.int64]

_COMPUTE = (EngineKind.MATRIX, EngineKind.VECTOR, EngineKind.CONVERT)


def commands_to_shorten(program: Program, operator: str) -> Ints:
    """Commands of an operator on compute engines.

    Raises
    ------
    ResultError
        If there is no such operator, or it computes nothing.
    """
    names = [kernel.name for kernel in program.kernels]
    if operator not in names:
        raise ResultError("operator", "is not in the program", operator, nearest(operator, names))
    own = np.array([name == operator for name in names], dtype=np.bool_)[program.kernel]
    computes = np.array([engine.kind in _COMPUTE for engine in program.engines], dtype=np.bool_)
    found = np.flatnonzero(own & computes[program.engine])
    if not len(found):
        raise ResultError("operator", "has no command on a compute engine", operator)
    return found


def simulate_shorter(program: Program, spec: RunSpec, commands: Ints, divisor: int) -> Execution:
    """Run a program again in which some commands take a fraction of their ticks, rounded down."""
    ticks = program.duration_ticks.copy()
    ticks[commands] //= divisor
    return run_machine(replace(program, duration_ticks=ticks), spec).execution
