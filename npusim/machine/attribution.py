"""Turns waits into stall causes; every picosecond of an engine gets exactly one."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from npusim.engine import StallCause
from npusim.engine.spans import union_ps
from npusim.machine.conflicts import conflict_ps
from npusim.machine.execution import EngineUse, StallTable
from npusim.machine.remainder import largest_remainder
from npusim.machine.snapshots import MEMORY_CAUSES
from npusim.machine.waits import NO_EDGE, commands_by_engine, require_reason
from npusim.program import END, EdgeKind, EngineKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import RunTimes
    from npusim.machine.waits import Waits
    from npusim.program import Program

CAUSES = tuple(StallCause)
_CODE = {cause: code for code, cause in enumerate(CAUSES)}
_MEMORY_CODES = tuple(_CODE[cause] for cause in MEMORY_CAUSES)
_NO_WEIGHTS = (0,) * len(MEMORY_CAUSES)
_NONE = -2
_NOT_INHERITED = (_CODE[StallCause.BARRIER], _CODE[StallCause.ORDER])
_SRAM = _CODE[StallCause.SRAM]
_ISSUE = _CODE[StallCause.DMA_ISSUE]
_CONFLICT = _CODE[StallCause.SRAM_CONFLICT]
_MEMORY = -1  # base cause of a wait on DRAM: split by what the memory did
_BY_KIND = {
    EdgeKind.BUFFER_FREE: StallCause.BUFFER_FREE,
    EdgeKind.BARRIER: StallCause.BARRIER,
    EdgeKind.LAUNCH: StallCause.LAUNCH,
    EdgeKind.ORDER: StallCause.ORDER,
}
_ROW = 6  # columns of a row: start, end, cause, command, producer, edge kind


class Attribution:
    """Attributes the waits of one run.

    The whole wait belongs to the awaited edge that resolves last (for a DMA engine: or to the queue
    entry, if that became free later still). Except at barriers and for orders, the part before its
    producer started takes the dominant cause of the producer's own wait, if it had one; while a DMA
    engine issues the awaited transfer the cause is that; the rest goes by edge kind and producer,
    and a wait on a DRAM transfer is distributed over what the memory's channels did meanwhile.

    Parameters
    ----------
    program : Program
        The program that ran.
    times : RunTimes
        Its times.
    waits : Waits
        Its waits.
    hits : ndarray of bool, shape (transfers,), optional
        DRAM transfers that a cache served alone.
    """

    def __init__(
        self,
        program: Program,
        times: RunTimes,
        waits: Waits,
        hits: NDArray[np.bool_] | None = None,
    ) -> None:
        self._program = program
        self._split = times.memory_split
        self._end_ps = times.end_ps
        self._lost_ps = conflict_ps(program, times)
        command = np.flatnonzero(times.start_ps > waits.ready_ps)
        command = command[np.argsort(times.start_ps[command], kind="stable")]
        edge, ready_ps = waits.edge[command], waits.ready_ps[command]
        last_ps = np.where(edge == NO_EDGE, ready_ps, _take(times.signal_ps, edge))
        is_full = waits.entry_ps[command] > last_ps
        unexplained = command[(edge == NO_EDGE) & ~is_full]
        if len(unexplained):
            raise require_reason(program, int(unexplained[0]))
        self._command = command
        self._ready_ps, self._visible_ps = ready_ps, waits.visible_ps[command]
        self._start_ps = times.start_ps[command]
        self._kind = np.where(is_full, -1, _take(program.edge_kind, edge))
        self._base = np.where(
            is_full, _CODE[StallCause.BUFFER_FULL], _take(_base_causes(program, hits), edge)
        )
        self._producer = np.where(
            is_full, waits.freed_by[command], _take(program.edge_producer, edge)
        )
        begun_ps = np.clip(times.start_ps[self._producer], ready_ps, self._start_ps)
        self._begun_ps = np.where(is_full, ready_ps, begun_ps)
        issued_ps = np.clip(times.free_ps[self._producer], self._begun_ps, self._start_ps)
        awaits_memory = np.isin(self._base, (_MEMORY, _SRAM))
        self._issued_ps = np.where(awaits_memory, issued_ps, self._begun_ps)
        self._dominant: list[int] = []  # by command: cause code of most of its wait, or _NONE
        self._rows: list[tuple[int, ...]] = []

    def stalls(self) -> StallTable:
        """All rows, sorted by engine and start."""
        plain = (self._issued_ps == self._ready_ps) & (self._base != _MEMORY)
        dominant = np.full(len(self._program), _NONE)
        dominant[self._command[plain]] = self._base[plain]
        self._dominant = dominant.tolist()
        columns = (
            self._command,
            self._base,
            self._kind,
            self._producer,
            self._ready_ps,
            self._visible_ps,
            self._begun_ps,
            self._issued_ps,
            self._start_ps,
        )
        for values in zip(*(column[~plain].tolist() for column in columns), strict=True):
            self._attribute(*values)
        return self._table(plain & (self._visible_ps < self._start_ps))

    def _attribute(
        self,
        command: int,
        base: int,
        kind: int,
        producer: int,
        ready_ps: int,
        visible_ps: int,
        begun_ps: int,
        issued_ps: int,
        start_ps: int,
    ) -> None:
        """Rows of a wait that began before its producer or its issue, or that memory caused."""
        early = self._early_cause(producer, base)
        pieces = [(ready_ps, begun_ps, early), (begun_ps, issued_ps, _ISSUE)]
        late, late_ps = base, start_ps - issued_ps
        if base != _MEMORY:
            pieces.append((issued_ps, start_ps, base))
        else:
            weights = self._split.get(command, ())
            shares = largest_remainder(late_ps, weights or _NO_WEIGHTS)
            late_ps = max(shares)
            late = _MEMORY_CODES[shares.index(late_ps)]
            at_ps = max(visible_ps, issued_ps)
            if at_ps > issued_ps:
                shares = largest_remainder(max(start_ps - at_ps, 0), weights or _NO_WEIGHTS)
            for code, part_ps in zip(_MEMORY_CODES, shares, strict=True):
                pieces.append((at_ps, at_ps + part_ps, code))
                at_ps += part_ps
        for from_ps, to_ps, code in pieces:
            if max(from_ps, visible_ps) < to_ps:
                row = (max(from_ps, visible_ps), to_ps, code, command, producer, kind)
                self._rows.append(row)
        causes = ((late_ps, late), (issued_ps - begun_ps, _ISSUE), (begun_ps - ready_ps, early))
        self._dominant[command] = max(causes, key=itemgetter(0))[1]  # the first of equal ones

    def _early_cause(self, producer: int, base: int) -> int:
        """Cause of the time before the producer started.

        Whoever waits at a barrier or for an order waits for all that comes before it, whatever that
        is; only data, buffers and launches inherit the cause that held up their producer.
        """
        if base in _NOT_INHERITED:
            return base
        code = self._dominant[producer]
        if code != _NONE:
            return code
        return _CODE[StallCause.DEPENDENCY] if base in (_MEMORY, _SRAM) else base

    def _table(self, plain: NDArray[np.bool_]) -> StallTable:
        columns = (
            self._visible_ps,
            self._start_ps,
            self._base,
            self._command,
            self._producer,
            self._kind,
        )
        whole = np.stack([column[plain] for column in columns], axis=1)
        pieces = np.array(self._rows, dtype=np.int64).reshape(-1, _ROW)
        rows = np.concatenate((whole, pieces, self._conflicts()))
        engine = self._program.engine[rows[:, 3]]
        order = np.lexsort((rows[:, 0], engine))
        rows = rows[order]
        return StallTable(
            engine=engine[order],
            start_ps=rows[:, 0],
            end_ps=rows[:, 1],
            cause=rows[:, 2].astype(np.int8),
            command=rows[:, 3].astype(np.int32),
            producer=rows[:, 4].astype(np.int32),
            edge_kind=rows[:, 5].astype(np.int8),
        )

    def _conflicts(self) -> NDArray[np.int64]:
        """The last part of every command that conflicts made longer, as far as they did."""
        command = np.flatnonzero(self._lost_ps)
        end_ps = self._end_ps[command]
        same = np.ones_like(command)
        columns = (end_ps - self._lost_ps[command], end_ps, _CONFLICT * same, command, command)
        return np.stack((*columns, -same), axis=1)


def engine_use(
    program: Program, times: RunTimes, stalls: StallTable, elapsed_ps: int
) -> tuple[EngineUse, ...]:
    """Busy, stall and idle time of each engine; time lost to bank conflicts is no busy time."""
    by_cause = np.zeros((len(program.engines), len(CAUSES)), dtype=np.int64)
    np.add.at(by_cause, (stalls.engine, stalls.cause), stalls.end_ps - stalls.start_ps)
    uses = []
    for index, commands in enumerate(commands_by_engine(program)):
        last_ps = int(times.end_ps[commands].max(initial=0))
        uses.append(
            EngineUse(
                busy_ps=union_ps(times.start_ps[commands], times.end_ps[commands])
                - int(by_cause[index, _CONFLICT]),
                idle_ps=elapsed_ps - last_ps,
                stalls_ps={
                    cause: int(ps) for cause, ps in zip(CAUSES, by_cause[index], strict=True) if ps
                },
                commands=len(commands),
            )
        )
    return tuple(uses)


def _base_causes(program: Program, hits: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Cause code of each edge once its producer has started; _MEMORY for DRAM transfers."""
    base = np.full(len(program.edge_kind), _CODE[StallCause.DEPENDENCY], dtype=np.int64)
    is_convert = np.array([e.kind is EngineKind.CONVERT for e in program.engines], dtype=np.bool_)
    base[is_convert[program.engine[program.edge_producer]]] = _CODE[StallCause.CONVERT]
    transfer = program.transfer[program.edge_producer]
    at_end = (transfer >= 0) & (program.edge_offset == END)
    is_dram = np.array([space.kind == "dram" for space in program.spaces], dtype=np.bool_)
    from_dram = is_dram[program.transfers.space[transfer[at_end]]]
    if hits is not None:
        from_dram &= ~hits[transfer[at_end]]
    base[at_end] = np.where(from_dram, _MEMORY, _CODE[StallCause.SRAM])
    for kind, cause in _BY_KIND.items():
        base[program.edge_kind == kind] = _CODE[cause]
    return base


def _take(values: NDArray[np.generic], edge: NDArray[np.int64]) -> NDArray[np.int64]:
    """Values of edges; 0 where the edge is NO_EDGE."""
    result = np.zeros(len(edge), dtype=np.int64)
    result[edge != NO_EDGE] = values[edge[edge != NO_EDGE]]
    return result
