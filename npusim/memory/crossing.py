"""Passing from one clock to another through a synchroniser (compiled).

A signal that leaves at t is seen `crossing_cycles` edges after the first edge of the clock entered
at or after t. Clocks of one period are synchronous and cost nothing, and with 0 cycles nothing is
done at all: whoever receives the signal aligns it to its own edge. The FIFO of a crossing is deep
enough that only its latency shows.
"""

from __future__ import annotations

from npusim.memory.clocking import edge_ps, next_cycle
from npusim.memory.jit import inlined
from npusim.memory.layout import (
    BS_CLOCK,
    BS_CROSSING,
    CLOCK_DEN,
    CLOCK_NUM,
    MM_CLOCK,
    PT_BUS,
    PT_CROSSING,
    Words,
)


@inlined
def synchronised_ps(s: Words, clock: int, cycles: int, at_ps: int) -> int:
    """When a clock domain sees a signal that left another one at `at_ps`."""
    if cycles == 0:
        return at_ps
    return edge_ps(s, clock, next_cycle(s, clock, at_ps) + cycles)


@inlined
def are_synchronous(s: Words, a: int, b: int) -> bool:
    """Whether two clocks have the same period."""
    same_num = s[a + CLOCK_NUM] == s[b + CLOCK_NUM]
    return same_num & (s[a + CLOCK_DEN] == s[b + CLOCK_DEN])


@inlined
def port_to_bus_ps(s: Words, port: int, at_ps: int) -> int:
    """When the bus sees what the port did at `at_ps`."""
    return synchronised_ps(s, s[port + PT_BUS] + BS_CLOCK, s[port + PT_CROSSING], at_ps)


@inlined
def bus_to_memory_ps(s: Words, bus: int, mem: int, at_ps: int) -> int:
    """When the memory sees what arrives from the bus at `at_ps`."""
    cycles = s[bus + BS_CROSSING]
    if cycles == 0 or are_synchronous(s, bus + BS_CLOCK, mem + MM_CLOCK):
        return at_ps
    return synchronised_ps(s, mem + MM_CLOCK, cycles, at_ps)


@inlined
def memory_to_bus_ps(s: Words, bus: int, mem: int, at_ps: int) -> int:
    """When the bus sees what arrives from the memory at `at_ps`."""
    cycles = s[bus + BS_CROSSING]
    if cycles == 0 or are_synchronous(s, bus + BS_CLOCK, mem + MM_CLOCK):
        return at_ps
    return synchronised_ps(s, bus + BS_CLOCK, cycles, at_ps)
