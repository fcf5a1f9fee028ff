"""Tallies to result records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.results.records import (
    BarrierRecord,
    EngineRecord,
    MemoryRecord,
    OperatorRecord,
    PhaseRecord,
    SramRecord,
    StageRecord,
    StageTimeRecord,
)
from npusim.simulation.memories import memory_peaks
from npusim.simulation.occupancy import occupancy_series
from npusim.simulation.spans import bandwidth_series, span_tables
from npusim.simulation.tally import Tally
from npusim.simulation.tiers import tier_records

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.program import MemorySpace
    from npusim.results.records import Approximation
    from npusim.simulation.phase import Simulated
    from npusim.simulation.piece import Piece

#: own requirement of a resource, then the time it was in use (for stages no requirement explains)
_NEEDS = ("compute", "vector", "dram", "bus", "sram", "launch", "sync")
_IN_USE = ("compute", "vector", "dram", "sram")


@dataclass(frozen=True, kw_only=True)
class PhaseFacts:
    """What a phase record needs beside its tally and the program it came from."""

    name: str
    tokens: int
    steps: int
    bound_ps: int
    footprint_bytes: int
    approximations: tuple[Approximation, ...]
    is_memory_ideal: bool = False


def phase_record(
    facts: PhaseFacts, tally: Tally, simulated: Simulated, spec: RunSpec
) -> PhaseRecord:
    """One phase from its summed tally; spans and operators come from the simulated program."""
    piece = simulated.piece
    spans, flows = span_tables(piece, spec.simulation.max_spans)
    device_name, device = next(iter(spec.system.devices.items()))
    return PhaseRecord(
        phase=facts.name,
        elapsed_ps=tally["phase", "elapsed_ps"],
        clock=f"devices.{device_name}",
        clock_hz=device.clock_hz,
        bound_ps=facts.bound_ps,
        tokens=facts.tokens,
        steps=facts.steps,
        commands=tally["phase", "commands"],
        kernels=tally["phase", "kernels"],
        macs=tally["phase", "macs"],
        peak_macs_per_cycle=simulated.compiled.peak_macs_per_cycle,
        stages=_stages(tally),
        operators=_operators(piece),
        engines=_engines(piece, tally),
        memories=_memories(piece, tally, facts.footprint_bytes, memory_peaks(spec.system)),
        sram=_sram(piece, tally),
        barriers=_barriers(tally),
        approximations=facts.approximations,
        kernels_per_layer=_kernels_per_layer(piece),
        spans=spans,
        flows=flows,
        bandwidth=bandwidth_series(piece),
        occupancy=occupancy_series(piece.program, piece.execution),
        tiers=() if facts.is_memory_ideal else tier_records(piece, tally, spec),
        log=simulated.compiled.program.log,
        stage_times=tuple(
            StageTimeRecord(stage, kind, cause, time_ps)
            for (stage, kind, cause), time_ps in tally.rows("stage_time")
        ),
    )


def _kernels_per_layer(piece: Piece) -> float:
    layers = [k.layer for k in piece.program.kernels if k.layer is not None]
    return len(layers) / len(set(layers)) if layers else float(piece.num_kernels)


def _barriers(tally: Tally) -> tuple[BarrierRecord, ...]:
    return tuple(
        BarrierRecord(name, tally["barrier", name, "waits"], tally["barrier", name, "wait_ps"])
        for name in tally.names("barrier")
    )


def _stages(tally: Tally) -> tuple[StageRecord, ...]:
    return tuple(
        StageRecord(
            stage=stage,
            elapsed_ps=tally["stage", stage, "elapsed_ps"],
            active_ps=tally["stage", stage, "active_ps"],
            macs=tally["stage", stage, "macs"],
            dram_bytes=tally["stage", stage, "dram_bytes"],
            bound_by=_bound_by(tally, stage),
            launch_ps=tally["stage", stage, "launch_ps"],
            kernels=tally["stage", stage, "kernels"],
            scratchpad_bytes=tally["stage", stage, "scratchpad_bytes"],
            shared_sram_bytes=tally["stage", stage, "shared_sram_bytes"],
        )
        for stage in tally.names("stage")
    )


def _bound_by(tally: Tally, stage: str) -> str:
    """The resource whose own need explains most of the stage's time.

    If no need reaches half of it, latency dominates: then the resource in use for longest.
    """
    needs = {name: tally["stage", stage, f"score.{name}"] for name in _NEEDS}
    best = max(needs, key=lambda name: needs[name])
    if 2 * needs[best] >= tally["stage", stage, "elapsed_ps"]:
        return best
    in_use = {name: tally["stage", stage, f"score.busy.{name}"] for name in _IN_USE}
    in_use |= {name: needs[name] for name in ("launch", "sync")}
    return max(in_use, key=lambda name: in_use[name])


def _operators(piece: Piece) -> tuple[OperatorRecord, ...]:
    return tuple(
        OperatorRecord(name=kernel.name, stage=kernel.stage, layer=kernel.layer, **row)
        for kernel, row in zip(piece.program.kernels, piece.kernel_rows(), strict=True)
    )


def _engines(piece: Piece, tally: Tally) -> tuple[EngineRecord, ...]:
    stalls: dict[str, dict[str, int]] = {engine.name: {} for engine in piece.program.engines}
    for (name, what), count in tally.rows("engine"):
        if what.startswith("stall."):
            stalls[name][what.removeprefix("stall.")] = count
    return tuple(
        EngineRecord(
            engine=engine.name,
            kind=engine.kind.value,
            device=engine.device,
            core=engine.core,
            busy_ps=tally["engine", engine.name, "busy_ps"],
            idle_ps=tally["engine", engine.name, "idle_ps"],
            stalls_ps=stalls[engine.name],
            commands=tally["engine", engine.name, "commands"],
        )
        for engine in piece.program.engines
    )


def _memories(
    piece: Piece,
    tally: Tally,
    footprint_bytes: int,
    peak_bytes_per_s: dict[str, int],
) -> tuple[MemoryRecord, ...]:
    records = []
    for space in piece.program.spaces:
        if space.memory < 0 or space.kind == "cache":
            continue
        name = space.name
        is_dram = space.kind == "dram"
        shared = sum(a.nbytes for a in piece.program.allocations if _lies_in(piece, a.space, name))
        records.append(
            MemoryRecord(
                name=name,
                kind=space.kind,
                read_bytes=tally["memory", name, "read_bytes"],
                write_bytes=tally["memory", name, "write_bytes"],
                bytes_by_role={
                    role: tally["memory", name, f"role.{role}"]
                    for role in ("weight", "kv", "activation")
                },
                accesses=tally["memory", name, "accesses"],
                row_hits=tally["memory", name, "hits"],
                row_misses=tally["memory", name, "misses"],
                row_conflicts=tally["memory", name, "conflicts"],
                refreshes=tally["memory", name, "refreshes"],
                peak_bytes_per_s=peak_bytes_per_s[name],
                footprint_bytes=footprint_bytes if is_dram else shared,
                capacity_bytes=space.capacity_bytes,
            )
        )
    return tuple(records)


def _cache(space: MemorySpace, tally: Tally) -> SramRecord:
    """A cache in front of the DRAM; it held at most all that missed in it."""

    def count(name: str) -> int:
        return tally["sram", space.name, name]

    missed = count("requested_bytes") - count("hit_bytes")
    return SramRecord(
        name=space.name,
        hit_bytes=count("hit_bytes"),
        requested_bytes=count("requested_bytes"),
        conflict_ps=count("conflict_ps"),
        peak_occupancy_bytes=min(space.capacity_bytes, count("fill_bytes") + missed),
        capacity_bytes=space.capacity_bytes,
        hits=count("hits"),
        misses=count("misses"),
        evictions=count("evictions"),
        fill_bytes=count("fill_bytes"),
        write_back_bytes=count("write_back_bytes"),
        through_bytes=count("through_bytes"),
        bypass_bytes=count("bypass_bytes"),
    )


def _lies_in(piece: Piece, space: int, name: str) -> bool:
    return piece.program.spaces[space].name == name


def _sram(piece: Piece, tally: Tally) -> tuple[SramRecord, ...]:
    """Scratchpads, and the shared SRAM: bytes it served of all bytes DMA engines loaded."""
    capacity = {s.name: s.capacity_bytes for s in piece.program.spaces}
    conflicts_of: dict[str, list[tuple[str, str, int]]] = {name: [] for name in capacity}
    for (name, engine, by), ps in tally.rows("conflict"):
        conflicts_of[name].append((engine, by, ps))
    records = [
        SramRecord(
            name=name,
            hit_bytes=tally["sram", name, "hit_bytes"],
            requested_bytes=tally["sram", name, "requested_bytes"],
            conflict_ps=sum(ps for _, _, ps in conflicts_of[name]),
            peak_occupancy_bytes=peak,
            capacity_bytes=capacity[name],
            conflicts=tuple(sorted(conflicts_of[name])),
        )
        for name, peak in piece.peak_occupancy_bytes().items()
    ]
    for space in piece.program.spaces:
        if space.kind == "cache":
            records.append(_cache(space, tally))
        if space.kind == "shared_sram":
            served = tally["memory", space.name, "read_bytes"]
            loaded = sum(
                tally["memory", other.name, "read_bytes"]
                for other in piece.program.spaces
                if other.memory >= 0
            )
            occupied = sum(
                a.nbytes for a in piece.program.allocations if _lies_in(piece, a.space, space.name)
            )
            records.append(
                SramRecord(
                    name=space.name,
                    hit_bytes=served,
                    requested_bytes=loaded,
                    conflict_ps=tally["sram", space.name, "conflict_ps"],
                    peak_occupancy_bytes=occupied,
                    capacity_bytes=space.capacity_bytes,
                )
            )
    return tuple(records)
