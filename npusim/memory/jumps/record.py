"""Notes taken while the kernel steps from one checkpoint of a stream to the next (compiled).

What later replays of the hop must repeat and cannot read off the two states: who used the data
buses until when, which burst was served when, which banks were opened or closed. Whatever a replay
could not repeat (an arrival, a refresh, another stream) calls `give_up`.
"""

from __future__ import annotations

from npusim.memory.clocking import next_cycle
from npusim.memory.jit import njit
from npusim.memory.jumps.words import (
    MAX_FRESH,
    MAX_PIECES,
    MAX_ROWS,
    MAX_SERVED,
    NUM_COUNTS,
    PIECE_WORDS,
    R_AT,
    R_COUNTS_AT,
    R_CYCLE,
    R_FRESH,
    R_FRESH_AT,
    R_MEM,
    R_NODE,
    R_PIECE_AT,
    R_PIECES,
    R_ROW,
    R_ROWS,
    R_ROWS_AT,
    R_SERVED,
    R_SERVED_AT,
    R_STREAM,
    R_UNTIL,
)
from npusim.memory.layout import (
    AX_ADDR,
    AX_END,
    BK_ACT_OK,
    BK_ACTIVE,
    BK_PRE_OK,
    BK_QUEUE,
    BK_RD_OK,
    BK_ROW,
    BK_WR_OK,
    BS_CUT,
    CH_CLOCK,
    CH_MEM,
    CH_N_ACT,
    CH_N_CAS,
    CH_N_CONFLICT,
    CH_N_HIT,
    CH_N_MISS,
    CH_N_PRE,
    CH_N_RD,
    CH_PLAN_COL_T,
    CH_PLAN_ROW_T,
    CHANNEL_WORDS,
    H_RECORD,
    H_RECORDING,
    MM_CHANNELS,
    MM_MARGIN,
    MM_NUM_CHANNELS,
    NEVER,
    NONE,
    PC_PIECE,
    PT_BUS,
    Q_HEAD,
    QUEUE_WORDS,
    ST_AT,
    ST_PORT,
    Words,
)


@njit
def give_up(s: Words) -> None:
    """The hop under way cannot be repeated."""
    s[H_RECORDING] = 0


@njit
def counter(number: int) -> int:
    """Word of one of the `NUM_COUNTS` counters of a channel."""
    if number == 0:
        return CH_N_RD
    if number == 1:
        return CH_N_ACT
    if number == 2:
        return CH_N_PRE
    if number == 3:
        return CH_N_HIT
    if number == 4:
        return CH_N_MISS
    if number == 5:
        return CH_N_CONFLICT
    return CH_N_CAS


@njit
def start(s: Words, mem: int, stream: int, node: int, cycle: int, row: int) -> None:
    """Begin to record a hop that starts at `node`, the state of `mem` at `cycle`."""
    rec = s[H_RECORD]
    s[rec + R_MEM], s[rec + R_STREAM], s[rec + R_NODE], s[rec + R_CYCLE] = mem, stream, node, cycle
    s[rec + R_AT], s[rec + R_ROW], s[rec + R_UNTIL] = s[stream + ST_AT], row, cycle
    s[rec + R_PIECES], s[rec + R_SERVED], s[rec + R_FRESH], s[rec + R_ROWS] = 0, 0, 0, 0
    at = rec + R_COUNTS_AT
    for i in range(s[mem + MM_NUM_CHANNELS]):
        ch = s[mem + MM_CHANNELS] + i * CHANNEL_WORDS
        for k in range(NUM_COUNTS):
            s[at + k] = s[ch + counter(k)]
        at += NUM_COUNTS
    s[H_RECORDING] = 1


