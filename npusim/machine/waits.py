"""Waits of a finished run: from when to when, and for which signal or queue entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.engine.spans import assign_slots, covered_before_ps
from npusim.errors import SimulationError
from npusim.program import EngineKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import RunTimes
    from npusim.program import Program

    Ints = NDArray[np.int64]

DMA_KINDS = (EngineKind.DMA_LOAD, EngineKind.DMA_STORE)
NO_EDGE = -1


@dataclass(frozen=True, slots=True)
class Waits:
    """For each command, the wait before it; arrays of shape (commands,).

    The wait is `[ready_ps, start_ps)`: from when the engine was free. `visible_ps` is where the
    part begins in which the engine was not busy (a DMA engine is busy while transfers are in
    flight). `edge` is the awaited edge that resolved last (the smallest on a tie), NO_EDGE if none
    resolved after `ready_ps`. `entry_ps` is when a queue entry became free, `freed_by` the command
    that freed it (-1: none had to).
    """

    ready_ps: Ints
    visible_ps: Ints
    edge: Ints
    entry_ps: Ints
    freed_by: Ints
    slot: NDArray[np.int32]


def find_waits(program: Program, times: RunTimes) -> Waits:
    """Reconstruct what each command waited for from the times alone.

    Raises
    ------
    SimulationError
        If more than `queue_depth` transfers of a DMA engine overlap.
    """
    count = len(program)
    ready_ps, visible_ps = np.zeros(count, np.int64), np.zeros(count, np.int64)
    entry_ps, freed_by = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    slot = np.zeros(count, np.int32)
    for index, commands in enumerate(commands_by_engine(program)):
        if not len(commands):
            continue
        ready_ps[commands[1:]] = times.free_ps[commands[:-1]]
        start_ps, end_ps = times.start_ps[commands], times.end_ps[commands]
        if program.engines[index].kind not in DMA_KINDS:
            visible_ps[commands] = ready_ps[commands]
            continue
        visible_ps[commands] = np.maximum(ready_ps[commands], covered_before_ps(end_ps))
        use = assign_slots(start_ps, end_ps, program.engines[index].queue_depth)
        slot[commands], entry_ps[commands] = use.slot, use.free_ps
        freed_by[commands] = np.where(use.freed_by >= 0, commands[use.freed_by], -1)
    edge = _last_edge(program, times.signal_ps, ready_ps)
    return Waits(ready_ps, visible_ps, edge, entry_ps, freed_by, slot)


def commands_by_engine(program: Program) -> list[Ints]:
    """Commands of each engine in program order."""
    order = np.argsort(program.engine, kind="stable")
    bounds = np.cumsum(np.bincount(program.engine, minlength=len(program.engines)))[:-1]
    return np.split(order, bounds)


def last_signal_ps(program: Program, signal_ps: Ints) -> Ints:
    """When the last signal each command awaits was published, 0 for none; shape (commands,)."""
    latest = np.zeros(len(program), dtype=np.int64)
    waiting = np.flatnonzero(np.diff(program.edge_ptr))
    if len(waiting):
        latest[waiting] = np.maximum.reduceat(signal_ps, program.edge_ptr[waiting])
    return latest


def _last_edge(program: Program, signal_ps: Ints, ready_ps: Ints) -> Ints:
    """The edge that resolved last of each command, NO_EDGE if it did so before `ready_ps`."""
    result = np.full(len(program), NO_EDGE, dtype=np.int64)
    waiting = np.flatnonzero(np.diff(program.edge_ptr))
    if not len(waiting):
        return result
    latest = last_signal_ps(program, signal_ps)
    num_edges = len(signal_ps)
    is_last = signal_ps == np.repeat(latest, np.diff(program.edge_ptr))
    candidates = np.where(is_last, np.arange(num_edges), num_edges)
    result[waiting] = np.minimum.reduceat(candidates, program.edge_ptr[waiting])
    result[latest <= ready_ps] = NO_EDGE
    return result


def require_reason(program: Program, command: int) -> SimulationError:
    """The error for a command that waited although nothing held it back."""
    name = program.engines[program.engine[command]].name
    return SimulationError(f"{name} #{command}", "a command waits only for a signal or queue entry")
