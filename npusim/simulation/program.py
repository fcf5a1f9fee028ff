"""A program that no compiler wrote: checked, run on the machine, checked again, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.engine import FixedLatencyMemory
from npusim.machine.hazards import check_run_hazards
from npusim.machine.system import Machine
from npusim.program.check import check_program
from npusim.simulation.piece import Piece, Rates

if TYPE_CHECKING:
    from npusim.engine import MemoryKernel
    from npusim.program import Program

_NO_RATES = Rates(dram=0, bus=0, core_dma=0, shared_sram=0)


def simulate_program(
    program: Program, memory: MemoryKernel | None = None, rates: Rates = _NO_RATES
) -> Piece:
    """Run a program as it is.

    Parameters
    ----------
    program : Program
        From `Program.from_commands` or a `ProgramBuilder`.
    memory : MemoryKernel, optional
        A fresh memory system for its transfers; None: transfers take no time.
    rates : Rates, optional
        Rates by which stages say what bounds them.

    Returns
    -------
    Piece
        Program, execution and their counts: ``piece.tally(0, piece.num_kernels)``.

    Raises
    ------
    ProtocolError
        If the static check refuses the program.
    DeadlockError
        If nothing can move any more.
    HazardError
        If the run used data before it was there.
    """
    check_program(program)
    execution = Machine(program, memory or FixedLatencyMemory(0)).run()
    check_run_hazards(program, execution)
    return Piece(program, execution, rates)
