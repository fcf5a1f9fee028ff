"""What a DRAM loses on tiles of short runs far apart, in closed form, for predicted cost only.

A tile of R runs of L bytes, one every S bytes, keeps only some channels busy and opens rows::

    channels = min(C, D ceil(f L / I)),  D = C / gcd(S / I, C), at most R (C if I does not divide S)
    per run  = max(ceil(L / burst) burst C / rate, activate min(1, S / (row C)))
    factor   = C / channels x per run / (L C / rate)

with C channels of interleave I, rows of `row` bytes, f tiles in flight that lie side by side and
`activate` the shortest mean time between activations of a channel: four per tFAW, one per bank and
row cycle. The factor says how much longer the tile takes than its bytes at the peak rate; it is 1
for contiguous tiles. Left out: refresh, turnarounds, hits on rows that other tiles opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from npusim.config.dram_rate import dram_entry
from npusim.config.dram_table import dram_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.config.memory import DramSpec

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DramPattern:
    """Geometry of a DRAM, and how often a channel may open a row."""

    channels: int
    interleave_bytes: int
    burst_bytes: int
    row_bytes: int
    activate_ps: float
    bytes_per_ps: float

    @classmethod
    def of(cls, spec: DramSpec, bytes_per_s: float) -> DramPattern:
        """Pattern costs of a DRAM behind a path of a peak rate."""
        standard = dram_entry(spec)
        organisation, timing = standard["organisation"], standard["timing_nCK"]
        ticks = dram_table()["commands"][standard["standard"]]["ticks_per_clock"]
        clock_ps = Fraction(str(standard["cycle_ps"])) * int(ticks)
        banks = int(organisation["bank_groups"] * organisation["banks_per_group"])
        row_cycle = timing.get("nRC", timing["nRAS"] + timing["nRP"])
        spacing = max(Fraction(timing["nFAW"], 4), Fraction(row_cycle, banks))
        sub_channels = int(organisation["pseudo_channels"])
        width_bits = int(organisation["width_bits"])
        return cls(
            channels=spec.channels,
            interleave_bytes=spec.channel_interleave_bytes,
            burst_bytes=width_bits * int(organisation["burst_length"]) // 8,
            row_bytes=width_bits * int(organisation["columns"]) // 8 * sub_channels,
            activate_ps=float(spacing * clock_ps) / sub_channels,
            bytes_per_ps=bytes_per_s / 1e12,
        )

    def factor(self, rows: Ints, run_bytes: Floats, pitch_bytes: int, beside: Ints | int) -> Floats:
        """Time over bytes at peak rate of tiles of `rows` runs of `run_bytes`.

        `pitch_bytes` from run to run; 0, or a run as long as the pitch: the tile is contiguous.
        `beside`: tiles in flight whose runs follow each other.
        """
        if pitch_bytes == 0:
            return np.ones(np.broadcast_shapes(np.shape(rows), np.shape(run_bytes)))
        length = np.maximum(np.asarray(run_bytes, dtype=np.float64), 1.0)
        apart = self.channels
        step, rest = divmod(pitch_bytes, self.interleave_bytes)
        if rest == 0:
            apart = self.channels // gcd(step, self.channels)
        side_by_side = np.ceil(beside * length / self.interleave_bytes)
        busy = np.minimum(np.minimum(rows, apart) * side_by_side, self.channels)
        bursts = np.ceil(length / self.burst_bytes) * self.burst_bytes
        opened = min(1.0, pitch_bytes / (self.row_bytes * self.channels))
        opening = self.activate_ps * opened * self.bytes_per_ps / self.channels
        scattered = self.channels / busy * np.maximum(bursts, opening) / length
        is_contiguous = (run_bytes >= pitch_bytes) | (np.asarray(rows) == 1)
        result: Floats = np.where(is_contiguous, 1.0, np.maximum(scattered, 1.0))
        return result
