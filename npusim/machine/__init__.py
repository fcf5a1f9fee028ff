"""The readable reference executor: hardware engines as SimPy processes over a memory kernel."""

from npusim.machine.execution import COUNTERS, EngineUse, Execution, RunTimes, StallTable
from npusim.machine.hazards import Hazard, check_run_hazards, find_hazards
from npusim.machine.invariants import check_execution
from npusim.machine.system import Machine

__all__ = [
    "COUNTERS",
    "EngineUse",
    "Execution",
    "Hazard",
    "Machine",
    "RunTimes",
    "StallTable",
    "check_execution",
    "check_run_hazards",
    "find_hazards",
]
