"""Replay of a request trace on the DRAM controllers alone, with the injection of reference/dram.

At cycle c, before the controllers act on c + 1, the head of the trace is offered again and again
while it has arrived and is accepted; the first refusal ends the cycle (in order, head-of-line
blocking). The controllers are those of the simulation; one picosecond stands for one cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.errors import ConfigError
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.clocking import first_event
from npusim.memory.dram.channel import (
    accept,
    look_ahead,
    step,
    wake,
)
from npusim.memory.dram.decode import decode
from npusim.memory.dram.requests import free_request
from npusim.memory.jit import entry, njit, words_at
from npusim.memory.layout import (
    ACCEPT_FORWARDED,
    ACCEPT_FULL,
    ACCEPT_QUEUED,
    CH_MEM,
    CH_NOW,
    CHANNEL_WORDS,
    H_CHANNELS,
    H_MEMS,
    NEVER,
    NONE,
    RQ_ARRIVE,
    RQ_MERGED,
    RQ_TID,
    RQ_WRITE,
    T_RL,
    Words,
)
from npusim.memory.pack import build
from npusim.memory.query import counters
from npusim.memory.specs import BusConfig, DramConfig, PortConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.memory.dram.address_map import BitField
    from npusim.memory.dram.timing import DramDevice

IDLE_PORT = PortConfig("none", 0, Fraction(1), 1, 1)
IDLE_BUS = BusConfig("none", Fraction(1), 1, 0, 1)
MERGED_READS = 4096  # reads of an address that is waiting already, at any time
FIRST_CHANNEL_ENTITY = 3 + 2  # the idle bus and port come before


@dataclass(frozen=True)
class ReplayResult:
    """Outcome of a trace in controller cycles.

    `total_cycles` is the completion of the last transaction: RD + CL + burst for reads, the WR
    command for writes. `completion_cycles` holds it per request; a forwarded read completes one
    cycle after acceptance, a merged write at acceptance.
    """

    total_cycles: int
    reads: int
    writes: int
    read_latency_cycles: int
    completion_cycles: NDArray[np.int64]
    counters: dict[str, int]
    commands: NDArray[np.int64]

    @property
    def mean_read_latency_cycles(self) -> float:
        """Mean over reads of completion minus acceptance; 0 without reads."""
        return self.read_latency_cycles / self.reads if self.reads else 0.0


@njit
def serve(s: Words, ch: int, req: int, at: int, done: Words, result: Words) -> None:
    """Record a column command's request as complete."""
    end = at
    if s[req + RQ_WRITE] == 0:
        end = at + s[s[ch + CH_MEM] + T_RL]
        result[1] += end - s[req + RQ_ARRIVE]
    done[~s[req + RQ_TID]] = end
    result[0] = max(result[0], end)
    free_request(s, ch, req)


@njit
def inject(
    s: Words, log: Words, addr: Words, is_write: Words, arrival: Words, i: int, n: int, now: int,
    done: Words, result: Words,
) -> int:  # fmt: skip
    """Offer the head of the trace while it has arrived and is accepted; returns the new head.

    A request carries the complement of its index where the simulation carries a transfer.
    """
    while i < n and arrival[i] <= now:
        ch, bank, row = decode(s, s[H_MEMS], addr[i])
        status = accept(s, log, ch, now, bank, row, addr[i], is_write[i], NONE, ~i)
        if status == ACCEPT_FULL:
            return i
        if status == ACCEPT_QUEUED:
            wake(s, ch, now)
        else:
            done[i] = now + (1 if status == ACCEPT_FORWARDED else 0)
            result[0] = max(result[0], done[i])
            result[1] += 1 if status == ACCEPT_FORWARDED else 0
        i += 1
    return i


@entry
def run(
    state_at: int, log_at: int, addr_at: int, write_at: int, arrival_at: int, n: int, done_at: int,
    result_at: int,
) -> None:  # fmt: skip
    """Drive the channels through a trace until everything is done."""
    s, log, addr = words_at(state_at), words_at(log_at), words_at(addr_at)
    is_write, arrival = words_at(write_at), words_at(arrival_at)
    done, result = words_at(done_at), words_at(result_at)
    i = inject(s, log, addr, is_write, arrival, 0, n, 0, done, result)
    while True:
        entity, now = first_event(s)
        if i < n and arrival[i] < now and arrival[i] > result[2]:
            result[2] = arrival[i]
            i = inject(s, log, addr, is_write, arrival, i, n, arrival[i], done, result)
            continue
        if now >= NEVER:
            return
        result[2] = now
        ch = s[H_CHANNELS] + (entity - FIRST_CHANNEL_ENTITY) * CHANNEL_WORDS
        cycle = s[ch + CH_NOW]
        req = step(s, addr, log, ch)
        if req != NONE:
            while s[req + RQ_MERGED] != NONE:  # reads of the same address
                merged = s[req + RQ_MERGED]
                s[req + RQ_MERGED] = s[merged + RQ_MERGED]
                serve(s, ch, merged, cycle, done, result)
            serve(s, ch, req, cycle, done, result)
        i = inject(s, log, addr, is_write, arrival, i, n, cycle, done, result)
        look_ahead(s, ch, cycle)


