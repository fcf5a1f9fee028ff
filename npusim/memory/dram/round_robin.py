"""Controller with a command queue per bank, served round robin (compiled).

A transaction queue takes reads and writes alike. Every cycle its oldest transaction whose bank
queue has room moves there, and one command is issued: banks are visited round robin from the one
after the bank visited last, and in a bank's queue the first entry whose next command is ready is
taken. A precharge is allowed for the oldest entry only, and only if no entry hits the open row or
the row has served `T_HIT_LIMIT` column commands. A write never passes a read of its address.
Reads of an address that is waiting to be read share its command. A refresh stalls the queues of
its rank, precharges open banks in order and goes as soon as it can. With two command buses (HBM)
a second search follows; what it finds is issued if it belongs on the other bus.

This is the policy of DRAMsim3 (umd-memsys/DRAMsim3, commit 2981759) with its unified queue, open
pages and rank refresh. Left out: power-down, self-refresh, its closed-page mode.

Bank and transaction queues are linked in order of arrival. `step` acts at cycle c first as the
tool ends cycle c - 1 (the move), so a burst accepted at c - 1 can be acted on at c.
"""

from __future__ import annotations

from npusim.memory.dram import refresh
from npusim.memory.dram.commands import activate, column, precharge
from npusim.memory.dram.controller import column_ok, plan_refresh
from npusim.memory.dram.queues import write_mark
from npusim.memory.dram.requests import classify
from npusim.memory.jit import njit
from npusim.memory.layout import (
    ACCEPT_FORWARDED,
    ACCEPT_MERGED,
    ACCEPT_NEW,
    ACCEPT_QUEUED,
    BANK_WORDS,
    BK_ACT_OK,
    BK_COUNT,
    BK_FIRST,
    BK_GROUP,
    BK_ID,
    BK_LAST,
    BK_PC,
    BK_PRE_OK,
    BK_RANK,
    BK_ROW,
    BK_SERVED,
    CH_BANKS,
    CH_CAP_AT,
    CH_COL_OK,
    CH_FIRST,
    CH_FREE_REQ,
    CH_HELD,
    CH_LAST,
    CH_LIST,
    CH_LIST_HEAD,
    CH_MEM,
    CH_MERGED,
    CH_MERGED_LIMIT,
    CH_NUM_BANKS,
    CH_PLAN_CMD,
    CH_PLAN_COL,
    CH_PLAN_COL_T,
    CH_PLAN_ROW,
    CH_PLAN_ROW_T,
    CH_QUEUED,
    CH_REF_PENDING,
    CH_ROW_OK,
    CH_VISITED,
    CLASS_CONFLICT,
    CLASS_HIT,
    CLASS_MISS,
    CMD_ACT,
    CMD_PRE,
    CMD_RD,
    CMD_WR,
    GP_ACT_OK,
    MM_FORWARDED,
    MM_MERGED,
    NEVER,
    NONE,
    PC_HELD,
    RK_ACT_OK,
    RK_PRE_OK,
    RQ_ADDR,
    RQ_ARRIVE,
    RQ_AXI,
    RQ_BANK,
    RQ_CLASS,
    RQ_MERGED,
    RQ_NEXT,
    RQ_PREV,
    RQ_ROW,
    RQ_TID,
    RQ_WRITE,
    T_BANK_QUEUE,
    T_DUAL,
    T_HIT_LIMIT,
    WRITE,
    Words,
)


@njit
def same_address(s: Words, req: int, addr: int) -> int:
    """First request from `req` on to this burst, or NONE."""
    while req != NONE and s[req + RQ_ADDR] != addr:
        req = s[req + RQ_NEXT]
    return req


@njit
def merge(
    s: Words, ch: int, bank: int, cycle: int, addr: int, write: int, axi: int, tid: int
) -> int:
    """Serve a burst by one that waits already, if it can be; ACCEPT_NEW if it cannot."""
    if s[write_mark(s, ch, addr)] == 0:
        return ACCEPT_NEW
    found = NONE
    for first in (s[bank + BK_FIRST], s[ch + CH_FIRST]):
        req = same_address(s, first, addr)
        while req != NONE:
            if s[req + RQ_WRITE]:
                s[s[ch + CH_MEM] + (MM_MERGED if write else MM_FORWARDED)] += 1
                return ACCEPT_MERGED if write else ACCEPT_FORWARDED
            found = req if found == NONE else found
            req = same_address(s, s[req + RQ_NEXT], addr)
    if write or found == NONE or s[ch + CH_MERGED] >= s[ch + CH_MERGED_LIMIT]:
        return ACCEPT_NEW
    req = s[ch + CH_FREE_REQ]
    s[ch + CH_FREE_REQ] = s[req + RQ_NEXT]
    s[req + RQ_ARRIVE], s[req + RQ_BANK], s[req + RQ_WRITE] = cycle, bank, 0
    s[req + RQ_ADDR], s[req + RQ_AXI], s[req + RQ_TID] = addr, axi, tid
    s[req + RQ_CLASS] = CLASS_HIT  # not counted again
    s[req + RQ_MERGED] = s[found + RQ_MERGED]
    s[found + RQ_MERGED] = req
    s[ch + CH_HELD] += 1
    s[s[bank + BK_PC] + PC_HELD] += 1
    s[ch + CH_MERGED] += 1
    s[s[ch + CH_MEM] + MM_FORWARDED] += 1
    return ACCEPT_QUEUED


