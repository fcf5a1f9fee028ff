"""`MemorySystem`: buses, DRAM and SRAM advanced lazily between SimPy events (fidelity `burst`)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Never

import numpy as np

from npusim.errors import SimulationError
from npusim.memory import kernel, query
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.checks import check_links, check_receivers, checked_runs, unloaded_read_ps
from npusim.memory.conservation import check_conservation
from npusim.memory.jumps.words import M_FREE, M_SIZE, M_TAKEN, MEMO_WORDS
from npusim.memory.layout import ATTRIBUTION_CATEGORIES
from npusim.memory.pack import build
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "ATTRIBUTION_CATEGORIES",
    "BusConfig",
    "DramConfig",
    "MemorySystem",
    "PortConfig",
    "SramConfig",
]

FIRST_ROWS = 64


class MemorySystem:
    """All buses and memories in one global time order.

    Between two SimPy steps the owner calls `advance(next event)`, schedules the completions it
    returns and goes on. A completion returned is taken as delivered at the next call.

    Parameters
    ----------
    ports, buses, memories
        Their positions are the numbers used everywhere else. Events at the same picosecond are
        ordered by kind and number, never by the order of calls.
    jumps : bool
        Repeat what was stepped before from an equal state in one go (`jumps`). Changes no result.

    Raises
    ------
    ConfigError
        If a port names a bus that does not exist, or there is no port, bus or memory.

    Notes
    -----
    Not modelled: TLB, caches, ECC, power-down. See docs/modelling/memory.md.
    """

    def __init__(
        self,
        ports: Sequence[PortConfig],
        buses: Sequence[BusConfig],
        memories: Sequence[DramConfig | SramConfig],
        *,
        jumps: bool = True,
    ) -> None:
        check_links(ports, buses, memories)
        self.ports, self.buses, self.memories = tuple(ports), tuple(buses), tuple(memories)
        self._state, self._mem_bases = build(ports, buses, memories, jumps)
        self._memo = np.zeros(MEMO_WORDS if jumps else 1, dtype=np.int64)  # touched as it fills
        self._memo[M_SIZE] = len(self._memo)
        self._transfers = np.zeros((FIRST_ROWS, L.TRANSFER_WORDS), dtype=np.int64)
        self._runs = np.zeros((0, L.RUN_WORDS), dtype=np.int64)
        self._out = np.zeros((FIRST_ROWS, 2), dtype=np.int64)
        self._log = np.zeros((0, 5), dtype=np.int64)
        self._new_runs = np.zeros((FIRST_ROWS, 4), dtype=np.int64)  # hands runs to the kernel
        self._new_runs_address = self._new_runs.ctypes.data
        self._split = np.zeros(L.NUM_CATEGORIES, dtype=np.int64)
        self._split_address = self._split.ctypes.data
        self._own_ps_word = int(self._state[L.H_PORTS]) + L.PT_OWN_PS
        self._num_transfers = 0
        self._forgotten: dict[int, None] = {}  # in order; not yet over
        self._free_rows: list[int] = []
        self._retired = np.zeros((2 * len(self.memories), L.TRANSFER_WORDS), dtype=np.int64)
        self._grow_runs(FIRST_ROWS)

    def submit(
        self,
        now_ps: int,
        port: int,
        memory: int,
        is_write: bool,
        runs: NDArray[np.int64],
        receivers: Sequence[int] = (),
    ) -> int:
        """Hand a transfer to a port; returns its id.

        Parameters
        ----------
        now_ps : int
            At or after every time the kernel has acted at.
        runs : ndarray of int64, shape (n_runs, 4)
            Columns base, bytes, stride, count: `count` rows of `bytes` at `base + i * stride`.
        receivers : sequence of int, optional
            Other ports of the same bus to which a read is delivered as well (multicast).

        Raises
        ------
        SimulationError
            If `now_ps` lies in the kernel's past, a number is out of range, a run is empty or
            leaves the memory.
        """
        runs = np.asarray(runs, dtype=np.int64)
        count = len(runs) if runs.ndim else 0
        if not (
            runs.shape == (count, 4)
            and count
            and 0 <= port < len(self.ports)
            and 0 <= memory < len(self.memories)
        ):
            self._refuse(now_ps, port, memory, runs)
        if receivers:
            check_receivers(self.ports, port, is_write, receivers)
        tid = self._free_row()
        self._make_room(tid, count)
        self._new_runs[:count] = runs
        while missing := self._enter(tid, int(now_ps), port, memory, is_write, count):
            if missing == kernel.REFUSED:
                self._refuse(now_ps, port, memory, runs)
            self._grow_runs(max(missing, len(self._runs)))
        if receivers:
            row = self._transfers[tid]
            row[L.TR_MULTICAST] = 1
            for receiver in receivers:
                word, bit = divmod(receiver, L.RECEIVER_BITS)
                row[L.TR_RECEIVERS + word] |= 1 << bit
        if tid == self._num_transfers:
            self._num_transfers += 1
        else:
            self._free_rows.pop()
        return tid

    def forget(self, tid: int) -> None:
        """Nobody will ask about transfer `tid` again: its id may be given to another one.

        That happens once it is complete and, if it was a posted write, all of it is written.
        Without this every transfer keeps a row of results of `8 * TRANSFER_WORDS` bytes.

        Raises
        ------
        SimulationError
            If there is no such transfer or it is forgotten already.
        """
        if not 0 <= tid < self._num_transfers or tid in self._forgotten or tid in self._free_rows:
            raise SimulationError("memory.forget", "the transfer is known", tid)
        self._forgotten[tid] = None

    def advance(self, horizon_ps: int | None) -> list[tuple[int, int]]:
        """Act on all events before `horizon_ps` and before the first completion found.

        Returns
        -------
        list of (completion_ps, transfer id)
            Newly committed, sorted. With None: run until a completion is committed or nothing is
            left to do.
        """
        horizon = L.NEVER if horizon_ps is None else int(horizon_ps)
        count = kernel.advance(*self._tables, horizon)
        if count == 0:
            return []
        done = self._out[:count].tolist()
        return sorted((at, tid) for at, tid in done)

    @property
    def pending(self) -> int:
        """Transfers not complete for their port."""
        return self._state.item(L.H_UNFINISHED)

    @property
    def queued_writes(self) -> int:
        """Posted writes accepted by a DRAM controller but not written yet."""
        return int(self._state[L.H_QUEUED_WRITES])

    @property
    def clock_ps(self) -> int:
        """Time of the last event the kernel acted on."""
        return int(self._state[L.H_CLOCK])

    @property
    def drained_ps(self) -> int:
        """End of the last write command so far; final once `pending` and `queued_writes` are 0."""
        return int(self._state[L.H_LAST_WRITE])

    def drain(self) -> int:
        """Write every posted write; returns the time the last one was written (0 without any).

        Raises
        ------
        SimulationError
            If a transfer is unfinished: finish it first, its completion would be lost. Or if bytes,
            bursts, row states, refreshes or credits do not balance: a bug of the kernel.
        """
        if self.pending:
            raise SimulationError("memory", "drain needs all transfers finished", self.pending)
        self.advance(None)
        transfers = np.concatenate([self._transfers[: self._num_transfers], self._retired])
        check_conservation(self._state, transfers, self.memories, self._mem_bases)
        return self.drained_ps

    def transfer_counters(self, tid: int) -> tuple[int, int, int, int, int]:
        """(accesses, row hits, misses, conflicts, bytes) of one transfer so far."""
        row = self._transfers[tid]
        return (
            int(row[L.TR_ACCESSES]), int(row[L.TR_HITS]), int(row[L.TR_MISSES]),
            int(row[L.TR_CONFLICTS]), int(row[L.TR_BYTES]),
        )  # fmt: skip

    def completion_ps(self, tid: int) -> int | None:
        """When the transfer completed, or None."""
        at = int(self._transfers[tid, L.TR_DONE])
        return at if at else None

    def attribution(self, now_ps: int, memory: int) -> NDArray[np.int64]:
        """Cumulative ps by `ATTRIBUTION_CATEGORIES`, summed over the memory's data buses.

        The sum is `data_buses * now_ps`. Every event before `now_ps` must have been acted on
        (call `advance(now_ps)` until it returns nothing), or later queries will disagree.
        """
        query.attribution(
            self._tables[0], self._mem_bases[memory], int(now_ps), self._split_address
        )
        return self._split.copy()

    def own_data_ps(self, port: int) -> int:
        """Cumulative DRAM data-bus time of the bursts this port asked for."""
        return self._state.item(self._own_ps_word + port * L.PORT_WORDS)

    def memory_counters(self, memory: int) -> dict[str, int]:
        """Raw counts of one memory; bytes are those requested, `burst_bytes` those moved."""
        return query.counters(self._state, self._mem_bases[memory], self.memories[memory])

    def data_buses(self, memory: int) -> int:
        """Data buses that `attribution` sums over."""
        return self.memories[memory].data_buses

    def peak_bytes_per_s(self, memory: int) -> Fraction:
        """Upper bound of a memory's bandwidth."""
        return self.memories[memory].peak_bytes_per_s

    def unloaded_latency_ps(self, port: int, memory: int, size_bytes: int | None = None) -> int:
        """Closed form of one read to a closed bank, submitted on common clock edges at 0.

        Grant at 0; request half of the bus latency; DRAM: acceptance, ACT one cycle later, RCD,
        (CAS), CL + burst, static latency; SRAM: one word and its latency; response half; one beat;
        clock crossings; alignment to clock edges is left out. `size_bytes` defaults to one burst
        or word and must not exceed it.
        """
        master = self.ports[port]
        bus = self.buses[master.bus]
        return unloaded_read_ps(self.memories[memory], bus, master, size_bytes)

    @property
    def hops_taken(self) -> int:
        """Recorded hops repeated so far (0 when `jumps` is off)."""
        return int(self._memo[M_TAKEN]) if len(self._memo) > 1 else 0

    def record_commands(self, capacity: int) -> None:
        """Keep the first `capacity` DRAM commands from now on (tests, replay)."""
        self._log = np.zeros((capacity, 5), dtype=np.int64)
        self._state[L.H_LOG], self._state[L.H_LOG_LIMIT] = 0, capacity
        self._locate()

    def commands(self) -> NDArray[np.int64]:
        """Recorded commands: cycle, code (`layout.COMMAND_NAMES`), channel, bank or rank, row."""
        return self._log[: int(self._state[L.H_LOG])]

    def _refuse(self, now_ps: int, port: int, memory: int, runs: NDArray[np.int64]) -> Never:
        """Say what is wrong with a transfer; `checked_runs` and the kernel have the same rules."""
        checked_runs(self.ports, self.memories, self.clock_ps, now_ps, port, memory, runs)
        raise AssertionError("the kernel refused a transfer that is in order")

    def _enter(
        self, tid: int, now_ps: int, port: int, memory: int, is_write: bool, num_runs: int
    ) -> int:
        state, transfers, runs = self._tables[:3]
        return kernel.submit(
            state, transfers, runs, self._new_runs_address, num_runs, tid, now_ps, port, memory,
            1 if is_write else 0,
        )  # fmt: skip

    def _free_row(self) -> int:
        """Row of the next transfer: one that was forgotten and is over, or a new one."""
        if not self._free_rows and self._forgotten:
            rows = self._transfers[list(self._forgotten)]
            is_over = (rows[:, L.TR_DONE] > 0) & (rows[:, L.TR_QUEUED] == 0)
            self._free_rows = [
                tid for tid, over in zip(self._forgotten, is_over, strict=True) if over
            ]
            for tid in self._free_rows:
                del self._forgotten[tid]
                self._retire(tid)
        return self._free_rows[-1] if self._free_rows else self._num_transfers

    def _retire(self, tid: int) -> None:
        """Add a row to the totals of its memory and direction (`check_conservation`), empty it."""
        row = self._transfers[tid]
        memory = self._mem_bases.index(int(row[L.TR_MEM]))
        total = self._retired[2 * memory + int(row[L.TR_WRITE])]
        total[L.TR_ACCESSES : L.TR_RETURNED + 1] += row[L.TR_ACCESSES : L.TR_RETURNED + 1]
        total[L.TR_MEM], total[L.TR_WRITE] = row[L.TR_MEM], row[L.TR_WRITE]
        row[:] = 0

    @property
    def state_bytes(self) -> int:
        """Bytes of the kernel's tables: fixed state, transfers, runs, memo of hops in use."""
        tables = (self._state, self._transfers, self._runs, self._out, self._new_runs)
        memo = int(self._memo[M_FREE]) * 8 if len(self._memo) > 1 else 0
        return sum(table.nbytes for table in tables) + memo

    def _make_room(self, tid: int, num_runs: int) -> None:
        """Make the tables large enough for one more transfer, its completion and its runs."""
        if tid == len(self._transfers):
            self._transfers = np.concatenate([self._transfers, np.zeros_like(self._transfers)])
            self._locate()
        if self.pending >= len(self._out):
            self._out = np.zeros((2 * len(self._out), 2), dtype=np.int64)
            self._locate()
        if num_runs > len(self._new_runs):
            self._new_runs = np.zeros((num_runs, 4), dtype=np.int64)
            self._new_runs_address = self._new_runs.ctypes.data

    def _grow_runs(self, count: int) -> None:
        first = len(self._runs)
        more = np.zeros((count, L.RUN_WORDS), dtype=np.int64)
        more[:, L.RN_NEXT] = np.arange(first + 1, first + count + 1)
        more[-1, L.RN_NEXT] = self._state[L.H_RUN_FREE]
        self._state[L.H_RUN_FREE] = first
        self._runs = np.concatenate([self._runs, more])
        self._locate()

    def _locate(self) -> None:
        """Remember where the tables are: looking an address up costs more than a kernel call."""
        self._tables: tuple[int, int, int, int, int, int] = (
            self._state.ctypes.data, self._transfers.ctypes.data, self._runs.ctypes.data,
            self._out.ctypes.data, self._log.ctypes.data, self._memo.ctypes.data,
        )  # fmt: skip
