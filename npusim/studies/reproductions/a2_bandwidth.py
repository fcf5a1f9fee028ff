"""Effective bandwidth of shared SRAM and DRAM when a share of the bytes comes from each.

Every core reads its part of the bytes with one DMA engine per tier. *In turn*: DRAM when the bytes
of all cores have come from SRAM (one barrier); *at once*: both from the start. The hit share is
measured, not assumed: bytes read from SRAM over bytes read. Streams of one tier alone give the
rates that both are compared with, a read of one burst alone the latency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.analytic.golden_formula import blended_bandwidth
from npusim.compiler.target import Target
from npusim.config.loader import load_system
from npusim.config.overrides import apply_system_overrides
from npusim.config.run_spec import Fidelity
from npusim.config.spec import PositiveInt, ShareFrac, Spec
from npusim.errors import ConfigError
from npusim.program import (
    BarrierBit,
    Command,
    Edge,
    Kernel,
    Opcode,
    Program,
    TransferSpec,
)
from npusim.simulation.memories import (
    build_memory,
    check_capacity,
    memory_peaks,
    peak_bytes_per_s,
)
from npusim.simulation.program import simulate_program
from npusim.studies.reproduction import Check, Outcome, ReproductionFile, Study

if TYPE_CHECKING:
    from npusim.config.system import SystemConfig
    from npusim.simulation.piece import Piece

_GB = 10**9
_PS_PER_S = 10**12
_PS_PER_NS = 1000
_NEAR_FRAC = 0.03  # start and end of the streams
_SRAM_DONE = BarrierBit(0, 0, "sram_done")


class Config(Spec):
    """Bytes and system."""

    hit_frac: ShareFrac
    """Share of the bytes that comes from SRAM, rounded to whole pieces per core."""
    total_bytes: PositiveInt
    """Bytes of all cores."""
    piece_bytes: PositiveInt
    """Bytes of one descriptor."""
    system: str
    """System to start from; it needs a shared SRAM and two load engines."""
    overrides: tuple[str, ...] = ()
    """What is changed in it, as for ``--set``."""


class File(ReproductionFile):
    """The file of this reproduction."""

    config: Config
    """What is simulated."""


def run(file: File) -> Outcome:
    """Blends by formula beside bytes in turn and at once."""
    config = file.config
    system = _system(config)
    target = _target(config, system)
    hit, in_turn = _rate(config, system, target, in_turn=True)
    _, at_once = _rate(config, system, target, in_turn=False)
    streams = [
        _rate(config.model_copy(update={"hit_frac": share}), system, target, in_turn=False)[1]
        for share in (1.0, 0.0)
    ]
    # reads have one of the two data channels of the SRAM
    sram = memory_peaks(system)[f"{target.device_name}.shared_sram"] / 2
    dram = peak_bytes_per_s(system)[target.dram_name]
    rates = {
        "arithmetic": blended_bandwidth(sram, dram, hit, "arithmetic"),
        "harmonic": blended_bandwidth(sram, dram, hit, "harmonic"),
        "sram_peak": sram,
        "dram_peak": float(dram),
        "sram_stream": streams[0],
        "dram_stream": streams[1],
        "in_turn": in_turn,
        "at_once": at_once,
    }
    figures = {"hit_frac": round(hit, 6)}
    figures |= {f"{name}_gb_per_s": round(rate / _GB, 3) for name, rate in rates.items()}
    figures["dram_latency_ns"] = _latency_ns(system, target)
    slower = min(rate / part for rate, part in zip(streams, (hit, 1 - hit), strict=True) if part)
    harmonic = blended_bandwidth(streams[0], streams[1], hit, "harmonic")
    checks = (
        Check("bytes in turn take the harmonic blend of the streams", _is_near(in_turn, harmonic)),
        Check("bytes at once take as long as the slower stream", _is_near(at_once, slower)),
    )
    return Outcome(figures, checks)


def _is_near(rate: float, expected: float) -> bool:
    return abs(rate - expected) <= _NEAR_FRAC * expected


def _program(config: Config, target: Target, *, in_turn: bool) -> Program:
    """Reads of all cores from both tiers."""
    pieces = config.total_bytes // target.cores // config.piece_bytes
    hits = round(pieces * config.hit_frac)
    commands: list[Command] = []
    for core in range(target.cores):
        commands += [_read(config, target, core, i, from_sram=True) for i in range(hits)]
    if in_turn and 0 < hits < pieces:
        arrivals = tuple(Edge(i) for i in range(len(commands)))
        register, bit = _SRAM_DONE.register, _SRAM_DONE.bit
        engines = [target.core_engines[core].loads[1] for core in range(target.cores)]
        commands.append(
            Command(target.barrier_engine, Opcode.SIGNAL, 0, arrivals, register=register, bit=bit)
        )
        commands += [Command(e, Opcode.WAIT, register=register, bit=bit) for e in engines]
    for core in range(target.cores):
        commands += [_read(config, target, core, i, from_sram=False) for i in range(pieces - hits)]
    kernel = Kernel("reads", "reads", "reads", None)
    return Program.from_commands(commands, target.engines, target.spaces, [kernel], [_SRAM_DONE])


def _read(config: Config, target: Target, core: int, index: int, *, from_sram: bool) -> Command:
    """One descriptor; cores take neighbouring pieces in turn, wrapping around in the SRAM."""
    engine = target.core_engines[core].loads[0 if from_sram else 1]
    space = target.shared_space if from_sram else target.dram_space
    assert space is not None
    places = target.spaces[space].capacity_bytes // config.piece_bytes
    base = (index * target.cores + core) % places * config.piece_bytes
    spec = TransferSpec.gather(space, [(base, config.piece_bytes)])
    return Command(engine, Opcode.LOAD, 0, (), spec)


def _rate(
    config: Config, system: SystemConfig, target: Target, *, in_turn: bool
) -> tuple[float, float]:
    """Share of the bytes that came from SRAM, and bytes per second."""
    piece = _simulate(system, _program(config, target, in_turn=in_turn))
    program = piece.program
    kinds = np.array([space.kind for space in program.spaces])
    from_sram = kinds[program.transfers.space] == "shared_sram"
    total = int(piece.read_bytes.sum())
    share = int(piece.read_bytes[from_sram].sum()) / total
    return share, total * _PS_PER_S / piece.execution.elapsed_ps


def _latency_ns(system: SystemConfig, target: Target) -> float:
    """One burst read from an idle DRAM, without the time to issue its descriptor."""
    spec = TransferSpec.gather(target.dram_space, [(0, 32)])
    engine = target.core_engines[0].loads[1]
    command = Command(engine, Opcode.LOAD, 0, (), spec)
    program = Program.from_commands([command], target.engines, target.spaces)
    piece = _simulate(system, program)
    issue_ps = int(target.engines[engine].issue_ticks * target.period_ps)
    return (int(piece.execution.end_ps[0]) - issue_ps) / _PS_PER_NS


def _simulate(system: SystemConfig, program: Program) -> Piece:
    target = Target(system, peak_bytes_per_s(system))
    return simulate_program(program, build_memory(system, target, Fidelity.BURST))


def _target(config: Config, system: SystemConfig) -> Target:
    target = Target(system, peak_bytes_per_s(system))
    if target.shared_space is None or len(target.core_engines[0].loads) < 2:
        rule = "must have a shared SRAM that programs address and two load engines"
        raise ConfigError("config.system", rule, config.system)
    if config.total_bytes < target.cores * config.piece_bytes:
        rule = f"must be at least a piece for each of {target.cores} cores"
        raise ConfigError("config.total_bytes", rule, config.total_bytes)
    return target


def _system(config: Config) -> SystemConfig:
    system = apply_system_overrides(load_system(config.system), config.overrides)
    check_capacity(system)
    return system


STUDY = Study(File, run)