@njit
def enter(s: Words, ch: int, req: int) -> None:
    """Put an accepted request at the end of the transaction queue."""
    link(s, ch + CH_FIRST, ch + CH_LAST, req)
    s[ch + CH_QUEUED] += 1
    s[ch + CH_QUEUED + WRITE] += 1
    s[write_mark(s, ch, s[req + RQ_ADDR])] += 1


@njit
def link(s: Words, first: int, last: int, req: int) -> None:
    """Append to a list given by the words of its ends."""
    before = s[last]
    s[req + RQ_NEXT], s[req + RQ_PREV] = NONE, before
    if before == NONE:
        s[first] = req
    else:
        s[before + RQ_NEXT] = req
    s[last] = req


@njit
def unlink(s: Words, first: int, last: int, req: int) -> None:
    """Take out of a list given by the words of its ends."""
    before, after = s[req + RQ_PREV], s[req + RQ_NEXT]
    if before == NONE:
        s[first] = after
    else:
        s[before + RQ_NEXT] = after
    if after == NONE:
        s[last] = before
    else:
        s[after + RQ_PREV] = before


@njit
def movable(s: Words, ch: int, cycle: int) -> int:
    """Oldest transaction accepted before `cycle` whose bank queue has room, or NONE."""
    limit = s[s[ch + CH_MEM] + T_BANK_QUEUE]
    req = s[ch + CH_FIRST]
    while req != NONE and s[s[req + RQ_BANK] + BK_COUNT] >= limit:
        req = s[req + RQ_NEXT]
    return req if req != NONE and s[req + RQ_ARRIVE] < cycle else NONE


@njit
def move(s: Words, ch: int, cycle: int) -> None:
    """Move one transaction to its bank's queue."""
    req = movable(s, ch, cycle)
    if req == NONE:
        return
    bank = s[req + RQ_BANK]
    unlink(s, ch + CH_FIRST, ch + CH_LAST, req)
    link(s, bank + BK_FIRST, bank + BK_LAST, req)
    s[bank + BK_COUNT] += 1
    s[ch + CH_QUEUED] -= 1
    s[ch + CH_QUEUED + WRITE] -= 1


@njit
def step(s: Words, transfers: Words, log: Words, ch: int, cycle: int) -> int:
    """Act at `cycle`; returns the request of a column command, or NONE."""
    move(s, ch, cycle)
    plan(s, ch, max(cycle, s[ch + CH_COL_OK]), max(cycle, s[ch + CH_ROW_OK]), True)
    if min(s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T]) > cycle:
        return NONE
    is_column = s[ch + CH_PLAN_COL_T] == cycle
    req = issue(s, transfers, log, ch, cycle)
    if s[s[ch + CH_MEM] + T_DUAL] == 0:
        return req
    col_from = cycle if is_column else max(cycle, s[ch + CH_COL_OK])
    row_from = max(cycle, s[ch + CH_ROW_OK]) if is_column else cycle
    plan(s, ch, col_from, row_from, False)
    is_found = min(s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T]) == cycle
    if is_found and is_column != (s[ch + CH_PLAN_COL_T] == cycle):
        return max(req, issue(s, transfers, log, ch, cycle))
    if is_found:  # a command for the bus just used: only the place of the search moves
        visit(s, ch)
    return req


@njit
def look_ahead(s: Words, ch: int, now: int) -> None:
    """Plan from cycle `now` on and wake at `now` if a transaction can move."""
    s[ch + CH_CAP_AT] = NEVER if movable(s, ch, now) == NONE else now
    plan(s, ch, max(now, s[ch + CH_COL_OK]), max(now, s[ch + CH_ROW_OK]), True)


@njit
def plan(s: Words, ch: int, col_from: int, row_from: int, is_first: bool) -> None:
    """Choose the next command; the refresh comes before the queues unless `is_first` is False."""
    s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T] = NEVER, NEVER
    stalled = NONE
    if s[ch + CH_REF_PENDING] > 0:
        stalled = s[s[ch + CH_LIST] + s[ch + CH_LIST_HEAD]] >> 1
        if is_first:
            plan_refresh(s, ch, row_from, 0)
    best, last = s[ch + CH_PLAN_ROW_T], s[ch + CH_NUM_BANKS] - 1
    index = s[ch + CH_VISITED]
    for _ in range(s[ch + CH_NUM_BANKS]):
        index = 0 if index == last else index + 1
        bank = s[ch + CH_BANKS] + index * BANK_WORDS
        if s[bank + BK_FIRST] == NONE or s[bank + BK_RANK] == stalled:
            continue
        t, command, req = candidate(s, s[ch + CH_MEM], bank, col_from, row_from)
        if t < best:
            best = t
            keep(s, ch, t, command, req)


