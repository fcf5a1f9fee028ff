"""Share of its peak a memory reaches for a class of patterns: measured once, kept on disk.

Measured by the burst kernel (`measure`), kept per process and, keyed by a hash of everything that
can change it (memory, sources, pattern, mix, format, the memory package's source), in the user's
cache directory. Files appear by atomic rename; a directory that cannot be written is no error.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from npusim.memory.jit import source_hash
from npusim.memory.layout import NUM_CATEGORIES
from npusim.memory.measure import measure

if TYPE_CHECKING:
    from npusim.memory.measure import Measured, Mix, Source
    from npusim.memory.patterns import Pattern
    from npusim.memory.specs import DramConfig, SramConfig

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Measured behaviour of one class.

    `bandwidth_frac` is moved bytes (whole DRAM bursts, SRAM words) over peak; `write_frac` the
    written share of them; `hit_frac`, `miss_frac` shares of accesses; `overhead_frac` shares of
    the time without data, by attribution category.
    """

    bandwidth_frac: float
    write_frac: float
    hit_frac: float
    miss_frac: float
    overhead_frac: tuple[float, ...]


def cache_dir() -> Path:
    """Directory of measured efficiencies: `$XDG_CACHE_HOME/npusim` or `~/.cache/npusim`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "npusim" / "efficiency"


@lru_cache(maxsize=1 << 14)
def efficiency(
    memory: DramConfig | SramConfig, source: Source, pattern: Pattern, mix: Mix
) -> Efficiency:
    """Efficiency of a class, from the cache or measured now."""
    key = f"{FORMAT}|{memory!r}|{source!r}|{pattern!r}|{mix.value}|{source_hash()}"
    path = cache_dir() / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    stored = load(path)
    if stored is None:
        stored = of_measured(measure(memory, source, pattern, mix))
        store(path, stored)
    return stored


def of_measured(counts: Measured) -> Efficiency:
    """Shares of what was counted."""
    accesses = max(1, counts.hits + counts.misses + counts.conflicts)
    lost_ps = sum(counts.lost_ps)
    return Efficiency(
        bandwidth_frac=min(1.0, float(counts.moved_bytes / counts.peak_bytes)),
        write_frac=counts.written_ps / max(1, counts.data_ps),
        hit_frac=counts.hits / accesses,
        miss_frac=counts.misses / accesses,
        overhead_frac=tuple(ps / max(1, lost_ps) for ps in counts.lost_ps),
    )


def load(path: Path) -> Efficiency | None:
    """Read a stored measurement; None if there is none that can be read."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        overhead = tuple(float(x) for x in raw["overhead_frac"])
        stored = Efficiency(
            float(raw["bandwidth_frac"]),
            float(raw["write_frac"]),
            float(raw["hit_frac"]),
            float(raw["miss_frac"]),
            overhead,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_sound = 0 < stored.bandwidth_frac <= 1 and len(overhead) == NUM_CATEGORIES
    return stored if is_sound else None


def store(path: Path, value: Efficiency) -> None:
    """Write a measurement by atomic rename; a cache that cannot be written is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(value), file)
        Path(name).replace(path)
    except OSError:
        return
