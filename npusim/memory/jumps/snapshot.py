"""The state of a DRAM memory relative to a cycle and to a stream's address (compiled).

Two states with equal snapshots behave alike until something arrives or a refresh is due: deadlines
count from the cycle (those that passed more than `MM_MARGIN` ago are all alike, no rule looks back
further), addresses and rows from the stream's next burst, requests by bank and age. Banks at rest
are left out; a hop names the rows it expects in those it wakes. Reads only: a queued write, a
pending refresh or a channel without requests has no snapshot.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, next_cycle
from npusim.memory.dram.channel import due_cycle
from npusim.memory.dram.decode import decode
from npusim.memory.jit import njit
from npusim.memory.jumps.record import is_at_rest
from npusim.memory.jumps.words import MAP_BEFORE, ROW_NONE, ROW_OTHER, ROW_WINDOW
from npusim.memory.layout import (
    BANK_WORDS,
    BK_ACT_OK,
    BK_ACTIVE,
    BK_QUEUE,
    BK_ROW,
    BS_CUT,
    CAT_STARVED,
    CH_ACT2_AT,
    CH_ACT2_BANK,
    CH_ACTIVE,
    CH_ACTIVE_N,
    CH_BANKS,
    CH_CAS_REQ,
    CH_CLOCK,
    CH_COL_OK,
    CH_HELD,
    CH_MEM,
    CH_MODE_AT,
    CH_MODE_BEFORE,
    CH_NEW,
    CH_NEW_AT,
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
    CH_QUEUED_W,
    CH_RANKS,
    CH_REF_PENDING,
    CH_ROW_OK,
    CH_SEQ,
    CH_WAIT,
    CH_WAIT_W,
    CH_WRITE_MODE,
    CHANNEL_WORDS,
    CMD_ACT,
    CMD_PRE,
    GP_ACT_OK,
    GROUP_WORDS,
    MM_ARB_PS,
    MM_CHANNELS,
    MM_MARGIN,
    MM_NUM_CHANNELS,
    MM_SPAN,
    NEVER,
    NONE,
    PC_ACCOUNTED,
    PC_ARB_SEEN,
    PC_DATA_END,
    PC_HELD,
    PC_KIND,
    PC_REASON,
    PC_WORDS,
    PT_BUS,
    Q_HEAD,
    RANK_WORDS,
    RK_ACT_OK,
    RK_FAW,
    RK_FAW_AT,
    RK_GROUPS,
    RK_NUM_GROUPS,
    RK_PREAB_OK,
    RK_RD_OK,
    RK_REF_END,
    RK_REF_OK,
    RK_REFPB_OK,
    RK_TURN_RD,
    RK_TURN_WR,
    RK_WCK_END,
    RQ_ADDR,
    RQ_ARRIVE,
    RQ_AXI,
    RQ_BANK,
    RQ_CLASS,
    RQ_NEXT,
    RQ_ROW,
    RQ_SEQ,
    ST_AT,
    ST_PORT,
    Words,
)

REJECTED = 0
HEAD_WORDS = 4
RANK_DEADLINES = 11
CHANNEL_HEAD = 20
PC_PART, RANK_PART, GROUP_PART, BANK_PART, REQUEST_PART = 5, 15, 3, 6, 4


@njit
def row_class(row: int, base: int) -> int:
    """A row as the stream sees it: closed, near its own, or another."""
    if row == NONE:
        return ROW_NONE
    return row - base if -ROW_WINDOW <= row - base <= ROW_WINDOW else ROW_OTHER


@njit
def take(s: Words, m: Words, at: int, mem: int, stream: int, cycle: int) -> int:
    """Write the snapshot of `mem` to `m` from `at` on; returns its words or REJECTED."""
    here = s[stream + ST_AT]
    _, _, row = decode(s, mem, here)
    m[at], m[at + 1], m[at + 2] = mem, stream, here % s[mem + MM_SPAN]
    cut = s[s[s[stream + ST_PORT] + PT_BUS] + BS_CUT]
    m[at + 3] = here & (cut - 1)
    reach = (MAP_BEFORE - 1) * cut
    end = at + HEAD_WORDS
    for i in range(s[mem + MM_NUM_CHANNELS]):
        ch = s[mem + MM_CHANNELS] + i * CHANNEL_WORDS
        if not is_plain(s, ch, mem, stream, cycle):
            return REJECTED
        take_head(s, m, end, ch, cycle, here)
        end = take_buses(s, m, end + CHANNEL_HEAD, ch, cycle)
        end = take_banks(s, m, end, ch, cycle, here, row, reach)
        if end == REJECTED:
            return REJECTED
    return end - at


@njit
def is_plain(s: Words, ch: int, mem: int, stream: int, cycle: int) -> bool:
    """Whether a channel does nothing but read for this stream."""
    waiting = s[ch + CH_WAIT]
    if s[ch + CH_QUEUED_W] or s[ch + CH_REF_PENDING] or s[ch + CH_HELD] == 0:
        return False
    if (waiting not in (NONE, stream)) or s[ch + CH_WAIT_W] != NONE:
        return False
    if s[ch + CH_PLANNED]:
        if s[ch + CH_NOW] != due_cycle(s, ch):
            return False
        if min(s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T]) >= NEVER:
            return False
    for i in range(s[ch + CH_NUM_PCS]):
        pc = s[ch + CH_PCS] + i * PC_WORDS
        is_idle = s[pc + PC_REASON] == CAT_STARVED
        if is_idle and s[pc + PC_ARB_SEEN] != s[mem + MM_ARB_PS]:
            return False
        at = next_cycle(s, ch + CH_CLOCK, s[pc + PC_ACCOUNTED])
        if edge_ps(s, ch + CH_CLOCK, at) != s[pc + PC_ACCOUNTED]:
            return False
    for i in range(s[ch + CH_NUM_RANKS]):
        rank = s[ch + CH_RANKS] + i * RANK_WORDS
        if s[rank + RK_RD_OK] <= cycle - s[mem + MM_MARGIN]:
            return False
    return True


@njit
def take_head(s: Words, m: Words, at: int, ch: int, cycle: int, here: int) -> None:
    """Scheduler state of a channel."""
    for k in range(CHANNEL_HEAD):
        m[at + k] = 0
    m[at], m[at + 1], m[at + 2] = s[ch + CH_QUEUED], s[ch + CH_HELD], s[ch + CH_WRITE_MODE]
    m[at + 3] = max(s[ch + CH_COL_OK] - cycle, 0)
    m[at + 4] = max(s[ch + CH_ROW_OK] - cycle, 0)
    m[at + 5] = NEVER
    if s[ch + CH_ACT2_AT] != NONE:
        m[at + 5], m[at + 6] = s[ch + CH_ACT2_AT] - cycle, s[ch + CH_ACT2_BANK]
    m[at + 7] = s[ch + CH_WAIT] != NONE
    m[at + 8], m[at + 9], m[at + 10] = NONE, NONE, 0
    if s[ch + CH_MODE_AT] >= cycle:
        m[at + 8], m[at + 10] = s[ch + CH_MODE_AT] - cycle, s[ch + CH_MODE_BEFORE]
    if s[ch + CH_NEW_AT] >= cycle:
        m[at + 9], m[at + 11] = s[ch + CH_NEW_AT] - cycle, s[ch + CH_NEW]
    m[at + 12] = s[ch + CH_PLANNED]
    m[at + 19] = NEVER
    if s[ch + CH_CAS_REQ] != NONE:
        m[at + 19] = s[s[ch + CH_CAS_REQ] + RQ_ADDR] - here
    if s[ch + CH_PLANNED] == 0:
        m[at + 13] = s[ch + CH_NOW] - cycle
        return
    m[at + 14], m[at + 16] = NEVER, NEVER
    if s[ch + CH_PLAN_COL_T] < NEVER:
        m[at + 14] = s[ch + CH_PLAN_COL_T] - cycle
        m[at + 15] = s[s[ch + CH_PLAN_COL] + RQ_ADDR] - here
    if s[ch + CH_PLAN_ROW_T] < NEVER:
        m[at + 16], m[at + 17] = s[ch + CH_PLAN_ROW_T] - cycle, s[ch + CH_PLAN_CMD]
        if s[ch + CH_PLAN_CMD] in (CMD_ACT, CMD_PRE):
            m[at + 18] = s[s[ch + CH_PLAN_ROW] + RQ_ADDR] - here


@njit
def rank_word(k: int) -> int:
    """Deadlines of a rank that a snapshot keeps, the four-activate window apart."""
    if k < 4:
        return RK_ACT_OK + k  # ACT, RD, WR, PRE
    if k == 4:
        return RK_TURN_RD
    if k == 5:
        return RK_TURN_WR
    if k == 6:
        return RK_REF_OK
    if k == 7:
        return RK_REF_END
    if k == 8:
        return RK_WCK_END
    return RK_REFPB_OK if k == 9 else RK_PREAB_OK


@njit
def take_buses(s: Words, m: Words, at: int, ch: int, cycle: int) -> int:
    """Data buses, ranks and bank groups; returns the end."""
    floor = -s[s[ch + CH_MEM] + MM_MARGIN]
    for i in range(s[ch + CH_NUM_PCS]):
        pc = s[ch + CH_PCS] + i * PC_WORDS
        accounted = next_cycle(s, ch + CH_CLOCK, s[pc + PC_ACCOUNTED])
        m[at], m[at + 1] = max(s[pc + PC_DATA_END], accounted) - cycle, s[pc + PC_KIND]
        m[at + 2], m[at + 3] = s[pc + PC_REASON], s[pc + PC_HELD]
        m[at + 4] = accounted - cycle
        at += PC_PART
    for i in range(s[ch + CH_NUM_RANKS]):
        rank = s[ch + CH_RANKS] + i * RANK_WORDS
        for k in range(RANK_DEADLINES):
            m[at + k] = max(s[rank + rank_word(k)] - cycle, floor)
        for k in range(4):
            m[at + RANK_DEADLINES + k] = max(
                s[rank + RK_FAW + ((s[rank + RK_FAW_AT] + k) & 3)] - cycle, floor
            )
        at += RANK_PART
        for k in range(s[rank + RK_NUM_GROUPS]):
            group = s[rank + RK_GROUPS] + k * GROUP_WORDS
            for j in range(GROUP_PART):
                m[at + j] = max(s[group + GP_ACT_OK + j] - cycle, floor)
            at += GROUP_PART
    return at


@njit
def take_request(s: Words, m: Words, at: int, ch: int, req: int, cycle: int, here: int) -> int:
    """One request; returns the end."""
    m[at], m[at + 1] = s[req + RQ_ADDR] - here, s[req + RQ_ARRIVE] - cycle
    m[at + 2], m[at + 3] = s[req + RQ_CLASS], s[req + RQ_SEQ] - s[ch + CH_SEQ]
    return at + REQUEST_PART


@njit
def is_near(s: Words, req: int, here: int, row: int, reach: int) -> bool:
    """Whether a request belongs to the last stretch of the stream."""
    back = here - s[req + RQ_ADDR]
    is_mine = 0 < back < reach and s[req + RQ_AXI] != NONE
    return is_mine and abs(s[req + RQ_ROW] - row) < ROW_WINDOW


@njit
def take_banks(
    s: Words, m: Words, at: int, ch: int, cycle: int, here: int, row: int, reach: int
) -> int:
    """Banks that are not at rest with their requests; returns the end or REJECTED."""
    floor = -s[s[ch + CH_MEM] + MM_MARGIN]
    for i in range(s[ch + CH_NUM_BANKS]):
        bank = s[ch + CH_BANKS] + i * BANK_WORDS
        if is_at_rest(s, bank, cycle + floor):
            continue
        head, active = at, s[bank + BK_ACTIVE]
        m[head + 1] = row_class(s[bank + BK_ROW], row)
        for k in range(4):
            m[head + 2 + k] = max(s[bank + BK_ACT_OK + k] - cycle, floor)
        at += BANK_PART
        count = 0
        if active != NONE:
            if not is_near(s, active, here, row, reach):
                return REJECTED
            at = take_request(s, m, at, ch, active, cycle, here)
        req = s[bank + BK_QUEUE + Q_HEAD]
        while req != NONE:
            if not is_near(s, req, here, row, reach):
                return REJECTED
            at = take_request(s, m, at, ch, req, cycle, here)
            count += 1
            req = s[req + RQ_NEXT]
        m[head] = (i << 32) | (count << 1) | (active != NONE)
    m[at] = NONE
    return take_active(s, m, at + 1, ch)


@njit
def take_active(s: Words, m: Words, at: int, ch: int) -> int:
    """Banks of the active list in its order, which decides ties; returns the end."""
    for i in range(s[ch + CH_ACTIVE_N]):
        m[at + i] = s[s[s[ch + CH_ACTIVE] + i] + RQ_BANK]
    m[at + s[ch + CH_ACTIVE_N]] = NONE
    return at + s[ch + CH_ACTIVE_N] + 1
