"""Cutting a port's transfers into AXI INCR bursts, on the fly (compiled).

A burst ends at a multiple of the bus's cut, a power of two that is at most the burst limit and at
most 4 KiB, so none crosses 4 KiB and long rows settle on aligned full bursts.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, next_cycle
from npusim.memory.crossing import port_to_bus_ps
from npusim.memory.jit import inlined, njit
from npusim.memory.layout import (
    BS_CUT,
    H_RUN_FREE,
    NONE,
    PT_ADDR,
    PT_BUS,
    PT_BYTES,
    PT_CLOCK,
    PT_GRANT_BEFORE,
    PT_HEAD,
    PT_MEM,
    PT_NODE,
    PT_OFFSET,
    PT_RATE,
    PT_READY,
    PT_ROW,
    PT_SUPPLY_FREE,
    PT_TAIL,
    PT_TID,
    PT_VALID,
    PT_WRITE,
    RN_BASE,
    RN_BYTES,
    RN_COUNT,
    RN_NEXT,
    RN_STRIDE,
    RUN_WORDS,
    TR_ALL_CUT,
    TR_LEFT,
    TR_MEM,
    TR_NEXT,
    TR_NODE,
    TR_SUBMIT,
    TR_WRITE,
    TRANSFER_WORDS,
    Words,
)


@njit
def cut_burst(s: Words, transfers: Words, runs: Words, port: int, now_ps: int) -> None:
    """Cut the next AXI burst of the port's transfers; none crosses 4 KiB or the burst limit."""
    tid = s[port + PT_HEAD]
    if tid == NONE:
        s[port + PT_VALID] = 0
        return
    node, offset = s[port + PT_NODE], s[port + PT_OFFSET]
    addr = (
        runs[node * RUN_WORDS + RN_BASE]
        + s[port + PT_ROW] * runs[node * RUN_WORDS + RN_STRIDE]
        + offset
    )
    cut = s[s[port + PT_BUS] + BS_CUT]
    size = min(runs[node * RUN_WORDS + RN_BYTES] - offset, cut - (addr & (cut - 1)))
    write = transfers[tid * TRANSFER_WORDS + TR_WRITE]
    s[port + PT_VALID], s[port + PT_ADDR], s[port + PT_BYTES] = 1, addr, size
    s[port + PT_WRITE], s[port + PT_MEM], s[port + PT_TID] = (
        write,
        transfers[tid * TRANSFER_WORDS + TR_MEM],
        tid,
    )
    transfers[tid * TRANSFER_WORDS + TR_LEFT] += 1
    ready = transfers[tid * TRANSFER_WORDS + TR_SUBMIT]
    if write:
        ready = supply_ps(s, port, size, max(ready, s[port + PT_GRANT_BEFORE]))
    s[port + PT_READY] = max(port_to_bus_ps(s, port, ready), now_ps)
    s[port + PT_OFFSET] = offset + size
    if offset + size == runs[node * RUN_WORDS + RN_BYTES]:
        next_row(s, transfers, runs, port, node, tid)


@njit
def next_row(s: Words, transfers: Words, runs: Words, port: int, node: int, tid: int) -> None:
    """Move on to the next row, run or transfer of the port."""
    s[port + PT_OFFSET] = 0
    s[port + PT_ROW] += 1
    if s[port + PT_ROW] < runs[node * RUN_WORDS + RN_COUNT]:
        return
    s[port + PT_ROW] = 0
    following = runs[node * RUN_WORDS + RN_NEXT]
    runs[node * RUN_WORDS + RN_NEXT] = s[H_RUN_FREE]
    s[H_RUN_FREE] = node
    if following == NONE:
        transfers[tid * TRANSFER_WORDS + TR_ALL_CUT] = 1
        head = transfers[tid * TRANSFER_WORDS + TR_NEXT]
        s[port + PT_HEAD] = head
        if head == NONE:
            s[port + PT_TAIL] = NONE
        else:
            following = transfers[head * TRANSFER_WORDS + TR_NODE]
    s[port + PT_NODE] = following


@inlined
def supply_ps(s: Words, port: int, size: int, from_ps: int) -> int:
    """When the engine has read `size` bytes of write data from its side."""
    clock = port + PT_CLOCK
    start = max(s[port + PT_SUPPLY_FREE], next_cycle(s, clock, from_ps))
    rate = s[port + PT_RATE]
    end = start + (size + rate - 1) // rate
    s[port + PT_SUPPLY_FREE] = end
    return edge_ps(s, clock, end)
