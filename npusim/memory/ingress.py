"""Where bursts meet memory: DRAM queues with back-pressure, SRAM banks (compiled).

A stream (one direction of a port) enters its bursts in order. A full queue blocks the stream; a
freed slot goes to the waiting stream whose AXI burst arrived first, ties to the lower port, at the
very cycle the slot is freed.
"""

from __future__ import annotations

from npusim.memory.axi import complete, release
from npusim.memory.clocking import edge_ceil_ps, edge_ps, next_cycle, set_time
from npusim.memory.crossing import memory_to_bus_ps
from npusim.memory.dram.channel import (
    accept,
    cycle_at,
    wake,
)
from npusim.memory.dram.decode import decode
from npusim.memory.jit import inlined, njit
from npusim.memory.jumps.record import give_up, note_begun, note_served
from npusim.memory.layout import (
    ACCEPT_FULL,
    ACCEPT_QUEUED,
    AX_ADDR,
    AX_ARRIVE,
    AX_END,
    AX_FIRST,
    AX_ID,
    AX_LAST,
    AX_LEFT,
    AX_MEM,
    AX_PORT,
    AX_TID,
    BS_RESPONSE_PS,
    CH_CLOCK,
    CH_LIMIT,
    CH_MEM,
    CH_QUEUED,
    CH_SLOT_MASK,
    CH_WAIT,
    H_CROSSED,
    H_RECORDING,
    MM_ACCESSES,
    MM_ASKED,
    MM_BANKS,
    MM_BURST,
    MM_CHUNK,
    MM_CLOCK,
    MM_CONFLICT_CYCLES,
    MM_INTERLEAVE,
    MM_IS_SRAM,
    MM_LATENCY_CYCLES,
    MM_LATENCY_PS,
    MM_NUM_BANKS,
    MM_PARTIAL_RMW,
    MM_PORT_BYTES,
    MM_POSTED,
    MM_READ_BYTES,
    MM_RMW,
    MM_WRITE_BYTES,
    NEVER,
    NONE,
    PT_BUS,
    PT_CLOCK,
    PT_CROSSING,
    PT_OWN_PS,
    READ,
    RQ_ADDR,
    RQ_AXI,
    SB_FREE,
    SB_KIND,
    SB_READ_CYCLES,
    SRAM_BANK_WORDS,
    ST_AT,
    ST_BLOCKED,
    ST_ENTITY,
    ST_FIFO,
    ST_FIFO_HEAD,
    ST_FIFO_N,
    ST_LIMIT,
    ST_PHASE,
    ST_PORT,
    ST_WAIT_NEXT,
    ST_WAIT_SINCE,
    ST_WRITE,
    T_BL,
    T_RL,
    T_WL,
    TR_BYTES,
    TR_QUEUED,
    TRANSFER_WORDS,
    WRITE,
    Words,
)

PHASE_NEW, PHASE_NORMAL, PHASE_RMW_READ = 0, 1, 2


@njit
def enter(s: Words, transfers: Words, out: Words, log: Words, stream: int, now_ps: int) -> None:
    """Enter everything of a stream that has arrived until it blocks or nothing is left."""
    s[stream + ST_BLOCKED] = 0
    while s[stream + ST_FIFO_N] > 0:
        burst = s[s[stream + ST_FIFO] + s[stream + ST_FIFO_HEAD]]
        if s[burst + AX_ARRIVE] > now_ps:
            set_time(s, s[stream + ST_ENTITY], s[burst + AX_ARRIVE])
            give_up(s)
            return
        mem = s[burst + AX_MEM]
        if s[burst + AX_LEFT] == NONE:
            begin(s, transfers, stream, burst, mem)
        if s[mem + MM_IS_SRAM]:
            access_sram(s, stream, burst, now_ps)
        elif not enter_dram(s, transfers, log, stream, burst, now_ps):
            set_time(s, s[stream + ST_ENTITY], NEVER)
            return
        head = s[stream + ST_FIFO_HEAD] + 1
        s[stream + ST_FIFO_HEAD] = 0 if head == s[stream + ST_LIMIT] else head
        s[stream + ST_FIFO_N] -= 1
        finish_entry(s, transfers, out, stream, burst, now_ps)
    give_up(s)
    set_time(s, s[stream + ST_ENTITY], NEVER)


