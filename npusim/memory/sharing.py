"""`SharingMemory`: whole transfers share bandwidth max-min fairly (fidelity `transfer`).

The transfer at the head of each port flows at a rate. Rates come from progressive filling over
ports (their own limit and outstanding bursts over the unloaded latency), bus directions and
memories (peak times the measured efficiency of the flow's pattern, limited to the channels it
touches). A transfer completes the unloaded latency after its last byte; the next one of its port
starts flowing at once. Rates change only when a flow starts or ends.

Left out: order of single bursts (so AXI IDs, priorities and QoS), bank conflicts between flows
(beyond the direction mix), queues, back-pressure between streams of one port.
Source: Bertsekas & Gallager, Data Networks, 6.5.2.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import SimulationError
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.efficiency import Efficiency, efficiency, row_class_bytes
from npusim.memory.filling import fill
from npusim.memory.layout import (
    ATTRIBUTION_CATEGORIES,
)
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import check_links, check_receivers, checked_runs, unloaded_read_ps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

__all__ = ["ATTRIBUTION_CATEGORIES", "SharingMemory"]

CHANNEL_SAMPLES = 256  # rows looked at when counting the channels a transfer touches


@dataclass(slots=True)
class Flow:
    """One transfer."""

    tid: int
    port: int
    memory: int
    is_write: bool
    total_bytes: int
    row_bytes: int
    channels_frac: float
    accesses: int
    submitted_ps: int
    left_bytes: float = 0.0
    port_rate: float = 0.0  # of the slowest port that takes part, bytes per ps
    rate: float = 0.0  # bytes per ps
    done_ps: int = 0
    pattern: Efficiency | None = None


@dataclass(slots=True)
class Usage:
    """What a memory has moved, in bytes and in ps of its data buses."""

    read_bytes: float = 0.0
    write_bytes: float = 0.0
    split_ps: list[float] = field(default_factory=lambda: [0.0] * L.NUM_CATEGORIES)
    counts: list[int] = field(default_factory=lambda: [0] * 6)
    seen_ps: NDArray[np.float64] = field(default_factory=lambda: np.zeros(L.NUM_CATEGORIES))
    reported_ps: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(L.NUM_CATEGORIES, dtype=np.int64)
    )


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
        self._flows: list[Flow] = []
        self._queues: list[deque[Flow]] = [deque() for _ in ports]
        self._usage = [Usage() for _ in memories]
        self._own_ps = [0.0] * len(ports)
        self._peaks = [float(m.peak_bytes_per_s) / 1e12 for m in memories]
        self._bus_rates = [float(b.data_bytes / b.clock_period_ps) for b in buses]
        self._port_rates = [float(p.bytes_per_cycle / p.clock_period_ps) for p in ports]
        self._latency_ps = [
            [self.unloaded_latency_ps(p, m) for m in range(len(memories))]
            for p in range(len(ports))
        ]
        self._clock_ps = 0
        self._at_ps = 0.0  # time up to which flows have moved
        self._drained_ps = 0
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
        self._move(float(now_ps))
        self._clock_ps = max(self._clock_ps, int(now_ps))
        flow = self._describe(int(now_ps), port, memory, is_write, runs)
        flow.port_rate = min(self._port_rates[p] for p in (port, *receivers))
        self._flows.append(flow)
        self._queues[port].append(flow)
        self._pending += 1
        if len(self._queues[port]) == 1:
            self._share()
        return flow.tid

    def advance(self, horizon_ps: int | None) -> list[tuple[int, int]]:
        """Complete transfers (see `MemorySystem.advance`)."""
        done: list[tuple[int, int]] = []
        horizon = float("inf") if horizon_ps is None else horizon_ps
        while True:
            flows = [queue[0] for queue in self._queues if queue]
            if not flows:
                break
            ends = [self._at_ps + flow.left_bytes / flow.rate for flow in flows]
            end = min(ends)
            if end >= horizon or (done and end >= done[0][0]):
                break
            self._move(end)
            self._clock_ps = max(self._clock_ps, int(end))
            for flow, at in zip(flows, ends, strict=True):
                if at <= end:
                    done.append(self._finish(flow, end))
            self._share()
            done.sort()
        return done

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
        flow = self._flows[tid]
        if flow.pattern is None:
            return 0, 0, 0, 0, flow.total_bytes if flow.done_ps else 0
        hits = round(flow.accesses * flow.pattern.hit_frac)
        misses = min(flow.accesses - hits, round(flow.accesses * flow.pattern.miss_frac))
        return flow.accesses, hits, misses, flow.accesses - hits - misses, flow.total_bytes

    def completion_ps(self, tid: int) -> int | None:
        """When the transfer completed, or None."""
        return self._flows[tid].done_ps or None

    def attribution(self, now_ps: int, memory: int) -> NDArray[np.int64]:
        """Cumulative ps by category (see `MemorySystem.attribution`), by measured shares."""
        self._move(float(now_ps))
        usage = self._usage[memory]
        raw = np.array(usage.split_ps)
        span = self.data_buses(memory) * int(now_ps) - int(usage.reported_ps.sum())
        fresh = raw - usage.seen_ps
        needed = float(fresh.sum())
        if needed > span:  # measured shares of several flows may overlap: keep their proportion
            fresh *= span / needed
        step = np.floor(fresh).astype(np.int64)
        step[L.CAT_STARVED] += span - int(step.sum())
        usage.seen_ps = raw
        usage.reported_ps = usage.reported_ps + step
        return usage.reported_ps.copy()

    def own_data_ps(self, port: int) -> int:
        """Cumulative data-bus time of this port's bytes."""
        return int(self._own_ps[port])

    def memory_counters(self, memory: int) -> dict[str, int]:
        """Raw counts of the finished transfers of one memory."""
        counts, spec = self._usage[memory].counts, self.memories[memory]
        burst = spec.device.burst_bytes if isinstance(spec, DramConfig) else spec.port_bytes
        accesses, hits, misses, conflicts, read_bytes, write_bytes = counts
        return {
            "read_bytes": read_bytes,
            "write_bytes": write_bytes,
            "burst_bytes": accesses * burst,
            "accesses": accesses,
            "row_hits": hits,
            "row_misses": misses,
            "row_conflicts": conflicts,
            "refreshes": 0,
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
        self, now_ps: int, port: int, memory: int, is_write: bool, runs: NDArray[np.int64]
    ) -> Flow:
        spec = self.memories[memory]
        rows = int(runs[:, 3].sum())
        total = int((runs[:, 1] * runs[:, 3]).sum())
        unit = spec.device.burst_bytes if isinstance(spec, DramConfig) else spec.port_bytes
        first, last = runs[:, 0] // unit, (runs[:, 0] + runs[:, 1] - 1) // unit
        flow = Flow(
            tid=len(self._flows), port=port, memory=memory, is_write=is_write, total_bytes=total,
            row_bytes=row_class_bytes(total // rows), channels_frac=channels_touched(spec, runs),
            accesses=int(((last - first + 1) * runs[:, 3]).sum()), submitted_ps=now_ps,
        )  # fmt: skip
        flow.left_bytes = float(total)
        return flow

    def _move(self, to_ps: float) -> None:
        """Let the flows run at their rates up to `to_ps`."""
        span = to_ps - self._at_ps
        if span <= 0:
            return
        self._at_ps = to_ps
        for queue in self._queues:
            if not queue:
                continue
            flow = queue[0]
            moved = min(flow.left_bytes, flow.rate * span)
            flow.left_bytes -= moved
            self._charge(flow, moved)

    def _charge(self, flow: Flow, moved: float) -> None:
        usage, pattern = self._usage[flow.memory], flow.pattern
        assert pattern is not None
        buses = self.data_buses(flow.memory)
        data_ps = moved / self._peaks[flow.memory] * buses
        self._own_ps[flow.port] += data_ps
        usage.split_ps[L.CAT_WRITE if flow.is_write else L.CAT_READ] += data_ps
        lost_ps = data_ps * (1 / pattern.bandwidth_frac - 1)
        for i, share in enumerate(pattern.overhead_frac):
            usage.split_ps[i] += lost_ps * share

    def _share(self) -> None:
        """Recompute all rates."""
        flows = [queue[0] for queue in self._queues if queue]
        if not flows:
            return
        writing = [
            {flow.is_write for flow in flows if flow.memory == m} for m in range(len(self.memories))
        ]
        caps: list[float] = []
        uses: list[list[tuple[int, float]]] = []
        num_buses = len(self.buses)
        for flow in flows:
            mix = (
                "mixed" if len(writing[flow.memory]) > 1 else ("write" if flow.is_write else "read")
            )
            spec = self.memories[flow.memory]
            pattern = flow.pattern = efficiency(spec, flow.row_bytes, mix)
            peak = self._peaks[flow.memory] * pattern.bandwidth_frac
            port, bus = self.ports[flow.port], self.ports[flow.port].bus
            window = port.outstanding * min(self.buses[bus].cut_bytes, flow.row_bytes)
            latency = self._latency_ps[flow.port][flow.memory]
            caps.append(min(
                flow.port_rate, peak * flow.channels_frac, window / latency,
            ))  # fmt: skip
            uses.append([
                (2 * bus + flow.is_write, 1 / self._bus_rates[bus]),
                (2 * num_buses + flow.memory, 1 / peak),
            ])  # fmt: skip
        for flow, rate in zip(flows, fill(caps, uses), strict=True):
            flow.rate = rate

    def _finish(self, flow: Flow, end_ps: float) -> tuple[int, int]:
        flow.left_bytes = 0.0
        self._queues[flow.port].popleft()
        self._pending -= 1
        spec = self.memories[flow.memory]
        posted = flow.is_write and isinstance(spec, DramConfig) and spec.posted_writes
        bus = self.buses[self.ports[flow.port].bus]
        latency = bus.latency_ps if posted else self._latency_ps[flow.port][flow.memory]
        flow.done_ps = int(np.ceil(end_ps)) + latency
        usage = self._usage[flow.memory]
        counters = self.transfer_counters(flow.tid)
        for i in range(4):
            usage.counts[i] += counters[i]
        usage.counts[5 if flow.is_write else 4] += flow.total_bytes
        if flow.is_write:
            self._drained_ps = max(self._drained_ps, flow.done_ps)
        return flow.done_ps, flow.tid


def channels_touched(spec: DramConfig | SramConfig, runs: NDArray[np.int64]) -> float:
    """Share of the channels (banks) that a transfer's first rows touch."""
    if isinstance(spec, DramConfig):
        count, block = spec.channels, spec.channel_interleave_bytes
    else:
        count, block = spec.banks, spec.interleave_bytes
    touched: set[int] = set()
    for base, size, stride, rows in runs[:CHANNEL_SAMPLES].tolist():
        for i in range(min(rows, CHANNEL_SAMPLES)):
            first, last = (base + i * stride) // block, (base + i * stride + size - 1) // block
            touched.update(k % count for k in range(first, min(last, first + count - 1) + 1))
            if len(touched) == count:
                return 1.0
    return len(touched) / count
