"""The memo of hops: nodes found by their content, hops appended to the node they start from."""

from __future__ import annotations

from npusim.memory.dram.decode import decode
from npusim.memory.jit import njit
from npusim.memory.jumps.record import counter
from npusim.memory.jumps.snapshot import row_class
from npusim.memory.jumps.words import (
    COUNTS_WORDS,
    FRESH_WORDS,
    HP_ACCESSES,
    HP_BURSTS,
    HP_BYTES,
    HP_CHANNELS,
    HP_CONFLICTS,
    HP_CYCLES,
    HP_FRESH,
    HP_HITS,
    HP_MISSES,
    HP_NEXT,
    HP_NODE,
    HP_PIECES,
    HP_READS,
    HP_ROWS,
    HP_SERVED,
    HP_UNTIL,
    HP_WORDS,
    M_ARENA,
    M_BUCKETS,
    M_FREE,
    M_HOPS,
    M_IS_KNOWN,
    M_RESETS,
    M_SIZE,
    ND_HASH,
    ND_HOPS,
    ND_NEXT,
    ND_SIZE,
    ND_WORDS,
    NUM_BUCKETS,
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
    R_UNTIL,
    ROW_OTHER,
    ROW_WINDOW,
    ROWS_WORDS,
    SERVED_WORDS,
)
from npusim.memory.layout import (
    BK_ROW,
    BS_CUT,
    CHANNEL_WORDS,
    H_RECORD,
    MM_CHANNELS,
    MM_NUM_CHANNELS,
    NONE,
    PT_BUS,
    ST_AT,
    ST_PORT,
    Words,
)

MAX_HOP_WORDS = 1 << 14


@njit
def reset(m: Words) -> None:
    """Forget everything."""
    m[M_FREE] = M_ARENA
    m[M_RESETS] += 1
    for i in range(NUM_BUCKETS):
        m[M_BUCKETS + i] = NONE


@njit
def make_room(m: Words, words: int) -> bool:
    """Whether `words` and a hop fit; otherwise the memo starts anew."""
    if m[M_FREE] >= M_ARENA and m[M_FREE] + words + 2 * MAX_HOP_WORDS <= m[M_SIZE]:
        return True
    reset(m)
    return False


@njit
def digest(m: Words, at: int, size: int) -> int:
    """Hash of words."""
    h = size
    for i in range(size):
        h = (h ^ m[at + i]) * -7046029254386353131
        h ^= (h >> 29) & 0x7FFFFFFFF
    return h


@njit
def node_of(m: Words, size: int) -> int:
    """The node with the snapshot that lies after a node's head at the end of the arena."""
    at = m[M_FREE]
    h = digest(m, at + ND_WORDS, size)
    bucket = M_BUCKETS + (h & (NUM_BUCKETS - 1))
    node = m[bucket]
    while node != NONE:
        if m[node + ND_HASH] == h and m[node + ND_SIZE] == size:
            i = ND_WORDS
            while i < ND_WORDS + size and m[node + i] == m[at + i]:
                i += 1
            if i == ND_WORDS + size:
                m[M_IS_KNOWN] = 1
                return node
        node = m[node + ND_NEXT]
    m[at + ND_HASH], m[at + ND_NEXT], m[at + ND_HOPS], m[at + ND_SIZE] = h, m[bucket], NONE, size
    m[bucket] = at
    m[M_FREE] = at + ND_WORDS + size
    m[M_IS_KNOWN] = 0
    return at


@njit
def add_hop(s: Words, m: Words, stream: int, node: int, cycle: int) -> None:
    """Store the recorded hop, which ended at `node`."""
    rec = s[H_RECORD]
    mem, start = s[rec + R_MEM], s[rec + R_CYCLE]
    cut = s[s[s[stream + ST_PORT] + PT_BUS] + BS_CUT]
    moved, end_row = s[stream + ST_AT] - s[rec + R_AT], decode(s, mem, s[stream + ST_AT])[2]
    size = HP_WORDS + s[mem + MM_NUM_CHANNELS] * COUNTS_WORDS + s[rec + R_ROWS] * ROWS_WORDS
    size += s[rec + R_FRESH] * FRESH_WORDS + s[rec + R_PIECES] * PIECE_WORDS
    size += s[rec + R_SERVED] * SERVED_WORDS
    if moved <= 0 or abs(end_row - s[rec + R_ROW]) >= ROW_WINDOW or size > MAX_HOP_WORDS:
        return
    hop = m[M_FREE]
    m[hop + HP_NODE], m[hop + HP_CYCLES] = node, cycle - start
    m[hop + HP_UNTIL] = max(s[rec + R_UNTIL], cycle) - start
    m[hop + HP_BYTES] = moved
    m[hop + HP_BURSTS] = s[stream + ST_AT] // cut - s[rec + R_AT] // cut
    at = add_fresh(s, m, hop, hop + HP_WORDS)
    at = add_rows(s, m, hop, at)
    if at == NONE:
        return
    at = add_counts(s, m, hop, at)
    at = add_served(s, m, hop, at, cut)
    m[hop + HP_PIECES] = s[rec + R_PIECES]
    for i in range(s[rec + R_PIECES] * PIECE_WORDS):
        m[at + i] = s[rec + R_PIECE_AT + i]
    m[M_FREE] = at + s[rec + R_PIECES] * PIECE_WORDS
    m[hop + HP_NEXT] = m[s[rec + R_NODE] + ND_HOPS]
    m[s[rec + R_NODE] + ND_HOPS] = hop
    m[M_HOPS] += 1


