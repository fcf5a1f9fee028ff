"""At a checkpoint: follow known hops as far as nothing else can happen, or record a new one.

A hop is taken only if all it needs is there already (AXI bursts that have arrived, rows in the
banks it wakes) and nothing that could disturb it happens before it ends: the horizon, a
completion, a refresh. Other ports must be silent. Then the state after it equals the stepped one.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, next_cycle
from npusim.memory.dram.decode import decode
from npusim.memory.jit import njit
from npusim.memory.jumps import record
from npusim.memory.jumps.hop import head_of, hop_over
from npusim.memory.jumps.memo import add_hop, is_expected, make_room, node_of
from npusim.memory.jumps.restore import restore
from npusim.memory.jumps.snapshot import REJECTED, take
from npusim.memory.jumps.words import (
    HP_BURSTS,
    HP_CYCLES,
    HP_NEXT,
    HP_NODE,
    HP_UNTIL,
    M_CYCLE,
    M_FREE,
    M_HITS,
    M_IS_KNOWN,
    M_MAP,
    M_NODE,
    M_PAUSE,
    M_TAKEN,
    M_TRIES,
    MAP_BEFORE,
    MAP_WORDS,
    ND_HOPS,
    ND_WORDS,
    R_MEM,
    R_STREAM,
)
from npusim.memory.layout import (
    AX_ADDR,
    AX_ARRIVE,
    AX_END,
    AX_LEFT,
    AX_MEM,
    AX_TID,
    AXI_WORDS,
    BS_CUT,
    CH_CLOCK,
    CH_REF_DUE,
    CHANNEL_WORDS,
    H_CLOCK,
    H_FIRST_DONE,
    H_LOG,
    H_LOG_LIMIT,
    H_NUM_PORTS,
    H_PORTS,
    H_RECORD,
    H_RECORDING,
    MM_ARB_END,
    MM_BURST,
    MM_CHANNELS,
    MM_NUM_CHANNELS,
    MM_SNAPSHOT,
    NEVER,
    NONE,
    PORT_WORDS,
    PT_BUS,
    PT_HEAD,
    PT_STREAMS,
    PT_VALID,
    PT_WRITE,
    REFRESH_NONE,
    ST_AT,
    ST_BLOCKED,
    ST_CREDITS,
    ST_FIFO_N,
    ST_LIMIT,
    ST_POOL,
    ST_PORT,
    ST_RELEASE_N,
    ST_WAIT_NEXT,
    ST_WAIT_SINCE,
    ST_WRITE,
    STREAM_WORDS,
    T_REFRESH,
    TR_NEXT,
    TR_WRITE,
    TRANSFER_WORDS,
    Words,
)

MAX_QUEUED = 64  # transfers waiting at a port that are looked at
TRIES, FEWEST, PAUSE = 128, 8, 1024  # fewer than this many hits in so many tries: rest a while


@njit
def checkpoint(
    s: Words, transfers: Words, m: Words, stream: int, now_ps: int, horizon_ps: int
) -> None:
    """A stream passed a boundary: end the recorded hop, jump, record the next one."""
    is_recording = s[H_RECORDING] and s[s[H_RECORD] + R_STREAM] == stream
    s[H_RECORDING] = 0
    if m[M_PAUSE] > 0:
        m[M_PAUSE] -= 1
        return
    if not is_alone(s, transfers, stream, now_ps):
        return
    mem = s[head_of(s, stream, 0) + AX_MEM]
    if not make_room(m, s[mem + MM_SNAPSHOT]):
        is_recording = False
    clock = s[mem + MM_CHANNELS] + CH_CLOCK
    cycle = next_cycle(s, clock, now_ps)
    size = take(s, m, m[M_FREE] + ND_WORDS, mem, stream, cycle)
    if size == REJECTED:
        return
    node = node_of(m, size)
    if is_recording and s[s[H_RECORD] + R_MEM] == mem:
        add_hop(s, m, stream, node, cycle)
    wants_record = follow(s, transfers, m, mem, stream, node, cycle, horizon_ps)
    judge(m)
    if wants_record:
        row = decode(s, mem, s[stream + ST_AT])[2]
        record.start(s, mem, stream, m[M_NODE], m[M_CYCLE], row)


@njit
def judge(m: Words) -> None:
    """Pause when states do not come back."""
    m[M_TRIES] += 1
    m[M_HITS] += m[M_IS_KNOWN]
    if m[M_TRIES] == TRIES:
        if m[M_HITS] < FEWEST:
            m[M_PAUSE] = PAUSE
        m[M_TRIES], m[M_HITS] = 0, 0


@njit
def is_alone(s: Words, transfers: Words, stream: int, now_ps: int) -> bool:
    """Whether this stream of reads waits for a queue slot and no other port does anything."""
    if s[stream + ST_WRITE] or not s[stream + ST_BLOCKED] or s[stream + ST_WAIT_NEXT] != NONE:
        return False
    if s[H_LOG] < s[H_LOG_LIMIT]:
        return False
    mine = s[stream + ST_PORT]
    for i in range(s[H_NUM_PORTS]):
        port = s[H_PORTS] + i * PORT_WORDS
        if s[port + PT_VALID] and (port != mine or s[port + PT_WRITE]):
            return False
        for write in range(2):
            other = s[port + PT_STREAMS] + write * STREAM_WORDS
            if other != stream and (
                s[other + ST_CREDITS] + s[other + ST_RELEASE_N] < s[other + ST_LIMIT]
            ):
                return False
    burst = head_of(s, stream, 0)
    mem = s[burst + AX_MEM]
    cut = s[s[mine + PT_BUS] + BS_CUT]
    if s[mem + MM_ARB_END] > now_ps or s[burst + AX_END] % cut or cut < s[mem + MM_BURST]:
        return False
    return reads_only(s, transfers, mine) and is_one_transfer(s, stream, s[burst + AX_TID])


@njit
def reads_only(s: Words, transfers: Words, port: int) -> bool:
    """Whether the transfers that wait at a port are reads."""
    tid = s[port + PT_HEAD]
    for _ in range(MAX_QUEUED):
        if tid == NONE:
            return True
        if transfers[tid * TRANSFER_WORDS + TR_WRITE]:
            return False
        tid = transfers[tid * TRANSFER_WORDS + TR_NEXT]
    return False


@njit
def is_one_transfer(s: Words, stream: int, tid: int) -> bool:
    """Whether what the stream has in memory belongs to `tid`: no transfer can complete yet."""
    for i in range(s[stream + ST_LIMIT]):
        burst = s[stream + ST_POOL] + i * AXI_WORDS
        if s[burst + AX_TID] != NONE and s[burst + AX_LEFT] != NONE and s[burst + AX_TID] != tid:
            return False
    return True


@njit
def map_bursts(s: Words, m: Words, stream: int, block: int, cut: int) -> bool:
    """List the bursts that are in memory by their block; False when two share one."""
    for i in range(MAP_WORDS):
        m[M_MAP + i] = NONE
    for i in range(s[stream + ST_LIMIT]):
        burst = s[stream + ST_POOL] + i * AXI_WORDS
        if s[burst + AX_TID] == NONE or s[burst + AX_LEFT] <= 0:
            continue
        at = s[burst + AX_ADDR] // cut - block + MAP_BEFORE
        if not 0 <= at < MAP_WORDS or m[M_MAP + at] != NONE:
            return False
        m[M_MAP + at] = burst
    return True


@njit
def refresh_due(s: Words, mem: int) -> int:
    """Cycle of the memory's next refresh."""
    due = NEVER
    if s[mem + T_REFRESH] != REFRESH_NONE:
        for i in range(s[mem + MM_NUM_CHANNELS]):
            due = min(due, s[s[mem + MM_CHANNELS] + i * CHANNEL_WORDS + CH_REF_DUE])
    return due


