"""Hazards on scratchpads: reads before the write they need, overwrites before the last read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProtocolError
from npusim.program.labels import name_of
from npusim.program.ordering import Ordering

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program.arrays import Program

    Ints = NDArray[np.int64]

_READ_RULE = "a read waits for the last write of what it reads"
_WRITE_RULE = "an overwrite waits for the last readers, or without one for the last writer"


@dataclass(frozen=True)
class _Accesses:
    """Accesses of slots, sorted by slot, then command, reads of a command before its writes."""

    slot: Ints
    command: Ints
    is_write: NDArray[np.bool_]
    region: Ints  # index of the program's region


def check_hazards(program: Program) -> None:
    """Refuse unordered accesses to the same bytes of a scratchpad.

    A read needs a DATA edge from the last writer in program order. An overwrite needs an edge from
    each reader since the last write (of one in-order compute engine: from the last), and without
    readers from the last writer. What `Ordering` knows without a direct edge serves as well.

    Raises
    ------
    ProtocolError
        Naming the later command, the region and the earlier command.
    """
    accesses = _scratchpad_accesses(program)
    if not len(accesses.slot):
        return
    order = Ordering(program)
    index = np.arange(len(accesses.slot))
    first = np.concatenate(([True], accesses.slot[1:] != accesses.slot[:-1]))
    group_start = np.maximum.accumulate(np.where(first, index, 0))
    writes = np.where(accesses.is_write, index, -1)
    last_write = np.concatenate(([-1], np.maximum.accumulate(writes)[:-1]))
    last_write[last_write < group_start] = -1
    _check_reads(program, accesses, order, last_write)
    _check_writes(program, accesses, order, last_write)


def _check_reads(program: Program, accesses: _Accesses, order: Ordering, last_write: Ints) -> None:
    reads = np.flatnonzero(~accesses.is_write)
    unwritten = reads[last_write[reads] < 0]
    if len(unwritten):
        raise _hazard(program, accesses, int(unwritten[0]), None, _READ_RULE)
    before = accesses.command[last_write[reads]]
    bad = order.missing(before, accesses.command[reads], needs_data=True)
    if len(bad):
        raise _hazard(program, accesses, int(reads[bad[0]]), int(before[bad[0]]), _READ_RULE)


def _check_writes(program: Program, accesses: _Accesses, order: Ordering, last_write: Ints) -> None:
    index = np.arange(len(accesses.slot))
    next_write = _next_write(accesses, index)
    reads = np.flatnonzero(~accesses.is_write & (next_write >= 0))
    target = next_write[reads]
    others = accesses.command[reads] != accesses.command[target]
    reads, target = reads[others], target[others]
    has_readers = np.zeros(len(index), dtype=np.bool_)
    has_readers[target] = True
    bare = np.flatnonzero(accesses.is_write & (last_write >= 0) & ~has_readers)
    before = np.concatenate((reads, last_write[bare]))
    after = np.concatenate((target, bare))
    bad = order.missing(accesses.command[before], accesses.command[after], needs_data=False)
    bad = bad[~_superseded(program, accesses, order, before[bad], after[bad])]
    if len(bad):
        earlier = int(accesses.command[before[bad[0]]])
        raise _hazard(program, accesses, int(after[bad[0]]), earlier, _WRITE_RULE)


def _next_write(accesses: _Accesses, index: Ints) -> Ints:
    """Position of the next write of the same slot, -1 for none."""
    never = len(index)
    following = np.where(accesses.is_write, index, never)[::-1]
    following = np.minimum.accumulate(following)[::-1]
    result = np.concatenate((following[1:], [never]))
    result[result == never] = -1
    other = accesses.slot[result] != accesses.slot
    result[other] = -1
    return result


def _superseded(
    program: Program, accesses: _Accesses, order: Ordering, before: Ints, after: Ints
) -> NDArray[np.bool_]:
    """Readers after which a later one of the same compute engine reads before the same write."""
    result = np.zeros(len(before), dtype=np.bool_)
    for position, (reader, writer) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        engine = program.engine[accesses.command[reader]]
        if order.is_dma[engine] or accesses.is_write[reader]:
            continue
        later = accesses.command[reader + 1 : writer]
        later = later[later != accesses.command[writer]]
        result[position] = bool((program.engine[later] == engine).any())
    return result


def _hazard(
    program: Program, accesses: _Accesses, access: int, earlier: int | None, rule: str
) -> ProtocolError:
    region = accesses.region[access]
    space = program.spaces[program.region_space[region]].name
    offset, nbytes = int(program.region_offset[region]), int(program.region_bytes[region])
    where = name_of(program, int(accesses.command[access]))
    who = "nothing wrote it" if earlier is None else f"no edge from {name_of(program, earlier)}"
    return ProtocolError(where, rule, f"{space} [{offset}, {offset + nbytes})", who)


def _scratchpad_accesses(program: Program) -> _Accesses:
    is_scratchpad = np.array([s.kind == "scratchpad" for s in program.spaces], dtype=np.bool_)
    region = np.flatnonzero(is_scratchpad[program.region_space])
    command = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))[region]
    owner, slot = _slots(program, region)
    region, command = region[owner], command[owner]
    is_write = program.region_is_write[region]
    order = np.lexsort((is_write, command, slot))
    return _Accesses(slot[order], command[order], is_write[order], region[order])


def _slots(program: Program, region: Ints) -> tuple[Ints, Ints]:
    """Split regions at every boundary of overlapping ones.

    Returns
    -------
    owner, slot : array of int
        Position in `region` and slot number of each piece; equal bytes have equal slots.
    """
    space = program.region_space[region].astype(np.int64)
    begin = program.region_offset[region]
    end = begin + program.region_bytes[region]
    span = np.int64(end.max(initial=0) + 1)
    low, high = space * span + begin, space * span + end
    shapes, shape_of = np.unique(np.stack((low, high), axis=1), axis=0, return_inverse=True)
    cuts = np.unique(shapes)
    first = np.searchsorted(cuts, shapes[:, 0])[shape_of.ravel()]
    size = np.searchsorted(cuts, shapes[:, 1])[shape_of.ravel()] - first
    owner = np.repeat(np.arange(len(region)), size)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
    return owner, first[owner] + within
