"""A cache in front of a slow memory: times of hits, misses and merged misses; bytes; order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.errors import SimulationError
from npusim.memory.cache import CacheConfig
from npusim.memory.cached import TRAFFIC, CachedMemory
from npusim.memory.specs import BusConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

NS = Fraction(1000)
SLOW, CACHE = 0, 1
#: one word of 64 bytes per cycle; the memory behind answers 100 cycles later, the cache 2
MEMORIES = [
    SramConfig("slow", NS, 1, 64, 64, 100, 1 << 20),
    SramConfig("cache", NS, 1, 64, 64, 2, 1024),
]
FIRST, SECOND, BACK = 0, 2, 4


def cached(**keys):
    """Two engines (ports 0 and 2, their shared paths 1 and 3) and the cache's own port 4."""
    ports = [PortConfig(f"p{i}", i % 2 if i < 4 else 0, NS, 64, 8) for i in range(5)]
    buses = [BusConfig(name, NS, 64, 0, 256) for name in ("memory", "shared")]
    behind = MemorySystem(ports, buses, MEMORIES)
    values = {"capacity_bytes": 1024, "line_bytes": 128, "sector_bytes": 64, "ways": 2, **keys}
    memory = CachedMemory(
        behind, CacheConfig(**values), cache_memory=CACHE, dram_memory=SLOW, cache_port=BACK
    )
    return memory, behind


def drive(memory, requests, horizons=()):
    """Completions of requests (time, port, memory, is_write, base, bytes), as the machine asks."""
    done = {}
    tids = [None] * len(requests)
    times = sorted({r[0] for r in requests} | set(horizons))
    for now in times:
        while found := memory.advance(now):
            done.update({tid: at for at, tid in found})
        for index, (at, port, target, is_write, base, size) in enumerate(requests):
            if at == now:
                runs = np.array([[base, size, 0, 1]])
                tids[index] = memory.submit(now, port, target, is_write, runs)
    while memory.pending:
        done.update({tid: at for at, tid in memory.advance(None)})
    memory.drain()
    return [done[tid] for tid in tids]


def traffic(memory, tid):
    return dict(zip(TRAFFIC, memory.cache_traffic(tid), strict=True))


def read(base, size=64, now=0, port=FIRST, target=CACHE):
    return now, port, target, False, base, size


def write(base, size=64, now=0, port=FIRST, target=CACHE):
    return now, port, target, True, base, size


def test_a_miss_takes_the_slow_path_and_a_hit_the_fast_one():
    # miss: granted at 0, word at 1, leaves at 101, one beat: 102. Hit at 200: word 201, leaves at
    # 203, one beat: 204
    memory, behind = cached()
    assert drive(memory, [read(0), read(0, now=200_000)]) == [102_000, 204_000]
    assert behind.memory_counters(SLOW)["read_bytes"] == 64
    assert behind.memory_counters(CACHE)["read_bytes"] == 64


@pytest.mark.parametrize(
    ("now", "done"), [(0, 106_000), (101_000, 106_000), (102_000, 106_000), (103_000, 107_000)]
)
def test_who_asks_for_bytes_on_their_way_reads_them_when_they_have_arrived(now, done):
    # the fill arrives at 102; a hit takes 4 from there, or from the request if that is later
    memory, behind = cached()
    assert drive(memory, [read(0), read(0, now=now, port=SECOND)]) == [102_000, done]
    assert behind.memory_counters(SLOW)["read_bytes"] == 64


def test_a_transfer_that_hits_in_part_ends_with_its_slower_part():
    memory, behind = cached()
    ends = drive(memory, [read(0), read(0, 128, now=200_000)])
    assert ends == [102_000, 302_000]
    assert behind.memory_counters(SLOW)["read_bytes"] == 128


def test_a_sector_is_fetched_whole_and_the_engine_gets_what_it_asked_for():
    memory, behind = cached()
    drive(memory, [read(10, 20)])
    assert behind.memory_counters(SLOW)["read_bytes"] == 64
    assert memory.transfer_counters(0)[4] == 20
    traffic = dict(zip(TRAFFIC, memory.cache_traffic(0), strict=True))
    assert (traffic["requested_bytes"], traffic["fill_bytes"], traffic["misses"]) == (20, 64, 1)


