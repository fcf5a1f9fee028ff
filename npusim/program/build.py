"""Building programs: in vectorised blocks by the compiler, command by command by tests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npusim.errors import ProtocolError
from npusim.program.arrays import (
    END,
    ROLES,
    Allocation,
    EdgeKind,
    Engine,
    Kernel,
    MemorySpace,
    Opcode,
    Program,
    Transfers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints = NDArray[np.int64]
_BITS_PER_REGISTER = 64
_KERNEL = Kernel("kernel0", "op0", "stage0", None)


def barrier_id(register: int, bit: int) -> int:
    """Packed (register, bit) of a barrier."""
    return register * _BITS_PER_REGISTER + bit


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
    """What a LOAD or STORE moves: runs of (base, bytes, stride, count) in a DRAM or shared SRAM."""

    space: int
    is_write: bool
    runs: tuple[tuple[int, int, int, int], ...]
    role: str = "activation"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `program_from_commands`; `cycles` may be a Fraction."""

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


class ProgramBuilder:
    """Collects blocks of commands and freezes them into a `Program`.

    Command ids are handed out in call order and renumbered on `build`: commands sort by
    (kernel, `order`, id), so a block may be emitted engine by engine and still end in program order.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        kernels: Sequence[Kernel],
        spaces: Sequence[MemorySpace],
        ticks_per_cycle: int = 1,
    ) -> None:
        self.engines = tuple(engines)
        self.kernels: list[Kernel] = list(kernels)
        self.spaces = tuple(spaces)
        self.ticks_per_cycle = ticks_per_cycle
        self.allocations: list[Allocation] = []
        self.log: list[str] = []
        self.barrier_names: dict[int, str] = {}
        self._count = 0
        self._commands: list[tuple[Ints, ...]] = []
        self._edges: list[tuple[Ints, ...]] = []
        self._regions: list[tuple[Ints, ...]] = []
        self._transfers: list[tuple[Ints, ...]] = []
        self._runs: list[tuple[Ints, Ints]] = []

    def commands(
        self,
        count: int,
        *,
        engine: ArrayLike,
        opcode: ArrayLike,
        kernel: int,
        order: ArrayLike,
        duration_ticks: ArrayLike = 0,
        macs: ArrayLike = 0,
        barrier: ArrayLike = -1,
        generation: ArrayLike = 0,
    ) -> Ints:
        """Add `count` commands (arguments broadcast); returns their ids."""
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        columns = (engine, opcode, kernel, order, duration_ticks, macs, barrier, generation)
        self._commands.append(tuple(_column(value, count) for value in columns))
        return ids

    def edges(
        self, consumer: ArrayLike, producer: ArrayLike, kind: EdgeKind, offset: ArrayLike = END
    ) -> None:
        """Make each consumer wait for its producer (arguments broadcast)."""
        consumers, producers = np.broadcast_arrays(
            np.atleast_1d(np.asarray(consumer, dtype=np.int64)), np.asarray(producer, np.int64)
        )
        size = consumers.size
        self._edges.append(
            (
                consumers.ravel(),
                producers.ravel(),
                _column(offset, size),
                _column(int(kind), size),
            )
        )

    def regions(
        self,
        command: ArrayLike,
        space: ArrayLike,
        offset: ArrayLike,
        nbytes: ArrayLike,
        *,
        is_write: bool,
    ) -> None:
        """Declare what each command reads or writes (arguments broadcast)."""
        commands = np.atleast_1d(np.asarray(command, dtype=np.int64))
        size = commands.size
        self._regions.append(
            (
                commands,
                _column(space, size),
                _column(offset, size),
                _column(nbytes, size),
                _column(int(is_write), size),
            )
        )

    def transfers(
        self,
        command: ArrayLike,
        *,
        space: ArrayLike,
        is_write: bool,
        role: str,
        runs: Ints,
        run_owner: Ints | None = None,
    ) -> None:
        """Attach one transfer to each command.

        Parameters
        ----------
        command : array of int, shape (n,)
            Command ids.
        runs : array of int, shape (r, 4)
            Columns base, bytes, stride, count.
        run_owner : array of int, shape (r,), optional
            Position in `command` of each run, ascending; default one run per command.
        """
        commands = np.atleast_1d(np.asarray(command, dtype=np.int64))
        owner = np.arange(commands.size) if run_owner is None else run_owner
        self._transfers.append(
            (
                commands,
                _column(space, commands.size),
                _column(int(is_write), commands.size),
                _column(ROLES.index(role), commands.size),
            )
        )
        self._runs.append((commands[owner], np.asarray(runs, dtype=np.int64).reshape(-1, 4)))

    def build(self) -> Program:
        """Freeze: sort into program order and compress to CSR."""
        if self._count == 0:
            raise ProtocolError("program", "a program needs at least one command")
        engine, opcode, kernel, order, duration, macs, barrier, generation = _concat(
            self._commands, 8
        )
        position = np.lexsort((np.arange(self._count), order, kernel))
        new_id = np.empty(self._count, dtype=np.int64)
        new_id[position] = np.arange(self._count)
        edges = _concat(self._edges, 4)
        edge_ptr, by_consumer = _csr(new_id[edges[0]], self._count)
        regions = _concat(self._regions, 5)
        region_ptr, by_command = _csr(new_id[regions[0]], self._count)
        transfer_of, transfers = self._build_transfers(new_id)
        return Program(
            engines=self.engines,
            kernels=tuple(self.kernels),
            spaces=self.spaces,
            ticks_per_cycle=self.ticks_per_cycle,
            engine=engine[position].astype(np.int32),
            kernel=kernel[position].astype(np.int32),
            opcode=opcode[position].astype(np.int8),
            duration_ticks=duration[position],
            transfer=transfer_of,
            macs=macs[position],
            barrier=barrier[position].astype(np.int32),
            generation=generation[position].astype(np.int32),
            edge_ptr=edge_ptr,
            edge_producer=new_id[edges[1]][by_consumer].astype(np.int32),
            edge_offset=edges[2][by_consumer],
            edge_kind=edges[3][by_consumer].astype(np.int8),
            region_ptr=region_ptr,
            region_space=regions[1][by_command].astype(np.int32),
            region_offset=regions[2][by_command],
            region_bytes=regions[3][by_command],
            region_is_write=regions[4][by_command].astype(np.bool_),
            transfers=transfers,
            allocations=tuple(self.allocations),
            log=tuple(self.log),
            barrier_names=dict(self.barrier_names),
        )

    def _build_transfers(self, new_id: Ints) -> tuple[NDArray[np.int32], Transfers]:
        command, space, is_write, role = _concat(self._transfers, 4)
        by_command = np.argsort(new_id[command], kind="stable")
        transfer_of = np.full(self._count, -1, dtype=np.int32)
        transfer_of[new_id[command][by_command]] = np.arange(command.size)
        owners = np.concatenate([o for o, _ in self._runs]) if self._runs else np.empty(0, np.int64)
        runs = np.concatenate([r for _, r in self._runs]) if self._runs else np.empty((0, 4))
        owner_transfer = transfer_of[new_id[owners.astype(np.int64)]].astype(np.int64)
        run_ptr, by_transfer = _csr(owner_transfer, command.size)
        return transfer_of, Transfers(
            space=space[by_command].astype(np.int32),
            is_write=is_write[by_command].astype(np.bool_),
            role=role[by_command].astype(np.int8),
            run_ptr=run_ptr,
            runs=runs[by_transfer].astype(np.int64),
        )


def program_from_commands(
    commands: Sequence[Command],
    engines: Sequence[Engine],
    spaces: Sequence[MemorySpace] = (),
    kernels: Sequence[Kernel] | None = None,
) -> Program:
    """Small programs for tests, also broken ones: nothing is checked here but field types.

    A WAIT gets a BARRIER edge from the SIGNAL of the same (register, bit, generation), if there is
    one. Producer indices are positions in `commands`.
    """
    ticks = lcm(*(Fraction(c.cycles).denominator for c in commands)) if commands else 1
    builder = ProgramBuilder(engines, kernels or (_KERNEL,), spaces, ticks)
    signals = {
        (c.register, c.bit, c.generation): i
        for i, c in enumerate(commands)
        if c.opcode is Opcode.SIGNAL
    }
    for index, command in enumerate(commands):
        _add_command(builder, index, command, ticks)
        key = (command.register, command.bit, command.generation)
        if command.opcode is Opcode.WAIT and key in signals:
            builder.edges(index, signals[key], EdgeKind.BARRIER)
    return builder.build()


def _add_command(builder: ProgramBuilder, index: int, command: Command, ticks: int) -> None:
    is_barrier = command.opcode in (Opcode.SIGNAL, Opcode.WAIT)
    builder.commands(
        1,
        engine=command.engine,
        opcode=int(command.opcode),
        kernel=command.kernel,
        order=index,
        duration_ticks=int(command.cycles * ticks),
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
        )


def _column(value: ArrayLike, count: int) -> Ints:
    return np.broadcast_to(np.asarray(value, dtype=np.int64), (count,))


def _concat(blocks: list[tuple[Ints, ...]], columns: int) -> list[Ints]:
    if not blocks:
        return [np.empty(0, dtype=np.int64) for _ in range(columns)]
    return [np.concatenate([block[i] for block in blocks]) for i in range(columns)]


def _csr(owner: Ints, count: int) -> tuple[Ints, Ints]:
    """Row pointers of `count` rows and the stable order that groups entries by row."""
    order = np.argsort(owner, kind="stable")
    ptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=ptr[1:])
    return ptr, order
