"""FR-FCFS controller of one DRAM channel (compiled).

`plan` finds the command the controller issues next and its cycle; time between is skipped, because
nothing can become ready in it. Order at a cycle: requests whose row was opened for them (active
list), the refresh list, the read queue or, in write mode, the write queue. Of the active list and
the queues the oldest whose next command is ready is taken, of the refresh list the first only. A
precharge never goes to a bank of the active list and, with row hits first, not to one with a
queued hit that is at least as old. A channel with separate row and column command buses (HBM)
issues one command on each per cycle, the column command first; write mode is judged for both.
This is the policy of Ramulator 2.1 (CMU-SAFARI/ramulator2, commit c5b1c3a); the other one is in
`round_robin`.
"""

from __future__ import annotations

from npusim.memory.dram import refresh
from npusim.memory.dram.commands import activate, column, precharge, record
from npusim.memory.dram.queues import bank_changed, unlink
from npusim.memory.dram.requests import classify, leave_active, no_hit_queued
from npusim.memory.jit import inlined, njit
from npusim.memory.layout import (
    BK_ACTIVE,
    BK_GROUP,
    BK_ID,
    BK_PRE_OK,
    BK_RANK,
    BK_RD_OK,
    BK_ROW,
    BK_SERVED,
    BK_WR_OK,
    CH_ACT2_AT,
    CH_ACT2_BANK,
    CH_ACTIVE,
    CH_ACTIVE_N,
    CH_CAS_REQ,
    CH_COL_OK,
    CH_COLS,
    CH_COLS_N,
    CH_HIGH,
    CH_LOW,
    CH_MEM,
    CH_MODE_AT,
    CH_MODE_BEFORE,
    CH_N_CAS,
    CH_NEW,
    CH_NEW_AT,
    CH_PLAN_CMD,
    CH_PLAN_COL,
    CH_PLAN_COL_T,
    CH_PLAN_KEY,
    CH_PLAN_ROW,
    CH_PLAN_ROW_T,
    CH_QUEUED,
    CH_REF_DUE,
    CH_REF_PENDING,
    CH_ROW_OK,
    CH_ROWS,
    CH_ROWS_N,
    CH_SEQ,
    CH_WRITE_MODE,
    CLASS_CONFLICT,
    CLASS_HIT,
    CLASS_MISS,
    CMD_ACT,
    CMD_ACT2,
    CMD_CAS,
    CMD_PRE,
    CMD_REFAB,
    CMD_REFPB,
    GP_RD_OK,
    GP_WR_OK,
    NEVER,
    NO_CYCLE,
    NONE,
    Q_COL,
    Q_COL_GROUP,
    Q_COL_RANK,
    Q_COL_SEQ,
    Q_HIT,
    Q_IS_ACT,
    Q_OTHER,
    Q_ROW,
    Q_ROW_GROUP,
    Q_ROW_RANK,
    Q_ROW_SEQ,
    READ,
    REFRESH_NONE,
    RK_RD_OK,
    RK_WCK_END,
    RK_WR_OK,
    RQ_ARRIVE,
    RQ_BANK,
    RQ_QUEUED,
    RQ_ROW,
    RQ_WRITE,
    T_AAD,
    T_CAP,
    T_CLOSED,
    T_DUAL,
    T_ODD,
    T_REFRESH,
    T_WCK,
    WRITE,
    Words,
)

RANK_REFRESH = 1 << 54  # order of lists at one cycle; below it, age decides
RANK_QUEUE = 2 << 54
RANK_LAST = 3 << 54
AGE_BITS = 20
AGE_LIMIT = 1 << AGE_BITS  # requests older than this many others tie in age
NO_KEY = 1 << 62


@inlined
def column_ok(s: Words, bank: int, write: int) -> int:
    """First cycle at which the open row's bank, group and rank accept a column command."""
    group, rank = s[bank + BK_GROUP], s[bank + BK_RANK]
    if write:
        return max(max(s[bank + BK_WR_OK], s[group + GP_WR_OK]), s[rank + RK_WR_OK])
    return max(max(s[bank + BK_RD_OK], s[group + GP_RD_OK]), s[rank + RK_RD_OK])