@njit
def begin(s: Words, transfers: Words, stream: int, burst: int, mem: int) -> None:
    """First look at a burst on the memory side: count its bytes and its DRAM bursts."""
    addr, end = s[burst + AX_ADDR], s[burst + AX_END]
    write = s[stream + ST_WRITE]
    s[mem + (MM_WRITE_BYTES if write else MM_READ_BYTES)] += end - addr
    transfers[s[burst + AX_TID] * TRANSFER_WORDS + TR_BYTES] += end - addr
    s[burst + AX_LEFT] = 1
    if s[mem + MM_IS_SRAM] == 0:
        if s[H_RECORDING]:
            note_begun(s, stream, burst)
        size = s[mem + MM_BURST]
        first = addr // size
        s[stream + ST_AT] = first * size
        s[stream + ST_PHASE] = PHASE_NEW
        s[burst + AX_LEFT] = (end - 1) // size - first + 1
        s[mem + MM_ASKED] += s[burst + AX_LEFT]


@njit
def enter_dram(
    s: Words, transfers: Words, log: Words, stream: int, burst: int, now_ps: int
) -> bool:
    """Put the rest of a burst into channel queues; False when blocked by a full one."""
    mem, end = s[burst + AX_MEM], s[burst + AX_END]
    size = s[mem + MM_BURST]
    write = s[stream + ST_WRITE]
    while s[stream + ST_AT] < end:
        addr = s[stream + ST_AT]
        if s[stream + ST_PHASE] == PHASE_NEW:
            partial = addr < s[burst + AX_ADDR] or addr + size > end
            rmw = write and partial and s[mem + MM_PARTIAL_RMW]
            s[stream + ST_PHASE] = PHASE_RMW_READ if rmw else PHASE_NORMAL
        as_write = WRITE if write and s[stream + ST_PHASE] == PHASE_NORMAL else READ
        ch, bank, row = decode(s, mem, addr)
        cycle = cycle_at(s, ch, now_ps)
        axi = burst if s[stream + ST_PHASE] == PHASE_NORMAL else NONE
        if write and s[mem + MM_POSTED]:
            axi = NONE
        status = accept(s, log, ch, cycle, bank, row, addr, as_write, axi, s[burst + AX_TID])
        if status == ACCEPT_FULL:
            slot = as_write & s[ch + CH_SLOT_MASK]
            wait_for_slot(s, ch, slot, stream, s[burst + AX_ARRIVE])
            return False
        if status == ACCEPT_QUEUED:
            transfers[s[burst + AX_TID] * TRANSFER_WORDS + TR_QUEUED] += 1
            wake(s, ch, cycle)
        if s[stream + ST_PHASE] == PHASE_RMW_READ:
            s[mem + MM_RMW] += 1
            s[stream + ST_PHASE] = PHASE_NORMAL
            continue
        if axi != NONE and status != ACCEPT_QUEUED:
            arrived(s, burst, edge_ceil_ps(s, ch + CH_CLOCK, cycle + 1))
        s[stream + ST_AT] = addr + size
        s[stream + ST_PHASE] = PHASE_NEW
        if (addr + size) & s[mem + MM_CHUNK] == 0:
            s[H_CROSSED] = stream
    return True


@njit
def finish_entry(
    s: Words, transfers: Words, out: Words, stream: int, burst: int, now_ps: int
) -> None:
    """A posted write is over for its port once all of it is accepted."""
    mem = s[burst + AX_MEM]
    if s[stream + ST_WRITE] and not s[mem + MM_IS_SRAM] and s[mem + MM_POSTED]:
        port = s[stream + ST_PORT]
        clock = port + PT_CLOCK
        bus = s[port + PT_BUS]
        back = memory_to_bus_ps(s, bus, mem, now_ps + s[bus + BS_RESPONSE_PS])
        if s[burst + AX_ID] != NONE:
            s[burst + AX_LAST], s[burst + AX_LEFT] = back, 0
            complete(s, burst)
            return
        done = edge_ps(s, clock, next_cycle(s, clock, back) + s[port + PT_CROSSING])
        release(s, transfers, out, stream, burst, done, now_ps)


