"""Bus masters and buses: grants, data channels, credits, completion (compiled).

One address grant per bus cycle and direction; a burst needs a credit of its port and direction.
Write data follow their grant on the write data channel; read data flow back as they arrive, one
beat per bus cycle, served in the order in which bursts complete (time, port, burst number). A
port moves at most `bytes_per_cycle` per cycle of its own clock: it supplies write data before the
grant (one burst ahead) and holds a read burst's credit until it has swallowed the burst.
Left out: response-channel contention. Source: Arm IHI 0022, AXI4.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, get_time, next_cycle, set_time
from npusim.memory.crossing import bus_to_memory_ps, port_to_bus_ps
from npusim.memory.identifiers import return_credit, take_id
from npusim.memory.jit import inlined, njit
from npusim.memory.layout import (
    ARBITER_FIXED,
    ARBITER_QOS,
    AX_ADDR,
    AX_AFTER,
    AX_ARRIVE,
    AX_BEATS,
    AX_END,
    AX_FIRST,
    AX_ID,
    AX_LAST,
    AX_LEFT,
    AX_MEM,
    AX_NEXT,
    AX_PORT,
    AX_SEQ,
    AX_STREAM,
    AX_TID,
    BS_ADDR_FREE,
    BS_ARBITER,
    BS_CLOCK,
    BS_DATA,
    BS_DATA_FREE,
    BS_HEAP,
    BS_HEAP_N,
    BS_ID,
    BS_LAST,
    BS_NUM_PORTS,
    BS_PORTS,
    BS_REQUEST_PS,
    CR_CREDITS,
    CR_LIMIT,
    CR_RELEASE_HEAD,
    CR_RELEASE_N,
    CR_RELEASES,
    H_FIRST_DONE,
    H_NUM_BUSES,
    H_OUT,
    H_UNFINISHED,
    ID_CREDITS,
    ID_HEAD,
    ID_LAST,
    ID_LIMIT,
    MM_ARB_END,
    MM_ARB_PS,
    NEVER,
    NONE,
    PT_ADDR,
    PT_BUS,
    PT_BYTES,
    PT_CLOCK,
    PT_CROSSING,
    PT_GRANT,
    PT_GRANT_BEFORE,
    PT_MEM,
    PT_QOS,
    PT_RATE,
    PT_READ_FREE,
    PT_READY,
    PT_SEQ,
    PT_STREAMS,
    PT_TID,
    PT_VALID,
    PT_WRITE,
    READ,
    ST_CREDITS,
    ST_ENTITY,
    ST_FIFO,
    ST_FIFO_HEAD,
    ST_FIFO_N,
    ST_FREE_BURST,
    ST_LAST_RELEASE,
    ST_LIMIT,
    ST_NEXT_ID,
    ST_NUM_IDS,
    ST_PORT,
    ST_WRITE,
    STREAM_WORDS,
    TR_ALL_CUT,
    TR_DONE,
    TR_LEFT,
    TR_MULTICAST,
    TR_RETURNED,
    TRANSFER_WORDS,
    WRITE,
    Words,
)
from npusim.memory.multicast import received_ps
from npusim.memory.transfer import cut_burst


@inlined
def credit_ps(s: Words, at: int, now_ps: int) -> int:
    """When a stream or ID (words from `at`) has a credit: 0 if now, NEVER if none is on its way."""
    ring, limit = s[at + CR_RELEASES], s[at + CR_LIMIT]
    while s[at + CR_RELEASE_N] > 0 and s[ring + s[at + CR_RELEASE_HEAD]] <= now_ps:
        head = s[at + CR_RELEASE_HEAD] + 1
        s[at + CR_RELEASE_HEAD] = 0 if head == limit else head
        s[at + CR_RELEASE_N] -= 1
        s[at + CR_CREDITS] += 1
    if s[at + CR_CREDITS] > 0:
        return 0
    if s[at + CR_RELEASE_N] > 0:
        return s[ring + s[at + CR_RELEASE_HEAD]]
    return NEVER


@inlined
def eligible_ps(s: Words, port: int, write: int, now_ps: int) -> int:
    """When the port's next burst may be granted in this direction."""
    if s[port + PT_VALID] == 0 or s[port + PT_WRITE] != write:
        return NEVER
    stream = s[port + PT_STREAMS] + write * STREAM_WORDS
    at = max(s[port + PT_READY], credit_ps(s, stream + ST_CREDITS, now_ps))
    if s[stream + ST_NUM_IDS] and s[s[stream + ST_NEXT_ID] + ID_LIMIT]:
        return max(at, credit_ps(s, s[stream + ST_NEXT_ID] + ID_CREDITS, now_ps))
    return at


