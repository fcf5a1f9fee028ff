"""What a transfer asks of its port, bus and memory, and which class of patterns it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

from npusim.memory.specs import DramConfig

if TYPE_CHECKING:
    from npusim.memory.specs import BusConfig, PortConfig, SramConfig

LONG_BYTES = 1 << 16  # rows from here on count as one endless row
SAMPLES = 64  # rows looked at one by one

Run = list[int]  # base, bytes, stride, count


@dataclass(frozen=True, slots=True)
class Pattern:
    """Rows of one length: `stride_bytes` apart, or at random places if 0."""

    row_bytes: int
    stride_bytes: int


LONG = Pattern(LONG_BYTES, 0)


@dataclass(frozen=True, slots=True)
class Demand:
    """One transfer: its bytes, AXI bursts, bus beats, port cycles and memory accesses."""

    total_bytes: int
    rows: int
    bursts: int
    beats: int
    port_cycles: int
    accesses: int


def unit_bytes(memory: DramConfig | SramConfig) -> int:
    """Bytes of one access: a DRAM burst or an SRAM word."""
    return memory.device.burst_bytes if isinstance(memory, DramConfig) else memory.port_bytes


def interleave(memory: DramConfig | SramConfig) -> tuple[int, int]:
    """(channels or banks, bytes of a block on one of them)."""
    if isinstance(memory, DramConfig):
        return memory.channels, memory.channel_interleave_bytes
    return memory.banks, memory.interleave_bytes


def demand(port: PortConfig, bus: BusConfig, unit: int, runs: list[Run]) -> Demand:
    """What the runs ask for.

    A port moves an AXI burst in whole cycles; all rows of a run count as cut like its first one.
    """
    total = rows = bursts = beats = cycles = accesses = 0
    for base, size, stride, count in runs:
        total += size * count
        rows += count
        bursts += blocks_touched(base, size, stride, count, bus.cut_bytes)
        beats += blocks_touched(base, size, stride, count, bus.data_bytes)
        accesses += blocks_touched(base, size, stride, count, unit)
        cycles += count * cycles_of_row(base, size, bus.cut_bytes, port.bytes_per_cycle)
    return Demand(total, rows, bursts, beats, cycles, accesses)


def cycles_of_row(base: int, size: int, cut: int, rate: int) -> int:
    """Cycles a port of `rate` bytes per cycle takes for a row cut at multiples of `cut` bytes.

    Examples
    --------
    >>> cycles_of_row(base=90, size=300, cut=100, rate=16)  # 10, 100, 100 and 90 bytes
    21
    """
    first = min(size, cut - base % cut)
    full, rest = divmod(size - first, cut)
    return -(-first // rate) + full * -(-cut // rate) + -(-rest // rate)


def blocks_touched(base: int, size: int, stride: int, rows: int, block: int) -> int:
    """Blocks of `block` bytes that rows touch, counted for each row by itself.

    Examples
    --------
    >>> blocks_touched(base=60, size=8, stride=64, rows=3, block=64)
    6
    """
    if rows == 1 or stride % block == 0:
        return rows * ((base + size - 1) // block - base // block + 1)
    period = min(rows, block // gcd(stride, block), SAMPLES)
    total = 0
    for i in range(period):
        at = base + i * stride
        total += (at + size - 1) // block - at // block + 1
    return -(-total * rows // period)


def pattern_of(row_bytes: int, stride_bytes: int, rows: int, unit: int) -> Pattern:
    """Class of `rows` rows: whole accesses, their number rounded down to three binary digits."""
    accesses = -(-row_bytes // unit)
    shift = max(0, accesses.bit_length() - 3)
    row = (accesses >> shift << shift) * unit
    if row >= LONG_BYTES:
        return LONG
    if rows == 1:
        return Pattern(row, 0)
    stride = round(abs(stride_bytes) / unit) * unit
    return LONG if stride <= row else Pattern(row, stride)


def channels_touched(memory: DramConfig | SramConfig, runs: list[Run]) -> int:
    """Channels (SRAM banks) that the first runs touch, a bit for each."""
    channels, block = interleave(memory)
    mask = 0
    for base, size, stride, count in runs[:SAMPLES]:
        mask |= channel_mask(base // block % channels, base % block, size, stride, count, block,
                             channels)  # fmt: skip
    return mask


@lru_cache(maxsize=1 << 16)
def channel_mask(
    first_channel: int, offset: int, size: int, stride: int, rows: int, block: int, channels: int
) -> int:
    """Channels of the first rows that start `offset` into a block of `first_channel`."""
    mask = 0
    for i in range(min(rows, SAMPLES)):
        at = offset + i * stride
        low, high = first_channel + at // block, first_channel + (at + size - 1) // block
        if high - low + 1 >= channels:
            return (1 << channels) - 1
        for k in range(low, high + 1):
            mask |= 1 << (k % channels)
    return mask
