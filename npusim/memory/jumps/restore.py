"""A snapshot put back: the state of a DRAM memory at another cycle and address (compiled).

The inverse of `snapshot.take`. Requests are queued anew in their order; rows of banks, counters and
what the data buses were charged with are not part of a snapshot and in place already.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, set_time
from npusim.memory.dram.channel import due_cycle
from npusim.memory.dram.decode import decode
from npusim.memory.dram.queues import append
from npusim.memory.jit import njit
from npusim.memory.jumps.snapshot import (
    BANK_PART,
    CHANNEL_HEAD,
    GROUP_PART,
    HEAD_WORDS,
    PC_PART,
    RANK_DEADLINES,
    RANK_PART,
    REQUEST_PART,
    rank_word,
)
from npusim.memory.jumps.words import M_MAP, MAP_BEFORE
from npusim.memory.layout import (
    BANK_WORDS,
    BK_ACT_OK,
    BK_ACTIVE,
    BK_QUEUE,
    BS_CUT,
    CH_ACT2_AT,
    CH_ACT2_BANK,
    CH_ACTIVE,
    CH_ACTIVE_N,
    CH_BANKS,
    CH_CAS_REQ,
    CH_CLOCK,
    CH_COL_OK,
    CH_COLS_N,
    CH_ENTITY,
    CH_FREE_REQ,
    CH_HELD,
    CH_MODE_AT,
    CH_MODE_BEFORE,
    CH_NEW,
    CH_NEW_AT,
    CH_NEW_W,
    CH_NOW,
    CH_NUM_BANKS,
    CH_NUM_PCS,
    CH_NUM_RANKS,
    CH_PCS,
    CH_PLAN_CMD,
    CH_PLAN_COL,
    CH_PLAN_COL_T,
    CH_PLAN_ROW,
    CH_PLAN_ROW_T,
    CH_PLANNED,
    CH_QUEUED,
    CH_RANKS,
    CH_ROW_OK,
    CH_ROWS_N,
    CH_SEQ,
    CH_WAIT,
    CH_WRITE_MODE,
    CHANNEL_WORDS,
    CMD_ACT,
    CMD_PRE,
    GP_ACT_OK,
    GROUP_WORDS,
    MM_ARB_PS,
    MM_CHANNELS,
    MM_NUM_CHANNELS,
    NEVER,
    NONE,
    PC_ARB_SEEN,
    PC_DATA_END,
    PC_HELD,
    PC_KIND,
    PC_REASON,
    PC_WORDS,
    PT_BUS,
    Q_COL_AT,
    Q_HEAD,
    Q_HIT,
    Q_OTHER,
    Q_ROW_AT,
    Q_TAIL,
    RANK_WORDS,
    RK_FAW,
    RK_FAW_AT,
    RK_GROUPS,
    RK_NUM_GROUPS,
    RQ_ADDR,
    RQ_ARRIVE,
    RQ_AXI,
    RQ_BANK,
    RQ_CLASS,
    RQ_NEXT,
    RQ_QUEUED,
    RQ_ROW,
    RQ_SEQ,
    RQ_TID,
    RQ_WRITE,
    ST_AT,
    ST_PORT,
    Words,
)


@njit
def restore(
    s: Words, m: Words, at: int, mem: int, stream: int, cycle: int, tid: int, block: int
) -> None:
    """Bring `mem` into the snapshot's state at `cycle`; rows of banks are in place already.

    Bursts of the stream are looked up in the memo's map, which counts from `block`.
    """
    here = s[stream + ST_AT]
    end = at + HEAD_WORDS
    for i in range(s[mem + MM_NUM_CHANNELS]):
        ch = s[mem + MM_CHANNELS] + i * CHANNEL_WORDS
        head = end
        clear(s, ch)
        restore_head(s, m, head, ch, stream, cycle)
        end = restore_buses(s, m, end + CHANNEL_HEAD, ch, mem, cycle)
        while m[end] != NONE:
            end = restore_bank(s, m, end, ch, mem, stream, cycle, tid, block)
        end = restore_active(s, m, end + 1, ch)
        restore_plan(s, m, head, ch, cycle, here)
        set_time(s, s[ch + CH_ENTITY], edge_ps(s, ch + CH_CLOCK, s[ch + CH_NOW]))


@njit
def drop(s: Words, ch: int, req: int) -> None:
    """Return a request to the pool of its channel."""
    s[req + RQ_NEXT] = s[ch + CH_FREE_REQ]
    s[ch + CH_FREE_REQ] = req


@njit
def clear(s: Words, ch: int) -> None:
    """Empty a channel's queues."""
    for i in range(s[ch + CH_NUM_BANKS]):
        bank = s[ch + CH_BANKS] + i * BANK_WORDS
        if s[bank + BK_ACTIVE] != NONE:
            drop(s, ch, s[bank + BK_ACTIVE])
            s[bank + BK_ACTIVE] = NONE
        q = bank + BK_QUEUE
        req = s[q + Q_HEAD]
        while req != NONE:
            following = s[req + RQ_NEXT]
            drop(s, ch, req)
            req = following
        s[q + Q_HEAD], s[q + Q_TAIL], s[q + Q_HIT], s[q + Q_OTHER] = NONE, NONE, NONE, NONE
        s[q + Q_COL_AT], s[q + Q_ROW_AT] = NONE, NONE
    s[ch + CH_COLS_N], s[ch + CH_ROWS_N], s[ch + CH_ACTIVE_N], s[ch + CH_QUEUED] = 0, 0, 0, 0


