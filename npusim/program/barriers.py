"""Barrier registers: named bits that engines set and wait for, and what is refused about them.

A SIGNAL sets a register bit in a generation, a WAIT passes when its generation has been set. What a
bit is decides which programs are sound:

edge
    every SIGNAL is a rising edge, kept until its WAITs have passed. A second SIGNAL on a bit that
    is still up is no edge: the barrier is lost.
level
    the bit stays up. Its one generation may be awaited by anyone at any time; in a second one a
    WAIT would pass at once on the first.

A command with a BARRIER edge of its own and no WAIT does not read a bit: its generation is counted
for it, and bits may be set again meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProtocolError
from npusim.program.commands import BITS_PER_REGISTER, barrier_id
from npusim.program.labels import name_of
from npusim.program.ordering import previous_on_engine
from npusim.program.tables import END, EdgeKind, Opcode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from npusim.program.arrays import Program

    Ints = NDArray[np.int64]


class Trigger(StrEnum):
    """What a WAIT sees of a bit."""

    EDGE = "edge"
    LEVEL = "level"


@dataclass(frozen=True, slots=True)
class BarrierBit:
    """A named bit of a barrier register."""

    register: int
    bit: int
    name: str
    trigger: Trigger = Trigger.EDGE

    @property
    def key(self) -> int:
        """Packed (register, bit), as commands carry it."""
        return barrier_id(self.register, self.bit)


def check_declared(barriers: Sequence[BarrierBit]) -> None:
    """Refuse bits that do not exist, and two names for a bit or two bits of a name.

    Raises
    ------
    ProtocolError
        Naming the barrier.
    """
    for index, barrier in enumerate(barriers):
        if barrier.register < 0 or not 0 <= barrier.bit < BITS_PER_REGISTER:
            rule = f"registers count from 0 and have bits 0 to {BITS_PER_REGISTER - 1}"
            raise ProtocolError(barrier.name, rule, (barrier.register, barrier.bit))
        for other in barriers[:index]:
            if barrier.key == other.key:
                raise ProtocolError(barrier.name, "a register bit has one name", other.name)
            if barrier.name == other.name:
                raise ProtocolError(barrier.name, "a name means one register bit")


def check_barriers(program: Program) -> None:
    """Refuse WAITs without their SIGNAL, bits set twice at once and SIGNALs that nobody sees.

    Raises
    ------
    ProtocolError
        Naming engine, command, barrier and generation.
    """
    check_declared(program.barriers)
    signals = np.flatnonzero(program.opcode == Opcode.SIGNAL)
    waits = np.flatnonzero(program.opcode == Opcode.WAIT)
    if not len(signals) and not len(waits):
        return
    nameless = np.concatenate((signals, waits))
    nameless = nameless[program.barrier[nameless] < 0]
    if len(nameless):
        command = int(nameless.min())
        raise ProtocolError(
            name_of(program, command),
            "a SIGNAL or WAIT names a register bit",
            int(program.barrier[command]),
        )
    key = (program.barrier.astype(np.int64) << 32) + program.generation
    by_key = signals[np.argsort(key[signals], kind="stable")]
    again = by_key[1:][key[by_key][1:] == key[by_key][:-1]]
    _refuse(program, again, "one SIGNAL sets a register bit in a generation")
    unmatched = waits[~np.isin(key[waits], key[signals])]
    _refuse(program, unmatched, "a WAIT has a SIGNAL of its register bit and generation")
    _check_edges(program, key, waits)
    _check_unseen(program, key, signals)
    _check_levels(program, signals)


def check_lost(program: Program) -> None:
    """Refuse a SIGNAL that may come before a WAIT of its bit's generation before has passed.

    Raises
    ------
    ProtocolError
        Naming the SIGNAL and the WAIT that nothing orders before it.
    """
    waits = np.flatnonzero(program.opcode == Opcode.WAIT)
    if not len(waits):
        return  # nobody reads a bit
    passed = _passed(program)
    generations: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for wait in waits.tolist():
        generations[int(program.barrier[wait])][int(program.generation[wait])].append(wait)
    for signal in np.flatnonzero(program.opcode == Opcode.SIGNAL).tolist():
        own = int(program.generation[signal])
        for generation, commands in generations[int(program.barrier[signal])].items():
            for wait in commands:
                if generation < own and passed[signal, program.engine[wait]] < wait:
                    raise ProtocolError(
                        name_of(program, signal),
                        "a bit is set again only after every WAIT of the generation before;"
                        " otherwise the barrier is lost",
                        bit_of(program, signal),
                        f"nothing orders {name_of(program, wait)} of generation {generation}"
                        " before it",
                    )


def bit_of(program: Program, command: int) -> str:
    """Name and generation of the bit that a SIGNAL sets or a WAIT awaits."""
    barrier = int(program.barrier[command])
    name = program.barrier_names.get(barrier, f"barrier {barrier}")
    return f"{name} generation {int(program.generation[command])}"


def _refuse(program: Program, bad: Ints, rule: str) -> None:
    """Raise for the first of some SIGNALs or WAITs."""
    if len(bad):
        command = int(bad[0])
        raise ProtocolError(name_of(program, command), rule, bit_of(program, command))


def _consumers(program: Program) -> Ints:
    return np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))


def _check_edges(program: Program, key: Ints, waits: Ints) -> None:
    """Each WAIT has exactly one BARRIER edge, from the SIGNAL of its generation."""
    consumer = _consumers(program)
    is_barrier = program.edge_kind == EdgeKind.BARRIER
    into_wait = is_barrier & (program.opcode[consumer] == Opcode.WAIT)
    counts = np.bincount(consumer[into_wait], minlength=len(program))
    producer = program.edge_producer
    same = (key[producer] == key[consumer]) & (program.opcode[producer] == Opcode.SIGNAL)
    counts[consumer[into_wait & ~same]] = -1
    bad = waits[counts[waits] != 1]
    _refuse(program, bad, "a WAIT resolves to the one SIGNAL of its generation")


def _check_unseen(program: Program, key: Ints, signals: Ints) -> None:
    """Only the last generation of a register bit may go unseen."""
    seen = np.zeros(len(program), dtype=np.bool_)
    seen[program.edge_producer] = True
    last: dict[int, int] = {}
    for command in signals[np.argsort(key[signals])].tolist():
        last[int(program.barrier[command])] = command
    unseen = [c for c in signals[~seen[signals]].tolist() if last[int(program.barrier[c])] != c]
    rule = "nobody waits for this SIGNAL before its register bit is set again"
    _refuse(program, np.array(unseen, dtype=np.int64), rule)


def _check_levels(program: Program, signals: Ints) -> None:
    """A level bit is set once."""
    levels = [b.key for b in program.barriers if b.trigger is Trigger.LEVEL]
    of_level = signals[np.isin(program.barrier[signals], levels)]
    order = np.lexsort((program.generation[of_level], program.barrier[of_level]))
    of_level = of_level[order]
    again = of_level[1:][program.barrier[of_level][1:] == program.barrier[of_level][:-1]]
    rule = "a level stays up, so a WAIT of a second generation would pass on the first"
    _refuse(program, again, rule)


def _passed(program: Program) -> Ints:
    """By command and engine: up to which command all WAITs of the engine have passed at its start.

    An engine comes to a command when the WAITs before it have passed; a command that has ended
    tells its consumers so, one that has started (a signal at an offset) what it knew itself.
    """
    previous = previous_on_engine(program)
    known = np.full((len(program), len(program.engines)), -1, dtype=np.int64)
    for command in _in_order(program, previous):
        row, before = known[command], int(previous[command])
        if before >= 0:
            np.maximum(row, known[before], out=row)
            row[program.engine[command]] = before
        edges = program.edges_of(command)
        producers = program.edge_producer[edges].tolist()
        for producer, offset in zip(producers, program.edge_offset[edges].tolist(), strict=True):
            np.maximum(row, known[producer], out=row)
            if offset == END:
                engine = program.engine[producer]
                row[engine] = max(int(row[engine]), producer)
    return known


def _in_order(program: Program, previous: Ints) -> Iterable[int]:
    """Commands, each after all it awaits; program order where every edge points back."""
    if bool((program.edge_producer < _consumers(program)).all()):
        return range(len(program))
    graph: dict[int, set[int]] = {}
    for command in range(len(program)):
        graph[command] = set(program.edge_producer[program.edges_of(command)].tolist())
        if previous[command] >= 0:
            graph[command].add(int(previous[command]))
    return TopologicalSorter(graph).static_order()
