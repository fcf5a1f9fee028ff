"""Per-bank request queues in arrival order, with the oldest row hit and other request at hand.

All requests of one bank that need the same command are ready together, so the scheduler looks at
two requests per bank and direction at most: the oldest hit (a column command) and the oldest that
is none (ACT or PRE). `renew` keeps what the scheduler must know of them in the queue's own words.
"""

from __future__ import annotations

from npusim.memory.jit import inlined, njit
from npusim.memory.layout import (
    BK_ACT_OK,
    BK_ACTIVE,
    BK_GROUP,
    BK_PRE_OK,
    BK_QUEUE,
    BK_RANK,
    BK_RD_OK,
    BK_ROW,
    BK_WR_OK,
    CH_COLS,
    CH_COLS_N,
    CH_MARKS,
    CH_MEM,
    CH_QUEUED,
    CH_ROWS,
    CH_ROWS_N,
    GP_ACT_OK,
    H_ZERO,
    MARK_BITS,
    MM_BURST_BITS,
    NONE,
    NUM_MARKS,
    Q_COL,
    Q_COL_AT,
    Q_COL_SEQ,
    Q_HEAD,
    Q_HIT,
    Q_IS_ACT,
    Q_OTHER,
    Q_ROW,
    Q_ROW_AT,
    Q_ROW_GROUP,
    Q_ROW_RANK,
    Q_ROW_SEQ,
    Q_TAIL,
    QUEUE_WORDS,
    RK_ACT_OK,
    RK_PRE_OK,
    RQ_ADDR,
    RQ_ARRIVE,
    RQ_NEXT,
    RQ_PREV,
    RQ_QUEUED,
    RQ_ROW,
    RQ_SEQ,
    T_ROW_HIT_FIRST,
    Words,
)


@inlined
def write_mark(s: Words, ch: int, addr: int) -> int:
    """Word that counts the channel's queued writes whose address falls on the same mark."""
    burst = addr >> s[s[ch + CH_MEM] + MM_BURST_BITS]
    return s[ch + CH_MARKS] + ((burst ^ (burst >> MARK_BITS)) & (NUM_MARKS - 1))


@inlined
def append(s: Words, ch: int, bank: int, req: int, write: int) -> None:
    """Put the youngest request at the tail of its bank's queue."""
    q = bank + BK_QUEUE + QUEUE_WORDS * write
    tail = s[q + Q_TAIL]
    s[req + RQ_NEXT] = NONE
    s[req + RQ_PREV] = tail
    s[req + RQ_QUEUED] = 1
    if tail == NONE:
        s[q + Q_HEAD] = req
    else:
        s[tail + RQ_NEXT] = req
    s[q + Q_TAIL] = req
    s[ch + CH_QUEUED + write] += 1
    if write:
        s[write_mark(s, ch, s[req + RQ_ADDR])] += 1
    kind = Q_HIT if s[req + RQ_ROW] == s[bank + BK_ROW] else Q_OTHER
    if s[q + kind] == NONE:
        s[q + kind] = req
        renew(s, ch, bank, q, write)


@inlined
def find(s: Words, bank: int, req: int, hit: bool) -> int:
    """First request from `req` on that is (not) to the open row, or NONE."""
    row = s[bank + BK_ROW]
    while req != NONE and (s[req + RQ_ROW] == row) != hit:
        req = s[req + RQ_NEXT]
    return req


@njit
def unlink(s: Words, ch: int, bank: int, req: int, write: int) -> None:
    """Take a request out of its bank's queue; the caller renews the candidates."""
    q = bank + BK_QUEUE + QUEUE_WORDS * write
    before, after = s[req + RQ_PREV], s[req + RQ_NEXT]
    if s[q + Q_HIT] == req:
        s[q + Q_HIT] = find(s, bank, after, True)
    elif s[q + Q_OTHER] == req:
        s[q + Q_OTHER] = find(s, bank, after, False)
    if before == NONE:
        s[q + Q_HEAD] = after
    else:
        s[before + RQ_NEXT] = after
    if after == NONE:
        s[q + Q_TAIL] = before
    else:
        s[after + RQ_PREV] = before
    s[req + RQ_QUEUED] = 0
    s[ch + CH_QUEUED + write] -= 1
    if write:
        s[write_mark(s, ch, s[req + RQ_ADDR])] -= 1


