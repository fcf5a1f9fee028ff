"""What released every command of a finished run, as a graph with held durations.

A node is the start of a command. An edge (earlier command, later command, lag) says that the later
one starts no earlier than `lag` after the earlier one started: a signal, the engine's turn, a queue
entry of a DMA engine. Starts that lie a little later still, on the next edge of the engine's clock,
keep that delay. With nothing changed the longest path to every node is its simulated start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import SimulationError
from npusim.machine.waits import commands_by_engine, find_waits
from npusim.program import END

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import Execution
    from npusim.program import Program

    Ints = NDArray[np.int64]

#: why a command was released, by code: kinds of the program's edges first
REASONS = ("data", "buffer_free", "barrier", "launch", "order", "engine", "queue")
ENGINE, QUEUE = 5, 6


@dataclass(frozen=True)
class CommandGraph:
    """Releases of a run, struct-of-arrays; edges in CSR form by later command.

    Attributes
    ----------
    start_ps, length_ps : array of int, shape (commands,)
        Simulated start and length of each command.
    delay_ps : array of int, shape (commands,)
        From the last release to the start: up to the next edge of the engine's clock.
    edge_ptr : array of int, shape (commands + 1,)
        Edges of each later command.
    earlier : array of int, shape (edges,)
        The earlier command.
    lag_ps : array of int, shape (edges,)
        From its start to the release.
    is_at_end : array of bool, shape (edges,)
        The release is its end, so that the lag is its length.
    reason : array of int, shape (edges,)
        Code of `REASONS`.
    drain_ps : int
        From the last end to the end of the run: posted writes that reach the memory.
    order : array of int, shape (commands,)
        Commands so that all earlier ones come first.
    """

    start_ps: Ints
    length_ps: Ints
    delay_ps: Ints
    edge_ptr: Ints
    earlier: Ints
    lag_ps: Ints
    is_at_end: NDArray[np.bool_]
    reason: NDArray[np.int8]
    drain_ps: int
    order: Ints

    def __len__(self) -> int:
        return len(self.start_ps)

    def finish_ps(self, length_ps: Ints) -> int:
        """End of the run if commands had other lengths, all else held.

        Parameters
        ----------
        length_ps : array of int, shape (commands,)
            Lengths; releases during a command stay where they were.
        """
        starts = self.starts_ps(length_ps)
        return int((starts + length_ps).max()) + self.drain_ps

    def starts_ps(self, length_ps: Ints) -> Ints:
        """Start of every command if commands had other lengths, all else held."""
        lag = np.where(self.is_at_end, length_ps[self.earlier], self.lag_ps).tolist()
        earlier, ptr, delay = self.earlier.tolist(), self.edge_ptr.tolist(), self.delay_ps.tolist()
        start = [0] * len(self)
        for command in self.order.tolist():
            edges = range(ptr[command], ptr[command + 1])
            released = max((start[earlier[e]] + lag[e] for e in edges), default=0)
            start[command] = released + delay[command]
        return np.array(start, dtype=np.int64)

    def latest_start_ps(self) -> Ints:
        """Latest start of every command with which the run still ends when it did."""
        last = int((self.start_ps + self.length_ps).max())
        latest = (last - self.length_ps).tolist()
        earlier, ptr, lag = self.earlier.tolist(), self.edge_ptr.tolist(), self.lag_ps.tolist()
        delay = self.delay_ps.tolist()
        for command in self.order[::-1].tolist():
            released = latest[command] - delay[command]
            for e in range(ptr[command], ptr[command + 1]):
                latest[earlier[e]] = min(latest[earlier[e]], released - lag[e])
        return np.array(latest, dtype=np.int64)


def command_graph(program: Program, execution: Execution) -> CommandGraph:
    """Releases of a finished run.

    Parameters
    ----------
    program, execution : Program, Execution
        What ran.

    Raises
    ------
    SimulationError
        If a command started before something that released it.

    Notes
    -----
    Held as they were in the run: lengths of transfers (with the contention they met), bank
    conflicts, and which transfer freed the queue entry that a later one took.
    """
    times, count = execution.times, len(program)
    consumer = np.repeat(np.arange(count), np.diff(program.edge_ptr))
    producer = program.edge_producer.astype(np.int64)
    turn, before = _turns(program)
    waits = find_waits(program, times)
    queued = np.flatnonzero(waits.freed_by >= 0)
    later = np.concatenate((consumer, queued, turn))
    earlier = np.concatenate((producer, waits.freed_by[queued], before))
    released_ps = np.concatenate(
        (times.signal_ps, times.end_ps[waits.freed_by[queued]], times.free_ps[before])
    )
    at_end = np.concatenate(
        (
            program.edge_offset == END,
            np.ones(len(queued), dtype=np.bool_),
            program.transfer[before] < 0,  # a transfer only has to be issued
        )
    )
    reason = np.concatenate(
        (program.edge_kind, np.full(len(queued), QUEUE), np.full(len(turn), ENGINE))
    )
    order = np.argsort(later, kind="stable")
    ptr = np.concatenate(([0], np.cumsum(np.bincount(later, minlength=count))))
    later, earlier, released_ps = later[order], earlier[order], released_ps[order]
    latest = np.zeros(count, dtype=np.int64)
    np.maximum.at(latest, later, released_ps)
    delay = times.start_ps - latest
    if (delay < 0).any():
        where = f"command {int(np.argmax(delay < 0))}"
        raise SimulationError(where, "starts after all that released it", int(delay.min()))
    return CommandGraph(
        start_ps=times.start_ps,
        length_ps=times.end_ps - times.start_ps,
        delay_ps=delay,
        edge_ptr=ptr,
        earlier=earlier,
        lag_ps=released_ps - times.start_ps[earlier],
        is_at_end=at_end[order],
        reason=reason[order].astype(np.int8),
        drain_ps=execution.elapsed_ps - int(times.end_ps.max()),
        order=_topological(ptr, earlier, times.start_ps),
    )


def _turns(program: Program) -> tuple[Ints, Ints]:
    """Commands with one before them on their engine, and that one."""
    by_engine = [commands for commands in commands_by_engine(program) if len(commands)]
    later = np.concatenate([commands[1:] for commands in by_engine])
    return later, np.concatenate([commands[:-1] for commands in by_engine])


def _topological(ptr: Ints, earlier: Ints, start_ps: Ints) -> Ints:
    """Order of the commands in which all earlier ones come first.

    Starts are such an order but for commands that start at the same moment; those are walked.
    """
    by_start = np.argsort(start_ps, kind="stable").tolist()
    first, source = ptr.tolist(), earlier.tolist()
    is_placed = [False] * len(start_ps)
    order: list[int] = []
    for root in by_start:
        stack = [root]
        while stack:
            command = stack[-1]
            edges = range(first[command], first[command + 1])
            missing = [source[e] for e in edges if not is_placed[source[e]]]
            if missing and not is_placed[command]:
                stack.extend(missing)
                continue
            stack.pop()
            if not is_placed[command]:
                is_placed[command] = True
                order.append(command)
    return np.array(order, dtype=np.int64)
