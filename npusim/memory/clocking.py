"""Clock arithmetic and the tournament of next event times (compiled).

Edge k of a clock with period num/den ps lies at floor(k * num / den), the rule of `engine.Clock`;
data leaves a DRAM at the first picosecond at or after its exact time (ceil).
"""

from __future__ import annotations

from npusim.memory.jit import njit
from npusim.memory.layout import (
    H_TREE_NODE,
    H_TREE_SIZE,
    H_TREE_TIME,
    Words,
)


@njit
def edge_ps(num: int, den: int, cycle: int) -> int:
    """Time of clock edge `cycle`."""
    if den == 1:
        return cycle * num
    return (cycle * num) // den


@njit
def edge_ceil_ps(num: int, den: int, cycle: int) -> int:
    """First whole picosecond at or after the exact time of clock edge `cycle`."""
    if den == 1:
        return cycle * num
    return (cycle * num + den - 1) // den


@njit
def next_cycle(num: int, den: int, now_ps: int) -> int:
    """First clock edge at or after `now_ps`."""
    return (now_ps * den + num - 1) // num


@njit
def set_time(s: Words, entity: int, time_ps: int) -> None:
    """Change the next event time of `entity`; ties are won by the lower entity number."""
    times = s[H_TREE_TIME]
    nodes = s[H_TREE_NODE]
    s[times + entity] = time_ps
    i = (s[H_TREE_SIZE] + entity) >> 1
    while i >= 1:
        left = s[nodes + 2 * i]
        right = s[nodes + 2 * i + 1]
        winner = left if s[times + left] <= s[times + right] else right
        if s[nodes + i] == winner and winner != entity:
            return
        s[nodes + i] = winner
        i >>= 1


@njit
def get_time(s: Words, entity: int) -> int:
    """Next event time of `entity`."""
    return s[s[H_TREE_TIME] + entity]


@njit
def first_entity(s: Words) -> int:
    """Entity with the earliest next event."""
    return s[s[H_TREE_NODE] + 1]
