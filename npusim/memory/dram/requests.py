"""Requests from acceptance to service: counted once, kept in lists, returned to their pool."""

from __future__ import annotations

from npusim.memory.jit import inlined
from npusim.memory.layout import (
    BK_ACTIVE,
    BK_PC,
    BK_QUEUE,
    CH_ACTIVE,
    CH_ACTIVE_N,
    CH_FREE_REQ,
    CH_HELD,
    CH_N_CONFLICT,
    CH_N_HIT,
    CH_N_MISS,
    CLASS_HIT,
    CLASS_MISS,
    CLASS_NEW,
    NONE,
    PC_HELD,
    Q_HIT,
    QUEUE_WORDS,
    RQ_BANK,
    RQ_CLASS,
    RQ_NEXT,
    RQ_TID,
    TR_ACCESSES,
    TR_CONFLICTS,
    TR_HITS,
    TR_MISSES,
    TRANSFER_WORDS,
    Words,
)


@inlined
def classify(s: Words, transfers: Words, ch: int, req: int, kind: int) -> None:
    """Count a request once, by what its first command found."""
    if s[req + RQ_CLASS] != CLASS_NEW:
        return
    s[req + RQ_CLASS] = kind
    tid = s[req + RQ_TID]
    if kind == CLASS_HIT:
        s[ch + CH_N_HIT] += 1
    elif kind == CLASS_MISS:
        s[ch + CH_N_MISS] += 1
    else:
        s[ch + CH_N_CONFLICT] += 1
    if tid >= 0:
        transfers[tid * TRANSFER_WORDS + TR_ACCESSES] += 1
        at = TR_HITS if kind == CLASS_HIT else (TR_MISSES if kind == CLASS_MISS else TR_CONFLICTS)
        transfers[tid * TRANSFER_WORDS + at] += 1


@inlined
def no_hit_queued(s: Words, bank: int) -> bool:
    """Whether neither queue holds a request to the open row."""
    q = bank + BK_QUEUE
    return s[q + Q_HIT] == NONE and s[q + QUEUE_WORDS + Q_HIT] == NONE


@inlined
def leave_active(s: Words, ch: int, bank: int, req: int) -> None:
    """Remove a request from the active list, keeping its order."""
    s[bank + BK_ACTIVE] = NONE
    at, n = s[ch + CH_ACTIVE], s[ch + CH_ACTIVE_N] - 1
    i = 0
    while s[at + i] != req:
        i += 1
    while i < n:
        s[at + i] = s[at + i + 1]
        i += 1
    s[ch + CH_ACTIVE_N] = n


@inlined
def free_request(s: Words, ch: int, req: int) -> None:
    """Return a served request to the channel's pool."""
    s[req + RQ_NEXT] = s[ch + CH_FREE_REQ]
    s[ch + CH_FREE_REQ] = req
    s[ch + CH_HELD] -= 1
    s[s[s[req + RQ_BANK] + BK_PC] + PC_HELD] -= 1