@njit
def schedule_grant(s: Words, bus: int, write: int, now_ps: int) -> None:
    """Set the time of the next address grant of a bus direction."""
    earliest = NEVER
    for i in range(s[bus + BS_NUM_PORTS]):
        at = eligible_ps(s, s[s[bus + BS_PORTS] + i], write, now_ps)
        if at < earliest:
            earliest = at
    if earliest < NEVER:
        clock = bus + BS_CLOCK
        cycle = max(next_cycle(s, clock, max(earliest, now_ps)), s[bus + BS_ADDR_FREE + write])
        earliest = edge_ps(s, clock, cycle)
    set_time(s, s[H_NUM_BUSES] * (1 + write) + s[bus + BS_ID], earliest)


@njit
def offer(s: Words, port: int, now_ps: int) -> None:
    """The port's next burst or one of its credits changed: bring its grant time up to date."""
    if s[port + PT_VALID] == 0:
        return
    bus, write = s[port + PT_BUS], s[port + PT_WRITE]
    at = eligible_ps(s, port, write, now_ps)
    if at >= NEVER:
        return
    clock = bus + BS_CLOCK
    cycle = max(next_cycle(s, clock, max(at, now_ps)), s[bus + BS_ADDR_FREE + write])
    at = edge_ps(s, clock, cycle)
    entity = s[H_NUM_BUSES] * (1 + write) + s[bus + BS_ID]
    if at < get_time(s, entity):
        set_time(s, entity, at)


@njit
def choose_port(s: Words, bus: int, write: int, now_ps: int) -> int:
    """Arbitrate; charges the cycle to the memories that losers wait for. NONE if nobody asks."""
    n, bus_ports = s[bus + BS_NUM_PORTS], s[bus + BS_PORTS]
    arbiter = s[bus + BS_ARBITER]
    first = 0 if arbiter == ARBITER_FIXED else s[bus + BS_LAST + write] + 1
    chosen = NONE
    clock = bus + BS_CLOCK
    until = edge_ps(s, clock, next_cycle(s, clock, now_ps) + 1)
    for i in range(n):
        at = first + i
        if at >= n:
            at -= n
        port = s[bus_ports + at]
        if eligible_ps(s, port, write, now_ps) > now_ps:
            continue
        loser = port
        if chosen == NONE or (arbiter == ARBITER_QOS and s[port + PT_QOS] > s[chosen + PT_QOS]):
            loser, chosen = chosen, port
            s[bus + BS_LAST + write] = at
        if loser != NONE:
            charge_loser(s, loser, now_ps, until)
    return chosen


@njit
def charge_loser(s: Words, port: int, now_ps: int, until_ps: int) -> None:
    """A port that asked is not granted in this cycle: its memory waits for arbitration."""
    mem = s[port + PT_MEM]
    since = max(now_ps, s[mem + MM_ARB_END])
    if until_ps > since:
        s[mem + MM_ARB_PS] += until_ps - since
        s[mem + MM_ARB_END] = until_ps


