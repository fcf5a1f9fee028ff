"""Speed of the memory kernel: bursts per CPU second by pattern, cost of a call, compile time.

Run: python benchmarks/bench_memory.py
"""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np

from npusim.memory.dram.timing import load_dram_device
from npusim.memory.specs import BusConfig, DramConfig, PortConfig
from npusim.memory.system import MemorySystem

NS = Fraction(1000)


def system(device: str, channels: int) -> MemorySystem:
    spec = load_dram_device(device)
    size = spec.channel_bytes * channels
    return MemorySystem(
        [PortConfig("p", 0, NS, 2048, 64)],
        [BusConfig("bus", NS, 2048, 40_000, 16)],
        [DramConfig("dram", spec, channels, size, "BGlow", max(256, spec.burst_bytes))],
    )


def run(label: str, memory: MemorySystem, runs: np.ndarray) -> None:
    start = time.process_time()
    memory.submit(0, 0, 0, False, runs)
    while memory.advance(None):
        pass
    used = time.process_time() - start
    bursts = memory.memory_counters(0)["accesses"]
    print(f"{label:28s} {bursts:9d} bursts  {bursts / used / 1e6:6.2f} M/s")


def random_rows(count: int, size: int, span: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    runs = np.zeros((count, 4), dtype=np.int64)
    runs[:, 0] = rng.integers(0, span // size, count) * size
    runs[:, 1], runs[:, 3] = size, 1
    return runs


def main() -> None:
    start = time.process_time()
    memory = system("LPDDR5-6400", 1)
    memory.submit(0, 0, 0, False, np.array([[0, 64, 0, 1]]))
    memory.advance(None)
    print(f"first call (compile or load)  {time.process_time() - start:.2f} s CPU")
    start = time.process_time()
    for _ in range(100_000):
        memory.advance(0)
    print(f"cost of entering the kernel   {(time.process_time() - start) * 10:.2f} us")
    for device, channels in (
        ("LPDDR5-6400", 1), ("DDR4-3200", 1), ("LPDDR5X-8533", 8), ("HBM3-6400", 32),
    ):  # fmt: skip
        run(
            f"{device} x{channels} stream", system(device, channels), np.array([[0, 1 << 26, 0, 1]])
        )
    for device in ("LPDDR5-6400", "DDR4-3200"):
        run(f"{device} random 64 B", system(device, 1), random_rows(1 << 19, 64, 1 << 29))


if __name__ == "__main__":
    main()
