"""What executes a compiled program: the machine of its system, or a variation of it for a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from npusim.compiler.target import Target
from npusim.config.run_spec import HazardCheck
from npusim.machine.hazards import check_run_hazards
from npusim.machine.system import Machine
from npusim.program.check import check_program
from npusim.simulation.memories import build_memory, peak_bytes_per_s
from npusim.simulation.tally import Key, Tally

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.engine import MemoryKernel
    from npusim.machine.execution import Execution
    from npusim.program import Program

_SMALL = 100_000  # commands up to which finished runs are checked for hazards unasked


@dataclass(frozen=True)
class Executed:
    """A finished program.

    Attributes
    ----------
    totals : Tally
        Counts of its memories for the whole run only.
    is_ideal : bool
        Whether a cost was taken away, so that the closed-form bound does not hold.
    is_memory_ideal : bool
        Whether every transfer completed at once, so that peak rates do not hold.
    """

    program: Program
    execution: Execution
    totals: Tally
    is_ideal: bool = False
    is_memory_ideal: bool = False


class Execute(Protocol):
    """Runs a program to its end."""

    def __call__(
        self, program: Program, spec: RunSpec, memory: MemoryKernel | None = None
    ) -> Executed:
        """Run it on the memories of its system, or on `memory`."""


def execute(program: Program, spec: RunSpec, memory: MemoryKernel | None = None) -> Executed:
    """Check a program and run it on the machine of its system.

    Raises
    ------
    SimulationError
        If the program is not sound, or the run broke an invariant.
    """
    check_program(program)
    executed = run_machine(program, spec, memory)
    if is_hazard_check_due(spec.simulation.check_hazards, len(program)):
        check_run_hazards(program, executed.execution)
    return executed


def run_machine(program: Program, spec: RunSpec, memory: MemoryKernel | None = None) -> Executed:
    """Run a sound program on the machine of a system."""
    target = target_of(spec)
    kernel = memory or build_memory(
        spec.system, target, spec.simulation.fidelity, jumps=spec.simulation.jumps
    )
    execution = Machine(program, kernel).run()
    return Executed(program, execution, _memory_totals(program, kernel, target))


def target_of(spec: RunSpec) -> Target:
    """The device of a run as the compiler numbers its parts."""
    return Target(spec.system, peak_bytes_per_s(spec.system), spec.compiler.max_cores)


def is_hazard_check_due(setting: HazardCheck, commands: int) -> bool:
    """Whether `simulation.check_hazards` asks for the check of a run of so many commands."""
    return setting is HazardCheck.ON or (setting is HazardCheck.AUTO and commands <= _SMALL)


def _memory_totals(program: Program, kernel: MemoryKernel, target: Target) -> Tally:
    """What memories count for the whole run only, not per command."""
    counts: dict[Key, int] = {}
    for space in program.spaces:
        if space.memory < 0:
            continue
        found = kernel.memory_counters(space.memory)
        if space.kind == "dram":
            counts["memory", space.name, "refreshes"] = found["refreshes"]
        else:
            waited = found.get("conflict_cycles", 0) * target.period_ps
            counts["sram", space.name, "conflict_ps"] = int(waited)
    return Tally(counts)