@njit
def follow(
    s: Words, transfers: Words, m: Words, mem: int, stream: int, node: int, cycle: int,
    horizon_ps: int,
) -> bool:  # fmt: skip
    """Take hops from `node` on; returns whether it ended because no hop is known."""
    cut = s[s[s[stream + ST_PORT] + PT_BUS] + BS_CUT]
    block = s[stream + ST_AT] // cut
    m[M_NODE], m[M_CYCLE] = node, cycle
    if m[node + ND_HOPS] == NONE or not map_bursts(s, m, stream, block, cut):
        return m[node + ND_HOPS] == NONE
    due, limit_ps = refresh_due(s, mem), min(horizon_ps, s[H_FIRST_DONE])
    clock = s[mem + MM_CHANNELS] + CH_CLOCK
    is_unknown, begun = False, 0
    while True:
        _, _, row = decode(s, mem, s[stream + ST_AT])
        hop = m[node + ND_HOPS]
        while hop != NONE and not is_expected(s, m, hop, row):
            hop = m[hop + HP_NEXT]
        if hop == NONE:
            is_unknown = True
            break
        end_ps = edge_ps(s, clock, cycle + m[hop + HP_CYCLES])
        begun += m[hop + HP_BURSTS]
        if (
            cycle + m[hop + HP_UNTIL] + 1 >= due
            or end_ps >= limit_ps
            or begun + MAP_BEFORE >= MAP_WORDS
            or not have_arrived(s, stream, m[hop + HP_BURSTS], edge_ps(s, clock, cycle), cut)
        ):
            break
        hop_over(s, transfers, m, mem, stream, hop, cycle, row, block, cut)
        node, cycle = m[hop + HP_NODE], cycle + m[hop + HP_CYCLES]
        m[M_TAKEN] += 1
    if node != m[M_NODE] or cycle != m[M_CYCLE]:
        tid = s[head_of(s, stream, 0) + AX_TID]
        s[stream + ST_WAIT_SINCE] = s[head_of(s, stream, 0) + AX_ARRIVE]
        restore(s, m, node + ND_WORDS, mem, stream, cycle, tid, block)
        s[H_CLOCK] = edge_ps(s, clock, cycle)
    m[M_NODE], m[M_CYCLE] = node, cycle
    return is_unknown


@njit
def have_arrived(s: Words, stream: int, count: int, now_ps: int, cut: int) -> bool:
    """Whether the next `count` bursts after the one entering are there, full and in line."""
    if s[stream + ST_FIFO_N] <= count:
        return False
    before = head_of(s, stream, 0)
    for i in range(1, count + 1):
        burst = head_of(s, stream, i)
        if (
            s[burst + AX_ARRIVE] > now_ps
            or s[burst + AX_ADDR] != s[before + AX_END]
            or s[burst + AX_END] - s[burst + AX_ADDR] != cut
            or s[burst + AX_TID] != s[before + AX_TID]
            or s[burst + AX_MEM] != s[before + AX_MEM]
        ):
            return False
        before = burst
    return True
