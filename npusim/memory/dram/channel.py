"""A DRAM channel as the memory system sees it: accept a burst, take a step (compiled)."""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, get_time, next_cycle, set_time
from npusim.memory.dram import round_robin
from npusim.memory.dram.account import account, set_reason
from npusim.memory.dram.controller import (
    column_ok,
    issue_column,
    issue_row,
    plan,
    row_still_ready,
)
from npusim.memory.dram.queues import append, write_mark
from npusim.memory.dram.refresh import (
    catch_up,
    fall_due,
    is_room_for_refresh,
    list_precharges,
)
from npusim.memory.jit import inlined, njit
from npusim.memory.jumps.record import note_accepted, note_until
from npusim.memory.layout import (
    ACCEPT_FORWARDED,
    ACCEPT_FULL,
    ACCEPT_MERGED,
    ACCEPT_NEW,
    ACCEPT_QUEUED,
    BANK_WORDS,
    BK_ACT_OK,
    BK_PC,
    BK_QUEUE,
    BK_RANK,
    BK_RD_OK,
    BK_WR_OK,
    CAT_COMMAND,
    CAT_CONFLICT,
    CAT_REFRESH,
    CAT_ROW,
    CAT_STARVED,
    CAT_TURNAROUND,
    CH_BANKS,
    CH_CAP_AT,
    CH_CLOCK,
    CH_ENTITY,
    CH_FREE_REQ,
    CH_HELD,
    CH_LAST_WR,
    CH_LIMIT,
    CH_MEM,
    CH_MODE_AT,
    CH_MODE_BEFORE,
    CH_NEW,
    CH_NEW_AT,
    CH_NEW_W,
    CH_NOW,
    CH_NUM_PCS,
    CH_PCS,
    CH_PLAN_CMD,
    CH_PLAN_COL,
    CH_PLAN_COL_T,
    CH_PLAN_ROW,
    CH_PLAN_ROW_T,
    CH_PLANNED,
    CH_QUEUED,
    CH_REF_DUE,
    CH_REF_PENDING,
    CH_SEQ,
    CH_WRITE_MODE,
    CLASS_CONFLICT,
    CLASS_NEW,
    CMD_ACT,
    H_QUEUED_WRITES,
    H_RECORDING,
    MM_FORWARDED,
    MM_MERGED,
    NEVER,
    NONE,
    PC_DATA_END,
    PC_HELD,
    PC_KIND,
    PC_WORDS,
    Q_HEAD,
    QUEUE_WORDS,
    REFRESH_NONE,
    RK_REF_END,
    RK_TURN_RD,
    RK_TURN_WR,
    RQ_ADDR,
    RQ_ARRIVE,
    RQ_AXI,
    RQ_BANK,
    RQ_CLASS,
    RQ_NEXT,
    RQ_ROW,
    RQ_SEQ,
    RQ_TID,
    RQ_WRITE,
    T_BL,
    T_CAP,
    T_DUAL,
    T_REFRESH,
    T_ROUND_ROBIN,
    WRITE,
    Words,
)


@inlined
def is_write_queued(s: Words, ch: int, bank: int, addr: int) -> bool:
    """Whether the bank's write queue holds a write to this burst."""
    if s[write_mark(s, ch, addr)] == 0:
        return False
    req = s[bank + BK_QUEUE + QUEUE_WORDS + Q_HEAD]
    while req != NONE and s[req + RQ_ADDR] != addr:
        req = s[req + RQ_NEXT]
    return req != NONE


