"""Where everything lives in the memo of recorded hops and in the record of the current one.

The memo is an int64 table of its own: header, map of AXI bursts, hash buckets, then an arena of
nodes (states of a memory, relative to a cycle and an address) and hops between them.
"""

from __future__ import annotations

# --- memo ---------------------------------------------------------------------------------------
(
    M_SIZE, M_FREE, M_TRIES, M_HITS, M_PAUSE, M_NODE, M_CYCLE, M_HOPS, M_RESETS, M_IS_KNOWN,
    M_TAKEN,
) = range(11)  # fmt: skip
M_MAP = 16  # AXI bursts of a stream by block, seen from the block at hand
MAP_BEFORE, MAP_WORDS = 64, 320
M_BUCKETS = M_MAP + MAP_WORDS
NUM_BUCKETS = 1 << 12
M_ARENA = M_BUCKETS + NUM_BUCKETS
MEMO_WORDS = 1 << 21

ND_HASH, ND_NEXT, ND_HOPS, ND_SIZE, ND_WORDS = range(5)
(
    HP_NEXT, HP_NODE, HP_CYCLES, HP_UNTIL, HP_BYTES, HP_BURSTS, HP_ACCESSES, HP_HITS, HP_MISSES,
    HP_CONFLICTS, HP_READS, HP_FRESH, HP_ROWS, HP_CHANNELS, HP_SERVED, HP_PIECES, HP_WORDS,
) = range(17)  # fmt: skip
FRESH_WORDS, ROWS_WORDS, COUNTS_WORDS, SERVED_WORDS, PIECE_WORDS = 2, 2, 8, 4, 3

# --- record of the hop under way, in the kernel's state ------------------------------------------
(
    R_MEM, R_STREAM, R_NODE, R_CYCLE, R_AT, R_ROW, R_UNTIL, R_PIECES, R_SERVED, R_FRESH, R_ROWS,
    R_LISTS,
) = range(12)  # fmt: skip
MAX_PIECES, MAX_SERVED, MAX_FRESH, MAX_ROWS = 2048, 2048, 256, 512
R_PIECE_AT = R_LISTS  # data bus, category, end in cycles from the start
R_SERVED_AT = R_PIECE_AT + PIECE_WORDS * MAX_PIECES  # address, cycle of the column command
R_FRESH_AT = R_SERVED_AT + 2 * MAX_SERVED  # bank that was at rest, its row
R_ROWS_AT = R_FRESH_AT + 2 * MAX_FRESH  # bank whose row changed
R_COUNTS_AT = R_ROWS_AT + MAX_ROWS  # counters of every channel at the start
NUM_COUNTS = 7  # CH_N_RD, ACT, PRE, HIT, MISS, CONFLICT, CAS

ROW_WINDOW = 4  # rows this near to the stream's are told apart, others are only "another row"
ROW_NONE, ROW_OTHER = 1 << 20, 1 << 21
