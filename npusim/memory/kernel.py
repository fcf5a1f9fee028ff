"""The event loop over all buses, streams and channels in one global time order (compiled).

Entities, in the order that breaks ties at one picosecond: data returning on each bus, read grants,
write grants, arrivals at memory per port and direction, DRAM channels.
"""

from __future__ import annotations

from npusim.memory.axi import deliver, grant, offer
from npusim.memory.clocking import edge_ceil_ps, first_event
from npusim.memory.dram.channel import look_ahead, step
from npusim.memory.dram.requests import free_request
from npusim.memory.ingress import enter, refill, serve_column
from npusim.memory.jit import entry, njit, words_at
from npusim.memory.jumps.chain import checkpoint
from npusim.memory.jumps.record import give_up
from npusim.memory.layout import (
    BUS_WORDS,
    CH_CLOCK,
    CH_MEM,
    CH_NOW,
    CHANNEL_WORDS,
    H_BUSES,
    H_CHANNELS,
    H_CLOCK,
    H_CROSSED,
    H_FIRST_DONE,
    H_LAST_WRITE,
    H_MEMS,
    H_NUM_BUSES,
    H_NUM_PORTS,
    H_OUT,
    H_PORTS,
    H_RUN_FREE,
    H_UNFINISHED,
    MEM_WORDS,
    MM_CAPACITY,
    NEVER,
    NONE,
    PORT_WORDS,
    PT_HEAD,
    PT_NODE,
    PT_OFFSET,
    PT_ROW,
    PT_STREAMS,
    PT_TAIL,
    PT_VALID,
    RN_BASE,
    RN_BYTES,
    RN_COUNT,
    RN_NEXT,
    RQ_MERGED,
    RQ_TID,
    RQ_WRITE,
    RUN_WORDS,
    STREAM_WORDS,
    T_WL,
    TR_ASKED,
    TR_MEM,
    TR_NEXT,
    TR_NODE,
    TR_PORT,
    TR_QUEUED,
    TR_SUBMIT,
    TR_WRITE,
    TRANSFER_WORDS,
    Words,
)
from npusim.memory.transfer import cut_burst

REFUSED = -1


@njit
def step_channel(s: Words, transfers: Words, out: Words, log: Words, ch: int, now_ps: int) -> None:
    """One decision of a DRAM channel with everything that follows at the same time."""
    cycle = s[ch + CH_NOW]
    req = step(s, transfers, log, ch)
    if req != NONE:
        while s[req + RQ_MERGED] != NONE:  # reads of the same address, served by this command
            merged = s[req + RQ_MERGED]
            s[req + RQ_MERGED] = s[merged + RQ_MERGED]
            serve_request(s, transfers, ch, merged, cycle)
        serve_request(s, transfers, ch, req, cycle)
    refill(s, transfers, out, log, ch, now_ps)
    look_ahead(s, ch, cycle)


@njit
def serve_request(s: Words, transfers: Words, ch: int, req: int, cycle: int) -> None:
    """A column command at `cycle` serves a request."""
    write, tid = s[req + RQ_WRITE], s[req + RQ_TID]
    port = NONE
    if tid != NONE:
        port = s[H_PORTS] + transfers[tid * TRANSFER_WORDS + TR_PORT] * PORT_WORDS
        transfers[tid * TRANSFER_WORDS + TR_QUEUED] -= 1
    serve_column(s, ch, req, cycle, write, port)
    if write:
        note_written(s, ch, cycle)
    free_request(s, ch, req)


@njit
def note_written(s: Words, ch: int, cycle: int) -> None:
    """Keep the time of the last write that reached its cells' sense amplifiers."""
    mem = s[ch + CH_MEM]
    at = edge_ceil_ps(s, ch + CH_CLOCK, cycle + s[mem + T_WL])
    s[H_LAST_WRITE] = max(s[H_LAST_WRITE], at)


@njit
def dispatch(
    s: Words, transfers: Words, runs: Words, out: Words, log: Words, entity: int, now_ps: int
) -> None:
    """Let one entity act at its time."""
    buses = s[H_NUM_BUSES]
    streams = 2 * s[H_NUM_PORTS]
    if entity >= 3 * buses + streams:
        ch = s[H_CHANNELS] + (entity - 3 * buses - streams) * CHANNEL_WORDS
        step_channel(s, transfers, out, log, ch, now_ps)
    elif entity >= 3 * buses:
        give_up(s)
        number = entity - 3 * buses
        port = s[H_PORTS] + (number >> 1) * PORT_WORDS
        enter(s, transfers, out, log, s[port + PT_STREAMS] + (number & 1) * STREAM_WORDS, now_ps)
    elif entity >= buses:
        write = 1 if entity >= 2 * buses else 0
        bus = s[H_BUSES] + (entity - buses * (1 + write)) * BUS_WORDS
        grant(s, transfers, runs, bus, write, now_ps)
    else:
        deliver(s, transfers, out, s[H_BUSES] + entity * BUS_WORDS, now_ps)


@entry
def advance(
    state_at: int, transfers_at: int, runs_at: int, out_at: int, log_at: int, memo_at: int,
    horizon_ps: int,
) -> int:  # fmt: skip
    """Act on every event before the horizon and before the first completion found on the way.

    Takes addresses of the tables. Returns the number of completions in `out`: (ps, transfer).
    """
    s, transfers, runs = words_at(state_at), words_at(transfers_at), words_at(runs_at)
    out, log, memo = words_at(out_at), words_at(log_at), words_at(memo_at)
    return run(s, transfers, runs, out, log, memo, horizon_ps)