@njit
def keep(s: Words, ch: int, t: int, command: int, req: int) -> None:
    """Make a command the planned one."""
    s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T] = NEVER, NEVER
    if command in (CMD_RD, CMD_WR):
        s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_COL] = t, req
    else:
        s[ch + CH_PLAN_ROW_T], s[ch + CH_PLAN_ROW], s[ch + CH_PLAN_CMD] = t, req, command


@njit
def candidate(s: Words, mem: int, bank: int, col_from: int, row_from: int) -> tuple[int, int, int]:
    """(cycle, command, request) of a bank queue's earliest command, in queue order among equals."""
    req, row, rank = s[bank + BK_FIRST], s[bank + BK_ROW], s[bank + BK_RANK]
    if row == NONE:
        ok = max(s[bank + BK_ACT_OK], s[s[bank + BK_GROUP] + GP_ACT_OK])
        return max(max(ok, s[rank + RK_ACT_OK]), row_from), CMD_ACT, req
    best, command, chosen = NEVER, CMD_PRE, NONE
    if s[req + RQ_ROW] != row and may_precharge(s, mem, bank, row):
        best = max(max(s[bank + BK_PRE_OK], s[rank + RK_PRE_OK]), row_from)
        chosen = req
    read_ok = max(column_ok(s, bank, 0), col_from)
    write_ok = max(column_ok(s, bank, 1), col_from)
    while req != NONE:
        if s[req + RQ_ROW] == row:
            write = s[req + RQ_WRITE]
            t = write_ok if write else read_ok
            if t < best and not (write and passes_read(s, bank, req)):
                best, command, chosen = t, CMD_WR if write else CMD_RD, req
        req = s[req + RQ_NEXT]
    return best, command, chosen


@njit
def may_precharge(s: Words, mem: int, bank: int, row: int) -> bool:
    """Whether the open row has served its share, or nobody waits for it."""
    if s[bank + BK_SERVED] >= s[mem + T_HIT_LIMIT]:
        return True
    req = s[bank + BK_FIRST]
    while req != NONE and s[req + RQ_ROW] != row:
        req = s[req + RQ_NEXT]
    return req == NONE


@njit
def passes_read(s: Words, bank: int, write: int) -> bool:
    """Whether an older read of the write's burst is still in the queue."""
    return same_address(s, s[bank + BK_FIRST], s[write + RQ_ADDR]) != write


@njit
def issue(s: Words, transfers: Words, log: Words, ch: int, cycle: int) -> int:
    """Issue the planned command; returns the request of a column command, or NONE."""
    if s[ch + CH_PLAN_COL_T] == cycle:
        visit(s, ch)
        return issue_column(s, transfers, log, ch, s[ch + CH_PLAN_COL], cycle)
    command, target = s[ch + CH_PLAN_CMD], s[ch + CH_PLAN_ROW]
    if s[ch + CH_REF_PENDING] > 0 and is_refresh(s, ch, target):
        refresh.issue(s, log, ch, command, target, cycle)
        return NONE
    visit(s, ch)
    bank = s[target + RQ_BANK]
    if command == CMD_ACT:
        classify(s, transfers, ch, target, CLASS_MISS)
        activate(s, log, ch, bank, s[target + RQ_ROW], cycle)
    else:
        classify(s, transfers, ch, target, CLASS_CONFLICT)
        precharge(s, log, ch, bank, cycle)
    return NONE


@njit
def is_refresh(s: Words, ch: int, target: int) -> bool:
    """Whether the planned row command is one of the refresh: its target is no request."""
    return target < s[ch + CH_BANKS] + s[ch + CH_NUM_BANKS] * BANK_WORDS


@njit
def visit(s: Words, ch: int) -> None:
    """The search goes on after the bank of the planned command."""
    is_column = s[ch + CH_PLAN_COL_T] < NEVER
    req = s[ch + CH_PLAN_COL] if is_column else s[ch + CH_PLAN_ROW]
    s[ch + CH_VISITED] = s[s[req + RQ_BANK] + BK_ID]


@njit
def issue_column(s: Words, transfers: Words, log: Words, ch: int, req: int, cycle: int) -> int:
    """RD or WR of a request, which leaves its bank's queue."""
    bank, write = s[req + RQ_BANK], s[req + RQ_WRITE]
    classify(s, transfers, ch, req, CLASS_HIT)
    unlink(s, bank + BK_FIRST, bank + BK_LAST, req)
    s[bank + BK_COUNT] -= 1
    s[write_mark(s, ch, s[req + RQ_ADDR])] -= 1
    merged = s[req + RQ_MERGED]
    while merged != NONE:
        s[ch + CH_MERGED] -= 1
        merged = s[merged + RQ_MERGED]
    column(s, log, ch, bank, write, cycle, False)
    return req
