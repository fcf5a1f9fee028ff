"""Programs: the commands a machine executes, as struct-of-arrays.

The compiler decides *what* runs, the machine decides *when*; they meet here. Commands are listed in
program order, an order in which every engine's own commands appear as that engine executes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProtocolError
from npusim.program.commands import Command, add_commands, common_ticks_per_cycle
from npusim.program.tables import (
    END,
    ROLES,
    Allocation,
    EdgeKind,
    Engine,
    Kernel,
    MemorySpace,
    Transfers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from npusim.program.barriers import BarrierBit

    Ints = NDArray[np.int64]

_KERNEL = Kernel("kernel0", "op0", "stage0", None)


@dataclass(frozen=True)
class Program:
    """Commands as arrays; index = program order.

    Durations are integer *ticks*; one engine cycle is `ticks_per_cycle` ticks, so that 1.8 cycles
    stay 1.8. Edges are CSR by consumer: command `i` starts only after the signals
    `edge_ptr[i]:edge_ptr[i+1]`. Regions are CSR by command: (space, offset, bytes), `is_write`.
    """

    engines: tuple[Engine, ...]
    kernels: tuple[Kernel, ...]
    spaces: tuple[MemorySpace, ...]
    ticks_per_cycle: int
    engine: NDArray[np.int32]
    kernel: NDArray[np.int32]
    opcode: NDArray[np.int8]
    duration_ticks: NDArray[np.int64]
    transfer: NDArray[np.int32]  # -1: none
    macs: NDArray[np.int64]
    barrier: NDArray[np.int32]  # SIGNAL/WAIT: packed (register, bit), -1 else
    generation: NDArray[np.int32]
    edge_ptr: NDArray[np.int64]
    edge_producer: NDArray[np.int32]
    edge_offset: NDArray[np.int64]  # END or ticks after the producer's start
    edge_kind: NDArray[np.int8]
    region_ptr: NDArray[np.int64]
    region_space: NDArray[np.int32]
    region_offset: NDArray[np.int64]
    region_bytes: NDArray[np.int64]
    region_is_write: NDArray[np.bool_]
    transfers: Transfers
    allocations: tuple[Allocation, ...] = ()
    log: tuple[str, ...] = ()
    barrier_names: dict[int, str] = field(default_factory=dict)
    barriers: tuple[BarrierBit, ...] = ()  # bits that the program names itself

    def __len__(self) -> int:
        return len(self.engine)

    def edges_of(self, command: int) -> slice:
        """Slice of the edge arrays that belongs to a command."""
        return slice(int(self.edge_ptr[command]), int(self.edge_ptr[command + 1]))

    def regions_of(self, command: int) -> slice:
        """Slice of the region arrays that belongs to a command."""
        return slice(int(self.region_ptr[command]), int(self.region_ptr[command + 1]))

    def issue_ticks(self) -> Ints:
        """Ticks for which each command holds its engine's head; of a transfer: to issue it.

        A descriptor of one run takes the engine's `issue_ticks`; one of n > 1 runs also fetches its
        list, ceil(n / gather_runs) x gather_ticks. Left out: that the list comes from a memory.
        """
        result = self.duration_ticks.copy()
        commands = np.flatnonzero(self.transfer >= 0)
        runs = self.transfers.num_runs()[self.transfer[commands]]
        columns = [(e.issue_ticks, e.gather_ticks, e.gather_runs) for e in self.engines]
        table = np.array(columns, dtype=np.int64)[self.engine[commands]]
        fetches = np.where(runs > 1, -(-runs // table[:, 2]), 0)
        result[commands] = table[:, 0] + fetches * table[:, 1]
        return result

    def digest(self) -> str:
        """SHA-256 over every array and table; equal programs, equal digests."""
        sha = hashlib.sha256()
        for table in (self.engines, self.kernels, self.spaces, self.allocations):
            sha.update(repr(table).encode())
        sha.update(str(self.ticks_per_cycle).encode())
        arrays = (
            self.engine,
            self.kernel,
            self.opcode,
            self.duration_ticks,
            self.transfer,
            self.macs,
            self.barrier,
            self.generation,
            self.edge_ptr,
            self.edge_producer,
            self.edge_offset,
            self.edge_kind,
            self.region_ptr,
            self.region_space,
            self.region_offset,
            self.region_bytes,
            self.region_is_write,
            self.transfers.space,
            self.transfers.is_write,
            self.transfers.role,
            self.transfers.run_ptr,
            self.transfers.runs,
            self.transfers.leader,
        )
        for array in arrays:
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()

    @classmethod
    def from_commands(
        cls,
        commands: Sequence[Command],
        engines: Sequence[Engine],
        spaces: Sequence[MemorySpace] = (),
        kernels: Sequence[Kernel] | None = None,
        barriers: Sequence[BarrierBit] = (),
    ) -> Program:
        """Small programs for tests, also broken ones: nothing is checked but field types.

        A WAIT gets a BARRIER edge from the SIGNAL of the same (register, bit, generation), if there
        is one. Producer indices are positions in `commands`. `barriers` name register bits, for
        messages and for the result's barriers, and say whether they are edges or levels.
        """
        builder = ProgramBuilder(
            engines, kernels or (_KERNEL,), spaces, common_ticks_per_cycle(commands)
        )
        builder.barriers = tuple(barriers)
        builder.barrier_names.update({barrier.key: barrier.name for barrier in barriers})
        add_commands(builder, commands)
        return builder.build()


_ID_BITS = 31  # command ids are smaller


class ProgramBuilder:
    """Collects blocks of commands and freezes them into a `Program`.

    Command ids are handed out in call order and renumbered on `build`: commands sort by
    (kernel, `order`, id), so a block may be emitted engine by engine and still end in
    program order.
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
        self.barriers: tuple[BarrierBit, ...] = ()
        self._count = 0
        self._commands: list[tuple[Ints, ...]] = []
        self._edges: list[tuple[Ints, ...]] = []
        self._regions: list[tuple[Ints, ...]] = []
        self._transfers: list[tuple[Ints, ...]] = []
        self._runs: list[tuple[Ints, Ints]] = []
        self._ties: list[tuple[Ints, Ints]] = []

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

    def ties(self, command: Ints, rank: Ints) -> None:
        """Order commands of equal `order` by a rank first, which is 0 unless given here."""
        self._ties.append((command, rank))

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

    def await_alike(self, commands: Ints, others: Ints) -> None:
        """Let each of `commands` also await what its counterpart among `others` awaits so far."""
        by_other = np.argsort(others, kind="stable")
        consumer, producer, offset, kind = _concat(self._edges, 4)
        first = np.searchsorted(others[by_other], consumer, side="left")
        size = np.searchsorted(others[by_other], consumer, side="right") - first
        edge = np.repeat(np.arange(len(first)), size)
        nth = np.arange(len(edge)) - np.repeat(np.cumsum(size) - size, size)
        repeated = np.stack(
            (commands[by_other[first[edge] + nth]], producer[edge], offset[edge], kind[edge]),
            axis=1,
        )
        repeated = np.unique(repeated, axis=0)
        known = np.isin(consumer, commands)
        pairs = (consumer[known] << _ID_BITS) + producer[known]
        fresh = repeated[~np.isin((repeated[:, 0] << _ID_BITS) + repeated[:, 1], pairs)]
        self._edges.append(tuple(fresh.T))

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
        leader: ArrayLike = -1,
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
        leader : array of int, shape (n,), optional
            Command whose multicast delivers the bytes, -1: the transfer reads them itself.
        """
        commands = np.atleast_1d(np.asarray(command, dtype=np.int64))
        owner = np.arange(commands.size) if run_owner is None else run_owner
        self._transfers.append(
            (
                commands,
                _column(space, commands.size),
                _column(int(is_write), commands.size),
                _column(ROLES.index(role), commands.size),
                _column(leader, commands.size),
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
        rank = np.zeros(self._count, dtype=np.int64)
        for command, its_rank in self._ties:
            rank[command] = its_rank
        position = np.lexsort((np.arange(self._count), rank, order, kernel))
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
            barriers=self.barriers,
        )

    def _build_transfers(self, new_id: Ints) -> tuple[NDArray[np.int32], Transfers]:
        command, space, is_write, role, leader = _concat(self._transfers, 5)
        by_command = np.argsort(new_id[command], kind="stable")
        transfer_of = np.full(self._count, -1, dtype=np.int32)
        transfer_of[new_id[command][by_command]] = np.arange(command.size)
        owners = np.concatenate([o for o, _ in self._runs]) if self._runs else np.empty(0, np.int64)
        runs = np.concatenate([r for _, r in self._runs]) if self._runs else np.empty((0, 4))
        owner_transfer = transfer_of[new_id[owners.astype(np.int64)]].astype(np.int64)
        run_ptr, by_transfer = _csr(owner_transfer, command.size)
        leads = np.where(leader < 0, -1, transfer_of[new_id[leader]])[by_command]
        return transfer_of, Transfers(
            space=space[by_command].astype(np.int32),
            is_write=is_write[by_command].astype(np.bool_),
            role=role[by_command].astype(np.int8),
            run_ptr=run_ptr,
            runs=runs[by_transfer].astype(np.int64),
            leader=leads.astype(np.int32),
        )


def _column(value: ArrayLike, count: int) -> Ints:
    array = np.asarray(value, dtype=np.int64)
    if array.shape == (count,):
        return array
    return np.broadcast_to(array, (count,)) if array.ndim else np.full(count, array)


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