def test_a_written_line_goes_back_when_it_loses_its_place_and_nobody_waits():
    # 4 sets of 2 ways: lines 0, 4 and 8 share set 0. Nobody waits for the 64 bytes of line 0
    memory, behind = cached()
    ends = drive(memory, [write(0), read(512, now=100_000), read(1024, now=300_000)])
    assert ends[2] == 402_000
    assert behind.memory_counters(SLOW)["write_bytes"] == 64
    assert memory.dirty_bytes() == 0
    written_back = [traffic(memory, tid)["write_back_bytes"] for tid in range(3)]
    assert written_back == [64, 0, 0]  # the bytes are the writer's, whoever takes their place


def test_what_is_dirty_at_the_end_is_written_back_in_the_order_of_addresses():
    # lines 0 and 4, dirty by two transfers. Both go back when the last write is complete
    memory, behind = cached()
    ends = drive(memory, [write(512), write(0, now=200_000)])
    assert memory.dirty_bytes() == 0
    assert behind.memory_counters(SLOW)["write_bytes"] == 128
    assert [traffic(memory, tid)["dram_write_bytes"] for tid in range(2)] == [64, 64]
    assert memory.drain() > ends[1]


@pytest.mark.parametrize(
    ("keys", "slow_bytes", "dirty"),
    [
        ({}, 0, 64),
        ({"write_back": False}, 64, 0),
        ({"write_allocate": False}, 64, 0),
        ({"write_back": False, "write_allocate": False}, 64, 0),
    ],
)
def test_policies_of_a_write(keys, slow_bytes, dirty):
    memory, behind = cached(**keys)
    memory.submit(0, FIRST, CACHE, True, np.array([[0, 64, 0, 1]]))
    while memory.pending:
        memory.advance(None)
    assert memory.dirty_bytes() == dirty
    memory.drain()
    assert behind.memory_counters(SLOW)["write_bytes"] == 64  # sooner or later
    assert traffic(memory, 0)["write_back_bytes"] == dirty
    assert traffic(memory, 0)["through_bytes"] == slow_bytes
    assert memory.transfer_counters(0)[4] == 64


def test_a_transfer_around_the_cache_takes_the_memory_and_sees_what_is_dirty():
    memory, behind = cached()
    drive(memory, [write(0), read(0, now=100_000, target=SLOW), write(0, now=300_000, target=SLOW)])
    counts = behind.memory_counters(SLOW)
    assert (counts["read_bytes"], counts["write_bytes"]) == (64, 128)  # written back, then written
    assert memory.dirty_bytes() == 0


def test_a_multicast_does_not_go_through_a_cache():
    memory, _ = cached()
    with pytest.raises(SimulationError, match="no multicast"):
        memory.submit(0, FIRST, CACHE, False, np.array([[0, 64, 0, 1]]), (SECOND,))


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1000, 50_000, 100_000, 102_000, 200_000]),
        st.sampled_from([FIRST, SECOND]),
        st.sampled_from([CACHE, CACHE, SLOW]),
        st.booleans(),
        st.integers(0, 3000),
        st.sampled_from([1, 64, 200, 700]),
    ),
    min_size=1,
    max_size=12,
)
CONFIGS = st.fixed_dictionaries(
    {
        "write_back": st.booleans(),
        "write_allocate": st.booleans(),
        "ways": st.sampled_from([1, 2, 4]),
    }
)


@settings(max_examples=60, deadline=None)
@given(REQUESTS, CONFIGS, st.lists(st.integers(0, 400_000), max_size=6), st.randoms())
def test_neither_horizons_nor_the_order_of_calls_change_a_time_and_bytes_add_up(
    requests, config, horizons, random
):
    # requests of one port at one time stay in their order: that is the program's
    memory, behind = cached(**config)
    ends = drive(memory, requests)
    order = sorted(range(len(requests)), key=lambda i: (requests[i][1], i))
    if random.random() < 0.5:
        order = sorted(range(len(requests)), key=lambda i: (-requests[i][1], i))
    other, _ = cached(**config)
    again = drive(other, [requests[i] for i in order], horizons)
    assert [ends[i] for i in order] == again

    totals = np.sum([memory.cache_traffic(i) for i in range(len(requests))], axis=0).tolist()
    total = dict(zip(TRAFFIC, totals, strict=True))
    slow = behind.memory_counters(SLOW)
    around = [sum(r[5] for r in requests if r[2] == SLOW and r[3] is w) for w in (False, True)]
    assert total["dram_read_bytes"] == slow["read_bytes"] == total["fill_bytes"] + around[0]
    written = total["write_back_bytes"] + total["through_bytes"] + around[1]
    assert total["dram_write_bytes"] == slow["write_bytes"] == written
    asked = sorted(memory.transfer_counters(i)[4] for i in range(len(requests)))
    assert asked == sorted(r[5] for r in requests)