@njit
def note_piece(s: Words, ch: int, pc: int, category: int, end_ps: int) -> None:
    """Data bus `pc` was charged to `category` up to `end_ps`, an edge of its clock."""
    rec = s[H_RECORD]
    if s[ch + CH_MEM] != s[rec + R_MEM]:
        return
    end = next_cycle(s, ch + CH_CLOCK, end_ps) - s[rec + R_CYCLE]
    n, last = s[rec + R_PIECES], s[pc + PC_PIECE]
    at = rec + R_PIECE_AT + last * PIECE_WORDS
    if last < n and s[at] == pc and s[at + 1] == category:
        s[at + 2] = end
        return
    if n == MAX_PIECES:
        give_up(s)
        return
    at = rec + R_PIECE_AT + n * PIECE_WORDS
    s[at], s[at + 1], s[at + 2] = pc, category, end
    s[pc + PC_PIECE], s[rec + R_PIECES] = n, n + 1


@njit
def note_served(s: Words, ch: int, addr: int, cycle: int) -> None:
    """The column command of the burst at `addr` is at `cycle`."""
    rec = s[H_RECORD]
    if s[ch + CH_MEM] != s[rec + R_MEM]:
        return
    n = s[rec + R_SERVED]
    if n == MAX_SERVED:
        give_up(s)
        return
    at = rec + R_SERVED_AT + 2 * n
    s[at], s[at + 1] = addr, cycle
    s[rec + R_SERVED] = n + 1


@njit
def note_row(s: Words, ch: int, bank: int) -> None:
    """A row of `bank` is opened or closed."""
    rec = s[H_RECORD]
    if s[ch + CH_MEM] != s[rec + R_MEM]:
        return
    n = s[rec + R_ROWS]
    if n == MAX_ROWS:
        give_up(s)
        return
    s[rec + R_ROWS_AT + n] = bank
    s[rec + R_ROWS] = n + 1


@njit
def is_at_rest(s: Words, bank: int, long_ago: int) -> bool:
    """Nothing queued for the bank and every deadline of it passed `long_ago`."""
    newest = max(
        max(s[bank + BK_ACT_OK], s[bank + BK_PRE_OK]), max(s[bank + BK_RD_OK], s[bank + BK_WR_OK])
    )
    queue = bank + BK_QUEUE + Q_HEAD
    is_empty = s[queue] == NONE and s[queue + QUEUE_WORDS] == NONE and s[bank + BK_ACTIVE] == NONE
    return newest <= long_ago and is_empty


@njit
def note_accepted(s: Words, ch: int, bank: int, write: int) -> None:
    """A request for `bank` is about to be queued."""
    rec = s[H_RECORD]
    if s[ch + CH_MEM] != s[rec + R_MEM]:
        return
    n = s[rec + R_FRESH]
    if write or n == MAX_FRESH:
        give_up(s)
    elif is_at_rest(s, bank, s[rec + R_CYCLE] - s[s[ch + CH_MEM] + MM_MARGIN]):
        at = rec + R_FRESH_AT + 2 * n
        s[at], s[at + 1] = bank, s[bank + BK_ROW]
        s[rec + R_FRESH] = n + 1


@njit
def note_until(s: Words, ch: int, at: int) -> None:
    """The channel looked ahead to its next event at `at`; a refresh must lie beyond."""
    rec = s[H_RECORD]
    if s[ch + CH_MEM] != s[rec + R_MEM]:
        return
    if at < min(s[ch + CH_PLAN_COL_T], s[ch + CH_PLAN_ROW_T]):
        give_up(s)
    elif at < NEVER:
        s[rec + R_UNTIL] = max(s[rec + R_UNTIL], at)


@njit
def note_begun(s: Words, stream: int, burst: int) -> None:
    """The next AXI burst begins to enter: it must be a full one that follows the one before."""
    size = s[burst + AX_END] - s[burst + AX_ADDR]
    follows = s[burst + AX_ADDR] == s[stream + ST_AT]
    is_mine = stream == s[s[H_RECORD] + R_STREAM]
    if not (follows and is_mine and size == s[s[s[stream + ST_PORT] + PT_BUS] + BS_CUT]):
        give_up(s)
