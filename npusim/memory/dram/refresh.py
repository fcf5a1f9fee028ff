"""Refresh: when it is due, which command it needs next, and idle time skipped in one step.

Refreshes wait on a list that is served in order, before the queues; with a closed page after a
number of accesses (`closed_cap`) so do the precharges it asks for.
"""

from __future__ import annotations

from npusim.memory.dram.commands import (
    precharge,
    precharge_all,
    refresh_all,
    refresh_bank,
)
from npusim.memory.jit import inlined, njit
from npusim.memory.jumps.record import give_up
from npusim.memory.layout import (
    BANK_WORDS,
    BK_ACT_OK,
    BK_ACTIVE,
    BK_LISTED,
    BK_PRE_OK,
    BK_RANK,
    BK_ROW,
    BK_SERVED,
    CH_BANKS,
    CH_CAP_AT,
    CH_LIST,
    CH_LIST_HEAD,
    CH_LIST_LIMIT,
    CH_MEM,
    CH_N_REF,
    CH_N_REFPB,
    CH_NUM_BANKS,
    CH_NUM_RANKS,
    CH_PLANNED,
    CH_RANKS,
    CH_REF_BANK,
    CH_REF_DUE,
    CH_REF_PENDING,
    CH_ROW_OK,
    CMD_PRE,
    CMD_PREAB,
    CMD_REFAB,
    CMD_REFPB,
    NEVER,
    NONE,
    RANK_WORDS,
    REFRESH_ALL,
    RK_BANKS,
    RK_NUM_BANKS,
    RK_OPEN,
    RK_PRE_OK,
    RK_PREAB_OK,
    RK_REF_OK,
    RK_REF_PENDING,
    RK_REFPB_OK,
    T_ACT_LEN,
    T_CAP,
    T_ODD,
    T_PBR2PBR,
    T_REFI,
    T_REFIPB,
    T_REFRESH,
    T_RFC,
    T_RFCPB,
    T_ROUND_ROBIN,
    Words,
)

IS_PRECHARGE = 1  # lowest bit of an entry of the list; the bits above are the rank or bank


@njit
def add_to_list(s: Words, ch: int, entry: int) -> None:
    """Put an entry at the end of the list; the caller has seen that there is room."""
    at = s[ch + CH_LIST_HEAD] + s[ch + CH_REF_PENDING]
    limit = s[ch + CH_LIST_LIMIT]
    s[s[ch + CH_LIST] + (at - limit if at >= limit else at)] = entry
    s[ch + CH_REF_PENDING] += 1


@njit
def drop_first(s: Words, ch: int) -> None:
    """Take the first entry off the list."""
    at = s[ch + CH_LIST_HEAD] + 1
    s[ch + CH_LIST_HEAD] = 0 if at == s[ch + CH_LIST_LIMIT] else at
    s[ch + CH_REF_PENDING] -= 1


@inlined
def is_room_for_refresh(s: Words, ch: int) -> bool:
    """Whether the list takes one more refresh of every rank; else it waits until it does."""
    free = s[ch + CH_LIST_LIMIT] - s[ch + CH_REF_PENDING] - s[ch + CH_NUM_BANKS]
    return free >= s[ch + CH_NUM_RANKS]


@njit
def fall_due(s: Words, ch: int) -> None:
    """A refresh interval ended: put the refresh on the list and set the next one."""
    give_up(s)
    mem = s[ch + CH_MEM]
    if not is_room_for_refresh(s, ch):
        return
    if s[mem + T_REFRESH] == REFRESH_ALL:
        for i in range(s[ch + CH_NUM_RANKS]):
            rank = s[ch + CH_RANKS] + i * RANK_WORDS
            s[rank + RK_REF_PENDING] += 1
            add_to_list(s, ch, rank << 1)
        s[ch + CH_REF_DUE] += s[mem + T_REFI]
    else:
        add_to_list(s, ch, (s[ch + CH_BANKS] + s[ch + CH_REF_BANK] * BANK_WORDS) << 1)
        s[ch + CH_REF_BANK] = (s[ch + CH_REF_BANK] + 1) % s[ch + CH_NUM_BANKS]
        s[ch + CH_REF_DUE] += s[mem + T_REFIPB]


@njit
def list_precharges(s: Words, ch: int, cycle: int, is_start: bool) -> None:
    """Closed page with a cap: rows served often enough ask for their precharge once it is ready.

    They ask at the start of a cycle only. Keeps in CH_CAP_AT when the next one will.
    """
    cap, next_at = s[s[ch + CH_MEM] + T_CAP], NEVER
    for i in range(s[ch + CH_NUM_BANKS]):
        bank = s[ch + CH_BANKS] + i * BANK_WORDS
        if s[bank + BK_SERVED] < cap or s[bank + BK_LISTED]:
            continue
        at = max(s[bank + BK_PRE_OK], s[s[bank + BK_RANK] + RK_PRE_OK])
        if is_start and at <= cycle:
            add_to_list(s, ch, bank << 1 | IS_PRECHARGE)
            s[bank + BK_LISTED], s[ch + CH_PLANNED] = 1, 0
        else:
            next_at = min(next_at, max(at, cycle + 1))
    s[ch + CH_CAP_AT] = next_at


@njit
def precharge_all_ok(s: Words, rank: int) -> int:
    """First cycle at which PREab keeps every bank's spacing, NEVER while a bank is in use."""
    ready = max(s[rank + RK_PRE_OK], s[rank + RK_PREAB_OK])
    for i in range(s[rank + RK_NUM_BANKS]):
        bank = s[rank + RK_BANKS] + i * BANK_WORDS
        if s[bank + BK_ACTIVE] != NONE:
            return NEVER
        if s[bank + BK_ROW] != NONE:
            ready = max(ready, s[bank + BK_PRE_OK])
    return ready