@inlined
def arrived(s: Words, burst: int, at_ps: int) -> None:
    """One DRAM burst's data left the memory at `at_ps` (or its write is done)."""
    bus = s[s[burst + AX_PORT] + PT_BUS]
    at_ps = memory_to_bus_ps(s, bus, s[burst + AX_MEM], at_ps + s[bus + BS_RESPONSE_PS])
    s[burst + AX_FIRST] = min(s[burst + AX_FIRST], at_ps)
    s[burst + AX_LAST] = max(s[burst + AX_LAST], at_ps)
    s[burst + AX_LEFT] -= 1
    if s[burst + AX_LEFT] == 0:
        complete(s, burst)


@inlined
def serve_column(s: Words, ch: int, req: int, cycle: int, write: int, port: int) -> None:
    """Time of a column command's data and its way back."""
    mem = s[ch + CH_MEM]
    clock = ch + CH_CLOCK
    if port != NONE:
        s[port + PT_OWN_PS] += edge_ps(s, clock, s[mem + T_BL])
    burst = s[req + RQ_AXI]
    if burst != NONE:
        latency = s[mem + T_WL] if write else s[mem + T_RL]
        extra = 0 if write else s[mem + MM_LATENCY_PS]
        if s[H_RECORDING]:
            note_served(s, ch, s[req + RQ_ADDR], cycle)
        arrived(s, burst, edge_ceil_ps(s, clock, cycle + latency) + extra)


@njit
def wait_for_slot(s: Words, ch: int, write: int, stream: int, since_ps: int) -> None:
    """Join the streams that wait for a slot, ordered by arrival of their burst, then port."""
    s[stream + ST_BLOCKED], s[stream + ST_WAIT_SINCE] = 1, since_ps
    before, at = NONE, s[ch + CH_WAIT + write]
    while at != NONE and (
        s[at + ST_WAIT_SINCE] < since_ps or (s[at + ST_WAIT_SINCE] == since_ps and at < stream)
    ):
        before, at = at, s[at + ST_WAIT_NEXT]
    s[stream + ST_WAIT_NEXT] = at
    if before == NONE:
        s[ch + CH_WAIT + write] = stream
    else:
        s[before + ST_WAIT_NEXT] = stream


@njit
def refill(s: Words, transfers: Words, out: Words, log: Words, ch: int, now_ps: int) -> None:
    """Hand freed queue slots to the streams that wait for them."""
    for write in range(2):
        while s[ch + CH_WAIT + write] != NONE:
            if s[ch + CH_QUEUED + write] >= s[ch + CH_LIMIT + write]:
                break
            stream = s[ch + CH_WAIT + write]
            s[ch + CH_WAIT + write] = s[stream + ST_WAIT_NEXT]
            enter(s, transfers, out, log, stream, now_ps)


@njit
def access_sram(s: Words, stream: int, burst: int, now_ps: int) -> None:
    """Spread a burst over SRAM banks; each serves one word per cycle in arrival order."""
    mem, write = s[burst + AX_MEM], s[stream + ST_WRITE]
    clock = mem + MM_CLOCK
    word, interleave = s[mem + MM_PORT_BYTES], s[mem + MM_INTERLEAVE]
    now = next_cycle(s, clock, now_ps)
    first, last = NEVER, 0
    addr, end = s[burst + AX_ADDR], s[burst + AX_END]
    while addr < end:
        stop = min(end, (addr // interleave + 1) * interleave)
        words = (stop - 1) // word - addr // word + 1
        bank = s[mem + MM_BANKS] + (addr // interleave % s[mem + MM_NUM_BANKS]) * SRAM_BANK_WORDS
        start = max(s[bank + SB_FREE], now)
        s[mem + MM_CONFLICT_CYCLES] += start - now
        s[mem + MM_ACCESSES] += words
        s[bank + SB_FREE], s[bank + SB_KIND] = start + words, write
        s[bank + SB_READ_CYCLES + write] += words
        first, last = min(first, start + 1), max(last, start + words)
        addr = stop
    latency = s[mem + MM_LATENCY_CYCLES]
    bus = s[s[burst + AX_PORT] + PT_BUS]
    back = s[bus + BS_RESPONSE_PS]
    at_ps = edge_ps(s, clock, first + latency) + back
    s[burst + AX_FIRST] = memory_to_bus_ps(s, bus, mem, at_ps)
    at_ps = edge_ps(s, clock, last + latency) + back
    s[burst + AX_LAST] = memory_to_bus_ps(s, bus, mem, at_ps)
    s[burst + AX_LEFT] = 0
    complete(s, burst)
