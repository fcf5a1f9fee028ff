"""Time lost to bank conflicts: how long each command was stretched, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.engine import Clock
from npusim.machine.execution import ConflictTable
from npusim.machine.remainder import largest_remainder
from npusim.machine.waits import commands_by_engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import RunTimes
    from npusim.program import Program

    Ints = NDArray[np.int64]


def conflict_ps(program: Program, times: RunTimes) -> Ints:
    """Time by which conflicts put off the end of each command, shape (commands,).

    A command that starts at tick s and lasts d ticks ends at ``tick_ps(s + d)`` without them.
    """
    lost = np.zeros(len(program), dtype=np.int64)
    if not times.conflict_ticks.any():
        return lost
    for index, commands in enumerate(commands_by_engine(program)):
        clock = Clock(program.engines[index].period_ps, program.ticks_per_cycle)
        mine = commands[times.conflict_ticks[commands] > 0]
        end_ps = times.end_ps[mine]
        unhindered = clock.ticks_at(end_ps) - times.conflict_ticks[mine]
        lost[mine] = end_ps - clock.ticks_floor_ps(unhindered)
    return lost


def conflict_table(
    program: Program, times: RunTimes, blames: dict[int, dict[int, int]]
) -> ConflictTable:
    """Lost time of each stretched command, split over engines by weight.

    Parameters
    ----------
    blames : dict of int to dict of int to int
        By stretched command: weight of each engine that held it up.
    """
    lost = conflict_ps(program, times)
    rows: list[tuple[int, int, int]] = []
    for command in np.flatnonzero(lost).tolist():
        weights = dict(sorted(blames[command].items()))
        engines = [*weights] or [int(program.engine[command])]
        parts = largest_remainder(int(lost[command]), [*weights.values()] or [1])
        rows.extend((command, by, ps) for by, ps in zip(engines, parts, strict=True) if ps)
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return ConflictTable(command=table[:, 0], by=table[:, 1], lost_ps=table[:, 2])
