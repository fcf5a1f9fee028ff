"""Which accesses of a scratchpad depend on each other, by program order and bytes alone.

Edges play no part here: the static check asks whether something orders each pair, the check of a
finished run whether the times did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.program.tables import EngineKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from npusim.program.arrays import Program

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class DependentPairs:
    """Accesses `after` that must not begin before the accesses `before` have ended.

    Arrays of shape (pairs,). `region` is the later command's region, by index in the program;
    `before` is -1 for reads of bytes that nothing wrote.
    """

    before: Ints
    after: Ints
    region: Ints
    is_read: bool  # reads after their last write, else overwrites after what they replace


def dependent_pairs(program: Program) -> Iterator[DependentPairs]:
    """Pairs of all scratchpads: reads and their last write, writes and what they replace.

    A write replaces the reads since the last write of its bytes (of one in-order compute engine:
    the last of them), or without any that write. A write after reads need not be compared with the
    write before them: the reads are.
    """
    owner = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))
    for index, space in enumerate(program.spaces):
        region = np.flatnonzero(program.region_space == index)
        if space.kind == "scratchpad" and len(region):
            yield from _pairs_of_space(program, region, owner[region])


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


def _pairs_of_space(program: Program, region: Ints, command: Ints) -> Iterator[DependentPairs]:
    """Within each kernel slot by slot; between kernels byte by byte, first and last uses only.

    Most programs use disjoint slots within a kernel and other slots in the next. Splitting every
    access at every boundary of every kernel would multiply them by the number of kernel layouts.
    """
    low = program.region_offset[region]
    high = low + program.region_bytes[region]
    is_write = program.region_is_write[region]
    group = _groups(program.kernel[command].astype(np.int64), low, high)
    whole = _Accesses(group, group, command, is_write, region).take(np.arange(len(region)))
    yield from _pairs(program, whole, within_groups=True)
    border = whole.take(_is_border(whole))
    yield from _pairs(program, _split(program, border), within_groups=False)


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


def _pairs(
    program: Program, accesses: _Accesses, *, within_groups: bool
) -> Iterator[DependentPairs]:
    """Pairs of accesses of the same group, or of different groups."""
    index = np.arange(len(accesses))
    first = np.concatenate(([True], accesses.slot[1:] != accesses.slot[:-1]))
    slot_start = np.maximum.accumulate(np.where(first, index, 0))
    writes = np.where(accesses.is_write, index, -1)
    last_write = np.concatenate(([-1], np.maximum.accumulate(writes)[:-1]))
    last_write[last_write < slot_start] = -1
    before, after = _reads(accesses, last_write, within_groups)
    yield _as_commands(accesses, before, after, is_read=True)
    before, after = _overwrites(program, accesses, last_write)
    wanted = (accesses.group[before] == accesses.group[after]) == within_groups
    yield _as_commands(accesses, before[wanted], after[wanted], is_read=False)


def _as_commands(
    accesses: _Accesses, before: Ints, after: Ints, *, is_read: bool
) -> DependentPairs:
    earlier = np.where(before >= 0, accesses.command[before], -1)
    return DependentPairs(earlier, accesses.command[after], accesses.region[after], is_read)


def _reads(accesses: _Accesses, last_write: Ints, within_groups: bool) -> tuple[Ints, Ints]:
    """Last write and read, for every read; between groups -1 for reads of unwritten bytes."""
    reads = np.flatnonzero(~accesses.is_write)
    before = last_write[reads]
    same = accesses.group[before] == accesses.group[reads]
    wanted = (before >= 0) & same if within_groups else (before < 0) | ~same
    return before[wanted], reads[wanted]


def _overwrites(program: Program, accesses: _Accesses, last_write: Ints) -> tuple[Ints, Ints]:
    """What each write replaces: reads since the last write, or that write if there are none."""
    next_write = _next_write(accesses)
    reads = np.flatnonzero(~accesses.is_write & (next_write >= 0))
    target = next_write[reads]
    others = accesses.command[reads] != accesses.command[target]
    reads, target = reads[others], target[others]
    has_readers = np.zeros(len(accesses), dtype=np.bool_)
    has_readers[target] = True
    last = _is_last_of_engine(program, accesses.command[reads], target)
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


def _is_last_of_engine(program: Program, reader: Ints, target: Ints) -> Flags:
    """Reads not followed by one of the same compute engine before the same write."""
    engine = program.engine[reader]
    key = target * len(program.engines) + engine
    by_key = np.argsort(key, kind="stable")
    result = np.empty(len(reader), dtype=np.bool_)
    result[by_key] = np.append(key[by_key][1:] != key[by_key][:-1], True)[: len(reader)]
    result |= is_dma(program)[engine]
    return result


def is_dma(program: Program) -> Flags:
    """Which engines are DMA engines: their commands need not end in order."""
    kinds = (EngineKind.DMA_LOAD, EngineKind.DMA_STORE)
    return np.array([engine.kind in kinds for engine in program.engines], dtype=np.bool_)
