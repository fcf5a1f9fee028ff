"""What a run of a program leaves behind: times, waits with their causes, transfer counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from npusim.engine import StallCause

    Ints = NDArray[np.int64]

#: order of the codes in `StallTable.cause` is the definition order of StallCause
COUNTERS = ("accesses", "hits", "misses", "conflicts", "bytes")


#: what a transfer did at a cache in front of the DRAM: its bytes, sectors and evicted lines there,
#: and bytes it had the DRAM read and write
CACHE_TRAFFIC = (
    *("requested_bytes", "hit_bytes", "hits", "misses", "fill_bytes", "write_back_bytes"),
    *("through_bytes", "evictions", "dram_read_bytes", "dram_write_bytes"),
)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Raw times of a run, as the engines wrote them.

    Command arrays have shape (commands,), `signal_ps` shape (edges,): when the edge's signal was
    published. `free_ps` is when the engine could take its next command: the end, or for a DMA
    engine the end of issue. `memory_split` holds, for commands that waited for a transfer, channel
    time by `MEMORY_CAUSES` during the wait. `conflict_ticks` is by how much bank conflicts made a
    command longer, shape (commands,).
    """

    start_ps: Ints
    end_ps: Ints
    free_ps: Ints
    signal_ps: Ints
    memory_split: dict[int, tuple[int, ...]]
    conflict_ticks: Ints


@dataclass(frozen=True, slots=True)
class StallTable:
    """Waits, struct-of-arrays, sorted by engine and start; one row per engine, piece and cause.

    A piece spent waiting for memory has one row per cause: their lengths are exact, their order
    within the piece is that of `StallCause`. `cause` indexes `list(StallCause)`. `edge_kind` is -1
    for waits on a full DMA queue, whose `producer` is the transfer that freed the entry, and for
    bank conflicts, which are the last part of a command and name it as both.
    """

    engine: NDArray[np.int32]
    start_ps: Ints
    end_ps: Ints
    cause: NDArray[np.int8]
    command: NDArray[np.int32]  # the command that waited
    producer: NDArray[np.int32]  # the command it waited for
    edge_kind: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.engine)


@dataclass(frozen=True, slots=True)
class EngineUse:
    """Time of one engine: busy + stalls + idle = elapsed."""

    busy_ps: int
    idle_ps: int
    stalls_ps: dict[StallCause, int]
    commands: int


@dataclass(frozen=True, slots=True)
class ConflictTable:
    """Bank conflicts, struct-of-arrays: `command` lost `lost_ps` to engine `by` (maybe its own)."""

    command: Ints
    by: Ints
    lost_ps: Ints

    def __len__(self) -> int:
        return len(self.command)


@dataclass(frozen=True, slots=True)
class Execution:
    """A finished run.

    `elapsed_ps` is the later of the last command's end and `drain_ps`, when the memory had written
    everything it accepted. `queue_slot` is the lowest queue entry free at a DMA command's start, 0
    for other engines. `counters` has shape (transfers, 5), columns `COUNTERS`; `cache_traffic` has
    shape (transfers, 10), columns `CACHE_TRAFFIC`, None without a cache in front of the DRAM.
    """

    elapsed_ps: int
    drain_ps: int
    times: RunTimes
    queue_slot: NDArray[np.int32]
    engines: tuple[EngineUse, ...]
    stalls: StallTable
    counters: Ints
    conflicts: ConflictTable
    cache_traffic: Ints | None = None

    @property
    def start_ps(self) -> Ints:
        """Start of each command."""
        return self.times.start_ps

    @property
    def end_ps(self) -> Ints:
        """End of each command; for a LOAD or STORE the completion of its transfer."""
        return self.times.end_ps
