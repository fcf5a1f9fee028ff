"""One engine's view of its core's scratchpad banks, and what conflicts cost it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npusim.engine import Clock
from npusim.errors import ProtocolError
from npusim.machine.scratchpad import NO_SHAPE, Running, ScratchpadBanks
from npusim.machine.streams import Shapes
from npusim.memory.sram import Banks

if TYPE_CHECKING:
    import simpy

    from npusim.engine import CoSimEnvironment
    from npusim.program import MemorySpace, Program


class Conflict(NamedTuple):
    """A stretched command: ticks it took longer, and weights of the engines that held it up."""

    ticks: int
    blame: dict[int, int]


class BankUse:
    """The banks as one engine sees them; `conflicts` collects its stretched commands."""

    def __init__(
        self, banks: ScratchpadBanks, slot: int, engines: list[int], shape_of: list[int]
    ) -> None:
        self._banks = banks
        self._slot = slot
        self._engines = engines  # by slot
        self._shape_of = shape_of  # by command
        self.conflicts: dict[int, Conflict] = {}

    def start(self, command: int, start_tick: int, ticks: int) -> Running | None:
        """The command begins; None if it does not use the banks."""
        shape = self._shape_of[command]
        if shape == NO_SHAPE:
            return None
        return self._banks.start(self._slot, shape, start_tick, ticks)

    def stretched(self, running: Running) -> simpy.Event:
        """Event of the end of a command that conflicts have put off."""
        return self._banks.changed(running)

    def end(self, command: int, running: Running) -> None:
        """The command has ended."""
        blame = self._banks.end(running)
        extra = running.end_tick - running.start_tick - running.ticks
        if extra:
            by_engine = {self._engines[slot]: weight for slot, weight in blame.items()}
            self.conflicts[command] = Conflict(extra, by_engine)

    def transfer_begins(self, command: int) -> None:
        """A transfer has been handed to the memory."""
        self._banks.transfer_begins(self._slot, command, self._shape_of[command])

    def transfer_ends(self, command: int) -> None:
        """A transfer has completed."""
        self._banks.transfer_ends(self._slot, command)


def bank_uses(env: CoSimEnvironment, program: Program) -> dict[int, BankUse]:
    """Bank use of every engine whose commands touch a scratchpad with banks, by engine index."""
    if not any(space.banks for space in program.spaces):
        return {}
    shapes = Shapes(program)
    owner = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))
    uses: dict[int, BankUse] = {}
    for index, space in enumerate(program.spaces):
        if space.banks is None:
            continue
        users = np.unique(program.engine[owner[program.region_space == index]]).tolist()
        engines = [e for e in users if program.engines[e].path_bytes is not None]
        if not engines:
            continue
        clock = _common_clock(program, engines, uses)
        pad = ScratchpadBanks(env, clock, _geometry(space), shapes.shapes, len(engines))
        for slot, engine in enumerate(engines):
            uses[engine] = BankUse(pad, slot, engines, shapes.of_command)
    return uses


def _common_clock(program: Program, engines: list[int], taken: dict[int, BankUse]) -> Clock:
    """Clock of the engines of a scratchpad: one for all, and no engine has two scratchpads."""
    first = program.engines[engines[0]]
    for index in engines:
        engine = program.engines[index]
        if engine.period_ps != first.period_ps:
            raise ProtocolError(engine.name, f"runs on the clock of {first.name}", engine.period_ps)
        if index in taken:
            raise ProtocolError(engine.name, "uses one scratchpad with banks")
    return Clock(first.period_ps, program.ticks_per_cycle)


def _geometry(space: MemorySpace) -> Banks:
    assert space.banks is not None
    found = space.banks
    return Banks(
        found.banks, found.port_bytes, found.interleave_bytes, found.ports, found.queue_depth
    )
