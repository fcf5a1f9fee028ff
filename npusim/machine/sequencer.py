"""In-order engines that execute durations: matrix, vector, convert, barrier, host, dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy

    from npusim.engine import Clock, CoSimEnvironment
    from npusim.machine.bank_use import BankUse
    from npusim.machine.signals import SignalBoard
    from npusim.machine.snapshots import MemorySnapshots


class Sequencer:
    """Executes its commands in order, each after the signals it awaits.

    Time is kept in ticks of the engine's clock. A command that need not wait starts at the exact
    end of its predecessor; one that was woken starts at the next whole-cycle edge.

    Parameters
    ----------
    env : CoSimEnvironment
        The environment.
    name : str
        Engine name, for reports.
    clock : Clock
        The engine's clock.
    commands : list of int
        The engine's commands in program order.
    duration_ticks : list of int
        Their durations.
    board : SignalBoard
        Signals and times of all commands.
    snapshots : MemorySnapshots
        Told when the engine blocks and wakes.
    banks : BankUse, optional
        The scratchpad banks its commands use; None: it meets no conflicts.
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
        banks: BankUse | None = None,
    ) -> None:
        self._env = env
        self._name = name
        self._clock = clock
        self._commands = commands
        self._duration_ticks = duration_ticks
        self._board = board
        self._snapshots = snapshots
        self._banks = banks
        self._head: int | None = commands[0] if commands else None

    def run(self) -> simpy.Event:
        """Start executing; the event fires when the last command has ended."""
        return self._env.process(self._execute())

    def waiting_for(self) -> str | None:
        """The head command and what it awaits; None when all have ended."""
        if self._head is None:
            return None
        return f"{self._name}: #{self._head} awaits {self._board.awaited(self._head)}"

    def _execute(self) -> Generator[simpy.Event, object, None]:
        env, board, clock = self._env, self._board, self._clock
        unresolved, starts, ends, frees = (
            board.unresolved,
            board.start_ps,
            board.end_ps,
            board.free_ps,
        )
        offsets, publish_end = board.offsets, board.publish_end
        num, den = clock.ps_per_tick
        banks = self._banks
        tick = end_ps = 0
        for command, duration in zip(self._commands, self._duration_ticks, strict=True):
            self._head = command
            if unresolved[command]:
                yield self._blocked(command)
                self._snapshots.wake(command)
                if env.now_ps > end_ps:
                    tick = clock.next_edge_tick(env.now_ps)
            starts[command] = tick * num // den
            if command in offsets:
                board.publish_offsets(command, tick, clock)
            running = banks.start(command, tick, duration) if banks is not None else None
            tick += duration
            end_ps = tick * num // den
            delay_ps = end_ps - env.now_ps
            if delay_ps:
                yield env.timeout(delay_ps)
            if running is not None and banks is not None:
                if running.end_tick > tick:
                    yield banks.stretched(running)
                    tick = running.end_tick
                    end_ps = tick * num // den
                banks.end(command, running)
            ends[command] = frees[command] = end_ps
            publish_end(command)
        self._head = None

    def _blocked(self, command: int) -> simpy.Event:
        self._snapshots.block(command)
        return self._board.blocked(command)
