"""Delivery of one read to several ports (compiled).

The memory and the read data channel of the bus serve a multicast once; every beat is seen by all
receivers, and each takes the burst at its own `bytes_per_cycle`. The burst is over when the slowest
has it, so the leader's credits throttle the multicast to the slowest receiver. Left out: receivers
on other buses than the leader's, back-pressure finer than a burst.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, next_cycle
from npusim.memory.jit import njit
from npusim.memory.layout import (
    H_PORTS,
    PORT_WORDS,
    PT_CLOCK,
    PT_CROSSING,
    PT_RATE,
    PT_READ_FREE,
    RECEIVER_BITS,
    RECEIVER_WORDS,
    TR_RECEIVERS,
    TRANSFER_WORDS,
    Words,
)


@njit
def received_ps(
    s: Words, transfers: Words, tid: int, size: int, first_ps: int, last_ps: int
) -> int:
    """When the last receiver has a burst whose beats flow from `first_ps` to `last_ps`; 0: none."""
    latest = 0
    for word in range(RECEIVER_WORDS):
        mask = transfers[tid * TRANSFER_WORDS + TR_RECEIVERS + word]
        number = word * RECEIVER_BITS
        while mask > 0:
            if mask & 1:
                port = s[H_PORTS] + number * PORT_WORDS
                clock, rate = port + PT_CLOCK, s[port + PT_RATE]
                crossing = s[port + PT_CROSSING]
                begin = next_cycle(s, clock, first_ps) + crossing
                finish = max(s[port + PT_READ_FREE], begin) + (size + rate - 1) // rate
                finish = max(finish, next_cycle(s, clock, last_ps) + crossing)
                s[port + PT_READ_FREE] = finish
                latest = max(latest, edge_ps(s, clock, finish))
            mask >>= 1
            number += 1
    return latest