@inlined
def accept(
    s: Words, log: Words, ch: int, cycle: int, bank_id: int, row: int, addr: int, write: int,
    axi: int, tid: int,
) -> int:  # fmt: skip
    """Offer one burst at `cycle`; the controller may act on it from the next cycle on."""
    bank = s[ch + CH_BANKS] + bank_id * BANK_WORDS
    is_round_robin = s[s[ch + CH_MEM] + T_ROUND_ROBIN] != 0
    if is_round_robin:
        status = round_robin.merge(s, ch, bank, cycle, addr, write, axi, tid)
        if status != ACCEPT_NEW:
            return status
    elif s[ch + CH_QUEUED + WRITE] > 0 and is_write_queued(s, ch, bank, addr):
        s[s[ch + CH_MEM] + (MM_MERGED if write else MM_FORWARDED)] += 1
        return ACCEPT_MERGED if write else ACCEPT_FORWARDED
    if s[ch + CH_QUEUED + write] >= s[ch + CH_LIMIT + write]:
        return ACCEPT_FULL
    if s[ch + CH_HELD] == 0 and s[ch + CH_REF_PENDING] == 0:
        if s[s[ch + CH_MEM] + T_REFRESH] != REFRESH_NONE:
            catch_up(s, log, ch, cycle)
        if cycle > s[ch + CH_NOW]:
            s[ch + CH_WRITE_MODE] = 1  # an idle controller finds its read queue empty
    if s[H_RECORDING]:
        note_accepted(s, ch, bank, write)
    note_new(s, ch, cycle, write)
    req = s[ch + CH_FREE_REQ]
    s[ch + CH_FREE_REQ] = s[req + RQ_NEXT]
    s[req + RQ_SEQ] = s[ch + CH_SEQ]
    s[ch + CH_SEQ] += 1
    s[req + RQ_ARRIVE], s[req + RQ_BANK], s[req + RQ_ROW] = cycle, bank, row
    s[req + RQ_ADDR], s[req + RQ_AXI], s[req + RQ_TID] = addr, axi, tid
    s[req + RQ_WRITE], s[req + RQ_CLASS] = write, CLASS_NEW
    if is_round_robin:
        round_robin.enter(s, ch, req)
    else:
        append(s, ch, bank, req, write)
    s[ch + CH_HELD] += 1
    s[s[bank + BK_PC] + PC_HELD] += 1
    s[H_QUEUED_WRITES] += write
    s[ch + CH_PLANNED] = 0
    return ACCEPT_QUEUED


@inlined
def note_new(s: Words, ch: int, cycle: int, write: int) -> None:
    """Count the requests of this cycle; take back a write mode judged without this one."""
    if s[ch + CH_NEW_AT] != cycle:
        s[ch + CH_NEW_AT], s[ch + CH_NEW], s[ch + CH_NEW_W] = cycle, 0, 0
    s[ch + CH_NEW + write] += 1
    if cycle < s[ch + CH_MODE_AT]:
        s[ch + CH_WRITE_MODE], s[ch + CH_MODE_AT] = s[ch + CH_MODE_BEFORE], NONE


@inlined
def wake(s: Words, ch: int, cycle: int) -> None:
    """Make sure the channel decides at the cycle after an acceptance at `cycle`."""
    entity = s[ch + CH_ENTITY]
    if cycle + 1 < s[ch + CH_NOW] or get_time(s, entity) >= NEVER:
        s[ch + CH_NOW] = cycle + 1
        set_time(s, entity, edge_ps(s, ch + CH_CLOCK, cycle + 1))


@inlined
def due_cycle(s: Words, ch: int) -> int:
    """Cycle of the next event: the planned command or a refresh interval's end."""
    at = min(min(s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T]), s[ch + CH_CAP_AT])
    is_awake = s[ch + CH_HELD] > 0 or s[ch + CH_REF_PENDING] > 0 or s[ch + CH_CAP_AT] < NEVER
    if is_awake and s[s[ch + CH_MEM] + T_REFRESH] != REFRESH_NONE and is_room_for_refresh(s, ch):
        at = min(at, s[ch + CH_REF_DUE])
    return at


@njit
def step(s: Words, transfers: Words, log: Words, ch: int) -> int:
    """Act at the channel's current cycle; returns the request of a column command, or NONE.

    The caller delivers the request's data, refills freed queue slots and then calls `look_ahead`.
    """
    cycle = s[ch + CH_NOW]
    if s[s[ch + CH_MEM] + T_REFRESH] != REFRESH_NONE and s[ch + CH_REF_DUE] <= cycle:
        fall_due(s, ch)
        s[ch + CH_PLANNED] = 0
    if s[s[ch + CH_MEM] + T_ROUND_ROBIN]:
        req = round_robin.step(s, transfers, log, ch, cycle)
        if req != NONE:
            occupy_data_bus(s, ch, req, cycle)
        return req
    if s[ch + CH_CAP_AT] <= cycle:
        list_precharges(s, ch, cycle, True)
    if s[ch + CH_PLANNED] == 0:
        plan(s, ch, cycle)
    req = NONE
    if s[ch + CH_PLAN_COL_T] == cycle:
        req = issue_column(s, transfers, log, ch, cycle)
        if req != NONE:
            occupy_data_bus(s, ch, req, cycle)
        if s[s[ch + CH_MEM] + T_DUAL] and row_still_ready(s, ch, cycle):
            issue_row(s, transfers, log, ch, cycle)
        s[ch + CH_PLANNED] = 0
    elif s[ch + CH_PLAN_ROW_T] == cycle:
        issue_row(s, transfers, log, ch, cycle)
        s[ch + CH_PLANNED] = 0
    if s[s[ch + CH_MEM] + T_CAP]:
        list_precharges(s, ch, cycle, False)
    return req