@njit
def set_write_mode(s: Words, ch: int, now: int) -> None:
    """Enter write mode on a full write or empty read queue, leave it when drained and reads wait.

    Requests accepted at `now` itself are not seen yet. The mode before is kept, because a request
    may still be accepted for the cycle before the one that is planned.
    """
    reads, writes = s[ch + CH_QUEUED + READ], s[ch + CH_QUEUED + WRITE]
    if s[ch + CH_NEW_AT] == now:
        reads -= s[ch + CH_NEW + READ]
        writes -= s[ch + CH_NEW + WRITE]
    if s[ch + CH_MODE_AT] != now:
        s[ch + CH_MODE_AT], s[ch + CH_MODE_BEFORE] = now, s[ch + CH_WRITE_MODE]
    if s[ch + CH_WRITE_MODE]:
        if writes < s[ch + CH_LOW] and reads > 0:
            s[ch + CH_WRITE_MODE] = 0
    elif writes > s[ch + CH_HIGH] or reads == 0:
        s[ch + CH_WRITE_MODE] = 1


@njit
def plan(s: Words, ch: int, now: int) -> int:
    """Choose the next command at or after cycle `now`; returns its cycle."""
    mem = s[ch + CH_MEM]
    odd = s[mem + T_ODD]
    col_from = max(now, s[ch + CH_COL_OK]) | odd
    row_from = max(now, s[ch + CH_ROW_OK])
    s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T] = NEVER, NEVER
    if s[ch + CH_CAS_REQ] != NONE:
        return plan_column_only(s, ch, col_from, s[ch + CH_CAS_REQ], 0)
    col_t, col_key, col = NEVER, NEVER, NONE
    for i in range(s[ch + CH_ACTIVE_N]):
        req = s[s[ch + CH_ACTIVE] + i]
        t = max(column_ok(s, s[req + RQ_BANK], s[req + RQ_WRITE]) | odd, col_from)
        if t < col_t or (t == col_t and s[req + RQ_ARRIVE] < col_key):  # ties: opened first
            col_t, col_key, col = t, s[req + RQ_ARRIVE], req
    if col_t == now and s[mem + T_DUAL] == 0 and s[ch + CH_ACT2_AT] == NONE:
        return plan_column_only(s, ch, col_t, col, col_key)
    s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_COL], s[ch + CH_PLAN_KEY] = col_t, col, col_key
    if s[ch + CH_REF_PENDING] > 0:
        plan_refresh(s, ch, row_from, odd)
        row_key = RANK_REFRESH
    else:
        is_due = s[mem + T_REFRESH] != REFRESH_NONE and s[ch + CH_REF_DUE] <= now
        if (col_t > now or s[mem + T_DUAL]) and not is_due:
            set_write_mode(s, ch, now)
        row_key = plan_queue(s, ch, col_from, row_from, odd)
    if s[ch + CH_ACT2_AT] != NONE:
        row_key = plan_second_activate(s, ch, now, row_key)
    return settle(s, ch, mem, row_key)


@inlined
def plan_column_only(s: Words, ch: int, cycle: int, req: int, key: int) -> int:
    """A request of the active list is ready now on a single command bus: nothing comes before."""
    s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_COL], s[ch + CH_PLAN_KEY] = cycle, req, key
    return cycle


