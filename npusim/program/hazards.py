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
    Flags = NDArray[np.bool_]

_READ_RULE = "a read waits for the last write of what it reads"
_WRITE_RULE = "an overwrite waits for the last readers, or without one for the last writer"


@dataclass(frozen=True)
class _Accesses:
    """Accesses of one scratchpad, sorted by slot, then command, reads before writes.

    A slot is a range of bytes that is accessed as a whole; a group holds the accesses of a slot
    that are compared with each other as such, before groups are compared byte by byte.
    """

    slot: Ints
    group: Ints
    command: Ints
    is_write: Flags
    region: Ints  # index of the program's region

    def __len__(self) -> int:
        return len(self.slot)

    def take(self, index: Ints | Flags, slot: Ints | None = None) -> _Accesses:
        """Some of them, with new slots if given, sorted again."""
        slots = self.slot[index] if slot is None else slot
        order = np.lexsort((self.is_write[index], self.command[index], slots))
        return _Accesses(
            slots[order],
            self.group[index][order],
            self.command[index][order],
            self.is_write[index][order],
            self.region[index][order],
        )


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
    order = Ordering(program)
    owner = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))
    for index, space in enumerate(program.spaces):
        region = np.flatnonzero(program.region_space == index)
        if space.kind == "scratchpad" and len(region):
            _check_space(program, order, region, owner[region])


def _check_space(program: Program, order: Ordering, region: Ints, command: Ints) -> None:
    """Within each kernel slot by slot; between kernels byte by byte, first and last uses only.

    Most programs use disjoint slots within a kernel and other slots in the next. Splitting every
    access at every boundary of every kernel would multiply them by the number of kernel layouts.
    """
    low = program.region_offset[region]
    high = low + program.region_bytes[region]
    is_write = program.region_is_write[region]
    group = _groups(program.kernel[command].astype(np.int64), low, high)
    whole = _Accesses(group, group, command, is_write, region).take(np.arange(len(region)))
    _check(program, order, whole, within_groups=True)
    border = whole.take(_is_border(whole))
    _check(program, order, _split(program, border), within_groups=False)


