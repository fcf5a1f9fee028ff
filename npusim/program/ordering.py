"""Which commands are known to end before others start, without searching the whole program."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npusim.program.accesses import is_dma
from npusim.program.tables import END, EdgeKind, Opcode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program.arrays import Program

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_HOPS = 3  # how far back from a SIGNAL its knowledge is collected: store, its producer, its operand


class _Knowledge(NamedTuple):
    """What commands know through the SIGNALs of one engine; SIGNALs are numbered in order."""

    latest: Ints  # by command: number of the latest SIGNAL it knows to have ended, -1 for none
    ended: NDArray[np.int32]  # by SIGNAL and compute engine: latest command known to have ended
    first: Ints  # by command: number of the first SIGNAL with an edge from it


class Ordering:
    """Answers whether one command is known to end before another starts.

    Known are: a direct edge; both commands on one in-order compute engine; and knowledge handed on
    by SIGNALs. The later command knows the latest SIGNAL that it, or an earlier command of its
    engine, awaits, directly or by a WAIT or DISPATCH. A SIGNAL knows what it awaits, up to three
    edges back, and all that earlier SIGNALs of its engine know. All else counts as unordered.

    Parameters
    ----------
    program : Program
        A program whose ranges have been checked.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._count = np.int64(len(program))
        self._consumer = np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))
        keys = self._consumer * self._count + program.edge_producer
        self._all = np.sort(keys)
        self._data = np.sort(keys[program.edge_kind == EdgeKind.DATA])
        self.is_dma = is_dma(program)

    def missing(self, before: Ints, after: Ints, *, needs_data: bool) -> Ints:
        """Positions of the pairs that nothing orders; `needs_data`: a direct edge must be DATA."""
        engine = self._program.engine
        keys = after * self._count + before
        in_order = (engine[before] == engine[after]) & ~self.is_dma[engine[before]]
        ordered = (before == after) | (in_order & (before < after))
        left = np.flatnonzero(~ordered)
        left = left[~_contains(self._data if needs_data else self._all, keys[left])]
        if not len(left):
            return left
        for knowledge in self._knowledge:
            left = left[~self._knows(knowledge, before[left], after[left])]
        return left

    @cached_property
    def _knowledge(self) -> list[_Knowledge]:
        """What the SIGNALs of each engine know."""
        engine = self._program.engine
        signals = np.flatnonzero(self._program.opcode == Opcode.SIGNAL)
        sources = [signals[engine[signals] == e] for e in np.unique(engine[signals]).tolist()]
        return [
            _Knowledge(self._latest_known(s), self._known_ended(s), self._first_awaiting(s))
            for s in sources
        ]

    def _knows(self, knowledge: _Knowledge, before: Ints, after: Ints) -> Flags:
        """Whether the latest SIGNAL known to `after` knows that `before` has ended."""
        latest = knowledge.latest[after]
        engine = self._program.engine[before]
        ended = knowledge.ended[np.maximum(latest, 0), engine] >= before
        awaited = knowledge.first[before] <= latest  # DMA commands need not end in order
        result: Flags = (latest >= 0) & np.where(self.is_dma[engine], awaited, ended)
        return result

    def _latest_known(self, signals: Ints) -> Ints:
        """Number of the latest SIGNAL each command knows to have ended, -1 for none."""
        program = self._program
        number = np.full(len(program), -1, dtype=np.int64)
        number[signals] = np.arange(len(signals))
        known = np.full(len(program), -1, dtype=np.int64)
        at_end = program.edge_offset == END
        np.maximum.at(known, self._consumer[at_end], number[program.edge_producer[at_end]])
        known = self._along_engines(known)
        relays = np.isin(program.opcode, (Opcode.WAIT, Opcode.DISPATCH))
        relayed = np.flatnonzero(relays[program.edge_producer] & at_end)
        np.maximum.at(known, self._consumer[relayed], known[program.edge_producer[relayed]])
        return self._along_engines(known)

    def _along_engines(self, values: Ints) -> Ints:
        """Running maximum over the commands of each engine: they start in order."""
        by_engine = self._by_engine
        rank = self._program.engine[by_engine].astype(np.int64) * (self._count + 2)
        result = np.empty_like(values)
        result[by_engine] = np.maximum.accumulate(values[by_engine] + rank) - rank
        return result

    @cached_property
    def _by_engine(self) -> Ints:
        return np.argsort(self._program.engine, kind="stable")

    def _known_ended(self, signals: Ints) -> NDArray[np.int32]:
        """Latest command of each compute engine known to have ended, by SIGNAL; -1 for none."""
        program = self._program
        known = np.full((len(signals), len(program.engines)), -1, dtype=np.int32)
        owner, node = np.arange(len(signals)), signals
        for _ in range(_HOPS + 1):
            np.maximum.at(known, (owner, program.engine[node]), node.astype(np.int32))
            owner, node = self._producers(owner, node)
        return np.maximum.accumulate(known, axis=0)

    def _first_awaiting(self, signals: Ints) -> Ints:
        """Number of the first SIGNAL with an edge from each command."""
        program = self._program
        number = np.full(len(program), len(signals), dtype=np.int64)
        number[signals] = np.arange(len(signals))
        first = np.full(len(program), len(signals), dtype=np.int64)
        at_end = program.edge_offset == END
        np.minimum.at(first, program.edge_producer[at_end], number[self._consumer[at_end]])
        return first

    def _producers(self, owner: Ints, node: Ints) -> tuple[Ints, Ints]:
        """What each node awaits the end of; `owner` follows."""
        program = self._program
        size = np.diff(program.edge_ptr)[node]
        row = np.repeat(np.arange(len(node)), size)
        within = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
        edge = program.edge_ptr[node][row] + within
        at_end = program.edge_offset[edge] == END
        producer = program.edge_producer[edge[at_end]].astype(np.int64)
        return owner[row[at_end]], producer


def _contains(table: Ints, keys: Ints) -> Flags:
    """Which keys are in a sorted table."""
    if not len(table):
        return np.zeros(len(keys), dtype=np.bool_)
    position = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    result: Flags = table[position] == keys
    return result


def previous_on_engine(program: Program) -> Ints:
    """Command before each one on its engine, -1 for none."""
    order = np.argsort(program.engine, kind="stable")
    previous = np.full(len(program), -1, dtype=np.int64)
    same = program.engine[order[1:]] == program.engine[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous
