"""What each data bus did with every picosecond (compiled).

Time is cut at the controller's decisions. A burst occupies the bus for its beats counted from its
column command; whatever is left until the next decision goes to the reason that held when the
last decision was made. The picture is the data bus shifted by the constant read or write latency;
category sums equal elapsed time exactly because pieces are differences of clock edges.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps
from npusim.memory.jit import inlined, njit
from npusim.memory.jumps.record import give_up, note_piece
from npusim.memory.layout import (
    CAT_ARBITRATION,
    CAT_STARVED,
    CH_CLOCK,
    CH_MEM,
    H_RECORDING,
    MM_ARB_END,
    MM_ARB_PS,
    PC_ACCOUNTED,
    PC_ARB_SEEN,
    PC_CATEGORY,
    PC_DATA_END,
    PC_KIND,
    PC_REASON,
    Words,
)


@inlined
def arbitration_ps(s: Words, mem: int, now_ps: int) -> int:
    """Time up to `now_ps` in which some master of this memory waited for a bus grant."""
    return s[mem + MM_ARB_PS] - max(0, s[mem + MM_ARB_END] - now_ps)


@njit
def account(s: Words, ch: int, pc: int, now_ps: int) -> None:
    """Charge the time of data bus `pc` up to `now_ps`."""
    at = s[pc + PC_ACCOUNTED]
    if now_ps <= at:
        return
    data_end = min(edge_ps(s, ch + CH_CLOCK, s[pc + PC_DATA_END]), now_ps)
    if data_end > at:
        s[pc + PC_CATEGORY + s[pc + PC_KIND]] += data_end - at
        if s[H_RECORDING]:
            note_piece(s, ch, pc, s[pc + PC_KIND], data_end)
        at = data_end
    reason = s[pc + PC_REASON]
    rest = now_ps - at
    if reason == CAT_STARVED:
        seen = arbitration_ps(s, s[ch + CH_MEM], now_ps)
        share = min(rest, seen - s[pc + PC_ARB_SEEN])
        s[pc + PC_ARB_SEEN] = seen
        s[pc + PC_CATEGORY + CAT_ARBITRATION] += share
        rest -= share
        if share:
            give_up(s)
    s[pc + PC_CATEGORY + reason] += rest
    if s[H_RECORDING] and rest > 0:
        note_piece(s, ch, pc, reason, now_ps)
    s[pc + PC_ACCOUNTED] = now_ps


@njit
def set_reason(s: Words, ch: int, pc: int, now_ps: int, reason: int) -> None:
    """From `now_ps` on, time without data goes to `reason`."""
    if s[pc + PC_REASON] == reason:
        return
    account(s, ch, pc, now_ps)
    s[pc + PC_REASON] = reason
    s[pc + PC_ARB_SEEN] = arbitration_ps(s, s[ch + CH_MEM], now_ps)
