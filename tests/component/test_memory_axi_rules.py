"""IDs, priorities, QoS, clock crossings, descriptors: each number is derived beside it.

Unless said otherwise every clock is 1 ns, the bus 64 bytes wide without latency, a burst 64 bytes:
granted at cycle c, its word is done at c + 1, leaves at c + 3, its beat ends at c + 4.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from npusim.errors import ConfigError
from npusim.memory.specs import BusConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

NS = Fraction(1000)
PORT = PortConfig("p", 0, NS, 64, 8)
BUS = BusConfig("bus", NS, 64, 0, 256)
FAST = SramConfig("fast", NS, 4, 64, 64, 2, 1 << 20)
SLOW = replace(FAST, name="slow", latency_cycles=20)


def system(*ports, bus=BUS, memories=(FAST, SLOW)):
    return MemorySystem(list(ports) or [PORT], [bus], list(memories))


def submit(memory, runs, port=0, number=0, is_write=False, now=0):
    return memory.submit(now, port, number, is_write, np.array(runs))


def rows(count, base=0):
    """Bursts in banks of their own."""
    return [[base, 64, 64 + 4096, count]]


def finish(memory):
    done = {}
    while found := memory.advance(None):
        done.update({tid: at for at, tid in found})
    memory.drain()
    return [done[i] for i in sorted(done)]


# --- bursts and outstanding limit ----------------------------------------------------------------


@pytest.mark.parametrize(("nbytes", "done"), [(1024, 259), (1028, 263), (2048, 518)])
def test_no_burst_has_more_than_256_beats(nbytes, done):
    # 4-byte beats: 1024 bytes are 256 beats, from cycle 3 (first word) to 259. With one credit the
    # rest is granted at 259: one beat there ends at 263, 256 beats at 259 + 259
    memory = system(replace(PORT, outstanding=1), bus=replace(BUS, data_bytes=4))
    submit(memory, [[0, nbytes, 0, 1]])
    assert finish(memory) == [1000 * done]


@pytest.mark.parametrize(("outstanding", "done"), [(1, 16), (2, 9), (4, 7)])
def test_outstanding_bursts(outstanding, done):
    # granted at 0 4 8 12 | 0 1 4 5 | 0 1 2 3; the last is over 4 later
    memory = system(replace(PORT, outstanding=outstanding))
    submit(memory, rows(4))
    assert finish(memory) == [1000 * done]


def test_reads_and_writes_do_not_slow_each_other():
    # reads: granted 0..3, over at 7. Writes: supplied in cycles 0..3, granted 1..4, the last beat
    # until 5, written 6, answered 8
    for ports in ((True, False), (False, True), (True, True)):
        memory = system(PORT, PORT)
        for port, is_used in enumerate(ports):
            if is_used:
                submit(memory, rows(4, 65536 * port), port, is_write=port == 1)
        assert finish(memory) == [at for at, used in zip((7000, 8000), ports, strict=True) if used]


# --- IDs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "done"),
    [
        (0, [22, 5, 6]),  # slow: word 1, leaves 21, beat 22. Fast: granted 1 and 2, over at 5 and 6
        (1, [22, 23, 24]),  # both wait for the first burst's beat
        (2, [22, 5, 23]),  # the third burst has the first one's ID
        (3, [22, 5, 6]),
    ],
)
def test_bursts_of_one_id_return_in_order(ids, done):
    memory = system(replace(PORT, ids=ids))
    for number in (1, 0, 0):
        submit(memory, [[0, 64, 0, 1]], number=number)
    assert finish(memory) == [1000 * at for at in done]


def test_writes_of_one_id_are_answered_in_order():
    # supplied 1, 2; granted 1, 2; slow: beat until 2, written 3, answered 23; fast: answered 6
    for ids, done in ((0, [23_000, 6000]), (1, [23_000, 23_000])):
        memory = system(replace(PORT, ids=ids))
        for number in (1, 0):
            submit(memory, [[0, 64, 0, 1]], number=number, is_write=True)
        assert finish(memory) == done


def test_reads_and_writes_of_one_id_are_not_ordered():
    # read: 22. Write: supplied in cycle 0, granted 1, beat until 2, written 3, answered 5
    memory = system(replace(PORT, ids=1))
    submit(memory, [[0, 64, 0, 1]], number=1)
    submit(memory, [[0, 64, 0, 1]], number=0, is_write=True)
    assert finish(memory) == [22_000, 5000]


@pytest.mark.parametrize(("ids", "limit", "done"), [(1, 1, 16), (2, 1, 9), (2, 2, 7), (4, 1, 7)])
def test_outstanding_bursts_of_an_id(ids, limit, done):
    # one ID, one burst: 0 4 8 12. Two IDs: 0 1 4 5. Two of each or four IDs: 0 1 2 3
    memory = system(replace(PORT, ids=ids, outstanding_per_id=limit))
    submit(memory, rows(4))
    assert finish(memory) == [1000 * done]


def test_the_gate_of_an_id_is_tight():
    # ID 0's only burst is over at 22 (slow memory). The second burst (ID 1) passes; the third
    # (ID 0) is granted at 22, not before: over at 26; one cycle less of latency, one cycle less
    for latency, third in ((20, 26_000), (19, 25_000)):
        memory = system(
            replace(PORT, ids=2, outstanding_per_id=1),
            memories=[FAST, replace(SLOW, latency_cycles=latency)],
        )
        for number in (1, 0, 0):
            submit(memory, [[0, 64, 0, 1]], number=number)
        assert finish(memory)[1:] == [5000, third]


# --- arbitration ---------------------------------------------------------------------------------


def contenders(arbitration, *qos, count=2):
    memory = system(
        *(replace(PORT, name=f"p{i}", qos=value) for i, value in enumerate(qos)),
        bus=replace(BUS, arbitration=arbitration),
    )
    for port in range(len(qos)):
        submit(memory, rows(count), port)
    return finish(memory)


@pytest.mark.parametrize(
    ("arbitration", "done"),
    [
        ("round_robin", [7, 8, 9]),  # granted 0 3 | 1 4 | 2 5
        ("fixed", [5, 7, 9]),  # 0 1 | 2 3 | 4 5
        ("qos", [9, 6, 7]),  # 4 5 | 0 2 | 1 3: the equal ones in turn, the lowest last
    ],
)
def test_who_is_granted(arbitration, done):
    assert contenders(arbitration, 0, 7, 7) == [1000 * at for at in done]


def test_the_higher_qos_starves_the_lower_for_as_long_as_it_asks():
    # eight bursts at 0..7, then the other's one at 8; the last beat ends four cycles later
    assert contenders("qos", 0, 1, count=8) == [19_000, 11_000]


def test_a_master_without_a_credit_does_not_ask():
    # the favoured port has one credit: granted 0, 4 and over at 8; the other takes 1 2 3 5
    memory = system(replace(PORT, qos=15, outstanding=1), PORT, bus=replace(BUS, arbitration="qos"))
    submit(memory, rows(2), 0)
    submit(memory, rows(4), 1)
    assert finish(memory) == [8000, 9000]


def test_the_gate_of_qos_is_tight():
    # the favoured request comes at cycle 2 or 1 ps later: then the other still has that cycle
    for late_ps, done in ((0, [8000, 6000]), (1, [8000, 7000])):
        memory = system(PORT, replace(PORT, qos=1), bus=replace(BUS, arbitration="qos"))
        submit(memory, rows(4), 0)
        memory.advance(2000)
        submit(memory, rows(1), 1, now=2000 + late_ps)
        assert finish(memory) == done


# --- clocks --------------------------------------------------------------------------------------

HALF = replace(FAST, clock_period_ps=2 * NS, latency_cycles=1)


@pytest.mark.parametrize(
    ("cycles", "now", "done"),
    [
        (0, 0, 5),  # memory edges 0..1, leaves at edge 2 = 4 ns, beat 4..5
        (2, 0, 11),  # memory sees it at edge 2; leaves at edge 4 = 8 ns; bus at 8 + 2; beat 10..11
        (2, 1, 13),  # granted at 1 ns: first memory edge 1, sees it at 3; leaves at 10 ns
    ],
)
def test_crossing_between_bus_and_memory(cycles, now, done):
    memory = system(bus=replace(BUS, crossing_cycles=cycles), memories=[HALF])
    submit(memory, [[0, 64, 0, 1]], now=now)
    assert finish(memory) == [1000 * done]


@pytest.mark.parametrize(
    ("cycles", "count", "outstanding", "done"),
    [
        (0, 1, 8, 6),  # beat 3..4; port takes it from its edge 2 to 3 = 6 ns
        (3, 1, 8, 14),  # granted 3, beat 6..7; port sees it at edge 3 + 3, has it at 7
        (3, 4, 8, 20),  # behind each other: one port cycle more each, the latency only once
        (
            3,
            2,
            1,
            28,
        ),  # credit back at 14, bus sees it at 17: granted, beat 20..21, port 10 + 3 + 1
    ],
)
def test_crossing_between_port_and_bus(cycles, count, outstanding, done):
    port = replace(PORT, clock_period_ps=2 * NS, outstanding=outstanding)
    memory = system(port, bus=replace(BUS, crossing_cycles=cycles))
    submit(memory, rows(count))
    assert finish(memory) == [1000 * done]


def test_write_data_cross_once():
    # supplied at port edge 1 = 2 ns, seen at bus edge 5, beat 5..6, written 7, answered 9; port:
    # its edge 5 + 3 = 16 ns
    port = replace(PORT, clock_period_ps=2 * NS)
    memory = system(port, bus=replace(BUS, crossing_cycles=3))
    submit(memory, [[0, 64, 0, 1]], is_write=True)
    assert finish(memory) == [16_000]


def test_clocks_of_one_period_need_no_crossing():
    memory = system(bus=replace(BUS, crossing_cycles=9))
    submit(memory, [[0, 64, 0, 1]])
    assert finish(memory) == [4000]


def test_the_closed_form_counts_crossings():
    # 3 port + 3 bus cycles and 3 memory + 3 bus cycles more; the beat as before
    port = replace(PORT, clock_period_ps=5 * NS)
    plain, crossed = (
        system(port, bus=replace(BUS, crossing_cycles=n), memories=[HALF]) for n in (0, 3)
    )
    more = crossed.unloaded_latency_ps(0, 0) - plain.unloaded_latency_ps(0, 0)
    assert more == 1000 * (3 * 5 + 3 * 1 + 3 * 2 + 3 * 1)


# --- descriptors ---------------------------------------------------------------------------------


def test_a_2d_descriptor_is_its_rows_and_a_gather_list_its_pieces_in_order():
    # three bursts behind each other, granted 0 1 2, whatever describes them
    strided = [[0, 64, 8192, 3]]
    pieces = [[base, 64, 64, 1] for base in (0, 8192, 16384)]
    for runs in (strided, pieces, pieces[::-1]):
        memory = system()
        tid = submit(memory, runs)
        assert finish(memory) == [6000]
        assert memory.transfer_counters(tid)[-1] == 192


def test_rows_that_touch_are_one_burst_and_pieces_of_a_list_are_not():
    # 128 bytes in one burst: words 1 and 1 of two banks, leave at 3, two beats: 5; as two pieces
    # with one credit: 4, then 8
    for runs, done in (([[0, 64, 64, 2]], 5000), ([[0, 64, 64, 1], [64, 64, 64, 1]], 8000)):
        memory = system(replace(PORT, outstanding=1))
        submit(memory, runs)
        assert finish(memory) == [done]


def test_a_piece_across_4_kib_is_two_bursts():
    # one credit each: pieces of 64 and of 32 + 32 bytes
    memory = system(replace(PORT, outstanding=1))
    submit(memory, [[0, 64, 64, 1], [4064, 64, 64, 1]])
    assert finish(memory) == [12_000]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"qos": 16}, r"port 'p'.qos: lies in 0\.\.15 \(got 16\)"),
        ({"ids": -1}, r"port 'p'.ids: lies in 0\.\.1024"),
        ({"outstanding_per_id": 1}, r"port 'p'.outstanding_per_id: needs ids above 0"),
    ],
)
def test_bad_ports_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        replace(PORT, **keys)


def test_bad_buses_are_refused():
    with pytest.raises(ConfigError, match="is one of round_robin, fixed, qos"):
        replace(BUS, arbitration="lottery")
    with pytest.raises(ConfigError, match="crossing_cycles: is at least 0"):
        replace(BUS, crossing_cycles=-1)
