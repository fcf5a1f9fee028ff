"""`SharingMemory`: whole transfers share bandwidth (fidelity `transfer`).

The transfer at the head of each port flows at a rate. Rates come from progressive filling over
the flows' own limits (port cycles; outstanding bursts over the unloaded latency), bus directions
(beats) and the channels of the memories (accesses at the measured efficiency of the flow's
pattern). A transfer completes the unloaded latency after its last byte has flowed; the next one of
its port starts flowing at once. Rates change only when a flow starts at an idle port or ends.

Left out: order of single bursts (so AXI IDs beyond their limit, priorities and QoS), how the banks
of two given flows meet (their mean is measured), back-pressure between the streams of one port.
See docs/modelling/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npusim.errors import SimulationError
from npusim.memory import flow_layout as F  # noqa: N812 - a namespace of columns
from npusim.memory import flows
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.checks import check_links, check_receivers, checked_runs, unloaded_read_ps
from npusim.memory.dram.timing import spacings
from npusim.memory.flow_classes import FlowClasses, bursts_in_flight
from npusim.memory.layout import ATTRIBUTION_CATEGORIES
from npusim.memory.patterns import LONG, channels_touched, demand, interleave, pattern_of
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from npusim.memory.patterns import Demand, Pattern, Run

__all__ = ["ATTRIBUTION_CATEGORIES", "SharingMemory"]

FOREVER = float("inf")


class Facts(NamedTuple):
    """What is counted of a transfer."""

    memory: int
    is_write: bool
    pattern_class: int
    accesses: int
    total_bytes: int


@dataclass(slots=True)
class Usage:
    """What a memory has moved, and what of its time has been reported."""

    counts: list[int]  # accesses, hits, misses, conflicts, read bytes, written bytes
    seen_ps: NDArray[np.float64]
    reported_ps: NDArray[np.int64]


class SharingMemory:
    """Drop-in for `MemorySystem` with one event per transfer; parameters as there."""

    def __init__(
        self,
        ports: Sequence[PortConfig],
        buses: Sequence[BusConfig],
        memories: Sequence[DramConfig | SramConfig],
    ) -> None:
        check_links(ports, buses, memories)
        self.ports, self.buses, self.memories = tuple(ports), tuple(buses), tuple(memories)
        self._tables = F.make_tables(
            [port.bus for port in ports],
            [memory.data_buses for memory in memories],
            [interleave(memory)[0] for memory in memories],
        )
        self._classes = FlowClasses(self.ports, self.buses, self.memories)
        self._ended = np.zeros(len(ports), dtype=np.int64)
        self._facts: list[Facts] = []
        self._done_ps: dict[int, int] = {}
        self._usage = [
            Usage([0] * 6, np.zeros(L.NUM_CATEGORIES), np.zeros(L.NUM_CATEGORIES, dtype=np.int64))
            for _ in memories
        ]
        self._own_ps = self._tables.own_ps
        self._row_ends = [(-1, -1)] * len(ports)  # memory and end of a port's last single row
        self._clock_ps = self._drained_ps = 0
        self._at_ps = 0.0  # time up to which flows have moved
        self._end_ps = FOREVER  # when the first flow ends
        self._is_stale = False  # rates are to be set anew
        self._pending = 0

    def submit(
        self,
        now_ps: int,
        port: int,
        memory: int,
        is_write: bool,
        runs: NDArray[np.int64],
        receivers: Sequence[int] = (),
    ) -> int:
        """Hand a transfer to a port; returns its id (see `MemorySystem.submit`).

        A multicast flows at most at the rate of its slowest receiver; what else a receiver reads
        meanwhile is left out.
        """
        if receivers:
            check_receivers(self.ports, port, is_write, receivers)
        runs = checked_runs(self.ports, self.memories, self._clock_ps, now_ps, port, memory, runs)
        self._clock_ps = max(self._clock_ps, int(now_ps))
        tid = len(self._facts)
        self._make_room(tid)
        slowest = min((self.ports[p] for p in (port, *receivers)), key=port_rate)
        self._describe(tid, port, memory, bool(is_write), runs.tolist(), slowest)
        tail = self._tables.ports.item(port, F.PI_TAIL)
        self._pending += 1
        if tail != F.NONE:
            self._tables.flows[tail, F.FI_NEXT] = tid
            self._tables.ports[port, F.PI_TAIL] = tid
            return tid
        self._move(float(now_ps))
        self._tables.ports[port, F.PI_HEAD] = self._tables.ports[port, F.PI_TAIL] = tid
        self._is_stale = True
        return tid

    def advance(self, horizon_ps: int | None) -> list[tuple[int, int]]:
        """Complete transfers (see `MemorySystem.advance`)."""
        done: list[tuple[int, int]] = []
        horizon = FOREVER if horizon_ps is None else horizon_ps
        while True:
            self._set_rates()
            end_ps = self._end_ps
            if end_ps >= horizon or (done and end_ps >= done[0][0]):
                return done
            count, span_ps = flows.step(self._tables, end_ps - self._at_ps, self._ended)
            self._at_ps, self._end_ps = end_ps, end_ps + span_ps
            self._own_ps = self._tables.own_ps
            self._clock_ps = max(self._clock_ps, int(end_ps))
            done += [self._finish(tid, end_ps) for tid in self._ended[:count].tolist()]
            done.sort()

    @property
    def pending(self) -> int:
        """Transfers not complete for their port."""
        return self._pending

    @property
    def queued_writes(self) -> int:
        """Always 0: a write flows straight into the memory."""
        return 0

    @property
    def clock_ps(self) -> int:
        """Time of the last event acted on."""
        return self._clock_ps

    @property
    def drained_ps(self) -> int:
        """Time at which the last finished write was in memory."""
        return self._drained_ps

    def drain(self) -> int:
        """Time of the last write; all transfers must be finished."""
        if self._pending:
            raise SimulationError("memory", "drain needs all transfers finished", self._pending)
        return self._drained_ps

    def transfer_counters(self, tid: int) -> tuple[int, int, int, int, int]:
        """(accesses, row hits, misses, conflicts, bytes) of a transfer, by measured shares."""
        facts = self._facts[tid]
        if tid not in self._done_ps:
            return 0, 0, 0, 0, 0
        pattern = self._classes.measured[facts.pattern_class]
        hits = round(facts.accesses * pattern.hit_frac)
        misses = min(facts.accesses - hits, round(facts.accesses * pattern.miss_frac))
        return facts.accesses, hits, misses, facts.accesses - hits - misses, facts.total_bytes

    def completion_ps(self, tid: int) -> int | None:
        """When the transfer completed, or None."""
        return self._done_ps.get(tid)

    def attribution(self, now_ps: int, memory: int) -> NDArray[np.int64]:
        """Cumulative ps by category (see `MemorySystem.attribution`), by measured shares."""
        usage = self._usage[memory]
        raw = self._foreseen(float(now_ps))[memory]
        span = self.data_buses(memory) * int(now_ps) - int(usage.reported_ps.sum())
        fresh = np.maximum(raw - usage.seen_ps, 0.0)
        needed = float(fresh.sum())
        if needed > span:  # measured shares of several flows may overlap: keep their proportion
            fresh *= span / needed
        step = np.floor(fresh).astype(np.int64)
        step[L.CAT_STARVED] += span - int(step.sum())
        usage.seen_ps = raw
        usage.reported_ps = usage.reported_ps + step
        return usage.reported_ps.copy()

    def own_data_ps(self, port: int) -> int:
        """Data-bus time of this port's bytes up to the latest `attribution` or event."""
        return int(self._own_ps[port])

    def memory_counters(self, memory: int) -> dict[str, int]:
        """Counts of the finished transfers of one memory, rows by measured shares."""
        spec = self.memories[memory]
        accesses, hits, misses, conflicts, read_bytes, write_bytes = self._usage[memory].counts
        return {
            "read_bytes": read_bytes,
            "write_bytes": write_bytes,
            "burst_bytes": accesses * self._classes.units[memory],
            "accesses": accesses,
            "row_hits": hits,
            "row_misses": misses,
            "row_conflicts": conflicts,
            "refreshes": refreshes(spec, max(self._clock_ps, self._drained_ps)),
            "activates": misses + conflicts,
        }

    def data_buses(self, memory: int) -> int:
        """Data buses that `attribution` sums over."""
        return self.memories[memory].data_buses

    def peak_bytes_per_s(self, memory: int) -> Fraction:
        """Upper bound of a memory's bandwidth."""
        return self.memories[memory].peak_bytes_per_s

    def unloaded_latency_ps(self, port: int, memory: int, size_bytes: int | None = None) -> int:
        """Closed form of one read (see `MemorySystem.unloaded_latency_ps`)."""
        master = self.ports[port]
        bus = self.buses[master.bus]
        return unloaded_read_ps(self.memories[memory], bus, master, size_bytes)

    def _describe(
        self,
        tid: int,
        port: int,
        memory: int,
        is_write: bool,
        runs: list[Run],
        slowest: PortConfig,
    ) -> None:
        """Fill the row of a flow, whose bytes the port `slowest` takes or gives."""
        spec, bus = slowest, self.buses[self.ports[port].bus]
        asks = demand(spec, bus, self._classes.units[memory], runs)
        pattern = self._pattern(port, memory, runs, asks)
        found = self._classes.of(port, memory, is_write, pattern)
        if found.is_new:
            self._enter_class(found.number, memory)
        mask, spread = self._channels(port, memory, is_write, runs, asks)
        bus_ps, port_ps = float(bus.clock_period_ps), float(spec.clock_period_ps)
        window = bursts_in_flight(self.ports[port]) * asks.total_bytes / asks.bursts
        burst_ps = (asks.beats * bus_ps + asks.port_cycles * port_ps) / asks.bursts
        cap = min(
            asks.total_bytes / (asks.port_cycles * port_ps), window / (found.latency_ps + burst_ps)
        )
        data_ps = asks.accesses * self._classes.access_ps[memory]
        total = float(asks.total_bytes)
        self._tables.flows[tid] = (F.NONE, memory, is_write, found.number, mask)
        self._tables.amounts[tid] = (
            total, total, cap, asks.beats * bus_ps / total, data_ps / total, window, spread, 0.0,
            found.latency_ps,
        )  # fmt: skip
        self._facts.append(Facts(memory, is_write, found.number, asks.accesses, asks.total_bytes))

    def _pattern(self, port: int, memory: int, runs: list[Run], asks: Demand) -> Pattern:
        """Class of the runs; a row that continues the port's last one is part of an endless row."""
        base, size, stride, count = runs[0]
        continues = self._row_ends[port] == (memory, base)
        self._row_ends[port] = (memory, base + size if asks.rows == 1 else -1)
        if asks.rows == 1 and continues:
            return LONG
        if len(runs) > 1 and count == 1:
            stride = runs[1][0] - base
        unit = self._classes.units[memory]
        return pattern_of(asks.total_bytes // asks.rows, stride, asks.rows, unit)

    def _channels(
        self, port: int, memory: int, is_write: bool, runs: list[Run], asks: Demand
    ) -> tuple[int, float]:
        """Mask of the channels a flow loads more than others, and how many times the mean.

        Queues (SRAM: the port's outstanding bursts) take in a part of the transfer and let the
        port go on elsewhere; that part counts as spread over all channels.
        """
        spec = self.memories[memory]
        count = interleave(spec)[0]
        if count > F.MAX_CHANNELS:
            return F.ALL_CHANNELS, 1.0
        mask = channels_touched(spec, runs)
        touched = mask.bit_count()
        if isinstance(spec, DramConfig):
            depth = spec.write_queue_depth if is_write else spec.read_queue_depth
            absorbed = touched * depth / asks.accesses
        else:
            absorbed = bursts_in_flight(self.ports[port]) / asks.bursts
        if touched == count or absorbed >= 1.0:
            return F.ALL_CHANNELS, 1.0
        signed = mask - (1 << 64) if mask >> 63 else mask
        return signed, (1.0 - absorbed) * count / touched + absorbed

    def _enter_class(self, number: int, memory: int) -> None:
        """Put a class just measured into the tables."""
        classes = self._tables.classes
        if number == len(classes):
            classes = np.concatenate([classes, np.zeros_like(classes)])
            self._tables = self._tables._replace(classes=classes)
        classes[number] = self._classes.row(number)
        self._tables.memories[memory, F.MF_LOG_MANY :] = self._classes.memory_row(memory)

    def _make_room(self, tid: int) -> None:
        """Make the tables large enough for one more flow."""
        t = self._tables
        if tid == len(t.flows):
            self._tables = t._replace(
                flows=np.concatenate([t.flows, np.zeros_like(t.flows)]),
                amounts=np.concatenate([t.amounts, np.zeros_like(t.amounts)]),
            )

    def _set_rates(self) -> None:
        if self._is_stale:
            self._end_ps = self._at_ps + flows.start(self._tables)
            self._is_stale = False

    def _move(self, to_ps: float) -> None:
        """Let the flows run at their rates up to `to_ps`."""
        if to_ps > self._at_ps:
            self._set_rates()
            flows.move(self._tables, to_ps - self._at_ps)
            self._at_ps = to_ps
            self._own_ps = self._tables.own_ps

    def _foreseen(self, now_ps: float) -> NDArray[np.float64]:
        """Time of all memories by category at `now_ps`; the flows do not move."""
        split_ps, self._own_ps = self._tables.split_ps.copy(), self._tables.own_ps.copy()
        if now_ps > self._at_ps:
            self._set_rates()
            flows.foresee(self._tables, now_ps - self._at_ps, split_ps, self._own_ps)
        return split_ps

    def _finish(self, tid: int, end_ps: float) -> tuple[int, int]:
        latency_ps = int(self._tables.amounts[tid, F.FF_LATENCY_PS])
        at = int(np.ceil(end_ps - flows.SAME_TIME_PS)) + latency_ps
        self._done_ps[tid] = at
        self._pending -= 1
        facts = self._facts[tid]
        counts = self._usage[facts.memory].counts
        for i, count in enumerate(self.transfer_counters(tid)[:4]):
            counts[i] += count
        counts[5 if facts.is_write else 4] += facts.total_bytes
        if facts.is_write:
            self._drained_ps = max(self._drained_ps, at)
        return at, tid


def port_rate(port: PortConfig) -> Fraction:
    """Bytes per ps a port moves in one direction."""
    return port.bytes_per_cycle / port.clock_period_ps


def refreshes(spec: DramConfig | SramConfig, elapsed_ps: int) -> int:
    """Refresh commands of a DRAM: one per rank (or bank in turn) and whole interval passed."""
    if isinstance(spec, SramConfig) or spec.refresh == "none":
        return 0
    spacing = spacings(spec.device)
    is_per_bank = spec.refresh == "per_bank"
    interval_ps = spacing["REFIPB" if is_per_bank else "REFI"] * spec.device.cycle_ps
    each = spec.channels * (1 if is_per_bank else spec.ranks)
    return each * int(elapsed_ps // interval_ps)
