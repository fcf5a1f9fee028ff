"""A memory system with a cache in front of a DRAM: transfers are looked up, split and joined again.

A transfer to the cache is looked up when it is submitted (`memory.cache`), in one order for all
ports. Its parts are transfers of the system behind, each on the path it takes:

- what hits is read from the banks of the SRAM over the shared path of its engine; bytes whose fill
  is still on its way are read when that fill has arrived;
- what misses is read from the DRAM over the DRAM path of the engine, sector by sector, and goes on
  to the engine as it arrives (filling the SRAM takes no bank cycles of its own);
- writes go to the SRAM, to the DRAM, or both, as the policy says; sectors that have to be fetched
  first are read beside them;
- dirty sectors that lose their place are written by the cache's own port; nobody waits for them.

It is complete when its last part is. Transfers around the cache (roles in `bypass`) take the DRAM
path; dirty sectors they would miss are written back first. What is dirty when the last transfer is
complete is written back before the run is over (`drain`), in the order of addresses. Bytes written
back, whenever that is, count for the transfer that wrote them last.

Left out: tags change at submission, not on arrival, and without cycles of their own; a limit of
misses in flight other than `outstanding` of the engines.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npusim.errors import SimulationError
from npusim.memory.cache import COUNTS, ROW_BACK, ROW_FILL, ROW_SRAM, ROW_THROUGH, CacheTags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from npusim.memory.cache import CacheConfig
    from npusim.memory.sharing import SharingMemory
    from npusim.memory.system import MemorySystem

    Runs = NDArray[np.int64]

#: what one transfer did at the cache, and bytes it had the DRAM read and write
TRAFFIC = (*COUNTS, "dram_read_bytes", "dram_write_bytes")
_BACK = COUNTS.index("write_back_bytes")


class _Transfer:
    """A transfer as its owner sees it; `parts` are transfers behind it on their way."""

    __slots__ = (
        *("counts", "done_ps", "dram_bytes", "extra_bytes", "in_dram", "left", "parts", "tid"),
    )

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.left = 0  # parts that are not complete yet, submitted or waiting
        self.done_ps = 0
        self.extra_bytes = 0  # that its parts move beyond what was asked
        self.parts: list[int] = []  # transfers behind that it waits for
        self.in_dram: list[int] = []  # transfers behind with the DRAM, write-backs included
        self.counts = [0] * len(COUNTS)
        self.dram_bytes = [0, 0]  # read, written


class _Request(NamedTuple):
    """Arguments of `submit`; those of one time are taken by port, whatever the order of calls."""

    port: int
    number: int
    now_ps: int
    memory: int
    is_write: bool
    runs: Runs
    receivers: Sequence[int]


class CachedMemory:
    """Drop-in for the memory system behind it; `cache_memory` is the index of the cache's SRAM.

    Parameters
    ----------
    behind : MemorySystem or SharingMemory
        System in which port p + 1 is the shared path of the engine whose DRAM path is port p.
    config : CacheConfig
        The cache.
    cache_memory, dram_memory : int
        SRAM of the cache, and the DRAM behind it.
    cache_port : int
        Port that writes dirty sectors back.
    """

    def __init__(
        self,
        behind: MemorySystem | SharingMemory,
        config: CacheConfig,
        *,
        cache_memory: int,
        dram_memory: int,
        cache_port: int,
    ) -> None:
        self._behind = behind
        self._tags = CacheTags(config)
        self._cache, self._dram, self._port = cache_memory, dram_memory, cache_port
        self._capacity = config.capacity_bytes
        self._transfers: list[_Transfer] = []
        self._owner: dict[int, _Transfer] = {}  # by transfer behind, on its way
        self._fill_of: dict[int, int] = {}  # by transfer behind: number of the fill it brings
        self._new: list[_Request] = []
        self._fills = 0
        self._written_ps = 0  # when the last write-back was complete
        self._writers: dict[int, _Transfer] = {}  # by number of their lookup
        self._known_fill = 0  # fills up to this number have arrived
        self._fill_ps: dict[int, int] = {}  # arrival of later fills that have been committed
        self._waiting: dict[int, list[tuple[_Transfer, int, Runs]]] = {}  # by fill: SRAM reads
        self._due: list[tuple[int, int, _Transfer, int, Runs]] = []  # SRAM reads by time, number
        self._numbers = 0
        self._unfinished = 0

    @property
    def pending(self) -> int:
        """Transfers not complete for their port."""
        return self._unfinished

    def submit(
        self,
        now_ps: int,
        port: int,
        memory: int,
        is_write: bool,
        runs: Runs,
        receivers: Sequence[int] = (),
    ) -> int:
        """Hand a transfer to a port (see `MemorySystem.submit`); to the cache: DRAM addresses."""
        if memory == self._cache and receivers:
            raise SimulationError("memory.submit", "a cache has no multicast", tuple(receivers))
        tid = len(self._transfers)
        self._transfers.append(_Transfer(tid))
        self._unfinished += 1
        runs = np.array(runs, dtype=np.int64)
        self._new.append(_Request(port, tid, int(now_ps), memory, is_write, runs, receivers))
        return tid

    def advance(self, horizon_ps: int | None) -> list[tuple[int, int]]:
        """Act on all events before the horizon and before the first completion found."""
        self._accept(horizon_ps)
        while True:
            due_ps = self._due[0][0] if self._due else None
            is_due = due_ps is not None and (horizon_ps is None or due_ps < horizon_ps)
            committed = self._behind.advance(due_ps if is_due else horizon_ps)
            if committed:
                if done := self._note(committed):
                    return sorted(done)
            elif is_due:
                self._send_due()
            else:
                return []

    def drain(self) -> int:
        """Finish everything accepted and write back all that is dirty; end of the last write."""
        self._finish()
        last_ps = max((transfer.done_ps for transfer in self._transfers), default=0)
        self._write_back(max(last_ps, self._behind.clock_ps), self._tags.flush())
        self._finish()
        return max(self._written_ps, self._behind.drain())

    def _finish(self) -> None:
        """Complete all transfers of the system behind."""
        while self._behind.pending:
            self._note(self._behind.advance(None))

    def transfer_counters(self, tid: int) -> tuple[int, int, int, int, int]:
        """DRAM accesses, row hits, misses and conflicts it caused, and the bytes it asked for."""
        transfer, counters_of = self._transfers[tid], self._behind.transfer_counters
        moved = sum(counters_of(part)[4] for part in transfer.parts)
        rows = np.array([counters_of(part)[:4] for part in transfer.in_dram], dtype=np.int64)
        accesses, hits, misses, conflicts = rows.reshape(-1, 4).sum(axis=0).tolist()
        return accesses, hits, misses, conflicts, moved - transfer.extra_bytes

    def cache_traffic(self, tid: int) -> tuple[int, ...]:
        """`TRAFFIC` of one transfer; what it wrote and the cache wrote back counts as its own."""
        transfer = self._transfers[tid]
        return (*transfer.counts, *transfer.dram_bytes)

    def dirty_bytes(self) -> int:
        """Bytes that the DRAM does not have yet; none after `drain`."""
        return self._tags.dirty_bytes()

    def attribution(self, now_ps: int, memory: int) -> Runs:
        """As of the system behind."""
        return self._behind.attribution(now_ps, memory)

    def own_data_ps(self, port: int) -> int:
        """As of the system behind."""
        return self._behind.own_data_ps(port)

    def memory_counters(self, memory: int) -> dict[str, int]:
        """As of the system behind."""
        return self._behind.memory_counters(memory)

    def _accept(self, horizon_ps: int | None) -> None:
        """Take the requests made since the last call, before time goes on."""
        if not self._new or (horizon_ps is not None and horizon_ps <= self._new[0].now_ps):
            return
        new, self._new = self._new, []
        for request in sorted(new, key=lambda r: (r.now_ps, r.port, r.number)):
            transfer = self._transfers[request.number]
            port, _, now_ps, memory, is_write, runs, receivers = request
            before = self._tags.counts()
            if memory == self._cache:
                self._split(transfer, now_ps, port, is_write, runs)
            else:
                if memory == self._dram:
                    rows = self._tags.pass_by(runs, is_write=is_write)
                    self._write_back(now_ps, rows)
                self._send(transfer, now_ps, port, memory, is_write, runs, receivers)
            after = self._tags.counts()
            own = [b - a for a, b in zip(before, after, strict=True)]
            own[_BACK] = 0  # of the writers
            transfer.counts = [sum(pair) for pair in zip(transfer.counts, own, strict=True)]

    def _split(
        self, transfer: _Transfer, now_ps: int, port: int, is_write: bool, runs: Runs
    ) -> None:
        """Look a transfer up and send its parts."""
        self._forget_fills(now_ps)
        self._fills += 1
        rows = self._tags.lookup(
            runs, is_write=is_write, fill=self._fills, known_fill=self._known_fill
        )
        if is_write:
            self._writers[self._fills] = transfer
        kind, moved = rows[:, 0], rows[:, 1:3]
        self._write_back(now_ps, rows[kind == ROW_BACK])
        fills = moved[kind == ROW_FILL]
        if len(fills):
            tid = self._send(transfer, now_ps, port, self._dram, False, _runs(fills))
            self._fill_of[tid] = self._fills
        else:
            self._fill_ps[self._fills] = now_ps
        through = moved[kind == ROW_THROUGH]
        if len(through):
            self._send(transfer, now_ps, port, self._dram, True, _runs(through))
        sram = rows[kind == ROW_SRAM]
        asked = int((runs[:, 1] * runs[:, 3]).sum())
        transfer.extra_bytes = int(rows[kind != ROW_BACK, 2].sum()) - asked
        self._use_sram(transfer, now_ps, port + 1, is_write, sram)

    def _use_sram(
        self, transfer: _Transfer, now_ps: int, port: int, is_write: bool, rows: Runs
    ) -> None:
        """SRAM reads and writes: now, or when the fill they await has arrived."""
        known = self._fill_ps
        awaited = np.array(
            [0 if known.get(fill, now_ps + 1) <= now_ps else fill for fill in rows[:, 3].tolist()],
            dtype=np.int64,
        )
        for fill in np.unique(awaited).tolist():
            runs = self._folded(rows[awaited == fill][:, 1:3])
            if not fill:
                self._send(transfer, now_ps, port, self._cache, is_write, runs)
                continue
            transfer.left += 1
            if fill in known:
                self._plan(known[fill], transfer, port, runs)
            else:
                self._waiting.setdefault(fill, []).append((transfer, port, runs))

    def _forget_fills(self, now_ps: int) -> None:
        """Fills that have arrived in order need not be remembered one by one."""
        known, at = self._fill_ps, self._known_fill + 1
        while at in known and known[at] <= now_ps:
            del known[at]
            self._known_fill, at = at, at + 1

    def _plan(self, at_ps: int, transfer: _Transfer, port: int, runs: Runs) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (at_ps, self._numbers, transfer, port, runs))

    def _send_due(self) -> None:
        """Hand over the SRAM reads whose fill arrives next."""
        until_ps = self._due[0][0]
        while self._due and self._due[0][0] == until_ps:
            _, _, transfer, port, runs = heapq.heappop(self._due)
            transfer.left -= 1
            self._send(transfer, until_ps, port, self._cache, False, runs)

    def _send(
        self,
        transfer: _Transfer,
        now_ps: int,
        port: int,
        memory: int,
        is_write: bool,
        runs: Runs,
        receivers: Sequence[int] = (),
    ) -> int:
        """One part of a transfer that it waits for."""
        if receivers:
            tid = self._behind.submit(now_ps, port, memory, is_write, runs, receivers)
        else:
            tid = self._behind.submit(now_ps, port, memory, is_write, runs)
        self._owner[tid] = transfer
        transfer.left += 1
        transfer.parts.append(tid)
        if memory == self._dram:
            self._charge(transfer, tid, is_write, runs)
        return tid

    def _write_back(self, now_ps: int, rows: Runs) -> None:
        """Write dirty sectors to the DRAM, those of one writer in a row as one transfer."""
        borders = np.flatnonzero(np.diff(rows[:, 3])) + 1
        for part in np.split(rows, borders) if len(rows) else ():
            writer, runs = self._writers[int(part[0, 3])], _runs(part[:, 1:3])
            tid = self._behind.submit(now_ps, self._port, self._dram, True, runs)
            self._charge(writer, tid, True, runs)
            writer.counts[_BACK] += int(part[:, 2].sum())

    def _charge(self, transfer: _Transfer, tid: int, is_write: bool, runs: Runs) -> None:
        transfer.in_dram.append(tid)
        transfer.dram_bytes[is_write] += int((runs[:, 1] * runs[:, 3]).sum())

    def _note(self, committed: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Parts have completed; returns the transfers that have with them."""
        done = []
        for at_ps, tid in committed:
            if tid in self._fill_of:
                fill = self._fill_of.pop(tid)
                self._fill_ps[fill] = at_ps
                for waiter, port, runs in self._waiting.pop(fill, ()):
                    self._plan(at_ps, waiter, port, runs)
            transfer = self._owner.pop(tid, None)
            if transfer is None:
                self._written_ps = max(self._written_ps, at_ps)  # a write-back
                continue
            transfer.left -= 1
            transfer.done_ps = max(transfer.done_ps, at_ps)
            if not transfer.left:
                self._unfinished -= 1
                done.append((transfer.done_ps, transfer.tid))
        return done

    def _folded(self, moved: Runs) -> Runs:
        """Bytes as they lie in the SRAM: address modulo capacity, cut where that wraps."""
        parts = []
        for addr, size in moved.tolist():
            at = addr % self._capacity
            first = min(size, self._capacity - at)
            parts.append((at, first))
            if size > first:
                parts.append((0, size - first))
        return _runs(np.array(parts, dtype=np.int64))


def _runs(moved: Runs) -> Runs:
    """Runs of one piece each from addresses and sizes."""
    runs = np.ones((len(moved), 4), dtype=np.int64)
    runs[:, :2] = moved
    runs[:, 2] = 0
    return runs
