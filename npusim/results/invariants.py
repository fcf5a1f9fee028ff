"""What every finished phase must satisfy; a phase that does not is an error, never a result."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from npusim.errors import SimulationError
from npusim.results.derived import DRAM_KIND, PS_PER_S
from npusim.results.records import BUSY, IDLE

if TYPE_CHECKING:
    from npusim.results.records import EngineRecord, MemoryRecord, PhaseRecord, StageRecord

BOUNDS = ("compute", "vector", "dram", "sram", "bus", "launch", "sync")
ROLES = ("weight", "kv", "activation")


def check_phase(record: PhaseRecord, is_memory_ideal: bool = False) -> None:
    """Check that time, work and bytes of a phase add up.

    Parameters
    ----------
    record : PhaseRecord
        The phase.
    is_memory_ideal : bool, optional
        Memory answered at once, so its peak rate does not limit it.

    Raises
    ------
    SimulationError
        Naming the phase, the component, the rule and both numbers.
    """
    where = f"phase {record.phase}"
    _require(record.elapsed_ps > 0, where, "a run takes time", record.elapsed_ps)
    _require(record.steps > 0, where, "a phase has steps", record.steps)
    _require(
        record.elapsed_ps >= record.bound_ps,
        where,
        f"elapsed_ps is at least the closed-form bound of {record.bound_ps} ps",
        record.elapsed_ps,
    )
    _check_stages(record, where)
    for engine in record.engines:
        _check_engine(engine, record.elapsed_ps, where)
    if record.stage_times:
        _check_stage_times(record, where)
    for memory in record.memories:
        _check_memory(memory, where)
        if not is_memory_ideal:
            _check_rate(memory, record.elapsed_ps, where)
    _check_tiers(record, where)
    if is_memory_ideal:
        _check_no_memory_stalls(record, where)
    for sram in record.sram:
        place = f"{where}, SRAM {sram.name}"
        _at_most(sram.hit_bytes, sram.requested_bytes, place, "hit_bytes", "requested_bytes")
        _at_most(sram.peak_occupancy_bytes, sram.capacity_bytes, place, "occupancy", "capacity")
        told = sum(ps for _, _, ps in sram.conflicts)
        _at_most(told, sram.conflict_ps, place, "conflicts", "conflict_ps")


def _check_no_memory_stalls(record: PhaseRecord, where: str) -> None:
    """Nothing waits for a memory that answers at once."""
    for engine in record.engines:
        waits = {
            cause: ps
            for cause, ps in engine.stalls_ps.items()
            if ps and (cause.startswith("dram_") or cause in ("sram", "bus"))
        }
        rule = "an ideal memory causes no stalls"
        _require(not waits, f"{where}, engine {engine.engine}", rule, waits)


def _check_stages(record: PhaseRecord, where: str) -> None:
    """Stages split time, MACs and DRAM bytes of the phase without rest."""
    for stage in record.stages:
        _check_stage(stage, record.elapsed_ps, f"{where}, stage {stage.stage}")
    elapsed_ps = sum(stage.elapsed_ps for stage in record.stages)
    _equal(elapsed_ps, record.elapsed_ps, where, "stage times", "elapsed_ps")
    macs = sum(stage.macs for stage in record.stages)
    _equal(macs, record.macs, where, "MACs of the stages", "MACs of the phase")
    dram_bytes = sum(stage.dram_bytes for stage in record.stages)
    moved = sum(m.read_bytes + m.write_bytes for m in record.memories if m.kind == DRAM_KIND)
    _equal(dram_bytes, moved, where, "DRAM bytes of the stages", "bytes of the DRAMs")


def _check_stage(stage: StageRecord, elapsed_ps: int, where: str) -> None:
    """A stage lies within its phase."""
    _at_most(0, stage.elapsed_ps, where, "zero", "elapsed_ps")
    _at_most(0, stage.active_ps, where, "zero", "active_ps")
    _at_most(stage.active_ps, elapsed_ps, where, "active_ps", "the phase")
    _at_most(0, stage.launch_ps, where, "zero", "launch_ps")
    _at_most(stage.launch_ps, stage.elapsed_ps, where, "launch_ps", "elapsed_ps")
    _require(stage.bound_by in BOUNDS, where, f"bound_by is one of {BOUNDS}", stage.bound_by)


def _check_engine(engine: EngineRecord, elapsed_ps: int, where: str) -> None:
    """Every picosecond of an engine is busy, idle or stalled for one cause."""
    place = f"{where}, engine {engine.engine}"
    parts = {"busy": engine.busy_ps, "idle": engine.idle_ps, **engine.stalls_ps}
    for name, part_ps in parts.items():
        _at_most(0, part_ps, place, "zero", f"{name} time")
    _equal(sum(parts.values()), elapsed_ps, place, "busy + idle + stalls", "elapsed_ps")


def _check_stage_times(record: PhaseRecord, where: str) -> None:
    """Stage times split the engines' times without rest, by stage and by cause."""
    engines: Counter[str] = Counter(engine.kind for engine in record.engines)
    of_engines: Counter[tuple[str, str]] = Counter()
    for engine in record.engines:
        parts = {BUSY: engine.busy_ps, IDLE: engine.idle_ps, **engine.stalls_ps}
        for cause, part_ps in parts.items():
            of_engines[engine.kind, cause] += part_ps
    of_stages: Counter[tuple[str, str]] = Counter()
    split: Counter[tuple[str, str]] = Counter()
    for row in record.stage_times:
        place = f"{where}, stage {row.stage}, {row.kind}"
        _at_most(0, row.time_ps, place, "zero", f"{row.cause} time")
        of_stages[row.kind, row.cause] += row.time_ps
        split[row.stage, row.kind] += row.time_ps
    for kind, cause in sorted(of_engines.keys() | of_stages.keys()):
        parts_ps, whole_ps = of_stages[kind, cause], of_engines[kind, cause]
        _equal(parts_ps, whole_ps, f"{where}, {kind}", f"{cause} of the stages", "the engines'")
    for stage in record.stages:
        for kind, count in engines.items():
            place = f"{where}, stage {stage.stage}, {kind}"
            whole_ps = stage.elapsed_ps * count
            _equal(split[stage.stage, kind], whole_ps, place, "causes", "elapsed_ps x engines")