@njit
def add_fresh(s: Words, m: Words, hop: int, at: int) -> int:
    """Banks at rest that the hop wakes, and the row it found open there."""
    rec = s[H_RECORD]
    m[hop + HP_FRESH] = s[rec + R_FRESH]
    for i in range(s[rec + R_FRESH]):
        source = rec + R_FRESH_AT + 2 * i
        m[at], m[at + 1] = s[source], row_class(s[source + 1], s[rec + R_ROW])
        at += FRESH_WORDS
    return at


@njit
def add_rows(s: Words, m: Words, hop: int, at: int) -> int:
    """Rows open at the end in banks where some were opened or closed."""
    rec = s[H_RECORD]
    m[hop + HP_ROWS] = s[rec + R_ROWS]
    for i in range(s[rec + R_ROWS]):
        bank = s[rec + R_ROWS_AT + i]
        kind = row_class(s[bank + BK_ROW], s[rec + R_ROW])
        if kind == ROW_OTHER:
            return NONE
        m[at], m[at + 1] = bank, kind
        at += ROWS_WORDS
    return at


@njit
def add_counts(s: Words, m: Words, hop: int, at: int) -> int:
    """Counters by channel, and their sums for the transfer."""
    rec = s[H_RECORD]
    mem = s[rec + R_MEM]
    source, n = rec + R_COUNTS_AT, 0
    m[hop + HP_HITS], m[hop + HP_MISSES], m[hop + HP_CONFLICTS] = 0, 0, 0
    for i in range(s[mem + MM_NUM_CHANNELS]):
        ch = s[mem + MM_CHANNELS] + i * CHANNEL_WORDS
        total = 0
        for k in range(NUM_COUNTS):
            m[at + 1 + k] = s[ch + counter(k)] - s[source + k]
            total += m[at + 1 + k]
        source += NUM_COUNTS
        if total:
            m[at] = ch
            m[hop + HP_HITS] += m[at + 4]
            m[hop + HP_MISSES] += m[at + 5]
            m[hop + HP_CONFLICTS] += m[at + 6]
            at += COUNTS_WORDS
            n += 1
    m[hop + HP_CHANNELS] = n
    m[hop + HP_ACCESSES] = m[hop + HP_HITS] + m[hop + HP_MISSES] + m[hop + HP_CONFLICTS]
    return at


@njit
def add_served(s: Words, m: Words, hop: int, at: int, cut: int) -> int:
    """Served DRAM bursts by AXI burst: block from the start, count, first and last cycle."""
    rec = s[H_RECORD]
    start, base, first, n = s[rec + R_CYCLE], s[rec + R_AT] // cut, at, 0
    for i in range(s[rec + R_SERVED]):
        source = rec + R_SERVED_AT + 2 * i
        block, cycle = s[source] // cut - base, s[source + 1] - start
        k = 0
        while k < n and m[first + SERVED_WORDS * k] != block:
            k += 1
        entry = first + SERVED_WORDS * k
        if k == n:
            m[entry], m[entry + 1], m[entry + 2], m[entry + 3] = block, 0, cycle, cycle
            n += 1
        m[entry + 1] += 1
        m[entry + 2] = min(m[entry + 2], cycle)
        m[entry + 3] = max(m[entry + 3], cycle)
    m[hop + HP_SERVED], m[hop + HP_READS] = n, s[rec + R_SERVED]
    return first + SERVED_WORDS * n


@njit
def is_expected(s: Words, m: Words, hop: int, row: int) -> bool:
    """Whether the banks that the hop wakes hold the rows it found."""
    at = hop + HP_WORDS
    for _ in range(m[hop + HP_FRESH]):
        if row_class(s[m[at] + BK_ROW], row) != m[at + 1]:
            return False
        at += FRESH_WORDS
    return True