@njit
def next_command(s: Words, ch: int, earliest: int) -> tuple[int, int, int]:
    """(cycle from `earliest` on, command, rank or bank) of the first entry; NEVER if it cannot go.

    Later entries wait for it.
    """
    mem = s[ch + CH_MEM]
    entry = s[s[ch + CH_LIST] + s[ch + CH_LIST_HEAD]]
    target = entry >> 1
    if entry & IS_PRECHARGE:
        return precharge_ok(s, target, earliest), CMD_PRE, target
    if s[mem + T_REFRESH] != REFRESH_ALL:
        return next_for_bank(s, mem, target, earliest)
    if s[target + RK_OPEN] == 0:
        return max(s[target + RK_REF_OK], earliest) | s[mem + T_ODD], CMD_REFAB, target
    if s[mem + T_ROUND_ROBIN]:
        return next_precharge(s, target, earliest)
    return max(precharge_all_ok(s, target), earliest), CMD_PREAB, target


@njit
def precharge_ok(s: Words, bank: int, earliest: int) -> int:
    """First cycle at which the bank can be precharged, NEVER while it is in use."""
    if s[bank + BK_ACTIVE] != NONE:
        return NEVER
    return max(max(s[bank + BK_PRE_OK], s[s[bank + BK_RANK] + RK_PRE_OK]), earliest)


@njit
def next_for_bank(s: Words, mem: int, bank: int, earliest: int) -> tuple[int, int, int]:
    """Next command of a bank's refresh."""
    if s[bank + BK_ROW] != NONE:
        return precharge_ok(s, bank, earliest), CMD_PRE, bank
    ok = s[bank + BK_ACT_OK] + s[mem + T_ACT_LEN] - 1  # a refresh is one cycle, an ACT longer
    return max(max(ok, s[s[bank + BK_RANK] + RK_REFPB_OK]), earliest), CMD_REFPB, bank


@njit
def next_precharge(s: Words, rank: int, earliest: int) -> tuple[int, int, int]:
    """The open bank of a rank that can be precharged first, the lowest of several."""
    best, target = NEVER, NONE
    for i in range(s[rank + RK_NUM_BANKS]):
        bank = s[rank + RK_BANKS] + i * BANK_WORDS
        if s[bank + BK_ROW] != NONE:
            at = precharge_ok(s, bank, earliest)
            if at < best:
                best, target = at, bank
    return best, CMD_PRE, target


@njit
def issue(s: Words, log: Words, ch: int, command: int, target: int, cycle: int) -> None:
    """Issue a command of the refresh list."""
    if command == CMD_PREAB:
        precharge_all(s, log, ch, target, cycle)
    elif command == CMD_PRE:
        if s[s[ch + CH_LIST] + s[ch + CH_LIST_HEAD]] & IS_PRECHARGE:
            drop_first(s, ch)
        precharge(s, log, ch, target, cycle)
    elif command == CMD_REFAB:
        drop_first(s, ch)
        refresh_all(s, log, ch, target, cycle)
        s[target + RK_REF_PENDING] -= 1
    else:
        drop_first(s, ch)
        refresh_bank(s, log, ch, target, cycle)


@njit
def catch_up(s: Words, log: Words, ch: int, cycle: int) -> None:
    """Do what an idle channel's refreshes did before `cycle`.

    Exact: with nothing queued the list is served the moment each command is ready. Once all banks
    are closed, whole intervals repeat and are counted, not executed.
    """
    mem = s[ch + CH_MEM]
    if s[ch + CH_REF_DUE] > cycle:
        return
    while s[ch + CH_REF_DUE] <= cycle:
        due = s[ch + CH_REF_DUE]  # the list is empty here: there is room
        fall_due(s, ch)
        while s[ch + CH_REF_PENDING] > 0:
            at, command, target = next_command(s, ch, max(due, s[ch + CH_ROW_OK]))
            if command in (CMD_REFAB, CMD_REFPB):
                at |= s[mem + T_ODD]
            if at > cycle:
                return
            issue(s, log, ch, command, target, at)
        if s[mem + T_REFRESH] == REFRESH_ALL:
            skip_intervals(s, ch, cycle)
        else:
            skip_rounds(s, ch, cycle)


@njit
def skip_intervals(s: Words, ch: int, cycle: int) -> None:
    """Jump over whole all-bank refresh intervals of a closed rank, keeping the last one."""
    mem = s[ch + CH_MEM]
    interval = s[mem + T_REFI]
    skipped = (cycle - s[ch + CH_REF_DUE]) // interval - 1
    if skipped > 0 and s[mem + T_RFC] < interval:
        s[ch + CH_REF_DUE] += skipped * interval
        s[ch + CH_N_REF] += skipped * s[ch + CH_NUM_RANKS]


@njit
def skip_rounds(s: Words, ch: int, cycle: int) -> None:
    """Jump over whole rounds of per-bank refresh with all banks closed, keeping the last two."""
    mem = s[ch + CH_MEM]
    for i in range(s[ch + CH_NUM_RANKS]):
        if s[s[ch + CH_RANKS] + i * RANK_WORDS + RK_OPEN] > 0:
            return
    banks = s[ch + CH_NUM_BANKS]
    interval = s[mem + T_REFIPB]
    rounds = (cycle - s[ch + CH_REF_DUE]) // (interval * banks) - 2
    if rounds > 0 and s[mem + T_RFCPB] < interval * banks and s[mem + T_PBR2PBR] < interval:
        s[ch + CH_REF_DUE] += rounds * interval * banks
        s[ch + CH_N_REFPB] += rounds * banks
