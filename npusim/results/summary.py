"""The summary JSON: the stable contract with scripts. Keys are added, never renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.results.derived import (
    achieved_bytes_per_s,
    cycles_of,
    effective_bandwidth,
    hit_share_frac,
    stage_cycles,
    tier_bytes_per_s,
    utilization_of,
)
from npusim.results.invariants import ROLES
from npusim.results.records import CACHE_COUNTS

if TYPE_CHECKING:
    from npusim.results.records import (
        Approximation,
        BarrierRecord,
        EngineRecord,
        MemoryRecord,
        PhaseRecord,
        SramRecord,
    )


def phase_summary(record: PhaseRecord) -> dict[str, Any]:
    """The object of one phase; plain Python values only."""
    used = utilization_of(record)
    return {
        "elapsed_ps": int(record.elapsed_ps),
        "cycles": int(cycles_of(record.elapsed_ps, record.clock_hz)),
        "clock": record.clock,
        "clock_hz": int(record.clock_hz),
        "bound_ps": int(record.bound_ps),
        "tokens": int(record.tokens),
        "steps": int(record.steps),
        "commands": int(record.commands),
        "kernels": int(record.kernels),
        "kernels_per_layer": float(record.kernels_per_layer),
        "launch_ps": int(sum(stage.launch_ps for stage in record.stages)),
        "macs": int(record.macs),
        "peak_macs_per_cycle": int(record.peak_macs_per_cycle),
        "utilization": {
            "mac_frac": used.mac_frac,
            "matrix_busy_frac": used.matrix_busy_frac,
            "dram_bandwidth_frac": used.dram_bandwidth_frac,
        },
        "stages": _stages(record),
        "engines": [_engine(engine) for engine in record.engines],
        "memories": [_memory(memory, record.elapsed_ps) for memory in record.memories],
        "sram": [_sram(sram) for sram in record.sram],
        "effective_bandwidth": _effective_bandwidth(record),
        "barriers": [_barrier(barrier) for barrier in record.barriers],
        "energy_j": None,
        "approximations": [_approximation(item) for item in record.approximations],
    }


def _stages(record: PhaseRecord) -> list[dict[str, Any]]:
    """Stages in program order; times and cycles sum to the phase."""
    return [
        {
            "stage": stage.stage,
            "elapsed_ps": int(stage.elapsed_ps),
            "active_ps": int(stage.active_ps),
            "cycles": int(cycles),
            "share_frac": float(stage.elapsed_ps / record.elapsed_ps),
            "macs": int(stage.macs),
            "dram_bytes": int(stage.dram_bytes),
            "bound_by": str(stage.bound_by),
            "launch_ps": int(stage.launch_ps),
            "kernels": int(stage.kernels),
        }
        for stage, cycles in zip(record.stages, stage_cycles(record), strict=True)
    ]


def _engine(engine: EngineRecord) -> dict[str, Any]:
    """One engine; causes sorted by name."""
    return {
        "engine": engine.engine,
        "kind": str(engine.kind),
        "device": engine.device,
        "core": engine.core,
        "busy_ps": int(engine.busy_ps),
        "idle_ps": int(engine.idle_ps),
        "stalls_ps": {str(c): int(engine.stalls_ps[c]) for c in sorted(engine.stalls_ps)},
        "commands": int(engine.commands),
    }


def _memory(memory: MemoryRecord, elapsed_ps: int) -> dict[str, Any]:
    """One memory; every role is listed, also with zero bytes."""
    return {
        "name": memory.name,
        "kind": memory.kind,
        "read_bytes": int(memory.read_bytes),
        "write_bytes": int(memory.write_bytes),
        "bytes_by_role": {role: int(memory.bytes_by_role.get(role, 0)) for role in ROLES},
        "accesses": int(memory.accesses),
        "row_hits": int(memory.row_hits),
        "row_misses": int(memory.row_misses),
        "row_conflicts": int(memory.row_conflicts),
        "refreshes": int(memory.refreshes),
        "achieved_bytes_per_s": int(achieved_bytes_per_s(memory, elapsed_ps)),
        "peak_bytes_per_s": int(memory.peak_bytes_per_s),
        "footprint_bytes": int(memory.footprint_bytes),
        "capacity_bytes": int(memory.capacity_bytes),
    }


def _sram(sram: SramRecord) -> dict[str, Any]:
    """One SRAM."""
    return {
        "name": sram.name,
        "hit_share_frac": hit_share_frac(sram),
        "hit_bytes": int(sram.hit_bytes),
        "requested_bytes": int(sram.requested_bytes),
        "conflict_ps": int(sram.conflict_ps),
        "conflicts": [
            {"engine": engine, "by": by, "lost_ps": int(ps)} for engine, by, ps in sram.conflicts
        ],
        **{name: int(getattr(sram, name)) for name in CACHE_COUNTS},
        "peak_occupancy_bytes": int(sram.peak_occupancy_bytes),
        "capacity_bytes": int(sram.capacity_bytes),
    }


def _effective_bandwidth(record: PhaseRecord) -> dict[str, Any] | None:
    """Tiers, nearest first, and the rates of all of them together."""
    found = effective_bandwidth(record)
    if found is None:
        return None
    return {
        "tiers": [
            {
                "tier": tier.tier,
                "kind": tier.kind,
                "latency_ps": int(tier.latency_ps),
                "peak_bytes_per_s": int(tier.peak_bytes_per_s),
                "read_bytes": int(tier.read_bytes),
                "achieved_bytes_per_s": int(tier_bytes_per_s(tier, record.elapsed_ps)),
                "supplied_bytes": int(tier.supplied_bytes),
                "share_frac": int(tier.supplied_bytes) / found.requested_bytes,
            }
            for tier in record.tiers
        ],
        "requested_bytes": found.requested_bytes,
        "hit_share_frac": found.hit_share_frac,
        "arithmetic_bytes_per_s": found.arithmetic_bytes_per_s,
        "harmonic_bytes_per_s": found.harmonic_bytes_per_s,
        "simulated_bytes_per_s": found.simulated_bytes_per_s,
    }


def _barrier(barrier: BarrierRecord) -> dict[str, Any]:
    """One barrier."""
    return {"name": barrier.name, "waits": int(barrier.waits), "wait_ps": int(barrier.wait_ps)}


def _approximation(item: Approximation) -> dict[str, Any]:
    """One estimate, with its error where it is known."""
    error = item.estimated_error_frac
    return {
        "kind": item.kind,
        "scope": item.scope,
        "estimated_error_frac": None if error is None else float(error),
        "basis": item.basis,
    }
