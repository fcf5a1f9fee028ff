"""AXI IDs of a stream: bursts of one ID come back in the order of their grants (compiled).

A port takes its IDs in turn, burst by burst and per direction. A burst that is complete at the
memory waits there until the older bursts of its ID are on their way back; bursts of other IDs pass
it. An ID may have a limit of bursts in flight of its own.
"""

from __future__ import annotations

from npusim.memory.jit import inlined, njit
from npusim.memory.layout import (
    AX_AFTER,
    AX_ID,
    CR_LIMIT,
    CR_RELEASE_HEAD,
    CR_RELEASE_N,
    CR_RELEASES,
    ID_CREDITS,
    ID_HEAD,
    ID_LIMIT,
    ID_TAIL,
    ID_WORDS,
    NONE,
    ST_IDS,
    ST_NEXT_ID,
    ST_NUM_IDS,
    Words,
)


@njit
def take_id(s: Words, stream: int, burst: int) -> None:
    """Give a granted burst the next ID of its stream."""
    number = s[stream + ST_NEXT_ID]
    following = number + ID_WORDS
    end = s[stream + ST_IDS] + s[stream + ST_NUM_IDS] * ID_WORDS
    s[stream + ST_NEXT_ID] = s[stream + ST_IDS] if following == end else following
    s[burst + AX_ID], s[burst + AX_AFTER] = number, NONE
    if s[number + ID_HEAD] == NONE:
        s[number + ID_HEAD] = burst
    else:
        s[s[number + ID_TAIL] + AX_AFTER] = burst
    s[number + ID_TAIL] = burst
    if s[number + ID_LIMIT]:
        s[number + ID_CREDITS] -= 1


@inlined
def return_credit(s: Words, at: int, back_ps: int) -> None:
    """A credit of a stream or an ID (words from `at`) is back at `back_ps`, not before others."""
    end, limit = s[at + CR_RELEASE_HEAD] + s[at + CR_RELEASE_N], s[at + CR_LIMIT]
    s[s[at + CR_RELEASES] + (end - limit if end >= limit else end)] = back_ps
    s[at + CR_RELEASE_N] += 1
