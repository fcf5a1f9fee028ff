"""Speed of the memory kernel: bursts per CPU second by pattern, cost of a call, compile time.

Run: python benchmarks/bench_memory.py [stream | random | ports | large | entry] ...
A stream is measured stepped and with jumps in turn, so that both see the same machine.
"""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from npusim.memory.dram.timing import load_dram_device
from npusim.memory.specs import BusConfig, DramConfig, PortConfig
from npusim.memory.system import MemorySystem

if TYPE_CHECKING:
    from collections.abc import Callable

NS = Fraction(1000)
MIB = 1 << 20
SYSTEMS = (
    ("LPDDR5-6400", 1), ("DDR4-3200", 1), ("LPDDR4X-4224", 4), ("LPDDR5X-8533", 8),
    ("HBM3-6400", 32),
)  # fmt: skip
REPEATS = 3


def system(
    device: str, channels: int, *, jumps: bool = True, ports: int = 1, **more: str
) -> MemorySystem:
    """Ports and a bus that are no limit, then `channels` of a device."""
    spec = load_dram_device(device)
    size = spec.channel_bytes * channels
    return MemorySystem(
        [PortConfig(f"p{i}", 0, NS, 2048, max(8, 64 // ports)) for i in range(ports)],
        [BusConfig("bus", NS, 2048, 40_000, 16)],
        [DramConfig("dram", spec, channels, size, "BGlow", max(256, spec.burst_bytes), **more)],
        jumps=jumps,
    )


def rate(memory: MemorySystem, runs: np.ndarray) -> float:
    """Million bursts per CPU second, every port moving `runs` (shifted by a row or more)."""
    for port in range(len(memory.ports)):
        mine = runs.copy()
        mine[:, 0] += port * 4_354_048
        memory.submit(0, port, 0, False, mine)
    start = time.process_time()
    while memory.pending:
        memory.advance(None)
    return memory.memory_counters(0)["accesses"] / (time.process_time() - start) / 1e6


def show(label: str, make: Callable[[bool], MemorySystem], runs: np.ndarray, jumped: bool) -> None:
    """Best of some repeats, stepped and (if asked for) jumped alternating."""
    stepped, jumps = 0.0, 0.0
    for _ in range(REPEATS):
        stepped = max(stepped, rate(make(False), runs))
        if jumped:
            jumps = max(jumps, rate(make(True), runs))
    more = f"   jumped {jumps:7.2f} M/s   ratio {jumps / stepped:5.2f}" if jumped else ""
    print(f"{label:36s} stepped {stepped:6.2f} M/s{more}", flush=True)


def random_rows(count: int, size: int, span: int) -> np.ndarray:
    """Aligned reads all over a span."""
    rng = np.random.default_rng(0)
    runs = np.zeros((count, 4), dtype=np.int64)
    runs[:, 0] = rng.integers(0, span // size, count) * size
    runs[:, 1], runs[:, 3] = size, 1
    return runs


def stream() -> None:
    """One port, one long run."""
    runs = np.array([[0, 64 * MIB, 0, 1]])
    for device, channels in SYSTEMS:

        def make(jumps: bool, device: str = device, channels: int = channels) -> MemorySystem:
            return system(device, channels, jumps=jumps)

        show(f"{device} x{channels} stream", make, runs, jumped=True)


def random() -> None:
    """One port, 64 bytes at a time all over 512 MiB."""
    runs = random_rows(1 << 17, 64, 1 << 29)
    for device, channels in SYSTEMS:

        def make(jumps: bool, device: str = device, channels: int = channels) -> MemorySystem:
            return system(device, channels, jumps=jumps)

        show(f"{device} x{channels} random 64 B", make, runs, jumped=False)


def ports() -> None:
    """Sixteen ports, each with a run of its own: rows conflict all the time."""
    runs = np.array([[0, MIB, 0, 1]])
    for device, channels in SYSTEMS[2:]:

        def make(jumps: bool, device: str = device, channels: int = channels) -> MemorySystem:
            return system(device, channels, jumps=jumps, ports=16)

        show(f"{device} x{channels} 16 ports", make, runs, jumped=True)


def large() -> None:
    """16 GiB in tiles of 16 MiB, each forgotten when complete: time and size of the tables."""
    memory = system("LPDDR5-6400", 1)
    fixed, span, at, now = memory.state_bytes, memory.memories[0].capacity_bytes, 0, 0
    start = time.process_time()
    while at < 16 << 30 or memory.pending:
        while at < 16 << 30 and memory.pending < 4:
            memory.submit(now, 0, 0, False, np.array([[at % span, 16 * MIB, 0, 1]]))
            at += 16 * MIB
        for now_ps, tid in memory.advance(None):
            memory.forget(tid)
            now = now_ps
    used = time.process_time() - start
    bursts = memory.memory_counters(0)["accesses"]
    print(
        f"{'LPDDR5-6400 x1 16 GiB':36s} {bursts / 1e6:.0f} M bursts in {used:.1f} s CPU, "
        f"{bursts / used / 1e6:.2f} M/s; tables {fixed} bytes, at the end {memory.state_bytes}"
    )


def entry() -> None:
    """A call that has nothing to do, and a submission."""
    memory = system("LPDDR5-6400", 1)
    start = time.process_time()
    for _ in range(100_000):
        memory.advance(0)
    print(f"cost of entering the kernel   {(time.process_time() - start) * 10:.2f} us")
    runs = np.array([[0, 64, 0, 1]])
    start = time.process_time()
    for _ in range(20_000):
        memory.submit(0, 0, 0, False, runs)
    print(f"cost of a submission          {(time.process_time() - start) * 50:.2f} us")


CASES = {case.__name__: case for case in (entry, stream, random, ports, large)}


def main(names: list[str]) -> None:
    """Compile or load, then the cases."""
    start = time.process_time()
    memory = system("LPDDR5-6400", 1)
    memory.submit(0, 0, 0, False, np.array([[0, 64, 0, 1]]))
    memory.advance(None)
    print(f"first call (compile or load)  {time.process_time() - start:.2f} s CPU")
    for name in names or CASES:
        CASES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
