"""DMA engines: descriptors issued in order, several in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from npusim.machine.sequencer import Sequencer

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy as np
    import simpy
    from numpy.typing import NDArray

    from npusim.engine import Clock, CoSimEnvironment
    from npusim.machine.bank_use import BankUse
    from npusim.machine.multicast import Multicasts
    from npusim.machine.signals import SignalBoard
    from npusim.machine.snapshots import MemorySnapshots


#: keys of transfers in flight that another engine reads lie below 0, above are transfer ids
_RECEIVED = -1


class Descriptor(NamedTuple):
    """What one LOAD or STORE asks of the memory: the arguments of `MemoryKernel.submit`."""

    port: int
    memory: int
    is_write: bool
    runs: NDArray[np.int64]
    receivers: tuple[int, ...] = ()  # ports that get what is read as well


class DmaEngine(Sequencer):
    """Issues descriptors in order, at most `queue_depth` of them in flight.

    A descriptor takes its `duration_ticks` to issue (`Program.issue_ticks`) and then belongs to the
    memory; its command ends when the memory says so. Commands without a transfer (SIGNAL, WAIT)
    execute at the head of the queue and need a free entry like a descriptor.

    Parameters
    ----------
    queue_depth : int
        Descriptors in flight, at least 1.
    descriptors : dict of int to Descriptor
        Transfer of each LOAD and STORE command.

    See Also
    --------
    Sequencer : The other parameters.
    """

    def __init__(
        self,
        env: CoSimEnvironment,
        name: str,
        clock: Clock,
        commands: list[int],
        duration_ticks: list[int],
        board: SignalBoard,
        snapshots: MemorySnapshots,
        *,
        queue_depth: int,
        descriptors: dict[int, Descriptor],
        banks: BankUse | None = None,
        multicasts: Multicasts | None = None,
    ) -> None:
        super().__init__(env, name, clock, commands, duration_ticks, board, snapshots, banks)
        self._queue_depth = queue_depth
        self._descriptors = descriptors
        self._multicasts = multicasts
        self._in_flight: dict[int, int] = {}  # transfer id -> command
        self._entry_freed: simpy.Event | None = None
        self.tid_of: dict[int, int] = {}  # command -> transfer id

    def waiting_for(self) -> str | None:
        """The head command and what it awaits, or the transfers that hold the queue."""
        held = ", ".join(f"#{command}" for command in self._in_flight.values())
        if self._head is None:
            return f"{self._name}: {held} in flight" if held else None
        if self._entry_freed is None:
            return super().waiting_for()
        return (
            f"{self._name}: #{self._head} awaits a free queue entry"
            f" ({len(self._in_flight)} of {self._queue_depth} in flight: {held})"
        )

    def _execute(self) -> Generator[simpy.Event, object, None]:
        env, board, clock = self._env, self._board, self._clock
        unresolved, in_flight, offsets = board.unresolved, self._in_flight, board.offsets
        num, den = clock.ps_per_tick
        tick = free_ps = 0
        for command, duration in zip(self._commands, self._duration_ticks, strict=True):
            self._head = command
            if unresolved[command]:
                yield self._blocked(command)
                self._snapshots.wake(command)
            if len(in_flight) >= self._queue_depth:
                yield self._full()
            now_ps = env.now_ps
            if now_ps > free_ps:
                tick = clock.next_edge_tick(now_ps)
            board.start_ps[command] = tick * num // den
            if command in offsets:
                board.publish_offsets(command, tick, clock)
            descriptor = self._descriptors.get(command)
            tick += duration
            free_ps = board.free_ps[command] = tick * num // den
            if free_ps != now_ps:
                yield env.timeout(free_ps - now_ps)
            if descriptor is None:
                self._end(command)
            else:
                self._submit(command, descriptor)
        self._head = None
        while self._in_flight:
            yield self._full()

    def _full(self) -> simpy.Event:
        self._entry_freed = self._env.event()
        return self._entry_freed

    def _submit(self, command: int, descriptor: Descriptor) -> None:
        if self._multicasts is not None and command in self._multicasts.leader_of:
            self._receive(command, self._multicasts)
            return
        port, memory, is_write, runs, receivers = descriptor
        tid = self._env.submit(port, memory, is_write, runs, self._complete, receivers)
        self._in_flight[tid] = command
        self.tid_of[command] = tid
        self._snapshots.submitted(command)
        if self._banks is not None:
            self._banks.transfer_begins(command)

    def _receive(self, command: int, multicasts: Multicasts) -> None:
        """Hold a queue entry until another engine's multicast has brought the bytes."""
        self._snapshots.submitted(command)
        if multicasts.is_delivered(command):
            self._end(command)
            return
        self._in_flight[_RECEIVED - command] = command
        if self._banks is not None:
            self._banks.transfer_begins(command)
        multicasts.await_delivery(command, lambda: self._finish(_RECEIVED - command))

    def _complete(self, event: simpy.Event) -> None:
        command = self._finish(cast("int", event.value))
        if self._multicasts is not None:
            self._multicasts.deliver(command)

    def _finish(self, key: int) -> int:
        """Free the queue entry of a transfer; returns its command."""
        command = self._in_flight.pop(key)
        if self._banks is not None:
            self._banks.transfer_ends(command)
        self._end(command)
        if self._entry_freed is not None:
            self._entry_freed.succeed()
            self._entry_freed = None
        return command

    def _end(self, command: int) -> None:
        self._board.end_ps[command] = self._env.now_ps
        self._board.publish_end(command)
