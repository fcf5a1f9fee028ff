"""Joins everything for one run: compile, simulate, fold, account."""

from npusim.simulation.operator import compile_operator, simulate_operator
from npusim.simulation.repeat import repeat_phase
from npusim.simulation.run import Progress, compile_run, simulate, simulate_run

__all__ = [
    "Progress",
    "compile_operator",
    "compile_run",
    "repeat_phase",
    "simulate",
    "simulate_operator",
    "simulate_run",
]
