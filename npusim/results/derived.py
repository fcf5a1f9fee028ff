"""What follows from the raw integers of a phase: cycles, shares, rates, utilizations.

Rounding is one-sided, so that a derived number never makes a run look better than it was: cycles
and times round up, achieved rates round down.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npusim.results.records import MemoryRecord, PhaseRecord, SramRecord, TierRecord

PS_PER_S = 10**12

#: kinds of the engines that multiply, as the program names them
MATRIX_KIND = "matrix"
#: kind of the memories that count as DRAM traffic
DRAM_KIND = "dram"


def cycles_of(elapsed_ps: int, clock_hz: int) -> int:
    """Cycles of a clock that a span starting on an edge touches; rounds up.

    Parameters
    ----------
    elapsed_ps : int
        Simulated time.
    clock_hz : int
        The clock to count in.

    Returns
    -------
    int
        ``ceil(elapsed_ps * clock_hz / 1e12)``.

    Examples
    --------
    >>> cycles_of(2_500, 1_000_000_000)
    3
    """
    return -(-elapsed_ps * clock_hz // PS_PER_S)


def stage_cycles(record: PhaseRecord) -> tuple[int, ...]:
    """Cycles of each stage; they sum to the cycles of the phase.

    Stage times are laid end to end and each border is rounded up once, so a stage may show one
    cycle more or less than its own time rounded up.
    """
    borders = accumulate((stage.elapsed_ps for stage in record.stages), initial=0)
    edges = [cycles_of(border, record.clock_hz) for border in borders]
    return tuple(end - start for start, end in pairwise(edges))


def mean_step_ps(record: PhaseRecord) -> int:
    """Mean time of a step of the phase, rounded up to whole picoseconds."""
    return -(-record.elapsed_ps // record.steps)


def achieved_bytes_per_s(memory: MemoryRecord, elapsed_ps: int) -> int:
    """Mean rate of reads and writes together over the phase; rounds down."""
    return (memory.read_bytes + memory.write_bytes) * PS_PER_S // elapsed_ps


def tier_bytes_per_s(tier: TierRecord, elapsed_ps: int) -> int:
    """Mean rate of a tier's reads over the phase; rounds down."""
    return tier.read_bytes * PS_PER_S // elapsed_ps


def hit_share_frac(sram: SramRecord) -> float | None:
    """Share of the requested bytes that did not go to DRAM; None when nothing was requested."""
    return sram.hit_bytes / sram.requested_bytes if sram.requested_bytes else None


@dataclass(frozen=True, slots=True)
class EffectiveBandwidth:
    """Rate at which compute engines got the bytes they asked for, beside two closed forms.

    Attributes
    ----------
    requested_bytes : int
        Bytes that compute engines asked for.
    hit_share_frac : float
        Share of them that did not come from DRAM.
    arithmetic_bytes_per_s, harmonic_bytes_per_s : int
        Peak rates of the tiers weighted by their shares: mean rate, and rate of the mean time.
    simulated_bytes_per_s : int
        Bytes asked for over the elapsed time.
    """

    requested_bytes: int
    hit_share_frac: float
    arithmetic_bytes_per_s: int
    harmonic_bytes_per_s: int
    simulated_bytes_per_s: int


def effective_bandwidth(record: PhaseRecord) -> EffectiveBandwidth | None:
    """Effective bandwidth of a phase; None if nothing was asked for."""
    requested = sum(int(tier.supplied_bytes) for tier in record.tiers)
    if not requested:
        return None
    parts = [(int(tier.supplied_bytes), int(tier.peak_bytes_per_s)) for tier in record.tiers]
    from_dram = sum(t.supplied_bytes for t in record.tiers if t.kind == DRAM_KIND)
    seconds = sum(Fraction(part, peak) for part, peak in parts)
    return EffectiveBandwidth(
        requested_bytes=requested,
        hit_share_frac=1 - int(from_dram) / requested,
        arithmetic_bytes_per_s=sum(part * peak for part, peak in parts) // requested,
        harmonic_bytes_per_s=int(requested / seconds),
        simulated_bytes_per_s=requested * PS_PER_S // int(record.elapsed_ps),
    )


@dataclass(frozen=True, slots=True)
class Utilization:
    """Three shares of a peak that are easily confused, each 0 to 1, None without such a part.

    Attributes
    ----------
    mac_frac : float or None
        MACs done over MACs the matrix units could have done in the elapsed time, at the peak of the
        format used. The figure that "utilization" alone means.
    matrix_busy_frac : float or None
        Time the matrix engines executed commands, whatever share of their elements had work.
    dram_bandwidth_frac : float or None
        DRAM bytes moved over DRAM bytes that the peak rates allow.
    """

    mac_frac: float | None
    matrix_busy_frac: float | None
    dram_bandwidth_frac: float | None


def utilization_of(record: PhaseRecord) -> Utilization:
    """The three utilizations of a phase."""
    peak_macs = record.peak_macs_per_cycle * record.clock_hz * record.elapsed_ps
    matrix = [engine for engine in record.engines if engine.kind == MATRIX_KIND]
    drams = [memory for memory in record.memories if memory.kind == DRAM_KIND]
    moved = sum(memory.read_bytes + memory.write_bytes for memory in drams)
    movable = sum(memory.peak_bytes_per_s for memory in drams) * record.elapsed_ps
    return Utilization(
        _share(record.macs * PS_PER_S, peak_macs),
        _share(sum(engine.busy_ps for engine in matrix), len(matrix) * record.elapsed_ps),
        _share(moved * PS_PER_S, movable),
    )


def _share(part: int, whole: int) -> float | None:
    """Ratio of two exact integers, None for an empty whole."""
    return int(part) / int(whole) if whole else None
