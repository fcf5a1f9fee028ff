"""Programs: the commands a machine executes, as struct-of-arrays.

The compiler decides *what* runs, the machine decides *when*; they meet here. Commands are listed in
program order, an order in which every engine's own commands appear as that engine executes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from npusim.program.build import Command

#: signal offset meaning "when the command ends"; offsets >= 0 are ticks after its start
END = -1


class EngineKind(StrEnum):
    """Hardware engines that execute commands in order."""

    HOST = "host"
    DISPATCH = "dispatch"  # device front end: starts kernels
    BARRIER = "barrier"  # barrier registers of a device
    DMA_LOAD = "dma_load"
    DMA_STORE = "dma_store"
    MATRIX = "matrix"
    VECTOR = "vector"
    CONVERT = "convert"


class Opcode(IntEnum):
    """What a command does."""

    LAUNCH = 0  # host issues a kernel or a graph
    SYNC = 1  # host blocks until what it awaits is done
    DISPATCH = 2  # device front end starts a kernel
    LOAD = 3
    STORE = 4
    MATMUL = 5
    VECTOR = 6
    CONVERT = 7
    SIGNAL = 8  # sets (register, bit); a WAIT of the same generation sees it
    WAIT = 9


class EdgeKind(IntEnum):
    """Why a command waits for a signal."""

    DATA = 0
    BUFFER_FREE = 1
    BARRIER = 2
    LAUNCH = 3
    ORDER = 4


@dataclass(frozen=True, slots=True)
class Engine:
    """One in-order engine. `period_ps` is its clock; `queue_depth` its descriptors in flight (DMA)."""

    name: str
    kind: EngineKind
    device: str
    core: int | None
    period_ps: Fraction
    queue_depth: int = 1
    issue_ticks: int = 0  # DMA: ticks to issue one descriptor
    port: int = -1  # memory-system port of a DMA engine


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. Stage time is counted per kernel, in program order."""

    name: str
    operator: str
    stage: str
    layer: int | None


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """A memory that regions and transfers name: DRAM, shared SRAM or one core's scratchpad."""

    name: str
    kind: str  # "dram" | "shared_sram" | "scratchpad"
    capacity_bytes: int
    memory: int = -1  # index in the memory system; -1 for scratchpads


@dataclass(frozen=True, slots=True)
class Allocation:
    """A named range of a DRAM or shared SRAM, for reports and footprint."""

    name: str
    space: int
    offset: int
    nbytes: int
    role: str


class Transfers:
    """Transfers of LOAD and STORE commands, struct-of-arrays; runs in CSR form.

    `runs` has columns base, bytes, stride, count: `count` contiguous pieces of `bytes`, `stride` apart.
    """

    def __init__(
        self,
        space: NDArray[np.int32],
        is_write: NDArray[np.bool_],
        role: NDArray[np.int8],
        run_ptr: NDArray[np.int64],
        runs: NDArray[np.int64],
    ) -> None:
        self.space = space
        self.is_write = is_write
        self.role = role
        self.run_ptr = run_ptr
        self.runs = runs

    def __len__(self) -> int:
        return len(self.space)

    def nbytes(self) -> NDArray[np.int64]:
        """Bytes of each transfer."""
        per_run = self.runs[:, 1] * self.runs[:, 3]
        total = np.concatenate(([0], np.cumsum(per_run)))
        result: NDArray[np.int64] = total[self.run_ptr[1:]] - total[self.run_ptr[:-1]]
        return result

    def of(self, index: int) -> NDArray[np.int64]:
        """Runs of one transfer, shape (n, 4)."""
        return self.runs[self.run_ptr[index] : self.run_ptr[index + 1]]


ROLES = ("weight", "kv", "activation")


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

    def __len__(self) -> int:
        return len(self.engine)

    def edges_of(self, command: int) -> slice:
        """Slice of the edge arrays that belongs to a command."""
        return slice(int(self.edge_ptr[command]), int(self.edge_ptr[command + 1]))

    def regions_of(self, command: int) -> slice:
        """Slice of the region arrays that belongs to a command."""
        return slice(int(self.region_ptr[command]), int(self.region_ptr[command + 1]))

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
    ) -> Program:
        """Build a small, possibly broken, program command by command; see `program_from_commands`."""
        from npusim.program.build import program_from_commands  # build imports this module

        return program_from_commands(commands, engines, spaces, kernels)
