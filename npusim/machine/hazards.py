"""Hazards of a finished run: what its times say, whatever the edges of its program promise.

A command uses the regions it declares from its start to its end. A program that lost an edge or a
barrier runs faster, not wrong, as far as times go; only here does it show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import HazardError
from npusim.program.accesses import dependent_pairs
from npusim.program.labels import name_of, place_of

if TYPE_CHECKING:
    from npusim.machine.execution import Execution
    from npusim.program import Program

_READ_RULE = "a read starts when the write it needs has ended"
_WRITE_RULE = "an overwrite starts when what it replaces has been read, or else written"


@dataclass(frozen=True, slots=True)
class Hazard:
    """`late` should have ended before `early` started; commands by index in the program."""

    late: int
    early: int
    late_end_ps: int
    early_start_ps: int
    place: str
    is_read: bool

    def error(self, program: Program) -> HazardError:
        """The error that names both commands, the region and the times."""
        late, verb = name_of(program, self.late), "reads" if self.is_read else "overwrites"
        return HazardError(
            name_of(program, self.early),
            _READ_RULE if self.is_read else _WRITE_RULE,
            f"{verb} {self.place} from {self.early_start_ps} ps",
            f"{late} ends at {self.late_end_ps} ps; a wait or a barrier between them is missing",
        )


def find_hazards(program: Program, execution: Execution) -> tuple[Hazard, ...]:
    """Accesses of scratchpads whose times contradict program order, by time of the early one.

    Parameters
    ----------
    program : Program
        A program whose indices are in range; its edges are not looked at.
    execution : Execution
        Its run.

    Notes
    -----
    Not seen: bytes in DRAM and shared SRAM (the memory system orders them), reads of bytes that
    nothing wrote (`check_program` refuses them), and data handed over within a command by a signal
    at an offset, which the regions of commands are too coarse to tell: split such a command.
    """
    start_ps, end_ps = execution.start_ps, execution.end_ps
    found = []
    for pairs in dependent_pairs(program):
        before, after = pairs.before, pairs.after
        known = (before >= 0) & (before != after)
        for pair in np.flatnonzero(known & (end_ps[before] > start_ps[after])).tolist():
            late, early = int(before[pair]), int(after[pair])
            place = place_of(program, int(pairs.region[pair]))
            times = (int(end_ps[late]), int(start_ps[early]))
            found.append(Hazard(late, early, *times, place, pairs.is_read))
    return tuple(sorted(set(found), key=lambda h: (h.early_start_ps, h.early, h.late, h.place)))


def check_run_hazards(program: Program, execution: Execution) -> None:
    """Refuse a finished run in which data was used before it was there.

    Raises
    ------
    HazardError
        For the first hazard in time, naming both commands, the region and the times.
    """
    for hazard in find_hazards(program, execution):
        raise hazard.error(program)
