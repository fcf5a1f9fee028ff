"""What a program speaks of: engines, kernels, memory spaces, opcodes, edges, transfers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

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
    FALLBACK = 10  # host computes an operator the device cannot


class EdgeKind(IntEnum):
    """Why a command waits for a signal."""

    DATA = 0
    BUFFER_FREE = 1
    BARRIER = 2
    LAUNCH = 3
    ORDER = 4


@dataclass(frozen=True, slots=True)
class Engine:
    """One in-order engine on a clock of `period_ps`, with at most `queue_depth` descriptors."""

    name: str
    kind: EngineKind
    device: str
    core: int | None
    period_ps: Fraction
    queue_depth: int = 1
    issue_ticks: int = 0  # DMA: ticks to issue one descriptor
    port: int = -1  # memory-system port of a DMA engine
    gather_ticks: int = 0  # DMA: ticks of one fetch from a list of several runs
    gather_runs: int = 1  # DMA: runs that one such fetch brings
    #: scratchpad bytes per cycle: reads and writes (a vector unit: either, and both together), of a
    #: DMA engine towards DRAM and shared SRAM; None: not stated, its accesses meet no conflicts
    path_bytes: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. Stage time is counted per kernel, in program order."""

    name: str
    operator: str
    stage: str
    layer: int | None


@dataclass(frozen=True, slots=True)
class BankGeometry:
    """Banks of a scratchpad: word, interleave, ports of a bank, requests that wait at the banks."""

    banks: int
    port_bytes: int
    interleave_bytes: int
    ports: int = 1
    queue_depth: int | None = None


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """A memory that regions and transfers name: DRAM, shared SRAM or one core's scratchpad."""

    name: str
    kind: str  # "dram" | "shared_sram" | "scratchpad" | "cache" (no bytes of its own)
    capacity_bytes: int
    memory: int = -1  # index in the memory system; -1 for scratchpads
    banks: BankGeometry | None = None  # of a scratchpad; None: no bank conflicts
    cache: int = -1  # index in the memory system of the cache in front of a DRAM
    cached_roles: tuple[str, ...] = ()  # roles that go through it


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

    `runs` has columns base, bytes, stride, count: `count` pieces of `bytes`, `stride` apart. A
    descriptor with one run is 1D (count 1) or 2D, one with several a gather (STORE: scatter) list.
    A transfer with a `leader` (index of another one, -1: none) reads nothing itself: it receives
    what its leader reads, a multicast.
    """

    def __init__(
        self,
        space: NDArray[np.int32],
        is_write: NDArray[np.bool_],
        role: NDArray[np.int8],
        run_ptr: NDArray[np.int64],
        runs: NDArray[np.int64],
        leader: NDArray[np.int32] | None = None,
    ) -> None:
        self.space = space
        self.is_write = is_write
        self.role = role
        self.run_ptr = run_ptr
        self.runs = runs
        self.leader = np.full(len(space), -1, dtype=np.int32) if leader is None else leader

    def __len__(self) -> int:
        return len(self.space)

    def nbytes(self) -> NDArray[np.int64]:
        """Bytes of each transfer."""
        per_run = self.runs[:, 1] * self.runs[:, 3]
        total = np.concatenate(([0], np.cumsum(per_run)))
        result: NDArray[np.int64] = total[self.run_ptr[1:]] - total[self.run_ptr[:-1]]
        return result

    def num_runs(self) -> NDArray[np.int64]:
        """Runs of each transfer: 1 for a row or a 2D block, more for a gather list."""
        result: NDArray[np.int64] = np.diff(self.run_ptr)
        return result

    def memory_bytes(self) -> NDArray[np.int64]:
        """Bytes each transfer asks of the memory: none if another one reads them for it."""
        return np.where(self.leader >= 0, 0, self.nbytes())

    def of(self, index: int) -> NDArray[np.int64]:
        """Runs of one transfer, shape (n, 4)."""
        return self.runs[self.run_ptr[index] : self.run_ptr[index + 1]]


ROLES = ("weight", "kv", "activation")
