"""Which commands are known to end before others start, without searching the whole program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.program.tables import END, EdgeKind, EngineKind, Opcode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program.arrays import Program

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_HOPS = 3  # how far back from a SIGNAL its knowledge is collected: store, its producer, its operand


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
        self.is_dma = np.array(
            [e.kind in (EngineKind.DMA_LOAD, EngineKind.DMA_STORE) for e in program.engines],
            dtype=np.bool_,
        )

    def missing(self, before: Ints, after: Ints, *, needs_data: bool) -> Ints:
        """Positions of the pairs that nothing orders; `needs_data`: a direct edge must be DATA."""
        engine = self._program.engine
        keys = after * self._count + before
        in_order = (engine[before] == engine[after]) & ~self.is_dma[engine[before]]
        ordered = (before == after) | (in_order & (before < after))
        left = np.flatnonzero(~ordered)
        left = left[~_contains(self._data if needs_data else self._all, keys[left])]
        signals = np.flatnonzero(self._program.opcode == Opcode.SIGNAL)
        for source in np.unique(engine[signals]).tolist():
            if not len(left):
                break
            mine = signals[engine[signals] == source]
            left = left[~self._by_signals(before[left], after[left], mine)]
        return left

    def _by_signals(self, before: Ints, after: Ints, signals: Ints) -> Flags:
        """Whether the latest of these SIGNALs (of one engine) known to `after` knows `before`."""
        latest = self._latest_known(signals)[after]
        engine = self._program.engine[before]
        ended = self._known_ended(signals)[np.maximum(latest, 0), engine]
        first = self._first_awaiting(signals)[before]  # DMA commands need not end in order
        knows = np.where(self.is_dma[engine], first <= latest, ended >= before)
        result: Flags = (latest >= 0) & knows
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
        result = np.empty_like(values)
        for index in range(len(self._program.engines)):
            mine = np.flatnonzero(self._program.engine == index)
            result[mine] = np.maximum.accumulate(values[mine])
        return result

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
