"""The result of a single operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npusim.errors import SimulationError
from npusim.results.invariants import check_phase
from npusim.results.summary import phase_summary

if TYPE_CHECKING:
    from npusim.results.records import PhaseRecord


@dataclass(frozen=True, kw_only=True)
class OperatorResult:
    """One operator, simulated alone; every invariant holds for an object that exists.

    Parameters
    ----------
    phase : PhaseRecord
        Time, engines, memories, like a phase of a run.
    compute_cycles : int
        Cycles of the matrix unit from the first operand in to the last result out, without minus
        one; memory does not count. 0 for an operator without MACs.
    folds : int
        Passes over the array; blocks of a cube unit.
    macs : int
        Multiply-accumulates.
    bound_ps : int
        Closed-form lower bound of the elapsed time.
    is_memory_ideal : bool, optional
        Memory answered at once.

    Raises
    ------
    SimulationError
        If time, work or bytes do not add up.
    """

    phase: PhaseRecord
    compute_cycles: int
    folds: int
    macs: int
    bound_ps: int
    is_memory_ideal: bool = False

    def __post_init__(self) -> None:
        check_phase(self.phase, self.is_memory_ideal)
        for name in ("macs", "bound_ps"):
            own, of_phase = getattr(self, name), getattr(self.phase, name)
            if own != of_phase:
                raise SimulationError("operator", f"{name} must equal the phase's {of_phase}", own)

    @property
    def elapsed_ps(self) -> int:
        """Simulated time."""
        return int(self.phase.elapsed_ps)

    def summary(self) -> dict[str, Any]:
        """The phase object of a run's summary plus the operator's own keys."""
        return {
            **phase_summary(self.phase),
            "compute_cycles": int(self.compute_cycles),
            "folds": int(self.folds),
            "macs": int(self.macs),
            "bound_ps": int(self.bound_ps),
        }