def _groups(kernel: Ints, low: Ints, high: Ints) -> Ints:
    """Number accesses by (kernel, range); alone where ranges of a kernel overlap in part."""
    starts, low_code = np.unique(low, return_inverse=True)
    ends, high_code = np.unique(high, return_inverse=True)
    key = (kernel * len(starts) + low_code) * len(ends) + high_code
    group: Ints
    keys, group = np.unique(key, return_inverse=True)
    if bool((np.diff(kernel) < 0).any()):
        return np.arange(len(kernel))  # kernels interleave: compare byte by byte
    kernels, shape = np.divmod(keys, len(starts) * len(ends))
    first, last = starts[shape // len(ends)], ends[shape % len(ends)]
    overlaps = (kernels[1:] == kernels[:-1]) & (first[1:] < last[:-1])
    mixed = np.isin(kernel, kernels[1:][overlaps])
    group[mixed] = len(keys) + np.arange(np.count_nonzero(mixed))
    return group


def _is_border(accesses: _Accesses) -> Flags:
    """Accesses up to the first write of their group, and from its last write on."""
    writes = accesses.is_write.astype(np.int64)
    before = np.cumsum(writes) - writes
    starts = np.flatnonzero(np.concatenate(([True], accesses.slot[1:] != accesses.slot[:-1])))
    sizes = np.diff(np.append(starts, len(accesses)))
    total = np.repeat(np.add.reduceat(writes, starts), sizes)
    before -= np.repeat(before[starts], sizes)
    result: Flags = (before == 0) | (before + writes >= total)
    return result


def _split(program: Program, accesses: _Accesses) -> _Accesses:
    """The same accesses, one per piece between boundaries; equal bytes have equal slots."""
    low = program.region_offset[accesses.region]
    high = low + program.region_bytes[accesses.region]
    cuts = np.unique(np.concatenate((low, high)))
    first = np.searchsorted(cuts, low)
    size = np.searchsorted(cuts, high) - first
    owner = np.repeat(np.arange(len(accesses)), size)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
    return accesses.take(owner, first[owner] + within)


def _check(program: Program, order: Ordering, accesses: _Accesses, *, within_groups: bool) -> None:
    """Check pairs of accesses of the same group, or of different groups."""
    index = np.arange(len(accesses))
    first = np.concatenate(([True], accesses.slot[1:] != accesses.slot[:-1]))
    slot_start = np.maximum.accumulate(np.where(first, index, 0))
    writes = np.where(accesses.is_write, index, -1)
    last_write = np.concatenate(([-1], np.maximum.accumulate(writes)[:-1]))
    last_write[last_write < slot_start] = -1
    before, after = _reads(program, accesses, last_write, within_groups)
    _require(program, order, accesses, before, after, _READ_RULE)
    before, after = _overwrites(program, order, accesses, last_write)
    wanted = (accesses.group[before] == accesses.group[after]) == within_groups
    _require(program, order, accesses, before[wanted], after[wanted], _WRITE_RULE)


def _reads(
    program: Program, accesses: _Accesses, last_write: Ints, within_groups: bool
) -> tuple[Ints, Ints]:
    """Last write and read, for every read."""
    reads = np.flatnonzero(~accesses.is_write)
    before = last_write[reads]
    if not within_groups and bool((before < 0).any()):
        unwritten = int(reads[np.argmax(before < 0)])
        raise _hazard(program, accesses, unwritten, None, _READ_RULE)
    wanted = before >= 0
    wanted &= (accesses.group[before] == accesses.group[reads]) == within_groups
    return before[wanted], reads[wanted]


def _overwrites(
    program: Program, order: Ordering, accesses: _Accesses, last_write: Ints
) -> tuple[Ints, Ints]:
    """What each write replaces: reads since the last write, or that write if there are none."""
    next_write = _next_write(accesses)
    reads = np.flatnonzero(~accesses.is_write & (next_write >= 0))
    target = next_write[reads]
    others = accesses.command[reads] != accesses.command[target]
    reads, target = reads[others], target[others]
    has_readers = np.zeros(len(accesses), dtype=np.bool_)
    has_readers[target] = True
    last = _is_last_of_engine(program, order, accesses.command[reads], target)
    reads, target = reads[last], target[last]
    bare = np.flatnonzero(accesses.is_write & (last_write >= 0) & ~has_readers)
    return np.concatenate((reads, last_write[bare])), np.concatenate((target, bare))


def _next_write(accesses: _Accesses) -> Ints:
    """Position of the next write of the same slot, -1 for none."""
    never = len(accesses)
    following = np.where(accesses.is_write, np.arange(never), never)[::-1]
    following = np.minimum.accumulate(following)[::-1]
    result = np.concatenate((following[1:], [never]))
    result[result == never] = -1
    result[accesses.slot[result] != accesses.slot] = -1
    return result


def _require(
    program: Program, order: Ordering, accesses: _Accesses, before: Ints, after: Ints, rule: str
) -> None:
    """Refuse the first pair that nothing orders."""
    is_read = rule is _READ_RULE
    bad = order.missing(accesses.command[before], accesses.command[after], needs_data=is_read)
    if len(bad):
        pair = bad[np.argmin(accesses.command[after[bad]])]
        earlier = int(accesses.command[before[pair]])
        raise _hazard(program, accesses, int(after[pair]), earlier, rule)


def _is_last_of_engine(program: Program, order: Ordering, reader: Ints, target: Ints) -> Flags:
    """Reads not followed by one of the same compute engine before the same write."""
    engine = program.engine[reader]
    key = target * len(program.engines) + engine
    by_key = np.argsort(key, kind="stable")
    result = np.empty(len(reader), dtype=np.bool_)
    result[by_key] = np.append(key[by_key][1:] != key[by_key][:-1], True)[: len(reader)]
    result |= order.is_dma[engine]
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
