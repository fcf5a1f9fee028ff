"""Raw integers of a finished phase; everything else is derived from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage of a phase; `elapsed_ps` is the advance of the completion frontier (exclusive)."""

    stage: str
    elapsed_ps: int
    active_ps: int  # union of the stage's command spans; stages may overlap
    macs: int
    dram_bytes: int
    bound_by: str  # compute, vector, dram, sram, bus, launch or sync
    launch_ps: int  # part of elapsed_ps in which the stage waited for a launch
    kernels: int
    scratchpad_bytes: int = 0  # read by compute engines
    shared_sram_bytes: int = 0  # read from the shared SRAM; of a cache, those that hit


#: what an engine does besides waiting for a cause; see `StageTimeRecord`
BUSY, IDLE = "busy", "idle"


@dataclass(frozen=True, slots=True)
class StageTimeRecord:
    """Time of all engines of a kind during a stage's exclusive time, for one cause.

    `cause` is a stall cause, `BUSY` or `IDLE`. The causes of a stage and kind sum to the stage's
    `elapsed_ps` times the engines of the kind; times of zero are left out.
    """

    stage: str
    kind: str
    cause: str
    time_ps: int


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """One kernel (operator instance) of a phase."""

    name: str
    stage: str
    layer: int | None
    elapsed_ps: int
    active_ps: int
    macs: int
    dram_bytes: int
    commands: int


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """One engine: busy + idle + stalls = elapsed, exactly."""

    engine: str
    kind: str
    device: str
    core: int | None
    busy_ps: int
    idle_ps: int
    stalls_ps: dict[str, int]
    commands: int


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One off-chip memory (or shared SRAM tier)."""

    name: str
    kind: str  # "dram" | "shared_sram"
    read_bytes: int
    write_bytes: int
    bytes_by_role: dict[str, int]
    accesses: int
    row_hits: int
    row_misses: int
    row_conflicts: int
    refreshes: int
    peak_bytes_per_s: int
    footprint_bytes: int
    capacity_bytes: int


#: fields of `SramRecord` that only a cache has
CACHE_COUNTS = (
    *("hits", "misses", "evictions", "fill_bytes", "write_back_bytes", "through_bytes"),
    "bypass_bytes",
)


@dataclass(frozen=True, slots=True)
class SramRecord:
    """One scratchpad or shared SRAM; `hit_bytes` of `requested_bytes` did not go to DRAM.

    `conflict_ps` is time commands lost to busy banks (scratchpad; `conflicts` tells it apart by
    engine that lost it and engine that held it up) or requests waited for them (shared SRAM). The
    other counts are those of a cache, 0 elsewhere: hits and misses of sectors, evictions of lines,
    bytes fetched, written back, written through (or to the DRAM only), and gone around it: these
    four sum to the bytes of the DRAM behind.
    """

    name: str
    hit_bytes: int
    requested_bytes: int
    conflict_ps: int
    peak_occupancy_bytes: int
    capacity_bytes: int
    conflicts: tuple[tuple[str, str, int], ...] = ()
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    fill_bytes: int = 0
    write_back_bytes: int = 0
    through_bytes: int = 0
    bypass_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TierRecord:
    """One level of the memory hierarchy, all cores together.

    `supplied_bytes` is the part of the bytes compute engines asked for that came from this tier
    and no nearer one; the tiers' parts sum to all of them. `read_bytes` is what was read there.
    """

    tier: str
    kind: str  # "scratchpad" | "shared_sram" | "dram"
    latency_ps: int  # of one unloaded read
    peak_bytes_per_s: int
    read_bytes: int
    supplied_bytes: int


@dataclass(frozen=True, slots=True)
class BarrierRecord:
    """One barrier register bit: engines that waited and for how long."""

    name: str
    waits: int
    wait_ps: int


@dataclass(frozen=True, slots=True)
class Approximation:
    """Something the run estimated instead of simulating."""

    kind: str
    scope: str
    estimated_error_frac: float | None
    basis: str


@dataclass(frozen=True)
class SpanTable:
    """Spans for the timeline, struct-of-arrays; stalls are spans whose `cause` is set.

    `engine` indexes `engines`; `label` indexes `labels` (operator, or stall cause). `queue` is the
    in-flight slot of a DMA span (0 for other engines). `truncated` when the cap cut recording.
    """

    engines: tuple[str, ...]
    labels: tuple[str, ...]
    stages: tuple[str, ...]
    engine: NDArray[np.int32]
    start_ps: NDArray[np.int64]
    end_ps: NDArray[np.int64]
    label: NDArray[np.int32]
    stage: NDArray[np.int32]  # index into stages, -1 for none
    is_stall: NDArray[np.bool_]
    queue: NDArray[np.int32]
    truncated: bool

    def __len__(self) -> int:
        return len(self.engine)


#: why a command waits for another one, by code
FLOW_KINDS = ("data", "buffer_free", "barrier", "launch", "order")


@dataclass(frozen=True)
class FlowTable:
    """Edges between commands with recorded spans, struct-of-arrays, by consumer.

    `producer` and `consumer` are rows of the phase's `SpanTable`; `kind` indexes `FLOW_KINDS`. An
    edge with an end outside the recording is left out.
    """

    producer: NDArray[np.int32]
    consumer: NDArray[np.int32]
    kind: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.producer)


@dataclass(frozen=True)
class PhaseRecord:
    """One phase (prefill, decode or a single operator) as raw integers.

    `clock_hz` is the clock that `cycles` count, called `clock`. For decode all numbers are totals
    over its `steps` steps. `spans` cover one representative program (what was simulated).
    """

    phase: str
    elapsed_ps: int
    clock: str
    clock_hz: int
    bound_ps: int
    tokens: int
    steps: int
    commands: int
    kernels: int
    macs: int
    peak_macs_per_cycle: int
    stages: tuple[StageRecord, ...]
    operators: tuple[OperatorRecord, ...]
    engines: tuple[EngineRecord, ...]
    memories: tuple[MemoryRecord, ...]
    sram: tuple[SramRecord, ...]
    barriers: tuple[BarrierRecord, ...]
    approximations: tuple[Approximation, ...]
    kernels_per_layer: float
    spans: SpanTable | None = None
    bandwidth: tuple[
        tuple[str, int, NDArray[np.int64]], ...
    ] = ()  # (memory, bin_ps, bytes per bin)
    log: tuple[str, ...] = field(default=())
    tiers: tuple[TierRecord, ...] = ()  # nearest first; empty if nothing was read from memory
    stage_times: tuple[StageTimeRecord, ...] = ()  # empty if no engines were simulated
    flows: FlowTable | None = None  # between `spans`
    #: (scratchpad, bin_ps, most bytes held at once in each bin)
    occupancy: tuple[tuple[str, int, NDArray[np.int64]], ...] = ()
