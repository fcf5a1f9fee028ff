"""Single commands, from which tests build small programs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from npusim.program.tables import END, EdgeKind, Opcode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npusim.program.arrays import ProgramBuilder

BITS_PER_REGISTER = 64


def barrier_id(register: int, bit: int) -> int:
    """Packed (register, bit) of a barrier."""
    return register * BITS_PER_REGISTER + bit


@dataclass(frozen=True, slots=True)
class Edge:
    """Wait for `producer`: its end, or `at` ticks after its start."""

    producer: int
    kind: EdgeKind = EdgeKind.DATA
    at: int = END


@dataclass(frozen=True, slots=True)
class Region:
    """A range of a memory space."""

    space: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class TransferSpec:
    """What a LOAD or STORE moves: runs of (base, bytes, stride, count) in a DRAM or shared SRAM.

    One run is a 1D or 2D descriptor, several are a gather (STORE: scatter) list.
    """

    space: int
    is_write: bool
    runs: tuple[tuple[int, int, int, int], ...]
    role: str = "activation"
    leader: int = -1  # command whose multicast delivers the bytes

    @classmethod
    def gather(
        cls,
        space: int,
        pieces: Sequence[tuple[int, int]],
        *,
        is_write: bool = False,
        role: str = "activation",
    ) -> TransferSpec:
        """A list of (base, bytes) pieces, moved in this order: the kept blocks of a KV cache."""
        runs = tuple((base, nbytes, nbytes, 1) for base, nbytes in pieces)
        return cls(space, is_write, runs, role)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `Program.from_commands`; `cycles` may be a Fraction."""

    engine: int
    opcode: Opcode
    cycles: Fraction | int = 0
    waits: tuple[Edge, ...] = ()
    transfer: TransferSpec | None = None
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    kernel: int = 0
    macs: int = 0
    register: int = -1
    bit: int = -1
    generation: int = 0


def common_ticks_per_cycle(commands: Sequence[Command]) -> int:
    """Ticks per cycle that make every duration a whole number of ticks."""
    return lcm(*(Fraction(command.cycles).denominator for command in commands)) if commands else 1


def add_commands(builder: ProgramBuilder, commands: Sequence[Command]) -> None:
    """Add commands in order, each WAIT with an edge from the SIGNAL it matches."""
    signals = {
        (c.register, c.bit, c.generation): i
        for i, c in enumerate(commands)
        if c.opcode is Opcode.SIGNAL
    }
    for index, command in enumerate(commands):
        _add_command(builder, index, command)
        key = (command.register, command.bit, command.generation)
        if command.opcode is Opcode.WAIT and key in signals:
            builder.edges(index, signals[key], EdgeKind.BARRIER)


def _add_command(builder: ProgramBuilder, index: int, command: Command) -> None:
    is_barrier = command.opcode in (Opcode.SIGNAL, Opcode.WAIT)
    builder.commands(
        1,
        engine=command.engine,
        opcode=int(command.opcode),
        kernel=command.kernel,
        order=index,
        duration_ticks=int(command.cycles * builder.ticks_per_cycle),
        macs=command.macs,
        barrier=barrier_id(command.register, command.bit) if is_barrier else -1,
        generation=command.generation,
    )
    for edge in command.waits:
        builder.edges(index, edge.producer, edge.kind, edge.at)
    for regions, is_write in ((command.reads, False), (command.writes, True)):
        for region in regions:
            builder.regions(index, region.space, region.offset, region.nbytes, is_write=is_write)
    if command.transfer is not None:
        spec = command.transfer
        builder.transfers(
            index,
            space=spec.space,
            is_write=spec.is_write,
            role=spec.role,
            runs=np.array(spec.runs, dtype=np.int64),
            run_owner=np.zeros(len(spec.runs), dtype=np.int64),
            leader=spec.leader,
        )