@inlined
def list_candidate(
    s: Words, queues: int, count: int, place: int, q: int, is_candidate: bool
) -> None:
    """Put queue `q` on a list of the channel or take it off (the last of the list fills the gap).

    `count` is the word with the list's length, `place` the word of a queue with its place.
    """
    at = s[q + place]
    if is_candidate:
        if at == NONE:
            n = s[count]
            s[queues + n], s[q + place], s[count] = q, n, n + 1
    elif at != NONE:
        n = s[count] - 1
        last = s[queues + n]
        s[queues + at], s[last + place], s[count] = last, at, n
        s[q + place] = NONE


@njit
def bank_changed(s: Words, ch: int, bank: int, row_changed: bool) -> None:
    """Bring both queues' candidates up to date after a command to their bank."""
    row = s[bank + BK_ROW]
    for write in range(2):
        q = bank + BK_QUEUE + QUEUE_WORDS * write
        head = s[q + Q_HEAD]
        if head == NONE:
            if s[q + Q_COL_AT] != NONE or s[q + Q_ROW_AT] != NONE:
                renew(s, ch, bank, q, write)
            continue
        if row_changed:
            s[q + Q_HIT] = NONE if row == NONE else find(s, bank, head, True)
            s[q + Q_OTHER] = head if row == NONE else find(s, bank, head, False)
        renew(s, ch, bank, q, write)


@inlined
def renew(s: Words, ch: int, bank: int, q: int, write: int) -> None:
    """Work out the column and the row candidate of one queue and list it accordingly."""
    hit = s[q + Q_HIT]
    list_candidate(s, s[ch + CH_COLS + write], ch + CH_COLS_N + write, Q_COL_AT, q, hit != NONE)
    if hit != NONE:
        ok = s[bank + (BK_WR_OK if write else BK_RD_OK)]
        s[q + Q_COL] = max(ok, s[hit + RQ_ARRIVE] + 1)
        s[q + Q_COL_SEQ] = s[hit + RQ_SEQ]
    has_row = renew_row(s, ch, bank, q, hit, s[q + Q_OTHER])
    list_candidate(s, s[ch + CH_ROWS + write], ch + CH_ROWS_N + write, Q_ROW_AT, q, has_row)


@inlined
def renew_row(s: Words, ch: int, bank: int, q: int, hit: int, other: int) -> bool:
    """Work out the row candidate of one queue; returns whether it has one."""
    row = s[bank + BK_ROW]
    if other == NONE:
        return False
    seq, arrived = s[other + RQ_SEQ], s[other + RQ_ARRIVE] + 1
    s[q + Q_ROW_SEQ] = seq
    if row == NONE:
        s[q + Q_ROW] = max(s[bank + BK_ACT_OK], arrived)
        s[q + Q_ROW_GROUP] = s[bank + BK_GROUP] + GP_ACT_OK
        s[q + Q_ROW_RANK] = s[bank + BK_RANK] + RK_ACT_OK
        s[q + Q_IS_ACT] = 1
        return True
    if s[bank + BK_ACTIVE] != NONE:
        return False
    is_guarded = hit != NONE and s[s[ch + CH_MEM] + T_ROW_HIT_FIRST] != 0
    if is_guarded and s[hit + RQ_ARRIVE] < arrived:  # a hit that came no later keeps the row open
        return False
    s[q + Q_ROW] = max(s[bank + BK_PRE_OK], arrived)
    s[q + Q_ROW_GROUP], s[q + Q_ROW_RANK] = H_ZERO, s[bank + BK_RANK] + RK_PRE_OK
    s[q + Q_IS_ACT] = 0
    return True
