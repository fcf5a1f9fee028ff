"""Signals between engines: who still waits for what, and what has started and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from npusim.program import END, EdgeKind
from npusim.program.labels import name_of

if TYPE_CHECKING:
    import simpy
    from numpy.typing import NDArray

    from npusim.engine import Clock, CoSimEnvironment
    from npusim.program import Program

_NEVER = -1
_SHOWN = 4  # unresolved edges named per engine in a deadlock report


class SignalBoard:
    """Counters of unresolved edges per command, and the times of everything that happened.

    Lists are indexed by command; times are -1 until known. Engines write `start_ps`, `end_ps` and
    `free_ps` (when the engine could take its next command) themselves; they are hot.

    Parameters
    ----------
    env : CoSimEnvironment
        Where offset signals are scheduled.
    program : Program
        The commands and their edges.
    """

    def __init__(self, env: CoSimEnvironment, program: Program) -> None:
        count = len(program)
        self._env = env
        self._program = program
        self.unresolved: list[int] = np.diff(program.edge_ptr).tolist()
        self.start_ps: list[int] = [_NEVER] * count
        self.end_ps: list[int] = [_NEVER] * count
        self.free_ps: list[int] = [_NEVER] * count
        self._blocked: dict[int, simpy.Event] = {}
        consumer = np.repeat(np.arange(count), np.diff(program.edge_ptr))
        at_end = program.edge_offset == END
        order = np.argsort(program.edge_producer[at_end], kind="stable")
        ends_per_command = np.bincount(program.edge_producer[at_end], minlength=count)
        self._end_ptr: list[int] = [0, *np.cumsum(ends_per_command).tolist()]
        self._end_consumers: list[int] = consumer[at_end][order].tolist()
        self.offsets: dict[int, dict[int, list[int]]] = {}
        self._offset_edges = np.flatnonzero(~at_end)
        for edge in self._offset_edges.tolist():
            consumers = self.offsets.setdefault(int(program.edge_producer[edge]), {})
            consumers.setdefault(int(program.edge_offset[edge]), []).append(int(consumer[edge]))
        self._offset_ps: dict[tuple[int, int], int] = {}

    def blocked(self, command: int) -> simpy.Event:
        """Event that fires when the last signal `command` awaits is published."""
        event = self._env.event()
        self._blocked[command] = event
        return event

    def publish_end(self, command: int) -> None:
        """Resolve the edges of all who wait for the end of `command`."""
        self._resolve(self._end_consumers[self._end_ptr[command] : self._end_ptr[command + 1]])

    def publish_offsets(self, command: int, start_tick: int, clock: Clock) -> None:
        """Schedule the signals that `command` publishes during its execution."""
        for offset, consumers in self.offsets[command].items():
            at_ps = clock.tick_ps(start_tick + offset)
            self._offset_ps[command, offset] = at_ps
            delay_ps = at_ps - self._env.now_ps
            if delay_ps <= 0:
                self._resolve(consumers)
                continue
            timeout = self._env.timeout(delay_ps, consumers)
            timeout.callbacks.append(self._on_offset)

    def signal_ps(self) -> NDArray[np.int64]:
        """When the signal of each edge was published, shape (edges,); -1 for never."""
        times = np.array(self.end_ps, dtype=np.int64)[self._program.edge_producer]
        for edge in self._offset_edges.tolist():
            times[edge] = self._edge_ps(edge)
        return times

    def awaited(self, command: int) -> str:
        """Unresolved edges of a command, with producers, their engines and the edge kinds."""
        program = self._program
        texts = [
            f"{name_of(program, int(program.edge_producer[edge]))}"
            f" ({EdgeKind(program.edge_kind[edge]).name.lower()})"
            for edge in _edges_of(program, command)
            if not 0 <= self._edge_ps(edge) <= self._env.now_ps
        ]
        more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
        return ", ".join(texts[:_SHOWN]) + more

    def _edge_ps(self, edge: int) -> int:
        producer = int(self._program.edge_producer[edge])
        offset = int(self._program.edge_offset[edge])
        if offset == END:
            return self.end_ps[producer]
        return self._offset_ps.get((producer, offset), _NEVER)

    def _on_offset(self, event: simpy.Event) -> None:
        self._resolve(cast("list[int]", event.value))

    def _resolve(self, consumers: list[int]) -> None:
        unresolved, blocked = self.unresolved, self._blocked
        for consumer in consumers:
            left = unresolved[consumer] - 1
            unresolved[consumer] = left
            if not left and consumer in blocked:
                blocked.pop(consumer).succeed()


def _edges_of(program: Program, command: int) -> range:
    edges = program.edges_of(command)
    return range(edges.start, edges.stop)