@njit
def run(
    s: Words, transfers: Words, runs: Words, out: Words, log: Words, memo: Words, horizon_ps: int
) -> int:  # fmt: skip
    """`advance` on tables."""
    s[H_OUT] = 0
    s[H_FIRST_DONE] = NEVER
    while True:
        entity, now_ps = first_event(s)
        if now_ps >= horizon_ps or now_ps >= s[H_FIRST_DONE] or now_ps >= NEVER:
            return s[H_OUT]
        s[H_CLOCK] = max(s[H_CLOCK], now_ps)
        dispatch(s, transfers, runs, out, log, entity, now_ps)
        if s[H_CROSSED]:
            stream = s[H_CROSSED]
            s[H_CROSSED] = 0
            checkpoint(s, transfers, memo, stream, now_ps, horizon_ps)


@entry
def submit(
    state_at: int, transfers_at: int, runs_at: int, new_runs_at: int, num_runs: int, tid: int,
    now_ps: int, port_id: int, mem_id: int, write: int,
) -> int:  # fmt: skip
    """Append a transfer to its port's list; returns 0, or why nothing was done.

    REFUSED: the transfer cannot be (`checks.checked_runs` says why). Above 0: so many run nodes
    are missing. Port and memory exist, and the caller has made room for transfer `tid`.
    """
    s, transfers, runs = words_at(state_at), words_at(transfers_at), words_at(runs_at)
    new_runs = words_at(new_runs_at)
    capacity = s[s[H_MEMS] + mem_id * MEM_WORDS + MM_CAPACITY]
    if now_ps < s[H_CLOCK] or not are_valid(new_runs, num_runs, capacity):
        return REFUSED
    missing = num_runs - free_runs(s, runs, num_runs)
    if missing > 0:
        return missing
    add_transfer(s, transfers, runs, new_runs, num_runs, tid, now_ps, port_id, mem_id, write)
    return 0


@njit
def are_valid(new_runs: Words, num_runs: int, capacity: int) -> bool:
    """Whether every run moves bytes and stays inside the memory."""
    for i in range(num_runs):
        base, size = new_runs[4 * i], new_runs[4 * i + 1]
        count = new_runs[4 * i + 3]
        last = base + new_runs[4 * i + 2] * (count - 1)
        if size < 1 or count < 1 or min(base, last) < 0 or max(base, last) + size > capacity:
            return False
    return True


@njit
def free_runs(s: Words, runs: Words, limit: int) -> int:
    """Free run nodes, counted up to `limit`."""
    node, count = s[H_RUN_FREE], 0
    while node != NONE and count < limit:
        node = runs[node * RUN_WORDS + RN_NEXT]
        count += 1
    return count


@njit
def add_transfer(
    s: Words, transfers: Words, runs: Words, new_runs: Words, num_runs: int, tid: int,
    now_ps: int, port_id: int, mem_id: int, write: int,
) -> None:  # fmt: skip
    """Append a checked transfer; rows that touch become one."""
    first, last, asked = NONE, NONE, 0
    for i in range(num_runs):
        asked += new_runs[4 * i + 1] * new_runs[4 * i + 3]
        node = s[H_RUN_FREE]
        s[H_RUN_FREE] = runs[node * RUN_WORDS + RN_NEXT]
        for k in range(4):
            runs[node * RUN_WORDS + RN_BASE + k] = new_runs[4 * i + k]
        if new_runs[4 * i + 2] == new_runs[4 * i + 1]:
            runs[node * RUN_WORDS + RN_BYTES] *= runs[node * RUN_WORDS + RN_COUNT]
            runs[node * RUN_WORDS + RN_COUNT] = 1
        runs[node * RUN_WORDS + RN_NEXT] = NONE
        if first == NONE:
            first = node
        else:
            runs[last * RUN_WORDS + RN_NEXT] = node
        last = node
    for k in range(TRANSFER_WORDS):
        transfers[tid * TRANSFER_WORDS + k] = 0
    transfers[tid * TRANSFER_WORDS + TR_PORT], transfers[tid * TRANSFER_WORDS + TR_WRITE] = (
        port_id,
        write,
    )
    transfers[tid * TRANSFER_WORDS + TR_MEM] = s[H_MEMS] + mem_id * MEM_WORDS
    transfers[tid * TRANSFER_WORDS + TR_ASKED] = asked
    (
        transfers[tid * TRANSFER_WORDS + TR_SUBMIT],
        transfers[tid * TRANSFER_WORDS + TR_NODE],
        transfers[tid * TRANSFER_WORDS + TR_NEXT],
    ) = now_ps, first, NONE
    s[H_UNFINISHED] += 1
    port = s[H_PORTS] + port_id * PORT_WORDS
    if s[port + PT_TAIL] != NONE:
        transfers[s[port + PT_TAIL] * TRANSFER_WORDS + TR_NEXT] = tid
        s[port + PT_TAIL] = tid
        return
    s[port + PT_HEAD], s[port + PT_TAIL], s[port + PT_NODE] = tid, tid, first
    s[port + PT_ROW], s[port + PT_OFFSET] = 0, 0
    if s[port + PT_VALID] == 0:
        cut_burst(s, transfers, runs, port, now_ps)
        offer(s, port, now_ps)
