"""Cache tags against a plain Python cache, on random streams of reads, writes and bypasses."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.errors import ConfigError
from npusim.memory.cache import (
    COUNTS,
    ROW_BACK,
    ROW_FILL,
    ROW_SRAM,
    ROW_THROUGH,
    CacheConfig,
    CacheTags,
)


class PlainCache:
    """Sets as ordered dicts from line number to {sector: is dirty}, oldest first."""

    def __init__(self, config):
        self.c = config
        self.sets = [OrderedDict() for _ in range(config.sets)]
        self.counts = dict.fromkeys(COUNTS, 0)
        self.moved = {ROW_SRAM: {}, ROW_FILL: {}, ROW_BACK: {}, ROW_THROUGH: {}}

    def note(self, kind, addr, size):
        for byte in range(addr, addr + size):
            self.moved[kind][byte] = self.moved[kind].get(byte, 0) + 1

    def sectors(self, addr, size):
        while size > 0:
            part = min(size, self.c.sector_bytes - addr % self.c.sector_bytes)
            yield addr, part
            addr, size = addr + part, size - part

    def back(self, number, sector):
        self.counts["write_back_bytes"] += self.c.sector_bytes
        self.note(
            ROW_BACK, number * self.c.line_bytes + sector * self.c.sector_bytes, self.c.sector_bytes
        )

    def line(self, number, is_write):
        lines = self.sets[number % self.c.sets]
        if number in lines:
            lines.move_to_end(number)
            return lines[number]
        if is_write and not self.c.write_allocate:
            return None
        if len(lines) == self.c.ways:
            victim, held = lines.popitem(last=False)
            self.counts["evictions"] += 1
            for sector in sorted(s for s, is_dirty in held.items() if is_dirty):
                self.back(victim, sector)
        lines[number] = {}
        return lines[number]

    def access(self, addr, size, is_write):
        self.counts["requested_bytes"] += size
        for at, part in self.sectors(addr, size):
            number, sector = at // self.c.line_bytes, at % self.c.line_bytes // self.c.sector_bytes
            held = self.line(number, is_write)
            if held is None:
                self.counts["misses"] += 1
                self.counts["through_bytes"] += part
                self.note(ROW_THROUGH, at, part)
                continue
            is_hit = sector in held
            self.counts["hits" if is_hit else "misses"] += 1
            self.counts["hit_bytes"] += part if is_hit else 0
            if not is_hit and (not is_write or part < self.c.sector_bytes):
                self.counts["fill_bytes"] += self.c.sector_bytes
                self.note(ROW_FILL, at - at % self.c.sector_bytes, self.c.sector_bytes)
            held[sector] = held.get(sector, False) or (is_write and self.c.write_back)
            if is_write and not self.c.write_back:
                self.counts["through_bytes"] += part
                self.note(ROW_THROUGH, at, part)
            if is_write or is_hit:
                self.note(ROW_SRAM, at, part)

    def pass_by(self, addr, size, is_write):
        for at, part in self.sectors(addr, size):
            number, sector = at // self.c.line_bytes, at % self.c.line_bytes // self.c.sector_bytes
            lines = self.sets[number % self.c.sets]
            held = lines.get(number)
            if held is None or sector not in held:
                continue
            if held[sector] and not (is_write and part == self.c.sector_bytes):
                self.back(number, sector)
                held[sector] = False
            if is_write:
                del held[sector]
                if not held:
                    del lines[number]


def named(tags):
    return dict(zip(COUNTS, tags.counts(), strict=True))


def spread(rows):
    """How often each byte occurs in rows of each kind."""
    moved = {ROW_SRAM: {}, ROW_FILL: {}, ROW_BACK: {}, ROW_THROUGH: {}}
    for kind, addr, size, _ in rows.tolist():
        for byte in range(addr, addr + size):
            moved[kind][byte] = moved[kind].get(byte, 0) + 1
    return moved


CONFIGS = st.builds(
    lambda sets, ways, sector, sectors, back, allocate: CacheConfig(
        sets * ways * sector * sectors, sector * sectors, sector, ways, back, allocate
    ),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([4, 8]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.booleans(),
)
ACCESSES = st.lists(
    st.tuples(
        st.integers(0, 200),  # base
        st.integers(1, 40),  # bytes
        st.sampled_from([8, 16, 40, 64]),  # stride
        st.integers(1, 3),  # rows
        st.booleans(),
        st.sampled_from([False, False, True]),  # bypass
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(CONFIGS, ACCESSES)
def test_tags_equal_a_plain_cache_access_by_access(config, accesses):
    tags, plain = CacheTags(config), PlainCache(config)
    for base, size, stride, count, is_write, is_bypass in accesses:
        runs = np.array([[base, size, stride, count]])
        plain.moved = {kind: {} for kind in plain.moved}
        if is_bypass:
            rows = tags.pass_by(runs, is_write=is_write)
        else:
            rows = tags.lookup(runs, is_write=is_write, fill=1, known_fill=1)
        for row in range(count):
            function = plain.pass_by if is_bypass else plain.access
            function(base + row * stride, size, is_write)
        assert spread(rows) == plain.moved
        assert named(tags) == plain.counts
    dirty = sum(
        is_dirty for lines in plain.sets for held in lines.values() for is_dirty in held.values()
    )
    assert tags.dirty_bytes() == dirty * config.sector_bytes


@settings(max_examples=60, deadline=None)
@given(CONFIGS, ACCESSES, st.booleans())
def test_every_byte_moved_is_counted_and_what_is_dirty_comes_back(config, accesses, is_flush):
    tags = CacheTags(config)
    moved, written = dict.fromkeys(range(4), 0), 0
    for base, size, stride, count, is_write, _ in accesses:
        runs = np.array([[base, size, stride, count]])
        rows = tags.lookup(runs, is_write=is_write, fill=1, known_fill=1)
        for kind, _, nbytes, _ in rows.tolist():
            moved[kind] += nbytes
        written += size * count * is_write
    counts = named(tags)
    assert counts["fill_bytes"] == moved[ROW_FILL]
    assert counts["write_back_bytes"] == moved[ROW_BACK]
    assert counts["through_bytes"] == moved[ROW_THROUGH]
    if config.write_back and config.write_allocate:
        assert moved[ROW_THROUGH] == 0
    if not config.write_back:
        assert moved[ROW_THROUGH] == written
        assert moved[ROW_BACK] == tags.dirty_bytes() == 0
    dirty = tags.dirty_bytes()
    if is_flush:
        rows = tags.flush()
        assert (rows[:, 2].sum(), sorted(rows[:, 1])) == (dirty, rows[:, 1].tolist())
    tags.pass_by(np.array([[0, 1024, 0, 1]]), is_write=False)
    assert named(tags)["write_back_bytes"] == counts["write_back_bytes"] + dirty
    assert tags.dirty_bytes() == 0


def lookup(tags, addr, size, is_write=False, fill=1, known=0):
    return tags.lookup(
        np.array([[addr, size, 0, 1]]), is_write=is_write, fill=fill, known_fill=known
    ).tolist()


def test_a_second_read_hits_and_waits_for_the_fill_until_it_is_known():
    tags = CacheTags(CacheConfig(1024, 128, 32, 2))
    assert lookup(tags, 0, 64, fill=5) == [[ROW_FILL, 0, 64, 0]]
    assert lookup(tags, 0, 64, fill=6, known=4) == [[ROW_SRAM, 0, 64, 5]]
    assert lookup(tags, 0, 64, fill=7, known=5) == [[ROW_SRAM, 0, 64, 0]]


def test_only_the_sectors_asked_for_are_fetched_and_lru_gives_way():
    # 2 ways of 128 bytes, one set: lines 0, 1, 0, 2 leave 0 and 2
    tags = CacheTags(CacheConfig(256, 128, 32, 2))
    assert lookup(tags, 40, 10) == [[ROW_FILL, 32, 32, 0]]
    lookup(tags, 128, 32, is_write=True)
    lookup(tags, 40, 10)
    assert lookup(tags, 256, 1) == [[ROW_BACK, 128, 32, 1], [ROW_FILL, 256, 32, 0]]
    assert lookup(tags, 32, 32, known=1) == [[ROW_SRAM, 32, 32, 0]]
    assert named(tags)["evictions"] == 1


def test_a_stream_larger_than_the_cache_pollutes_it_and_a_bypass_does_not():
    config = CacheConfig(4096, 128, 32, 4)
    for bypass, hits in ((False, 0), (True, 32)):
        tags = CacheTags(config)
        lookup(tags, 0, 1024)  # 32 sectors that are to stay
        stream = np.array([[1 << 20, 1 << 16, 0, 1]])
        if bypass:
            assert len(tags.pass_by(stream, is_write=False)) == 0
        else:
            tags.lookup(stream, is_write=False, fill=2, known_fill=1)
        before = named(tags)["hits"]
        lookup(tags, 0, 1024)
        assert named(tags)["hits"] - before == hits


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ways": 0}, "ways: is above 0"),
        ({"sector_bytes": 48}, "multiple of sector_bytes=48"),
        ({"line_bytes": 64 * 32}, "at most 62 sectors"),
        ({"capacity_bytes": 1000}, "multiple of a set of 512"),
    ],
)
def test_impossible_caches_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        CacheConfig(
            **{"capacity_bytes": 4096, "line_bytes": 128, "sector_bytes": 32, "ways": 4, **keys}
        )


def test_what_goes_back_carries_the_number_of_its_last_writer():
    tags = CacheTags(CacheConfig(1024, 128, 64, 2))
    lookup(tags, 0, 128, is_write=True, fill=5)  # sectors 0 and 1 of line 0
    lookup(tags, 64, 64, is_write=True, fill=6)
    lookup(tags, 512, 64, fill=7)
    rows = lookup(tags, 1024, 64, fill=8)  # takes the place of line 0
    assert rows == [[ROW_BACK, 0, 64, 5], [ROW_BACK, 64, 64, 6], [ROW_FILL, 1024, 64, 0]]