def replay_trace(
    addr: NDArray[np.integer[Any]],
    is_write: NDArray[np.integer[Any]],
    arrival_cycle: NDArray[np.integer[Any]],
    device: DramDevice,
    address_map: str | tuple[BitField, ...] = "BGlow",
    channels: int = 1,
    *,
    queue_depth: int = 32,
    command_log: int = 0,
    **settings: Any,
) -> ReplayResult:
    """Replay one trace; every request is one burst.

    Parameters
    ----------
    queue_depth : int
        Entries of the read and of the write queue.
    command_log : int
        Commands to keep at most.
    **settings
        Further fields of `DramConfig`, such as `refresh`, `page_policy` or `controller`. Channels
        interleave burst by burst unless `channel_interleave_bytes` says otherwise.

    Raises
    ------
    ConfigError
        If the arrays differ in length or are empty, an address is unaligned or out of range, or
        arrivals decrease; and what `DramConfig` refuses.
    """
    depths = {"read_queue_depth": queue_depth, "write_queue_depth": queue_depth}
    spec = replay_memory(device, address_map, **(depths | {"channels": channels} | settings))
    return replay(addr, is_write, arrival_cycle, spec, command_log)


def replay_memory(
    device: DramDevice, address_map: str | tuple[BitField, ...], **settings: Any
) -> DramConfig:
    """A memory to replay on: one channel unless `settings`, fields of `DramConfig`, say more."""
    units = settings.get("channels", 1) * settings.get("ranks", 1)
    given = {
        "name": "replay", "device": device, "channels": 1, "address_map": address_map,
        "capacity_bytes": device.channel_bytes * units, "merged_reads": MERGED_READS,
        "channel_interleave_bytes": device.burst_bytes,
    }  # fmt: skip
    return DramConfig(**(given | settings))


def replay(
    addr: NDArray[np.integer[Any]],
    is_write: NDArray[np.integer[Any]],
    arrival_cycle: NDArray[np.integer[Any]],
    spec: DramConfig,
    command_log: int = 0,
) -> ReplayResult:
    """`replay_trace` on a memory that is already described."""
    columns = check_trace(addr, is_write, arrival_cycle, spec.device, spec.capacity_bytes)
    address, writing, arrival = columns
    spec = replace(spec, device=replace(spec.device, cycle_ps=Fraction(1)))
    state, bases = build([IDLE_PORT], [IDLE_BUS], [spec])
    log = np.zeros((command_log, L.LOG_WORDS), dtype=np.int64)
    state[L.H_LOG_LIMIT] = command_log
    done, result = np.zeros(len(address), dtype=np.int64), np.zeros(3, dtype=np.int64)
    run(
        state.ctypes.data, log.ctypes.data, address.ctypes.data, writing.ctypes.data,
        arrival.ctypes.data, len(address), done.ctypes.data, result.ctypes.data,
    )  # fmt: skip
    writes = int(writing.sum())
    return ReplayResult(
        total_cycles=int(result[0]), reads=len(address) - writes, writes=writes,
        read_latency_cycles=int(result[1]), completion_cycles=done,
        counters=counters(state, bases[0], spec), commands=log[: int(state[L.H_LOG])],
    )  # fmt: skip


def check_trace(
    addr: NDArray[np.integer[Any]],
    is_write: NDArray[np.integer[Any]],
    arrival: NDArray[np.integer[Any]],
    device: DramDevice,
    capacity: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Bring a trace to int64 and refuse what the kernel cannot replay."""
    columns = tuple(np.ascontiguousarray(a, dtype=np.int64) for a in (addr, is_write, arrival))
    sizes = [a.shape for a in columns]
    if len(set(sizes)) != 1 or columns[0].ndim != 1 or columns[0].size == 0:
        raise ConfigError("trace", "has three equal columns with at least one request", sizes)
    burst = device.burst_bytes
    wrong = np.flatnonzero(columns[0] % burst)
    if wrong.size:
        where = f"trace request {wrong[0]}"
        raise ConfigError(where, f"addresses are multiples of {burst}", int(columns[0][wrong[0]]))
    wrong = np.flatnonzero((columns[0] < 0) | (columns[0] >= capacity))
    if wrong.size:
        where = f"trace request {wrong[0]}"
        raise ConfigError(where, f"addresses lie below {capacity}", int(columns[0][wrong[0]]))
    if columns[2].min() < 0 or np.any(np.diff(columns[2]) < 0):
        raise ConfigError("trace", "arrival cycles start at 0 or later and never decrease")
    return columns[0], (columns[1] != 0).astype(np.int64), columns[2]