@njit
def restore_head(s: Words, m: Words, at: int, ch: int, stream: int, cycle: int) -> None:
    """Scheduler state of a channel, its plan apart."""
    s[ch + CH_HELD], s[ch + CH_WRITE_MODE] = m[at + 1], m[at + 2]
    s[ch + CH_COL_OK], s[ch + CH_ROW_OK] = cycle + m[at + 3], cycle + m[at + 4]
    s[ch + CH_ACT2_AT] = NONE
    if m[at + 5] < NEVER:
        s[ch + CH_ACT2_AT], s[ch + CH_ACT2_BANK] = cycle + m[at + 5], m[at + 6]
    s[ch + CH_WAIT] = stream if m[at + 7] else NONE
    s[ch + CH_MODE_AT] = cycle + m[at + 8]
    s[ch + CH_MODE_BEFORE] = m[at + 10]
    s[ch + CH_NEW_AT], s[ch + CH_NEW], s[ch + CH_NEW_W] = cycle + m[at + 9], m[at + 11], 0
    s[ch + CH_PLANNED] = m[at + 12]


@njit
def restore_buses(s: Words, m: Words, at: int, ch: int, mem: int, cycle: int) -> int:
    """Data buses, ranks and bank groups; returns the end."""
    for i in range(s[ch + CH_NUM_PCS]):
        pc = s[ch + CH_PCS] + i * PC_WORDS
        s[pc + PC_DATA_END], s[pc + PC_KIND] = cycle + m[at], m[at + 1]
        s[pc + PC_REASON], s[pc + PC_HELD] = m[at + 2], m[at + 3]
        s[pc + PC_ARB_SEEN] = s[mem + MM_ARB_PS]
        at += PC_PART
    for i in range(s[ch + CH_NUM_RANKS]):
        rank = s[ch + CH_RANKS] + i * RANK_WORDS
        for k in range(RANK_DEADLINES):
            s[rank + rank_word(k)] = cycle + m[at + k]
        s[rank + RK_FAW_AT] = 0
        for k in range(4):
            s[rank + RK_FAW + k] = cycle + m[at + RANK_DEADLINES + k]
        at += RANK_PART
        for k in range(s[rank + RK_NUM_GROUPS]):
            group = s[rank + RK_GROUPS] + k * GROUP_WORDS
            for j in range(GROUP_PART):
                s[group + GP_ACT_OK + j] = cycle + m[at + j]
            at += GROUP_PART
    return at


