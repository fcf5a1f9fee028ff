"""Clock arithmetic and the tournament of next event times (compiled).

Edge k of a clock with period num/den ps lies at floor(k * num / den), the rule of `engine.Clock`;
data leaves a DRAM at the first picosecond at or after its exact time (ceil). Divisors are known
beforehand, so a division is a multiplication by a stored reciprocal, exact for 0 <= n < 2^62.
"""

from __future__ import annotations

from npusim.memory.jit import inlined, upper_half
from npusim.memory.layout import (
    CLOCK_BY_DEN,
    CLOCK_BY_NUM,
    CLOCK_DEN,
    CLOCK_NUM,
    H_TREE,
    H_TREE_LEAF,
    H_TREE_SIZE,
    Words,
)


def reciprocal(divisor: int) -> tuple[int, int]:
    """(multiplier, shift) with which `divide` divides by `divisor`.

    With 2^(shift - 1) < divisor <= 2^shift and multiplier = floor(2^(63 + shift) / divisor) + 1,
    floor(n / divisor) = floor(n * multiplier / 2^(63 + shift)) for 0 <= n < 2^63 (Granlund and
    Montgomery, PLDI 1994, theorem 4.2). The multiplier has 64 bits; it is kept as a signed word.
    """
    shift = (divisor - 1).bit_length()
    multiplier = (1 << (63 + shift)) // divisor + 1
    return multiplier - (1 << 64 if multiplier >> 63 else 0), shift


@inlined
def divide(n: int, multiplier: int, shift: int) -> int:
    """Floor of `n`, in 0 .. 2^62, over the divisor of a `reciprocal`."""
    return upper_half(n << 1, multiplier) >> shift


@inlined
def edge_ps(s: Words, clock: int, cycle: int) -> int:
    """Time of clock edge `cycle`."""
    exact = cycle * s[clock + CLOCK_NUM]
    return divide(exact, s[clock + CLOCK_BY_DEN], s[clock + CLOCK_BY_DEN + 1])


@inlined
def edge_ceil_ps(s: Words, clock: int, cycle: int) -> int:
    """First whole picosecond at or after the exact time of clock edge `cycle`."""
    exact = cycle * s[clock + CLOCK_NUM] + s[clock + CLOCK_DEN] - 1
    return divide(exact, s[clock + CLOCK_BY_DEN], s[clock + CLOCK_BY_DEN + 1])


@inlined
def next_cycle(s: Words, clock: int, now_ps: int) -> int:
    """First clock edge at or after `now_ps`."""
    exact = now_ps * s[clock + CLOCK_DEN] + s[clock + CLOCK_NUM] - 1
    return divide(exact, s[clock + CLOCK_BY_NUM], s[clock + CLOCK_BY_NUM + 1])


@inlined
def set_time(s: Words, entity: int, time_ps: int) -> None:
    """Change the next event time of `entity`; ties are won by the lower entity number.

    A node of the tree is two words, the earliest time below it and whose that is. On the way up
    only siblings are read, and their places are known, so the loads do not wait for each other.
    """
    tree, i = s[H_TREE], s[H_TREE_SIZE] + entity
    s[tree + 2 * i] = time_ps
    while i > 1:
        sibling = tree + 2 * (i ^ 1)
        at, other = s[sibling], s[sibling + 1]
        is_first = (at < time_ps) | ((at == time_ps) & (other < entity))
        time_ps = at if is_first else time_ps
        entity = other if is_first else entity
        i >>= 1
        s[tree + 2 * i], s[tree + 2 * i + 1] = time_ps, entity


@inlined
def get_time(s: Words, entity: int) -> int:
    """Next event time of `entity`."""
    return s[s[H_TREE_LEAF] + 2 * entity]


@inlined
def first_event(s: Words) -> tuple[int, int]:
    """(entity, time) of the earliest next event."""
    root = s[H_TREE] + 2
    return s[root + 1], s[root]