def _check_memory(memory: MemoryRecord, where: str) -> None:
    """Every byte has a role, every DRAM access one row state, and all of it fits."""
    place = f"{where}, memory {memory.name}"
    unknown = sorted(set(memory.bytes_by_role) - set(ROLES))
    _require(not unknown, place, f"bytes_by_role has the roles {ROLES}", unknown)
    moved = memory.read_bytes + memory.write_bytes
    _equal(sum(memory.bytes_by_role.values()), moved, place, "bytes by role", "reads + writes")
    _at_most(memory.footprint_bytes, memory.capacity_bytes, place, "footprint", "capacity")
    if memory.kind == DRAM_KIND:
        rows = memory.row_hits + memory.row_misses + memory.row_conflicts
        _equal(rows, memory.accesses, place, "row hits + misses + conflicts", "accesses")


def _check_tiers(record: PhaseRecord, where: str) -> None:
    """DRAM supplies no more than was read from it, and no tier is faster than its peak."""
    read = sum(m.read_bytes for m in record.memories if m.kind == DRAM_KIND)
    for tier in record.tiers:
        place = f"{where}, tier {tier.tier}"
        _at_most(0, tier.supplied_bytes, place, "zero", "supplied_bytes")
        _at_most(tier.supplied_bytes, tier.read_bytes, place, "supplied_bytes", "read_bytes")
        if tier.kind == DRAM_KIND:
            _equal(tier.read_bytes, read, place, "bytes read", "DRAM reads")


def _check_rate(memory: MemoryRecord, elapsed_ps: int, where: str) -> None:
    """No memory moves more than its peak."""
    movable = memory.peak_bytes_per_s * elapsed_ps // PS_PER_S
    moved = memory.read_bytes + memory.write_bytes
    place = f"{where}, memory {memory.name}"
    _at_most(moved, movable, place, "bytes moved", "bytes at the peak rate")


def _equal(found: int, expected: int, where: str, left: str, right: str) -> None:
    """Refuse two sums that differ."""
    if found != expected:
        rule = f"{left} must equal {right}: {expected}, difference {found - expected:+d}"
        raise SimulationError(where, rule, int(found))


def _at_most(found: int, limit: int, where: str, left: str, right: str) -> None:
    """Refuse a part that is larger than the whole."""
    if found > limit:
        raise SimulationError(where, f"{left} must not exceed {right}: {int(limit)}", int(found))


def _require(is_met: bool, where: str, rule: str, value: object) -> None:
    """Refuse a broken rule."""
    if not is_met:
        raise SimulationError(where, rule, value)