@njit
def look_ahead(s: Words, ch: int, cycle: int) -> None:
    """Plan the next command after the step at `cycle` and set the channel's next event."""
    if s[s[ch + CH_MEM] + T_ROUND_ROBIN]:
        round_robin.look_ahead(s, ch, cycle + 1)
    elif s[ch + CH_PLANNED] == 0:
        plan(s, ch, cycle + 1)
    s[ch + CH_PLANNED] = 1
    at = due_cycle(s, ch)
    if s[H_RECORDING]:
        note_until(s, ch, at)
    explain_gap(s, ch, cycle, at)
    if at >= NEVER:
        set_time(s, s[ch + CH_ENTITY], NEVER)
        return
    s[ch + CH_NOW] = at
    set_time(s, s[ch + CH_ENTITY], edge_ps(s, ch + CH_CLOCK, at))


@inlined
def occupy_data_bus(s: Words, ch: int, req: int, cycle: int) -> None:
    """A column command at `cycle`: its pseudo-channel's data bus is taken for one burst."""
    pc = s[s[req + RQ_BANK] + BK_PC]
    account(s, ch, pc, edge_ps(s, ch + CH_CLOCK, cycle))
    s[pc + PC_DATA_END] = cycle + s[s[ch + CH_MEM] + T_BL]
    s[pc + PC_KIND] = s[req + RQ_WRITE]
    if s[req + RQ_WRITE]:
        s[H_QUEUED_WRITES] -= 1
        s[ch + CH_LAST_WR] = cycle


@inlined
def explain_gap(s: Words, ch: int, cycle: int, until: int) -> None:
    """Name what the data buses wait for if the next event lies beyond their data."""
    for i in range(s[ch + CH_NUM_PCS]):
        pc = s[ch + CH_PCS] + i * PC_WORDS
        if until <= s[pc + PC_DATA_END] and s[pc + PC_HELD] > 0:
            continue
        now_ps = edge_ps(s, ch + CH_CLOCK, cycle)
        reason = CAT_STARVED if s[pc + PC_HELD] == 0 else gap_reason(s, ch, cycle)
        set_reason(s, ch, pc, now_ps, reason)


@njit
def gap_reason(s: Words, ch: int, cycle: int) -> int:
    """Category of the time until the planned command."""
    if s[ch + CH_REF_PENDING] > 0:
        return CAT_REFRESH
    if s[ch + CH_PLAN_COL_T] < NEVER:
        req = s[ch + CH_PLAN_COL]
        bank, write = s[req + RQ_BANK], s[req + RQ_WRITE]
        rank = s[bank + BK_RANK]
        ok = column_ok(s, bank, write)
        if s[bank + (BK_WR_OK if write else BK_RD_OK)] == ok and s[req + RQ_CLASS] != CLASS_NEW:
            return CAT_CONFLICT if s[req + RQ_CLASS] == CLASS_CONFLICT else CAT_ROW
        turn = s[rank + (RK_TURN_WR if write else RK_TURN_RD)]
        return CAT_TURNAROUND if ok <= turn and ok > cycle else CAT_COMMAND
    if s[ch + CH_PLAN_ROW_T] >= NEVER:
        return CAT_COMMAND
    if s[ch + CH_PLAN_CMD] != CMD_ACT:
        return CAT_CONFLICT
    req = s[ch + CH_PLAN_ROW]
    bank = s[req + RQ_BANK]
    if s[s[bank + BK_RANK] + RK_REF_END] > cycle:
        return CAT_REFRESH
    if s[bank + BK_ACT_OK] >= s[ch + CH_PLAN_ROW_T]:
        return CAT_CONFLICT if s[req + RQ_CLASS] == CLASS_CONFLICT else CAT_ROW
    return CAT_COMMAND


@inlined
def cycle_at(s: Words, ch: int, now_ps: int) -> int:
    """First controller cycle at or after `now_ps`."""
    return next_cycle(s, ch + CH_CLOCK, now_ps)
