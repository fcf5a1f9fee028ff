"""Levels of the memory hierarchy: latency, peak rate, and whose bytes compute engines got.

The bytes asked for are those that matrix, vector and convert engines read from their scratchpads,
or what DMA engines brought in where that is more (padding, tiles that are not read whole). DRAM
supplied what was read from it; the shared SRAM what was read from it (a cache: what hit); the
scratchpads the rest, bytes read again while they lay there.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from npusim.compiler.target import Target
from npusim.memory.specs import DramConfig
from npusim.results.records import TierRecord
from npusim.simulation.memories import memory_configs, peak_bytes_per_s

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.memory.specs import SramConfig
    from npusim.simulation.piece import Piece
    from npusim.simulation.tally import Tally


def tier_records(piece: Piece, tally: Tally, spec: RunSpec) -> tuple[TierRecord, ...]:
    """Tiers of a phase, nearest first."""
    from npusim.memory.checks import unloaded_read_ps  # loads numba

    target = Target(spec.system, peak_bytes_per_s(spec.system), spec.compiler.max_cores)
    outer = [
        (unloaded_read_ps(memory, bus, port), memory, _read_bytes(tally, memory.name))
        for memory, bus, port in reversed(memory_configs(spec.system, target))
    ]
    loaded = sum(read for _, _, read in outer)
    read = sum(
        tally["sram", space.name, "requested_bytes"]
        for space in piece.program.spaces
        if space.kind == "scratchpad"
    )
    requested = max(read, loaded)
    return (
        _scratchpads(target, requested, requested - loaded),
        *(_outer(memory, latency_ps, nbytes) for latency_ps, memory, nbytes in outer),
    )


def _read_bytes(tally: Tally, name: str) -> int:
    """Bytes read from a memory; a cache in front of the DRAM counts its hits instead."""
    return tally["memory", name, "read_bytes"] + tally["sram", name, "hit_bytes"]


def _scratchpads(target: Target, read_bytes: int, supplied_bytes: int) -> TierRecord:
    """The scratchpads of all cores."""
    pad = target.core.scratchpad
    cores = target.cores
    return TierRecord(
        tier=f"{target.device_name}.scratchpad",
        kind="scratchpad",
        latency_ps=int(Fraction(pad.latency_cycles) * target.period_ps),
        peak_bytes_per_s=cores * pad.banks * pad.port_bytes * target.device.clock_hz,
        read_bytes=read_bytes,
        supplied_bytes=supplied_bytes,
    )


def _outer(memory: DramConfig | SramConfig, latency_ps: int, nbytes: int) -> TierRecord:
    """A memory behind a bus."""
    return TierRecord(
        tier=memory.name,
        kind="dram" if isinstance(memory, DramConfig) else "shared_sram",
        latency_ps=latency_ps,
        peak_bytes_per_s=int(memory.peak_bytes_per_s),
        read_bytes=nbytes,
        supplied_bytes=nbytes,
    )