@njit
def restore_bank(
    s: Words, m: Words, at: int, ch: int, mem: int, stream: int, cycle: int, tid: int, block: int
) -> int:  # fmt: skip
    """One bank with its requests; returns the end."""
    bank = s[ch + CH_BANKS] + (m[at] >> 32) * BANK_WORDS
    is_active, count = m[at] & 1, (m[at] >> 1) & ((1 << 31) - 1)
    for k in range(4):
        s[bank + BK_ACT_OK + k] = cycle + m[at + 2 + k]
    at += BANK_PART
    for i in range(is_active + count):
        req = s[ch + CH_FREE_REQ]
        s[ch + CH_FREE_REQ] = s[req + RQ_NEXT]
        restore_request(s, m, at, ch, mem, stream, req, cycle, block)
        s[req + RQ_BANK], s[req + RQ_TID] = bank, tid
        if i < is_active:
            s[req + RQ_QUEUED] = 0
            s[bank + BK_ACTIVE] = req
        else:
            append(s, ch, bank, req, 0)
        at += REQUEST_PART
    return at


@njit
def restore_active(s: Words, m: Words, at: int, ch: int) -> int:
    """The active list in its order; returns the end."""
    n = 0
    while m[at + n] != NONE:
        s[s[ch + CH_ACTIVE] + n] = s[m[at + n] + BK_ACTIVE]
        n += 1
    s[ch + CH_ACTIVE_N] = n
    return at + n + 1


@njit
def restore_request(
    s: Words, m: Words, at: int, ch: int, mem: int, stream: int, req: int, cycle: int, block: int
) -> None:  # fmt: skip
    """One request's own words."""
    addr = s[stream + ST_AT] + m[at]
    _, _, row = decode(s, mem, addr)
    cut = s[s[s[stream + ST_PORT] + PT_BUS] + BS_CUT]
    s[req + RQ_ADDR], s[req + RQ_ROW], s[req + RQ_WRITE] = addr, row, 0
    s[req + RQ_ARRIVE], s[req + RQ_CLASS] = cycle + m[at + 1], m[at + 2]
    s[req + RQ_SEQ] = s[ch + CH_SEQ] + m[at + 3]
    s[req + RQ_AXI] = m[M_MAP + MAP_BEFORE + addr // cut - block]


@njit
def held_at(s: Words, ch: int, addr: int) -> int:
    """The channel's request for `addr`."""
    for i in range(s[ch + CH_NUM_BANKS]):
        bank = s[ch + CH_BANKS] + i * BANK_WORDS
        active = s[bank + BK_ACTIVE]
        if active != NONE and s[active + RQ_ADDR] == addr:
            return active
        req = s[bank + BK_QUEUE + Q_HEAD]
        while req != NONE:
            if s[req + RQ_ADDR] == addr:
                return req
            req = s[req + RQ_NEXT]
    return NONE


@njit
def restore_plan(s: Words, m: Words, at: int, ch: int, cycle: int, here: int) -> None:
    """The planned command and the time of the channel's next event."""
    s[ch + CH_CAS_REQ] = NONE if m[at + 19] == NEVER else held_at(s, ch, here + m[at + 19])
    if s[ch + CH_PLANNED] == 0:
        s[ch + CH_NOW] = cycle + m[at + 13]
        return
    s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T] = NEVER, NEVER
    if m[at + 14] < NEVER:
        s[ch + CH_PLAN_COL_T] = cycle + m[at + 14]
        s[ch + CH_PLAN_COL] = held_at(s, ch, here + m[at + 15])
    if m[at + 16] < NEVER:
        s[ch + CH_PLAN_ROW_T], s[ch + CH_PLAN_CMD] = cycle + m[at + 16], m[at + 17]
        if m[at + 17] in (CMD_ACT, CMD_PRE):
            s[ch + CH_PLAN_ROW] = held_at(s, ch, here + m[at + 18])
    s[ch + CH_NOW] = due_cycle(s, ch)
