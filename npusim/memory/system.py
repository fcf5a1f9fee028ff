"""`MemorySystem`: buses, DRAM and SRAM advanced lazily between SimPy events (fidelity `burst`)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Never

import numpy as np

from npusim.errors import ConfigError, SimulationError
from npusim.memory import kernel, query
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.conservation import check_conservation
from npusim.memory.dram.timing import spacings
from npusim.memory.layout import (
    ATTRIBUTION_CATEGORIES,
)
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
    ) -> None:
        check_links(ports, buses, memories)
        self.ports, self.buses, self.memories = tuple(ports), tuple(buses), tuple(memories)
        self._state, self._mem_bases = build(ports, buses, memories)
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
        count, tid = len(runs) if runs.ndim else 0, self._num_transfers
        if not (
            runs.shape == (count, 4)
            and count
            and 0 <= port < len(self.ports)
            and 0 <= memory < len(self.memories)
        ):
            self._refuse(now_ps, port, memory, runs)
        if receivers:
            check_receivers(self.ports, port, is_write, receivers)
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
        self._num_transfers += 1
        return tid

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
        transfers = self._transfers[: self._num_transfers]
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
        state, transfers, runs, _, _ = self._tables
        return kernel.submit(
            state, transfers, runs, self._new_runs_address, num_runs, tid, now_ps, port, memory,
            1 if is_write else 0,
        )  # fmt: skip

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
        self._tables: tuple[int, int, int, int, int] = (
            self._state.ctypes.data, self._transfers.ctypes.data, self._runs.ctypes.data,
            self._out.ctypes.data, self._log.ctypes.data,
        )  # fmt: skip


def check_links(
    ports: Sequence[PortConfig],
    buses: Sequence[BusConfig],
    memories: Sequence[DramConfig | SramConfig],
) -> None:
    """Refuse a system without parts or with a port on a bus that does not exist."""
    for name, items in (("ports", ports), ("buses", buses), ("memories", memories)):
        if not items:
            raise ConfigError(name, "at least one is needed")
    for port in ports:
        if not 0 <= port.bus < len(buses):
            raise ConfigError(f"port {port.name!r}.bus", f"lies in 0..{len(buses) - 1}", port.bus)


def check_receivers(
    ports: Sequence[PortConfig], port: int, is_write: bool, receivers: Sequence[int]
) -> None:
    """Refuse a multicast that is no read, or to ports that cannot see the leader's bus."""
    where = "memory.submit"
    if is_write:
        raise SimulationError(where, "a multicast is a read", tuple(receivers))
    others = {r for r in receivers if 0 <= r < len(ports) and r != port}
    if len(others) != len(receivers):
        raise SimulationError(where, "receivers are other ports, each once", tuple(receivers))
    if any(ports[r].bus != ports[port].bus for r in others):
        raise SimulationError(where, "receivers are on the leader's bus", tuple(receivers))
    if max(others) >= L.RECEIVER_WORDS * L.RECEIVER_BITS:
        rule = f"receivers are among the first {L.RECEIVER_WORDS * L.RECEIVER_BITS} ports"
        raise SimulationError(where, rule, max(others))


def checked_runs(
    ports: Sequence[PortConfig],
    memories: Sequence[DramConfig | SramConfig],
    clock_ps: int,
    now_ps: int,
    port: int,
    memory: int,
    runs: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Refuse a transfer that cannot be; rows that touch become one."""
    if now_ps < clock_ps:
        raise SimulationError("memory.submit", f"now_ps >= {clock_ps}", now_ps)
    if not (0 <= port < len(ports) and 0 <= memory < len(memories)):
        raise SimulationError("memory.submit", "port and memory exist", (port, memory))
    runs = np.ascontiguousarray(runs, dtype=np.int64)
    if runs.ndim != 2 or runs.shape[1] != 4 or len(runs) == 0:
        raise SimulationError("memory.submit", "runs have shape (n > 0, 4)", runs.shape)
    base, size, stride, count = runs.T
    if size.min() < 1 or count.min() < 1:
        raise SimulationError("memory.submit", "runs move at least one byte", runs.tolist()[:4])
    last = base + stride * (count - 1)
    low, high = np.minimum(base, last).min(), (np.maximum(base, last) + size).max()
    if low < 0 or high > memories[memory].capacity_bytes:
        where = f"memory {memories[memory].name!r}"
        raise SimulationError(where, "runs stay inside the memory", (int(low), int(high)))
    joined = (stride == size) & (count > 1)
    if joined.any():
        runs = runs.copy()
        runs[joined, 1] *= runs[joined, 3]
        runs[joined, 3] = 1
    return runs


def unloaded_read_ps(
    spec: DramConfig | SramConfig, bus: BusConfig, port: PortConfig, size_bytes: int | None = None
) -> int:
    """Closed form behind `MemorySystem.unloaded_latency_ps`."""
    if isinstance(spec, SramConfig):
        memory_ps = spec.clock_period_ps
        inside = memory_ps * (1 + spec.latency_cycles)
        size = size_bytes or spec.port_bytes
    else:
        memory_ps = spec.device.cycle_ps
        s = spacings(spec.device)
        column = 1 + s["RCDRD"] + (1 if s["WCK"] else 0)
        inside = ((column | s["ODD"]) + s["RL"]) * spec.device.cycle_ps + spec.latency_ps
        size = size_bytes or spec.device.burst_bytes
    beats = -(-size // bus.data_bytes)
    crossing = bus.crossing_to(port.clock_period_ps) * (port.clock_period_ps + bus.clock_period_ps)
    crossing += bus.crossing_to(memory_ps) * (memory_ps + bus.clock_period_ps)
    return int(inside + bus.latency_ps + beats * bus.clock_period_ps + crossing)