@inlined
def plan_queue(s: Words, ch: int, col_from: int, row_from: int, odd: int) -> int:
    """Best column and row command of the queue in service; returns the row command's order key.

    Cycle and age are packed into one word: one comparison without a branch per candidate.
    """
    write = s[ch + CH_WRITE_MODE]
    base = s[ch + CH_SEQ] - AGE_LIMIT
    no_act = s[ch + CH_ACT2_AT] != NONE
    best_col, best_row, col_q, row_q = NO_KEY, NO_KEY, NONE, NONE
    queues = s[ch + CH_COLS + write]
    for i in range(s[ch + CH_COLS_N + write]):
        q = s[queues + i]
        t = max(max(s[q + Q_COL], s[s[q + Q_COL_GROUP]]), max(s[s[q + Q_COL_RANK]], col_from))
        key = ((t | odd) << AGE_BITS) + max(0, s[q + Q_COL_SEQ] - base)
        if key < best_col:
            best_col, col_q = key, q
    queues = s[ch + CH_ROWS + write]
    for i in range(s[ch + CH_ROWS_N + write]):
        q = s[queues + i]
        t = max(max(s[q + Q_ROW], s[s[q + Q_ROW_GROUP]]), max(s[s[q + Q_ROW_RANK]], row_from))
        is_act = s[q + Q_IS_ACT]
        if no_act and is_act:
            t = NO_CYCLE
        key = ((t | (odd & is_act)) << AGE_BITS) + max(0, s[q + Q_ROW_SEQ] - base)
        if key < best_row:
            best_row, row_q = key, q
    t = best_col >> AGE_BITS
    if t < NO_CYCLE and t < s[ch + CH_PLAN_COL_T]:
        s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_COL] = t, s[col_q + Q_HIT]
        s[ch + CH_PLAN_KEY] = RANK_QUEUE + s[col_q + Q_COL_SEQ]
    t = best_row >> AGE_BITS
    if t >= NO_CYCLE:
        return NEVER
    s[ch + CH_PLAN_ROW_T], s[ch + CH_PLAN_ROW] = t, s[row_q + Q_OTHER]
    s[ch + CH_PLAN_CMD] = CMD_ACT if s[row_q + Q_IS_ACT] else CMD_PRE
    return RANK_QUEUE + s[row_q + Q_ROW_SEQ]


@njit
def plan_second_activate(s: Words, ch: int, now: int, row_key: int) -> int:
    """LPDDR5 ACT2: issued when nothing else is ready, first of all at its deadline.

    A cycle before, it takes the place of a CAS, whose RD or WR would fill the deadline.
    """
    mem = s[ch + CH_MEM]
    t = max(now, s[ch + CH_ROW_OK])
    deadline = s[ch + CH_ACT2_AT] + s[mem + T_AAD]
    if t >= deadline:
        s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T] = NEVER, NEVER
    elif t == deadline - 1 and s[ch + CH_PLAN_COL_T] == t and cas_needed(s, ch, t):
        is_column = s[ch + CH_PLAN_ROW_T] > t or s[ch + CH_PLAN_KEY] < row_key
        if is_column:
            s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T] = NEVER, NEVER
    if t < s[ch + CH_PLAN_ROW_T]:
        s[ch + CH_PLAN_ROW_T], s[ch + CH_PLAN_CMD] = t, CMD_ACT2
        return RANK_LAST
    return row_key


@inlined
def cas_needed(s: Words, ch: int, cycle: int) -> bool:
    """Whether WCK is off when the planned column command would be issued at `cycle`."""
    bank = s[s[ch + CH_PLAN_COL] + RQ_BANK]
    is_wck_used = s[s[ch + CH_MEM] + T_WCK] != 0
    return is_wck_used and cycle >= s[s[bank + BK_RANK] + RK_WCK_END]


@inlined
def settle(s: Words, ch: int, mem: int, row_key: int) -> int:
    """On a single command bus keep the better of both commands; returns the cycle of the next."""
    col_t, row_t = s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T]
    if s[mem + T_DUAL] == 0 and col_t < NEVER and row_t < NEVER:
        if col_t < row_t or (col_t == row_t and s[ch + CH_PLAN_KEY] < row_key):
            s[ch + CH_PLAN_ROW_T] = NEVER
        else:
            s[ch + CH_PLAN_COL_T] = NEVER
    return min(col_t, row_t)


