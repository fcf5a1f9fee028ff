"""What a hop does apart from the state of the channels: counters, rows, data on their way back."""

from __future__ import annotations

from npusim.memory.axi import complete
from npusim.memory.clocking import edge_ceil_ps, edge_ps
from npusim.memory.crossing import memory_to_bus_ps
from npusim.memory.jit import njit
from npusim.memory.jumps.record import counter
from npusim.memory.jumps.words import (
    COUNTS_WORDS,
    FRESH_WORDS,
    HP_ACCESSES,
    HP_BURSTS,
    HP_BYTES,
    HP_CHANNELS,
    HP_CONFLICTS,
    HP_FRESH,
    HP_HITS,
    HP_MISSES,
    HP_PIECES,
    HP_READS,
    HP_ROWS,
    HP_SERVED,
    HP_WORDS,
    M_MAP,
    MAP_BEFORE,
    NUM_COUNTS,
    PIECE_WORDS,
    ROW_NONE,
    ROWS_WORDS,
    SERVED_WORDS,
)
from npusim.memory.layout import (
    AX_ADDR,
    AX_FIRST,
    AX_LAST,
    AX_LEFT,
    AX_TID,
    BK_RANK,
    BK_ROW,
    BS_RESPONSE_PS,
    CH_CLOCK,
    MM_ASKED,
    MM_BURST,
    MM_CHANNELS,
    MM_LATENCY_PS,
    MM_READ_BYTES,
    NONE,
    PC_ACCOUNTED,
    PC_CATEGORY,
    PT_BUS,
    PT_OWN_PS,
    RK_OPEN,
    ST_AT,
    ST_FIFO,
    ST_FIFO_HEAD,
    ST_FIFO_N,
    ST_LIMIT,
    ST_PORT,
    T_BL,
    T_RL,
    TR_ACCESSES,
    TR_BYTES,
    TR_CONFLICTS,
    TR_HITS,
    TR_MISSES,
    TR_QUEUED,
    TRANSFER_WORDS,
    Words,
)


@njit
def head_of(s: Words, stream: int, i: int) -> int:
    """AXI burst number `i` of those granted and not wholly entered."""
    at = s[stream + ST_FIFO_HEAD] + i
    limit = s[stream + ST_LIMIT]
    return s[s[stream + ST_FIFO] + (at - limit if at >= limit else at)]


@njit
def hop_over(
    s: Words, transfers: Words, m: Words, mem: int, stream: int, hop: int, cycle: int, row: int,
    block: int, cut: int,
) -> None:  # fmt: skip
    """Everything a hop does apart from the state of the channels."""
    tid = s[head_of(s, stream, 0) + AX_TID] * TRANSFER_WORDS
    here = s[stream + ST_AT] // cut - block
    begin_bursts(s, transfers, m, mem, stream, m[hop + HP_BURSTS], block, cut)
    s[stream + ST_AT] += m[hop + HP_BYTES]
    transfers[tid + TR_ACCESSES] += m[hop + HP_ACCESSES]
    transfers[tid + TR_HITS] += m[hop + HP_HITS]
    transfers[tid + TR_MISSES] += m[hop + HP_MISSES]
    transfers[tid + TR_CONFLICTS] += m[hop + HP_CONFLICTS]
    transfers[tid + TR_QUEUED] += m[hop + HP_BYTES] // s[mem + MM_BURST] - m[hop + HP_READS]
    at = hop + HP_WORDS + m[hop + HP_FRESH] * FRESH_WORDS
    for _ in range(m[hop + HP_ROWS]):
        set_row(s, m[at], NONE if m[at + 1] == ROW_NONE else row + m[at + 1])
        at += ROWS_WORDS
    for _ in range(m[hop + HP_CHANNELS]):
        for k in range(NUM_COUNTS):
            s[m[at] + counter(k)] += m[at + 1 + k]
        at += COUNTS_WORDS
    clock = s[mem + MM_CHANNELS] + CH_CLOCK
    at = serve(s, m, mem, stream, hop, at, cycle, here, clock)
    for _ in range(m[hop + HP_PIECES]):
        end_ps = edge_ps(s, clock, cycle + m[at + 2])
        pc = m[at]
        s[pc + PC_CATEGORY + m[at + 1]] += end_ps - s[pc + PC_ACCOUNTED]
        s[pc + PC_ACCOUNTED] = end_ps
        at += PIECE_WORDS


@njit
def begin_bursts(
    s: Words, transfers: Words, m: Words, mem: int, stream: int, count: int, block: int, cut: int
) -> None:  # fmt: skip
    """Let `count` further AXI bursts begin to enter."""
    for _ in range(count):
        head = s[stream + ST_FIFO_HEAD] + 1
        s[stream + ST_FIFO_HEAD] = 0 if head == s[stream + ST_LIMIT] else head
        s[stream + ST_FIFO_N] -= 1
        burst = head_of(s, stream, 0)
        s[mem + MM_READ_BYTES] += cut
        transfers[s[burst + AX_TID] * TRANSFER_WORDS + TR_BYTES] += cut
        s[burst + AX_LEFT] = cut // s[mem + MM_BURST]
        s[mem + MM_ASKED] += s[burst + AX_LEFT]
        m[M_MAP + MAP_BEFORE + s[burst + AX_ADDR] // cut - block] = burst


@njit
def set_row(s: Words, bank: int, row: int) -> None:
    """Open or close a row, keeping the rank's count of open ones."""
    s[s[bank + BK_RANK] + RK_OPEN] += (row != NONE) - (s[bank + BK_ROW] != NONE)
    s[bank + BK_ROW] = row


@njit
def serve(
    s: Words, m: Words, mem: int, stream: int, hop: int, at: int, cycle: int, here: int, clock: int
) -> int:  # fmt: skip
    """Data of the hop's column commands on their way back; returns the end of the list."""
    port = s[stream + ST_PORT]
    bus = s[port + PT_BUS]
    extra = s[mem + MM_LATENCY_PS] + s[bus + BS_RESPONSE_PS]
    for _ in range(m[hop + HP_SERVED]):
        burst = m[M_MAP + MAP_BEFORE + here + m[at]]
        first = edge_ceil_ps(s, clock, cycle + m[at + 2] + s[mem + T_RL]) + extra
        last = edge_ceil_ps(s, clock, cycle + m[at + 3] + s[mem + T_RL]) + extra
        first, last = memory_to_bus_ps(s, bus, mem, first), memory_to_bus_ps(s, bus, mem, last)
        s[burst + AX_FIRST] = min(s[burst + AX_FIRST], first)
        s[burst + AX_LAST] = max(s[burst + AX_LAST], last)
        s[burst + AX_LEFT] -= m[at + 1]
        s[port + PT_OWN_PS] += m[at + 1] * edge_ps(s, clock, s[mem + T_BL])
        if s[burst + AX_LEFT] == 0:
            complete(s, burst)
        at += SERVED_WORDS
    return at
