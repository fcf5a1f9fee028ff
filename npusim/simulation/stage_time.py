"""Time of every engine cut at the borders of kernels: by stage, kind of engine and cause.

The stage whose kernel the completion frontier crosses owns that stretch of time of every engine, so
that the parts of a stage sum to its exclusive time times the number of engines, to the picosecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.engine import StallCause
from npusim.results.records import BUSY, IDLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import Execution
    from npusim.program import Program
    from npusim.simulation.tally import Key

    Ints = NDArray[np.int64]

CAUSES = tuple(StallCause)
_CONFLICT = CAUSES.index(StallCause.SRAM_CONFLICT)


def count_stage_time(
    counts: dict[Key, int], program: Program, execution: Execution, border_ps: Ints, first: int
) -> None:
    """Add the engine time of some kernels to `counts`, keys ``stage_time, stage, kind, cause``.

    Parameters
    ----------
    counts : dict
        Changed in place; only times above zero are added.
    program, execution : Program, Execution
        What ran.
    border_ps : array of int, shape (kernels + 1,)
        Completion frontier before each of the kernels and after the last one.
    first : int
        Index of the first of these kernels in the program.
    """
    kernels = len(border_ps) - 1
    busy = np.zeros((len(program.engines), kernels), dtype=np.int64)
    _add_pieces(busy, *_work(program, execution), border_ps)
    lost = np.zeros((len(CAUSES), len(program.engines), kernels), dtype=np.int64)
    stalls = execution.stalls
    for code in np.unique(stalls.cause).tolist():
        mine = stalls.cause == code
        spans = (stalls.engine[mine], stalls.start_ps[mine], stalls.end_ps[mine])
        _add_pieces(lost[code], *spans, border_ps)
    busy -= lost[_CONFLICT]
    idle = np.diff(border_ps) - busy - lost.sum(axis=0)
    times = {BUSY: busy, IDLE: idle}
    times |= {cause.value: lost[code] for code, cause in enumerate(CAUSES)}
    kinds: dict[str, list[int]] = {}
    for index, engine in enumerate(program.engines):
        kinds.setdefault(engine.kind.value, []).append(index)
    stages: dict[str, list[int]] = {}
    for offset in range(kernels):
        stages.setdefault(program.kernels[first + offset].stage, []).append(offset)
    for kind, engines in kinds.items():
        for cause, table in times.items():
            by_kernel = table[engines].sum(axis=0)
            for stage, own in stages.items():
                time_ps = int(by_kernel[own].sum())
                if time_ps:
                    counts["stage_time", stage, kind, cause] = time_ps


def _work(program: Program, execution: Execution) -> tuple[Ints, Ints, Ints]:
    """Engine, start and end of disjoint spans that cover what each engine executed."""
    engine = program.engine.astype(np.int64)
    order = np.lexsort((execution.start_ps, engine))
    owner = engine[order]
    shift = owner * (int(execution.elapsed_ps) + 1)  # each engine past all the others
    start, end = execution.start_ps[order] + shift, execution.end_ps[order] + shift
    covered = np.concatenate((np.zeros(1, dtype=np.int64), np.maximum.accumulate(end)[:-1]))
    return owner, np.maximum(start, covered) - shift, end - shift


def _add_pieces(
    table: Ints, engine: NDArray[np.integer], start: Ints, end: Ints, border_ps: Ints
) -> None:
    """Cut spans at the borders and add their pieces to a table of shape (engines, kernels)."""
    start = np.clip(start, border_ps[0], border_ps[-1])
    end = np.clip(end, border_ps[0], border_ps[-1])
    keep = np.flatnonzero(end > start)
    start, end, engine = start[keep], end[keep], engine[keep]
    low = np.searchsorted(border_ps, start, side="right") - 1
    high = np.searchsorted(border_ps, end, side="left") - 1
    count = high - low + 1
    span = np.repeat(np.arange(len(start)), count)
    before = np.repeat(np.cumsum(count) - count, count)
    kernel = low[span] + np.arange(len(span)) - before
    piece_ps = np.minimum(end[span], border_ps[kernel + 1])
    piece_ps -= np.maximum(start[span], border_ps[kernel])
    np.add.at(table, (engine[span], kernel), piece_ps)
