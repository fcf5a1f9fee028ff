"""Roofline of a phase: what its stages reached, and what compute and memories allow.

A stage that does one FLOP per byte of a memory cannot run faster than that memory's rate, and no
stage faster than the matrix units. One MAC is two FLOPs; vector operations are not counted. Source:
Williams, Waterman and Patterson, CACM 52(4), 2009; one point per memory level: Yang et al., 2020.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from npusim.results.derived import DRAM_KIND, PS_PER_S
from npusim.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from npusim.config.run_spec import RunSpec
    from npusim.results.records import PhaseRecord, StageRecord

FLOPS_PER_MAC = 2
SCRATCHPAD_KIND, SHARED_KIND = "scratchpad", "shared_sram"


@dataclass(frozen=True, slots=True)
class ComputeRoof:
    """Peak of all matrix units of the device in a format."""

    name: str
    flops_per_s: int


@dataclass(frozen=True, slots=True)
class MemoryRoof:
    """Peak rate of a level of the memory hierarchy: of all DRAMs, or all scratchpads, together."""

    level: str  # a DRAM_KIND, SHARED_KIND or SCRATCHPAD_KIND
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class Point:
    """One stage at one memory level.

    Attributes
    ----------
    stage, level : str
        Which; every stage has a point per level through which its bytes moved.
    flops : int
        Two per MAC.
    moved_bytes : int
        DRAM: read and written. On chip: read.
    active_ps : int
        Union of the spans of the stage's commands, waits for operands between them left out.
    """

    stage: str
    level: str
    flops: int
    moved_bytes: int
    active_ps: int

    @property
    def intensity_flops_per_byte(self) -> float:
        """Operational intensity with respect to the level."""
        return self.flops / self.moved_bytes

    @property
    def achieved_flops_per_s(self) -> int:
        """Mean rate while the stage was active; rounds down."""
        return self.flops * PS_PER_S // self.active_ps


@dataclass(frozen=True, slots=True)
class Roofline:
    """Roofs and points of a phase.

    Attributes
    ----------
    phase : str
        Name of the phase.
    peak : ComputeRoof
        In the fastest format that the phase multiplies in; it limits the stages.
    compute_roofs : tuple[ComputeRoof, ...]
        By format the units know; empty if the run's specification was not saved.
    memory_roofs : tuple[MemoryRoof, ...]
        DRAM first.
    points : tuple[Point, ...]
        Stages in program order, those that multiply.
    """

    phase: str
    peak: ComputeRoof
    compute_roofs: tuple[ComputeRoof, ...]
    memory_roofs: tuple[MemoryRoof, ...]
    points: tuple[Point, ...]

    def roof(self, level: str) -> MemoryRoof:
        """Roof of a level that has points."""
        return next(roof for roof in self.memory_roofs if roof.level == level)

    def attainable_flops_per_s(self, point: Point) -> int:
        """Lower of the compute roof and the point's memory roof at its intensity; rounds down."""
        rate = self.roof(point.level).bytes_per_s
        by_memory = Fraction(point.flops * rate, point.moved_bytes)
        return min(self.peak.flops_per_s, int(by_memory))

    def limit(self, point: Point) -> str:
        """``compute``, or the level whose roof is the lower one at the point's intensity."""
        rate = self.roof(point.level).bytes_per_s
        is_memory = point.flops * rate < self.peak.flops_per_s * point.moved_bytes
        return point.level if is_memory else "compute"

    def reached_frac(self, point: Point) -> float:
        """Share of the attainable rate that the stage reached."""
        return point.achieved_flops_per_s / self.attainable_flops_per_s(point)

    def tightest(self) -> list[Point]:
        """Of each stage the point with the lowest roof, the level farthest out where equal."""
        found: dict[str, Point] = {}
        for point in self.points:
            best = found.setdefault(point.stage, point)
            if self.attainable_flops_per_s(point) < self.attainable_flops_per_s(best):
                found[point.stage] = point
        return list(found.values())

    def table(self) -> Table:
        """One row per point."""
        rows = [self._row(point) for point in self.points]
        header = rows[0] if rows else {}
        return Table("roofline", {name: [row[name] for row in rows] for name in header})

    def to_frame(self) -> pd.DataFrame:
        """One row per point, as a frame."""
        return self.table().to_frame()

    def _row(self, point: Point) -> dict[str, Any]:
        return {
            "phase": self.phase,
            **asdict(point),
            "intensity_flops_per_byte": point.intensity_flops_per_byte,
            "achieved_flops_per_s": point.achieved_flops_per_s,
            "attainable_flops_per_s": self.attainable_flops_per_s(point),
            "reached_frac": self.reached_frac(point),
            "limit": self.limit(point),
        }

    def summary(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "peak": asdict(self.peak),
            "compute_roofs": [asdict(roof) for roof in self.compute_roofs],
            "memory_roofs": [asdict(roof) for roof in self.memory_roofs],
            "points": [self._row(point) for point in self.points],
        }


def roofline(record: PhaseRecord, spec: RunSpec | None = None) -> Roofline:
    """Roofline of a phase.

    Parameters
    ----------
    record : PhaseRecord
        A phase.
    spec : RunSpec, optional
        The run's specification, for the roofs of the formats that were not used.

    Notes
    -----
    Left out: the vector unit, and formats by stage: a stage that multiplies in a slower format than
    `peak` shows less than it reaches of its own roof.
    """
    peak = FLOPS_PER_MAC * int(record.peak_macs_per_cycle) * int(record.clock_hz)
    roofs = tuple(_memory_roofs(record))
    levels = {roof.level for roof in roofs if roof.bytes_per_s}
    points = [point for stage in record.stages for point in _points(stage)]
    return Roofline(
        phase=record.phase,
        peak=ComputeRoof("peak", peak),
        compute_roofs=() if spec is None else tuple(_compute_roofs(spec)),
        memory_roofs=roofs,
        points=tuple(point for point in points if point.level in levels) if peak else (),
    )


def _compute_roofs(spec: RunSpec) -> Iterator[ComputeRoof]:
    """Peak of the first device in each of its formats, all cores, as `peak_macs_per_cycle`."""
    device = next(iter(spec.system.devices.values()))
    matrix = device.core.matrix
    for dtype in matrix.dtypes:
        macs = device.cores * matrix.macs_per_cycle(dtype)
        yield ComputeRoof(dtype.value, FLOPS_PER_MAC * macs * device.clock_hz)


def _memory_roofs(record: PhaseRecord) -> Iterator[MemoryRoof]:
    """All DRAMs, the shared SRAM, all scratchpads; what the phase has."""
    drams = [int(m.peak_bytes_per_s) for m in record.memories if m.kind == DRAM_KIND]
    if drams:
        yield MemoryRoof(DRAM_KIND, sum(drams))
    for kind in (SHARED_KIND, SCRATCHPAD_KIND):
        rates = [int(tier.peak_bytes_per_s) for tier in record.tiers if tier.kind == kind]
        if rates:
            yield MemoryRoof(kind, sum(rates))


def _points(stage: StageRecord) -> Iterator[Point]:
    """A point per level through which bytes of a stage moved; none without MACs or time."""
    moved = {
        DRAM_KIND: stage.dram_bytes,
        SHARED_KIND: stage.shared_sram_bytes,
        SCRATCHPAD_KIND: stage.scratchpad_bytes,
    }
    for level, nbytes in moved.items():
        if stage.macs and nbytes and stage.active_ps:
            flops = FLOPS_PER_MAC * int(stage.macs)
            yield Point(stage.stage, level, flops, int(nbytes), int(stage.active_ps))