@njit
def issue_row(s: Words, transfers: Words, log: Words, ch: int, cycle: int) -> None:
    """Issue the planned row command."""
    command, target = s[ch + CH_PLAN_CMD], s[ch + CH_PLAN_ROW]
    mem = s[ch + CH_MEM]
    if command == CMD_ACT2:
        s[ch + CH_ACT2_AT] = NONE
        s[ch + CH_ROW_OK], s[ch + CH_COL_OK] = cycle + 1, cycle + 1
        record(s, log, ch, cycle, CMD_ACT2, s[s[ch + CH_ACT2_BANK] + BK_ID], NONE)
    elif s[ch + CH_REF_PENDING] > 0:
        refresh.issue(s, log, ch, command, target, cycle)
    elif command == CMD_ACT:
        bank, write = s[target + RQ_BANK], s[target + RQ_WRITE]
        classify(s, transfers, ch, target, CLASS_MISS)
        unlink(s, ch, bank, target, write)
        activate(s, log, ch, bank, s[target + RQ_ROW], cycle)
        s[bank + BK_ACTIVE] = target
        bank_changed(s, ch, bank, True)
        s[s[ch + CH_ACTIVE] + s[ch + CH_ACTIVE_N]] = target
        s[ch + CH_ACTIVE_N] += 1
        if s[mem + T_AAD]:
            s[ch + CH_ACT2_AT], s[ch + CH_ACT2_BANK] = cycle, bank
    else:
        classify(s, transfers, ch, target, CLASS_CONFLICT)
        precharge(s, log, ch, s[target + RQ_BANK], cycle)


@njit
def row_still_ready(s: Words, ch: int, cycle: int) -> bool:
    """Whether a row command shares its cycle with the column command just issued.

    The row command bus looks again: the refresh list, or the queue of the write mode as it is
    now that the column command has left.
    """
    before = s[ch + CH_WRITE_MODE]
    if s[ch + CH_REF_PENDING] == 0:
        set_write_mode(s, ch, cycle)
        if before == s[ch + CH_WRITE_MODE]:
            if s[ch + CH_PLAN_ROW_T] > cycle:
                return False
            if is_row_possible(s, ch, cycle):
                return True
    s[ch + CH_PLAN_ROW_T] = NEVER
    odd, row_from = s[s[ch + CH_MEM] + T_ODD], max(cycle, s[ch + CH_ROW_OK])
    if s[ch + CH_REF_PENDING] > 0:
        plan_refresh(s, ch, row_from, odd)
    else:
        plan_queue(s, ch, NO_CYCLE, row_from, odd)
    return s[ch + CH_PLAN_ROW_T] <= cycle


@njit
def is_row_possible(s: Words, ch: int, cycle: int) -> bool:
    """Whether the column command just issued leaves the bank of a planned PRE alone."""
    if s[ch + CH_PLAN_CMD] == CMD_ACT:
        return True
    return s[s[s[ch + CH_PLAN_ROW] + RQ_BANK] + BK_PRE_OK] <= cycle


@njit
def plan_refresh(s: Words, ch: int, row_from: int, odd: int) -> None:
    """Next command of the refresh list."""
    t, command, target = refresh.next_command(s, ch, row_from)
    if command in (CMD_REFAB, CMD_REFPB):
        t |= odd
    if t < NEVER:
        s[ch + CH_PLAN_ROW_T], s[ch + CH_PLAN_ROW], s[ch + CH_PLAN_CMD] = t, target, command


@njit
def issue_column(s: Words, transfers: Words, log: Words, ch: int, cycle: int) -> int:
    """Issue the planned column command; returns its request, to be served and freed.

    A CAS that has to come first takes this cycle, the command the next: then NONE.
    """
    req, mem = s[ch + CH_PLAN_COL], s[ch + CH_MEM]
    bank, write = s[req + RQ_BANK], s[req + RQ_WRITE]
    is_closing = 0 < s[mem + T_CAP] <= s[bank + BK_SERVED]
    if s[mem + T_WCK]:
        if s[ch + CH_CAS_REQ] != NONE:
            s[ch + CH_CAS_REQ], is_closing = NONE, False
        elif cas_needed(s, ch, cycle):
            record(s, log, ch, cycle, CMD_CAS, s[bank + BK_ID], NONE)
            s[ch + CH_N_CAS] += 1
            s[ch + CH_CAS_REQ] = req
            s[ch + CH_COL_OK], s[ch + CH_ROW_OK] = cycle + 1, cycle + 1
            return NONE
    classify(s, transfers, ch, req, CLASS_HIT)
    if s[req + RQ_QUEUED]:
        unlink(s, ch, bank, req, write)
    else:
        leave_active(s, ch, bank, req)
    if s[mem + T_CLOSED] and no_hit_queued(s, bank):
        is_closing = True
    column(s, log, ch, bank, write, cycle, is_closing)
    bank_changed(s, ch, bank, s[bank + BK_ROW] == NONE)
    return req
