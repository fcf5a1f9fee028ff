"""Bank conflicts of one core's scratchpad: stretch the commands that run together.

What an engine does to the banks at a time is a *shape*: the streams of its running command, or of
the oldest transfer a DMA engine has in flight. Whenever a shape comes or goes the slowdown of the
set is looked up, and commands under way are rescheduled if theirs changed.

Progress is kept in integers: a tick is `num` units, a picosecond `den` units long (`ps_per_tick`).
Under a slowdown of ``slow / unit``, `d` units of time do ``floor(d * unit / slow)`` of the command.
A command ends at the first tick at which all of it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from npusim.memory.sram import Conflict, Stream, conflict

if TYPE_CHECKING:
    import simpy

    from npusim.engine import Clock, CoSimEnvironment
    from npusim.machine.streams import Shape
    from npusim.memory.sram import Banks

NO_SHAPE = 0
_SHARE_UNIT = 1 << 16


class Running:
    """A command that uses the banks; `end_tick` is when it ends as things stand."""

    __slots__ = (
        *("slot", "start_tick", "ticks", "left", "since", "slow", "unit", "end_tick"),
        *("owed", "blame", "woken", "generation"),
    )

    def __init__(self, slot: int, start_tick: int, ticks: int, num: int) -> None:
        self.slot = slot
        self.start_tick = start_tick
        self.ticks = ticks
        self.left = ticks * num  # of the command, in units
        self.since = start_tick * num  # units up to which `left` is known
        self.slow = self.unit = 1
        self.end_tick = start_tick + ticks
        self.owed: tuple[tuple[int, int], ...] = ()  # whose requests hold it up now: slot, weight
        self.blame: dict[int, int] = {}  # by slot: units lost to it, scaled
        self.woken: simpy.Event | None = None
        self.generation = 0


class ScratchpadBanks:
    """The banks of one scratchpad and what runs over them.

    Parameters
    ----------
    env : CoSimEnvironment
        The environment.
    clock : Clock
        Clock of the core.
    banks : Banks
        Their geometry.
    shapes : list of Shape
        Shapes by number; number 0 is none.
    num_slots : int
        Engines of the core that use the scratchpad.
    """

    def __init__(
        self, env: CoSimEnvironment, clock: Clock, banks: Banks, shapes: list[Shape], num_slots: int
    ) -> None:
        self._env = env
        self._num, self._den = clock.ps_per_tick
        self._banks = banks
        self._shapes = shapes
        self._active = [NO_SHAPE] * num_slots
        self._running: dict[int, Running] = {}
        self._queued: list[dict[int, int]] = [{} for _ in range(num_slots)]
        self._known: dict[tuple[int, ...], tuple[Conflict, list[int]] | None] = {}
        self._is_free = True

    def start(self, slot: int, shape: int, start_tick: int, ticks: int) -> Running:
        """A command of `ticks` begins to use the banks."""
        running = Running(slot, start_tick, ticks, self._num)
        self._running[slot] = running
        self._active[slot] = shape
        self._set_changed()
        return running

    def changed(self, running: Running) -> simpy.Event:
        """Event that fires when `running` ends, however often that is put off."""
        running.woken = self._env.event()
        self._schedule(running)
        return running.woken

    def end(self, running: Running) -> dict[int, int]:
        """The command has ended; weights of the slots that held it up."""
        self._settle(running)
        del self._running[running.slot]
        self._active[running.slot] = NO_SHAPE
        self._set_changed()
        return running.blame

    def transfer_begins(self, slot: int, command: int, shape: int) -> None:
        """A DMA engine has handed a transfer to the memory."""
        self._queued[slot][command] = shape
        self._show_oldest(slot)

    def transfer_ends(self, slot: int, command: int) -> None:
        """A transfer has completed."""
        del self._queued[slot][command]
        self._show_oldest(slot)

    def _show_oldest(self, slot: int) -> None:
        shape = next(iter(self._queued[slot].values()), NO_SHAPE)
        if shape != self._active[slot]:
            self._active[slot] = shape
            self._set_changed()

    def _set_changed(self) -> None:
        """Reschedule what the new set slows down more or less than the old one did."""
        if not self._running:
            return
        key = tuple(self._active)
        if key in self._known:
            found = self._known[key]
        else:
            found = self._known[key] = self._count(key)
        if found is None:
            if self._is_free:
                return
            self._is_free = True
            for running in self._running.values():
                self._slow_down(running, 1, 1, ())
            return
        self._is_free = False
        counted, slots = found
        for owner, slot in enumerate(slots):
            if slot in self._running:
                owed = tuple(zip(slots, counted.blame[owner], strict=True))
                self._slow_down(self._running[slot], counted.slow[owner], counted.unit, owed)

    def _count(self, key: tuple[int, ...]) -> tuple[Conflict, list[int]] | None:
        """Conflict of a set and the slots of its owners; None if nobody is held up."""
        slots = [slot for slot, shape in enumerate(key) if shape != NO_SHAPE]
        streams = tuple(
            Stream(owner, *stream)
            for owner, slot in enumerate(slots)
            for stream in self._shapes[key[slot]]
        )
        found = conflict(streams, self._banks)
        return None if found.is_free else (found, slots)

    def _slow_down(
        self, running: Running, slow: int, unit: int, owed: tuple[tuple[int, int], ...]
    ) -> None:
        self._settle(running)
        running.owed = owed
        if slow * running.unit == running.slow * unit:
            return
        running.slow, running.unit = slow, unit
        if running.left <= 0:
            return
        units = running.since - (-running.left * slow // unit)
        running.end_tick = -(-units // self._num)
        if running.woken is not None:
            self._schedule(running)

    def _settle(self, running: Running) -> None:
        """Bring `left` up to now, and note whom lost time is owed to."""
        now = self._env.now_ps * self._den
        passed = now - running.since
        if passed <= 0 or running.left <= 0:
            return
        running.since = now
        done = passed * running.unit // running.slow
        running.left -= done
        total = sum(weight for _, weight in running.owed)
        for slot, weight in running.owed:
            lost = (passed - done) * weight * _SHARE_UNIT // total if total else 0
            if lost:
                running.blame[slot] = running.blame.get(slot, 0) + lost

    def _schedule(self, running: Running) -> None:
        running.generation += 1
        delay_ps = running.end_tick * self._num // self._den - self._env.now_ps
        timer = self._env.timeout(delay_ps, (running, running.generation))
        timer.callbacks.append(self._on_timer)

    def _on_timer(self, event: simpy.Event) -> None:
        running, generation = cast("tuple[Running, int]", event.value)
        if generation == running.generation and running.woken is not None:
            running.woken.succeed()
            running.woken = None