@njit
def grant(s: Words, transfers: Words, runs: Words, bus: int, write: int, now_ps: int) -> None:
    """Grant the address channel of one direction at a bus edge."""
    port = choose_port(s, bus, write, now_ps)
    if port == NONE:
        schedule_grant(s, bus, write, now_ps)
        return
    clock = bus + BS_CLOCK
    cycle = next_cycle(s, clock, now_ps)
    s[bus + BS_ADDR_FREE + write] = cycle + 1
    stream = s[port + PT_STREAMS] + write * STREAM_WORDS
    s[stream + ST_CREDITS] -= 1
    burst = s[stream + ST_FREE_BURST]
    s[stream + ST_FREE_BURST] = s[burst + AX_NEXT]
    addr, size, data = s[port + PT_ADDR], s[port + PT_BYTES], s[bus + BS_DATA]
    beats = (addr % data + size + data - 1) // data
    s[burst + AX_ADDR], s[burst + AX_END], s[burst + AX_BEATS] = addr, addr + size, beats
    s[burst + AX_MEM], s[burst + AX_TID] = s[port + PT_MEM], s[port + PT_TID]
    s[burst + AX_SEQ], s[burst + AX_LEFT] = s[port + PT_SEQ], NONE
    s[burst + AX_FIRST], s[burst + AX_LAST] = NEVER, 0
    s[port + PT_SEQ] += 1
    if s[stream + ST_NUM_IDS]:
        take_id(s, stream, burst)
    leaves = now_ps
    if write:
        end = max(s[bus + BS_DATA_FREE + WRITE], cycle) + beats
        s[bus + BS_DATA_FREE + WRITE] = end
        leaves = edge_ps(s, clock, end)
        s[port + PT_GRANT_BEFORE], s[port + PT_GRANT] = s[port + PT_GRANT], now_ps
    arrives = bus_to_memory_ps(s, bus, s[burst + AX_MEM], leaves + s[bus + BS_REQUEST_PS])
    send(s, stream, burst, arrives)
    cut_burst(s, transfers, runs, port, now_ps)
    schedule_grant(s, bus, write, now_ps)
    if s[port + PT_VALID] and s[port + PT_WRITE] != write:
        offer(s, port, now_ps)


@inlined
def send(s: Words, stream: int, burst: int, arrive_ps: int) -> None:
    """Put a granted burst on its way; a stream's bursts reach the memory side in order."""
    s[burst + AX_ARRIVE] = arrive_ps
    n = s[stream + ST_FIFO_N]
    at = s[stream + ST_FIFO_HEAD] + n
    limit = s[stream + ST_LIMIT]
    s[s[stream + ST_FIFO] + (at - limit if at >= limit else at)] = burst
    s[stream + ST_FIFO_N] = n + 1
    if n == 0:
        set_time(s, s[stream + ST_ENTITY], arrive_ps)


@njit
def release(
    s: Words, transfers: Words, out: Words, stream: int, burst: int, done_ps: int, now_ps: int
) -> None:
    """The burst is over for its port at `done_ps`: give back its credit, maybe end the transfer."""
    done_ps = max(done_ps, s[stream + ST_LAST_RELEASE])
    s[stream + ST_LAST_RELEASE] = done_ps
    s[burst + AX_NEXT] = s[stream + ST_FREE_BURST]
    s[stream + ST_FREE_BURST] = burst
    tid = s[burst + AX_TID]
    s[burst + AX_TID] = NONE
    port = s[stream + ST_PORT]
    back_ps = port_to_bus_ps(s, port, done_ps)
    return_credit(s, stream + ST_CREDITS, back_ps)
    if s[burst + AX_ID] != NONE and s[s[burst + AX_ID] + ID_LIMIT]:
        return_credit(s, s[burst + AX_ID] + ID_CREDITS, back_ps)
    transfers[tid * TRANSFER_WORDS + TR_RETURNED] += s[burst + AX_END] - s[burst + AX_ADDR]
    transfers[tid * TRANSFER_WORDS + TR_LEFT] -= 1
    if (
        transfers[tid * TRANSFER_WORDS + TR_LEFT] == 0
        and transfers[tid * TRANSFER_WORDS + TR_ALL_CUT]
    ):
        transfers[tid * TRANSFER_WORDS + TR_DONE] = done_ps
        n = s[H_OUT]
        out[2 * n], out[2 * n + 1] = done_ps, tid
        s[H_OUT] = n + 1
        s[H_UNFINISHED] -= 1
        s[H_FIRST_DONE] = min(s[H_FIRST_DONE], done_ps)
    if s[port + PT_WRITE] == s[stream + ST_WRITE]:
        offer(s, port, now_ps)


