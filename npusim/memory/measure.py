"""What the burst kernel moves of a class of patterns in steady state.

Streams of one class saturate the memory over a bus that limits nothing, and what the memory moves
in a window is counted: whole refresh intervals, and enough accesses. Streams jump to other places
now and then, so that the result is the mean over how their banks happen to meet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.patterns import LONG_BYTES, interleave, unit_bytes
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.memory.patterns import Pattern

WARM_UP_PS = 1_000_000
SRAM_WINDOW_PS = 4_000_000
MIN_ACCESSES = 32_000
HEADROOM = 4  # the bus grants so many accesses in the time the memory needs for one
THROTTLED_FRAC = Fraction(1, 4)  # of peak, what the writers of `Mix.THROTTLED` offer
JUMPS = 4  # of an endless row within a window
TRANSFER_BYTES = 1 << 14
MAX_ROWS = 128
IN_FLIGHT = 2  # transfers handed to a port at once


class Mix(Enum):
    """Who reads and who writes; in mixes every other stream writes."""

    READ = "read"
    WRITE = "write"
    THROTTLED = "throttled"  # writers offer a quarter of the peak, readers take the rest
    CONTENDED = "contended"  # all as much as they can


@dataclass(frozen=True, slots=True)
class Source:
    """Who asks: streams at once, AXI bursts each has outstanding, length of a full one."""

    streams: int
    outstanding: int
    cut_bytes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts of one window; `lost_ps` is time without data by category, starved time left out."""

    moved_bytes: int
    peak_bytes: Fraction
    data_ps: int
    written_ps: int
    hits: int
    misses: int
    conflicts: int
    lost_ps: tuple[int, ...]


def measure(
    memory: DramConfig | SramConfig, source: Source, pattern: Pattern, mix: Mix
) -> Measured:
    """Saturate the memory with streams of one class and count what it moves in a window."""
    writes = [
        mix is Mix.WRITE or (mix is not Mix.READ and i % 2 == 1) for i in range(source.streams)
    ]
    bench = Bench(memory, source, pattern, writes, is_throttled=mix is Mix.THROTTLED)
    end_ps = WARM_UP_PS + window_ps(memory)
    before, split_before = bench.run_to(WARM_UP_PS)
    after, split = bench.run_to(end_ps)
    split = split - split_before
    lost = split.copy()
    lost[[L.CAT_READ, L.CAT_WRITE, L.CAT_STARVED, L.CAT_ARBITRATION]] = 0
    return Measured(
        moved_bytes=after["burst_bytes"] - before["burst_bytes"],
        peak_bytes=memory.peak_bytes_per_s * (end_ps - WARM_UP_PS) / 10**12,
        data_ps=int(split[L.CAT_READ] + split[L.CAT_WRITE]),
        written_ps=int(split[L.CAT_WRITE]),
        hits=after["row_hits"] - before["row_hits"],
        misses=after["row_misses"] - before["row_misses"],
        conflicts=after["row_conflicts"] - before["row_conflicts"],
        lost_ps=tuple(lost.tolist()),
    )


def window_ps(memory: DramConfig | SramConfig) -> int:
    """Length of the window: whole refresh intervals of DRAM, so that refresh has its share."""
    if isinstance(memory, SramConfig):
        return SRAM_WINDOW_PS
    device = memory.device
    interval_ps = Fraction(device.timing["nREFI"] * device.cycle_ps)
    moved = memory.peak_bytes_per_s * interval_ps / 10**12 / device.burst_bytes
    return int(interval_ps * max(1, round(MIN_ACCESSES / moved)))


class Bench:
    """A memory with a stream at each port, refilled for ever.

    Latency that outstanding bursts would have to cover is left out: the caller has its own.
    """

    def __init__(
        self,
        memory: DramConfig | SramConfig,
        source: Source,
        pattern: Pattern,
        writes: list[bool],
        *,
        is_throttled: bool,
    ) -> None:
        unit, cut = unit_bytes(memory), source.cut_bytes
        access_ps = unit * 10**12 / memory.peak_bytes_per_s
        fast_ps = access_ps / HEADROOM
        slow_ps = access_ps * sum(writes) / THROTTLED_FRAC
        ports = [
            PortConfig(f"p{i}", 0, slow_ps, unit, source.outstanding)
            if is_throttled and is_write
            else PortConfig(f"p{i}", 0, fast_ps, cut, source.outstanding)
            for i, is_write in enumerate(writes)
        ]
        quiet = (
            replace(memory, latency_ps=0)
            if isinstance(memory, DramConfig)
            else replace(memory, latency_cycles=0)
        )
        self._system = MemorySystem(ports, [BusConfig("wide", fast_ps, cut, 0, 1)], [quiet])
        self._streams = [Stream(memory, pattern, i, len(writes)) for i in range(len(writes))]
        self._writes = writes
        self._port_of: dict[int, int] = {}
        for port in range(len(writes)):
            for _ in range(IN_FLIGHT):
                self._submit(0, port)

    def run_to(self, end_ps: int) -> tuple[dict[str, int], NDArray[np.int64]]:
        """Counters and attribution at `end_ps`."""
        while done := self._system.advance(end_ps):
            for at, tid in done:
                self._submit(at, self._port_of.pop(tid))
        return self._system.memory_counters(0), self._system.attribution(end_ps, 0)

    def _submit(self, now_ps: int, port: int) -> None:
        runs = self._streams[port].next_runs()
        self._port_of[self._system.submit(now_ps, port, 0, self._writes[port], runs)] = port


class Stream:
    """Transfers of one class at random places; strided ones start on channels one by one."""

    def __init__(
        self, memory: DramConfig | SramConfig, pattern: Pattern, index: int, count: int
    ) -> None:
        self._rng = np.random.default_rng(index)
        self._pattern, self._unit = pattern, unit_bytes(memory)
        self._capacity = memory.capacity_bytes
        channels, self._block = interleave(memory)
        self._period = channels * self._block
        self._first = index % channels * self._block
        row, step = max(pattern.row_bytes, self._unit), max(pattern.stride_bytes, self._unit)
        rows = min(TRANSFER_BYTES // row, self._capacity // step // 2, MAX_ROWS)
        self._rows = max(1, rows)
        moved = float(memory.peak_bytes_per_s * window_ps(memory)) / 1e12
        part = int(moved / (JUMPS * count)) // self._unit * self._unit
        self._long = min(max(LONG_BYTES, part), self._capacity // 2)

    def next_runs(self) -> NDArray[np.int64]:
        """Rows of the next transfer."""
        row, stride = self._pattern.row_bytes, self._pattern.stride_bytes
        if stride:
            room = self._capacity - stride * self._rows - row
            base = self._place(max(room // self._period - 1, 1), 1)[0] * self._period + self._first
            return np.array([[base, row, stride, self._rows]], dtype=np.int64)
        if row >= LONG_BYTES:
            base = self._place((self._capacity - self._long) // self._unit, 1)[0] * self._unit
            return np.array([[base, self._long, 0, 1]], dtype=np.int64)
        places = self._place((self._capacity - row) // self._unit, self._rows)
        runs = np.zeros((self._rows, 4), dtype=np.int64)
        runs[:, 0], runs[:, 1], runs[:, 3] = places * self._unit, row, 1
        return runs

    def _place(self, below: int, count: int) -> NDArray[np.int64]:
        return self._rng.integers(0, max(below, 1), count)
