"""Refresh: when it is due, which command it needs next, and idle time skipped in one step."""

from __future__ import annotations

from npusim.memory.dram.commands import (
    precharge,
    precharge_all,
    refresh_all,
    refresh_bank,
)
from npusim.memory.jit import njit
from npusim.memory.layout import (
    BANK_WORDS,
    BK_ACT_OK,
    BK_ACTIVE,
    BK_PRE_OK,
    BK_RANK,
    BK_ROW,
    CH_BANKS,
    CH_MEM,
    CH_N_REF,
    CH_N_REFPB,
    CH_NUM_BANKS,
    CH_NUM_RANKS,
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
    RK_REF_OK,
    RK_REF_PENDING,
    RK_REFPB_OK,
    T_ACT_LEN,
    T_ODD,
    T_PBR2PBR,
    T_REFI,
    T_REFIPB,
    T_REFRESH,
    T_RFC,
    T_RFCPB,
    Words,
)


@njit
def fall_due(s: Words, ch: int) -> None:
    """A refresh interval ended: put the refresh on the list and set the next one."""
    mem = s[ch + CH_MEM]
    if s[mem + T_REFRESH] == REFRESH_ALL:
        for i in range(s[ch + CH_NUM_RANKS]):
            s[s[ch + CH_RANKS] + i * RANK_WORDS + RK_REF_PENDING] += 1
        s[ch + CH_REF_PENDING] += s[ch + CH_NUM_RANKS]
        s[ch + CH_REF_DUE] += s[mem + T_REFI]
    else:
        s[ch + CH_REF_PENDING] += 1
        s[ch + CH_REF_DUE] += s[mem + T_REFIPB]


@njit
def precharge_all_ok(s: Words, rank: int) -> int:
    """First cycle at which PREab keeps every bank's spacing, NEVER while a bank is in use."""
    ready = s[rank + RK_PRE_OK]
    for i in range(s[rank + RK_NUM_BANKS]):
        bank = s[rank + RK_BANKS] + i * BANK_WORDS
        if s[bank + BK_ACTIVE] != NONE:
            return NEVER
        if s[bank + BK_ROW] != NONE:
            ready = max(ready, s[bank + BK_PRE_OK])
    return ready


@njit
def next_command(s: Words, ch: int, earliest: int) -> tuple[int, int, int]:
    """(cycle from `earliest` on, command, rank or bank) of the refresh list; NEVER if none can go.

    Of several ranks the lowest that is ready first.
    """
    mem = s[ch + CH_MEM]
    best, command, target = NEVER, CMD_REFAB, NONE
    if s[mem + T_REFRESH] == REFRESH_ALL:
        for i in range(s[ch + CH_NUM_RANKS]):
            rank = s[ch + CH_RANKS] + i * RANK_WORDS
            if s[rank + RK_REF_PENDING] > 0:
                is_open = s[rank + RK_OPEN] > 0
                ready = precharge_all_ok(s, rank) if is_open else s[rank + RK_REF_OK]
                ready = max(ready, earliest)
                if not is_open:
                    ready |= s[mem + T_ODD]
                if ready < best:
                    best, target = ready, rank
                    command = CMD_PREAB if is_open else CMD_REFAB
        return best, command, target
    bank = s[ch + CH_BANKS] + s[ch + CH_REF_BANK] * BANK_WORDS
    rank = s[bank + BK_RANK]
    if s[bank + BK_ROW] == NONE:
        ok = s[bank + BK_ACT_OK] + s[mem + T_ACT_LEN] - 1  # a refresh is one cycle, an ACT longer
        return max(max(ok, s[rank + RK_REFPB_OK]), earliest), CMD_REFPB, bank
    if s[bank + BK_ACTIVE] != NONE:
        return NEVER, CMD_PRE, bank
    return max(max(s[bank + BK_PRE_OK], s[rank + RK_PRE_OK]), earliest), CMD_PRE, bank


@njit
def issue(s: Words, log: Words, ch: int, command: int, target: int, cycle: int) -> None:
    """Issue a command of the refresh list."""
    if command == CMD_PREAB:
        precharge_all(s, log, ch, target, cycle)
    elif command == CMD_PRE:
        precharge(s, log, ch, target, cycle)
    elif command == CMD_REFAB:
        refresh_all(s, log, ch, target, cycle)
        s[target + RK_REF_PENDING] -= 1
        s[ch + CH_REF_PENDING] -= 1
    else:
        refresh_bank(s, log, ch, target, cycle)
        s[ch + CH_REF_PENDING] -= 1
        s[ch + CH_REF_BANK] = (s[ch + CH_REF_BANK] + 1) % s[ch + CH_NUM_BANKS]


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
        due = s[ch + CH_REF_DUE]
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