@inlined
def comes_before(s: Words, a: int, b: int) -> bool:
    """Order of completed bursts on the way back: time, port, burst number."""
    if s[a + AX_LAST] != s[b + AX_LAST]:
        return s[a + AX_LAST] < s[b + AX_LAST]
    if s[a + AX_PORT] != s[b + AX_PORT]:
        return s[a + AX_PORT] < s[b + AX_PORT]
    if s[a + AX_STREAM] != s[b + AX_STREAM]:
        return s[a + AX_STREAM] < s[b + AX_STREAM]
    return s[a + AX_SEQ] < s[b + AX_SEQ]


@njit
def complete(s: Words, burst: int) -> None:
    """All parts of a burst are known: it goes back, and those of its ID that waited for it."""
    number = s[burst + AX_ID]
    if number == NONE:
        push_return(s, burst)
        return
    while s[number + ID_HEAD] != NONE and s[s[number + ID_HEAD] + AX_LEFT] == 0:
        burst = s[number + ID_HEAD]
        s[number + ID_HEAD] = s[burst + AX_AFTER]
        s[burst + AX_LAST] = max(s[burst + AX_LAST], s[number + ID_LAST])
        s[number + ID_LAST] = s[burst + AX_LAST]
        push_return(s, burst)


@njit
def push_return(s: Words, burst: int) -> None:
    """The burst reaches the bus at AX_LAST."""
    bus = s[s[burst + AX_PORT] + PT_BUS]
    heap, at = s[bus + BS_HEAP], s[bus + BS_HEAP_N]
    s[bus + BS_HEAP_N] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if not comes_before(s, burst, s[heap + parent]):
            break
        s[heap + at] = s[heap + parent]
        at = parent
    s[heap + at] = burst
    set_time(s, s[bus + BS_ID], s[s[heap] + AX_LAST])


@inlined
def pop_return(s: Words, bus: int) -> int:
    """Take the first completed burst off the heap."""
    heap, n = s[bus + BS_HEAP], s[bus + BS_HEAP_N] - 1
    s[bus + BS_HEAP_N] = n
    first, last = s[heap], s[heap + n]
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and comes_before(s, s[heap + child + 1], s[heap + child]):
            child += 1
        if not comes_before(s, s[heap + child], last):
            break
        s[heap + at] = s[heap + child]
        at = child
    s[heap + at] = last
    set_time(s, s[bus + BS_ID], s[s[heap] + AX_LAST] if n > 0 else NEVER)
    return first


@njit
def deliver(s: Words, transfers: Words, out: Words, bus: int, now_ps: int) -> None:
    """Bring one completed burst back to its port: data beats of a read, response of a write."""
    burst = pop_return(s, bus)
    stream, port = s[burst + AX_STREAM], s[burst + AX_PORT]
    port_clock, crossing = port + PT_CLOCK, s[port + PT_CROSSING]
    if s[stream + ST_WRITE]:
        done = edge_ps(s, port_clock, next_cycle(s, port_clock, now_ps) + crossing)
        release(s, transfers, out, stream, burst, done, now_ps)
        return
    clock = bus + BS_CLOCK
    first = next_cycle(s, clock, s[burst + AX_FIRST])
    last = next_cycle(s, clock, now_ps)
    beats = s[burst + AX_BEATS]
    end = max(max(s[bus + BS_DATA_FREE + READ], first) + beats, last + 1)
    s[bus + BS_DATA_FREE + READ] = end
    rate = s[port + PT_RATE]
    size = s[burst + AX_END] - s[burst + AX_ADDR]
    begin = next_cycle(s, port_clock, edge_ps(s, clock, end - beats)) + crossing
    finish = max(s[port + PT_READ_FREE], begin) + (size + rate - 1) // rate
    finish = max(finish, next_cycle(s, port_clock, edge_ps(s, clock, end)) + crossing)
    s[port + PT_READ_FREE] = finish
    done = edge_ps(s, port_clock, finish)
    tid = s[burst + AX_TID]
    if transfers[tid * TRANSFER_WORDS + TR_MULTICAST]:
        begin_ps, end_ps = edge_ps(s, clock, end - beats), edge_ps(s, clock, end)
        done = max(done, received_ps(s, transfers, tid, size, begin_ps, end_ps))
    release(s, transfers, out, stream, burst, done, now_ps)
