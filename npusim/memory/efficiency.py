"""Share of its peak a memory reaches for a class of patterns, measured by the burst kernel.

A class is (memory, row length rounded down to a power of two, direction mix). It is measured once
on a synthetic stream that saturates the memory and kept per process and, keyed by content hash,
in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.jit import source_hash
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

LONGEST_ROW_BYTES = 1 << 16
STREAM_BYTES_PER_CHANNEL = 1 << 18
MIXES = ("read", "write", "mixed")


@dataclass(frozen=True)
class Efficiency:
    """Measured behaviour of one class.

    `bandwidth_frac` is requested bytes over peak; `hit_frac`, `miss_frac` shares of accesses;
    `overhead_frac` shares of the time without data, by attribution category.
    """

    bandwidth_frac: float
    hit_frac: float
    miss_frac: float
    overhead_frac: tuple[float, ...]


def cache_dir() -> Path:
    """Directory of measured efficiencies: `$XDG_CACHE_HOME/npusim` or `~/.cache/npusim`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "npusim" / "efficiency"


def row_class_bytes(row_bytes: int) -> int:
    """Row length of the class that `row_bytes` belongs to."""
    return min(LONGEST_ROW_BYTES, 1 << (max(row_bytes, 1).bit_length() - 1))


@lru_cache(maxsize=4096)
def efficiency(memory: DramConfig | SramConfig, row_bytes: int, mix: str) -> Efficiency:
    """Efficiency of a class; `row_bytes` from `row_class_bytes`, `mix` one of `MIXES`."""
    if isinstance(memory, SramConfig):
        return Efficiency(1.0, 1.0, 0.0, (0.0,) * L.NUM_CATEGORIES)
    key = f"{memory!r}|{row_bytes}|{mix}|{source_hash()}"
    path = cache_dir() / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    stored = load(path)
    if stored is None:
        stored = measure(memory, row_bytes, mix)
        store(path, stored)
    return stored


def load(path: Path) -> Efficiency | None:
    """Read a stored measurement; None if there is none that can be read."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        overhead = tuple(float(x) for x in raw["overhead_frac"])
        return Efficiency(raw["bandwidth_frac"], raw["hit_frac"], raw["miss_frac"], overhead)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(path: Path, value: Efficiency) -> None:
    """Write a measurement by atomic rename; a cache that cannot be written is no error."""
    text = json.dumps(
        {
            "bandwidth_frac": value.bandwidth_frac,
            "hit_frac": value.hit_frac,
            "miss_frac": value.miss_frac,
            "overhead_frac": list(value.overhead_frac),
        }
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        return


def measure(memory: DramConfig, row_bytes: int, mix: str) -> Efficiency:
    """Saturate the memory with rows of one length at random places (long rows: one stream)."""
    wide = 4096
    period = Fraction(wide * 10**12, 4) / memory.peak_bytes_per_s
    bus = BusConfig("wide", period, wide, 0, 1)
    ports = [PortConfig(f"p{i}", 0, period, wide, 64 * memory.channels) for i in range(2)]
    system = MemorySystem(ports, [bus], [replace(memory, latency_ps=0)])
    rng = np.random.default_rng(0)
    kinds = {"read": (False,), "write": (True,), "mixed": (False, True)}[mix]
    total = STREAM_BYTES_PER_CHANNEL * memory.channels // len(kinds)
    for port, is_write in enumerate(kinds):
        system.submit(0, port, 0, is_write, stream(memory, row_bytes, total, port, rng))
    end = 0
    while done := system.advance(None):
        end = max(end, max(at for at, _ in done))
    end = max(end, system.drained_ps)
    counts = system.memory_counters(0)
    moved = counts["read_bytes"] + counts["write_bytes"]
    split = system.attribution(end, 0).astype(float)
    split[[L.CAT_READ, L.CAT_WRITE, L.CAT_STARVED, L.CAT_ARBITRATION]] = 0
    idle = split.sum()
    accesses = max(1, counts["accesses"])
    return Efficiency(
        bandwidth_frac=min(1.0, float(moved * 10**12 / end / memory.peak_bytes_per_s)),
        hit_frac=counts["row_hits"] / accesses,
        miss_frac=counts["row_misses"] / accesses,
        overhead_frac=tuple((split / idle if idle else split).tolist()),
    )


def stream(
    memory: DramConfig, row_bytes: int, total: int, part: int, rng: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Runs of one class: one long row, or rows at random row-aligned places in one half."""
    half = memory.capacity_bytes // 2
    if row_bytes >= LONGEST_ROW_BYTES:
        return np.array([[part * half, min(total, half), 0, 1]], dtype=np.int64)
    count = max(1, min(total, 1 << 22) // max(row_bytes, memory.device.burst_bytes))
    runs = np.zeros((count, 4), dtype=np.int64)
    runs[:, 0] = part * half + rng.integers(0, half // row_bytes, count) * row_bytes
    runs[:, 1], runs[:, 3] = row_bytes, 1
    return runs
