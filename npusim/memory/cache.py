"""Tags of a set-associative cache with sectors: what transfers hit, fetch and evict (compiled).

A line of `line_bytes` lies in set ``(address // line_bytes) mod sets``; each of its sectors is
valid and dirty by itself. Replacement is least recently used. Rules, sector by sector in order:

- read: a valid sector is a hit; any other is a miss and fetched whole;
- write to a line that is present, or with `write_allocate`: the sector becomes valid, a sector that
  is not covered whole and was not valid is fetched first; `write_back` marks it dirty,
  `write_through` writes the bytes to the memory behind as well;
- write to an absent line without `write_allocate`: the bytes go to the memory behind only;
- a new line takes the place of an invalid or the least recently used one of its set, whose dirty
  sectors are written back;
- a bypassing write drops the sectors it covers (writing back a dirty one it covers in part), a
  bypassing read writes dirty sectors back first and leaves them valid.

Left out: replacement by address or age other than LRU, prefetch, miss registers running out.
Source of sectors: Liptay, IBM Systems Journal 7 (1968), structural aspects of the 360/85, part II.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.memory.jit import entry, njit, words_at
from npusim.memory.specs import require

if TYPE_CHECKING:
    from npusim.memory.layout import Words

MAX_SECTORS = 62  # of a line: bits of a word
COUNTS = (
    "requested_bytes",
    "hit_bytes",
    "hits",  # sectors
    "misses",
    "fill_bytes",
    "write_back_bytes",
    "through_bytes",
    "evictions",  # lines
)

# --- words of the cache: geometry, counts, then lines ---------------------------------------------
(CA_SETS, CA_WAYS, CA_LINE, CA_SECTOR, CA_SECTORS, CA_BACK, CA_ALLOCATE, CA_STAMP) = range(8)
(
    CA_REQUESTED, CA_HIT_BYTES, CA_HITS, CA_MISSES, CA_FILL_BYTES, CA_BACK_BYTES, CA_THROUGH_BYTES,
    CA_EVICTIONS,
) = range(8, 16)  # fmt: skip
CA_LINES = 16
# a word per sector from LN_FILLS on: the fill that brought it; then one: the lookup that wrote it
LN_TAG, LN_VALID, LN_DIRTY, LN_USED, LN_FILLS = range(5)

# --- rows of a lookup: kind, address, bytes, number -----------------------------------------------
# the number: of what is read from the SRAM the fill awaited (0: none), of what goes back its writer
ROW_SRAM, ROW_FILL, ROW_BACK, ROW_THROUGH = range(4)
ROW_WORDS = 4


@dataclass(frozen=True)
class CacheConfig:
    """Size, lines, sectors and policy of a cache."""

    capacity_bytes: int
    line_bytes: int
    sector_bytes: int
    ways: int
    write_back: bool = True
    write_allocate: bool = True

    def __post_init__(self) -> None:
        for name in ("capacity_bytes", "line_bytes", "sector_bytes", "ways"):
            require(getattr(self, name) > 0, f"cache.{name}", "is above 0", getattr(self, name))
        require(
            self.line_bytes % self.sector_bytes == 0,
            "cache.line_bytes", f"is a multiple of sector_bytes={self.sector_bytes}",
            self.line_bytes,
        )  # fmt: skip
        require(
            self.line_bytes // self.sector_bytes <= MAX_SECTORS,
            "cache.line_bytes", f"has at most {MAX_SECTORS} sectors", self.line_bytes,
        )  # fmt: skip
        require(
            self.capacity_bytes % (self.line_bytes * self.ways) == 0,
            "cache.capacity_bytes", f"is a multiple of a set of {self.line_bytes * self.ways}",
            self.capacity_bytes,
        )  # fmt: skip

    @property
    def sets(self) -> int:
        """Sets of `ways` lines."""
        return self.capacity_bytes // (self.line_bytes * self.ways)


class CacheTags:
    """The state of one cache; `lookup` and `pass_by` change it and say what has to move."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        sectors = config.line_bytes // config.sector_bytes
        lines = config.sets * config.ways
        self._step = LN_FILLS + 2 * sectors
        self._words = np.zeros(CA_LINES + lines * self._step, dtype=np.int64)
        self._words[: CA_STAMP + 1] = (
            config.sets, config.ways, config.line_bytes, config.sector_bytes, sectors,
            config.write_back, config.write_allocate, 0,
        )  # fmt: skip
        self._words[CA_LINES :: self._step] = -1
        self._rows = np.zeros((0, ROW_WORDS), dtype=np.int64)

    def lookup(self, runs: Words, *, is_write: bool, fill: int, known_fill: int) -> Words:
        """Look all bytes of a transfer up, in order.

        Parameters
        ----------
        runs : ndarray of int64, shape (n, 4)
            Base, bytes, stride, count.
        fill : int
            Number of the lookup, above all earlier ones: the sectors fetched now are awaited by it,
            and those written now carry it until they are written back.
        known_fill : int
            Fills up to this number have arrived.

        Returns
        -------
        ndarray of int64, shape (rows, 4)
            Kind, address, bytes and, for what is read from the SRAM, the fill awaited or 0; for
            what is written back, the number of the lookup that wrote it.
        """
        return self._rows_of(_lookup, runs, int(is_write), fill, known_fill)

    def pass_by(self, runs: Words, *, is_write: bool) -> Words:
        """What a transfer around the cache makes it write back; rows as of `lookup`."""
        return self._rows_of(_pass_by, runs, int(is_write))

    def flush(self) -> Words:
        """Write all dirty sectors back, in the order of their addresses; rows as of `lookup`."""
        rows = np.zeros((self.dirty_bytes() // self.config.sector_bytes, ROW_WORDS), dtype=np.int64)
        count = _flush(self._words.ctypes.data, rows.ctypes.data)
        ordered: Words = rows[:count][np.argsort(rows[:count, 1])]
        return ordered

    def counts(self) -> tuple[int, ...]:
        """Totals so far, in the order of `COUNTS`."""
        return tuple(self._words[CA_REQUESTED : CA_REQUESTED + len(COUNTS)].tolist())

    def dirty_bytes(self) -> int:
        """Bytes that the memory behind does not have."""
        masks = self._words[CA_LINES + LN_DIRTY :: self._step]
        return sum(int(mask).bit_count() for mask in masks[masks != 0]) * self.config.sector_bytes

    def _rows_of(self, function: object, runs: Words, write: int, *fills: int) -> Words:
        runs = np.ascontiguousarray(runs, dtype=np.int64)
        sector, sectors = self.config.sector_bytes, int(self._words[CA_SECTORS])
        touched = int(((runs[:, 1] // sector + 2) * runs[:, 3]).sum())
        lines = int(((runs[:, 1] // self.config.line_bytes + 2) * runs[:, 3]).sum())
        need = 3 * touched + lines * sectors
        if need > len(self._rows):
            self._rows = np.zeros((need, ROW_WORDS), dtype=np.int64)
        count = function(  # type: ignore[operator]
            self._words.ctypes.data, runs.ctypes.data, len(runs), write, self._rows.ctypes.data,
            *fills,
        )  # fmt: skip
        return self._rows[:count].copy()


@njit
def add_row(rows: Words, n: int, kind: int, addr: int, size: int, fill: int) -> int:
    """Append a row, or lengthen one of the last four that it continues."""
    for back in range(1, 5):
        at = n - back
        if at < 0:
            break
        same = rows[at * ROW_WORDS] == kind and rows[at * ROW_WORDS + 3] == fill
        if same and rows[at * ROW_WORDS + 1] + rows[at * ROW_WORDS + 2] == addr:
            rows[at * ROW_WORDS + 2] += size
            return n
    rows[n * ROW_WORDS], rows[n * ROW_WORDS + 1] = kind, addr
    rows[n * ROW_WORDS + 2], rows[n * ROW_WORDS + 3] = size, fill
    return n + 1


@njit
def line_words(t: Words) -> int:
    """Words of a line."""
    return LN_FILLS + 2 * t[CA_SECTORS]


@njit
def find_line(t: Words, number: int) -> int:
    """The line of this number (address // line bytes), -1 if absent."""
    step = line_words(t)
    first = CA_LINES + (number % t[CA_SETS]) * t[CA_WAYS] * step
    for way in range(t[CA_WAYS]):
        if t[first + way * step + LN_TAG] == number:
            return first + way * step
    return -1


@njit
def victim_of(t: Words, number: int) -> int:
    """The line that gives way: an invalid one, else the least recently used."""
    step = line_words(t)
    first = CA_LINES + (number % t[CA_SETS]) * t[CA_WAYS] * step
    chosen = first
    for way in range(t[CA_WAYS]):
        line = first + way * step
        if t[line + LN_VALID] == 0:
            return line
        if t[line + LN_USED] < t[chosen + LN_USED]:
            chosen = line
    return chosen


@njit
def write_back(t: Words, line: int, sector: int, rows: Words, n: int) -> int:
    """Write one dirty sector back; it is clean afterwards."""
    t[line + LN_DIRTY] &= ~(1 << sector)
    t[CA_BACK_BYTES] += t[CA_SECTOR]
    addr = t[line + LN_TAG] * t[CA_LINE] + sector * t[CA_SECTOR]
    writer = t[line + LN_FILLS + t[CA_SECTORS] + sector]
    return add_row(rows, n, ROW_BACK, addr, t[CA_SECTOR], writer)


@njit
def take_line(t: Words, number: int, rows: Words, n: int) -> tuple[int, int]:
    """Make room for a line; returns it, empty, and the number of rows."""
    line = victim_of(t, number)
    if t[line + LN_VALID]:
        t[CA_EVICTIONS] += 1
        for sector in range(t[CA_SECTORS]):
            if t[line + LN_DIRTY] >> sector & 1:
                n = write_back(t, line, sector, rows, n)
    t[line + LN_TAG], t[line + LN_VALID], t[line + LN_DIRTY] = number, 0, 0
    return line, n


@njit
def look_up_sector(
    t: Words, line: int, addr: int, size: int, write: int, fill: int, known: int,
    rows: Words, n: int,
) -> int:  # fmt: skip
    """One sector of a line that is present, `size` bytes of it from `addr` on."""
    sector = addr % t[CA_LINE] // t[CA_SECTOR]
    bit = 1 << sector
    is_valid = t[line + LN_VALID] & bit
    awaited = t[line + LN_FILLS + sector]
    if is_valid:
        t[CA_HITS] += 1
        t[CA_HIT_BYTES] += size
    else:
        t[CA_MISSES] += 1
        t[line + LN_VALID] |= bit
        awaited = t[line + LN_FILLS + sector] = 0
        if write == 0 or size < t[CA_SECTOR]:
            t[line + LN_FILLS + sector] = fill
            t[CA_FILL_BYTES] += t[CA_SECTOR]
            n = add_row(rows, n, ROW_FILL, addr - addr % t[CA_SECTOR], t[CA_SECTOR], 0)
            if write == 0:
                return n
    if write == 0:
        return add_row(rows, n, ROW_SRAM, addr, size, awaited if awaited > known else 0)
    if t[CA_BACK]:
        t[line + LN_DIRTY] |= bit
        t[line + LN_FILLS + t[CA_SECTORS] + sector] = fill
    else:
        t[CA_THROUGH_BYTES] += size
        n = add_row(rows, n, ROW_THROUGH, addr, size, 0)
    return add_row(rows, n, ROW_SRAM, addr, size, 0)


@njit
def look_up_range(
    t: Words, addr: int, end: int, write: int, fill: int, known: int, rows: Words, n: int
) -> int:
    """Contiguous bytes, line by line and sector by sector."""
    t[CA_REQUESTED] += end - addr
    while addr < end:
        number = addr // t[CA_LINE]
        stop = min(end, (number + 1) * t[CA_LINE])
        line = find_line(t, number)
        if line < 0:
            if write and t[CA_ALLOCATE] == 0:
                t[CA_MISSES] += (stop - 1) // t[CA_SECTOR] - addr // t[CA_SECTOR] + 1
                t[CA_THROUGH_BYTES] += stop - addr
                n = add_row(rows, n, ROW_THROUGH, addr, stop - addr, 0)
                addr = stop
                continue
            line, n = take_line(t, number, rows, n)
        t[CA_STAMP] += 1
        t[line + LN_USED] = t[CA_STAMP]
        while addr < stop:
            size = min(stop, (addr // t[CA_SECTOR] + 1) * t[CA_SECTOR]) - addr
            n = look_up_sector(t, line, addr, size, write, fill, known, rows, n)
            addr += size
    return n


@entry
def _lookup(
    tags_at: int, runs_at: int, num_runs: int, write: int, rows_at: int, fill: int, known: int
) -> int:
    """`CacheTags.lookup` on addresses; returns the number of rows."""
    t, runs, rows = words_at(tags_at), words_at(runs_at), words_at(rows_at)
    n = 0
    for i in range(num_runs):
        for k in range(runs[4 * i + 3]):
            addr = runs[4 * i] + k * runs[4 * i + 2]
            n = look_up_range(t, addr, addr + runs[4 * i + 1], write, fill, known, rows, n)
    return n


@njit
def pass_range(t: Words, addr: int, end: int, write: int, rows: Words, n: int) -> int:
    """Bytes that go around the cache: what it holds of them must not grow stale, nor be missed."""
    while addr < end:
        size = min(end, (addr // t[CA_SECTOR] + 1) * t[CA_SECTOR]) - addr
        line = find_line(t, addr // t[CA_LINE])
        if line >= 0:
            sector = addr % t[CA_LINE] // t[CA_SECTOR]
            bit = 1 << sector
            is_stale = write and size == t[CA_SECTOR]
            if t[line + LN_DIRTY] & bit and not is_stale:
                n = write_back(t, line, sector, rows, n)
            if write:
                t[line + LN_DIRTY] &= ~bit
                t[line + LN_VALID] &= ~bit
                if t[line + LN_VALID] == 0:
                    t[line + LN_TAG] = -1
        addr += size
    return n


@entry
def _pass_by(tags_at: int, runs_at: int, num_runs: int, write: int, rows_at: int) -> int:
    """`CacheTags.pass_by` on addresses; returns the number of rows."""
    t, runs, rows = words_at(tags_at), words_at(runs_at), words_at(rows_at)
    n = 0
    for i in range(num_runs):
        for k in range(runs[4 * i + 3]):
            addr = runs[4 * i] + k * runs[4 * i + 2]
            n = pass_range(t, addr, addr + runs[4 * i + 1], write, rows, n)
    return n


@entry
def _flush(tags_at: int, rows_at: int) -> int:
    """`CacheTags.flush` on addresses, line by line; returns the number of rows."""
    t, rows = words_at(tags_at), words_at(rows_at)
    n = 0
    for number in range(t[CA_SETS] * t[CA_WAYS]):
        line = CA_LINES + number * line_words(t)
        for sector in range(t[CA_SECTORS]):
            if t[line + LN_DIRTY] >> sector & 1:
                n = write_back(t, line, sector, rows, n)
    return n
