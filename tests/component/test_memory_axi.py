"""Buses and ports over an SRAM whose times are trivial: each number is derived beside it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from npusim.errors import ConfigError, SimulationError
from npusim.memory.specs import BusConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

NS = Fraction(1000)
# one word of 64 bytes per cycle, two cycles more until it leaves
SRAM = SramConfig("sram", NS, 1, 64, 64, 2, 1 << 20)


def system(data_bytes=16, outstanding=4, rate=64, ports=1, arbitration="round_robin", beats=256):
    return MemorySystem(
        [PortConfig(f"p{i}", 0, NS, rate, outstanding) for i in range(ports)],
        [BusConfig("bus", NS, data_bytes, 0, beats, arbitration)],
        [SRAM],
    )


def finish(memory):
    done = {}
    while found := memory.advance(None):
        done.update({tid: at for at, tid in found})
    return [done[i] for i in sorted(done)]


def read(memory, base, size, stride=4096, count=1, now=0, port=0):
    return memory.submit(now, port, 0, False, np.array([[base, size, stride, count]]))


def test_beats_of_a_read_follow_the_first_word():
    # grant 0, word done 1, leaves at 3; four beats of 16 bytes: cycles 3..7
    memory = system()
    read(memory, 0, 64)
    assert finish(memory) == [7000]


@pytest.mark.parametrize(("rate", "done"), [(64, 7000), (16, 7000), (8, 11_000), (1, 67_000)])
def test_port_takes_no_more_than_its_rate(rate, done):
    # first beat on the bus at cycle 3, then 64 / rate port cycles, at least the 4 beats
    memory = system(rate=rate)
    read(memory, 0, 64)
    assert finish(memory) == [done]


@pytest.mark.parametrize(("outstanding", "done"), [(1, 14_000), (2, 11_000)])
def test_outstanding_gate_is_tight(outstanding, done):
    # credit back at 7.000 ns: granted at that very edge, 7 cycles more. With two credits the second
    # grant is at 1, its word leaves at 4 and its beats follow the first burst's: 7 + 4
    memory = system(outstanding=outstanding)
    read(memory, 0, 64, count=2)
    assert finish(memory) == [done]


def test_a_credit_one_picosecond_late_costs_a_bus_cycle():
    # the port clock is 1 ps slower: the first burst ends at its edge 7 = 7.007 ns, so the second
    # grant is at bus edge 8; its word leaves at 11, its beats end at 15: port edge 15 = 15.015
    memory = MemorySystem(
        [PortConfig("p", 0, Fraction(1001), 64, 1)], [BusConfig("bus", NS, 16, 0, 256)], [SRAM]
    )
    read(memory, 0, 64, count=2)
    assert finish(memory) == [15_015]


@pytest.mark.parametrize(("base", "done"), [(4096, 11_000), (4032, 14_000)])
def test_no_burst_crosses_4_kib(base, done):
    # 128 bytes in one burst: words leave at 3 and 4, eight beats from 3. Across the boundary they
    # are two bursts, with one credit one after the other
    memory = system(outstanding=1)
    read(memory, base, 128)
    assert finish(memory) == [done]


def test_bursts_end_at_the_beat_limit():
    # 4 beats x 16 bytes: 128 bytes are two bursts
    memory = system(outstanding=1, beats=4)
    read(memory, 0, 128)
    assert finish(memory) == [14_000]


def test_an_unaligned_read_needs_one_more_beat():
    # bytes 8..72 touch five 16-byte lanes and two words: words leave at 3 and 4, beats 3..8
    memory = system()
    read(memory, 8, 64)
    assert finish(memory) == [8000]


@pytest.mark.parametrize(
    ("arbitration", "done"), [("fixed", [7000, 11_000]), ("round_robin", [10_000, 11_000])]
)
def test_arbitration_order(arbitration, done):
    # one-beat bursts, granted at cycle c, are over at c + 4. Fixed: port 0 at 0..3, port 1 at 4..7.
    # Round robin: port 0 at 0, 2, 4, 6
    memory = system(data_bytes=64, ports=2, arbitration=arbitration)
    for port in range(2):
        read(memory, 0, 64, count=4, port=port)
    assert finish(memory) == done


def test_reads_and_writes_have_channels_of_their_own():
    # write: supplied in cycle 0, granted at 1, four beats until 5, word done 6, answers at 8
    alone = system()
    alone.submit(0, 0, 0, True, np.array([[0, 64, 0, 1]]))
    assert finish(alone) == [8000]
    both = system(ports=2)
    read(both, 8192, 64, port=0)
    both.submit(0, 1, 0, True, np.array([[0, 64, 0, 1]]))
    assert finish(both) == [7000, 8000]


def test_transfers_of_a_port_overlap_in_order():
    # the second transfer's burst is granted at 1 and delivered behind the first: 7 + 4
    memory = system()
    read(memory, 0, 64)
    read(memory, 4096, 64)
    assert finish(memory) == [7000, 11_000]


def test_clock_never_passes_the_horizon():
    memory = system()
    read(memory, 0, 64)
    assert memory.advance(3000) == []
    assert memory.clock_ps < 3000
    assert memory.advance(3001) == [(7000, 0)]  # committed ahead of its time
    read(memory, 0, 64, now=5000)
    with pytest.raises(SimulationError, match="now_ps >= 3000"):
        read(memory, 0, 64, now=2999)


@pytest.mark.parametrize(
    ("runs", "rule"),
    [
        ([[0, 0, 0, 1]], "at least one byte"),
        ([[0, 64, 0, 0]], "at least one byte"),
        ([[-64, 64, 0, 1]], "inside the memory"),
        ([[0, 64, 1 << 20, 2]], "inside the memory"),
        (np.zeros((0, 4)), "shape"),
    ],
)
def test_impossible_runs_are_refused(runs, rule):
    memory = system()
    with pytest.raises(SimulationError, match=rule):
        memory.submit(0, 0, 0, False, np.array(runs))


def test_bad_parts_are_refused():
    with pytest.raises(ConfigError, match=r"port 'p'.bus: lies in 0..0 \(got 3\)"):
        MemorySystem([PortConfig("p", 3, NS, 1, 1)], [BusConfig("b", NS, 16, 0, 16)], [SRAM])
    with pytest.raises(ConfigError, match="power of two"):
        BusConfig("b", NS, 24, 0, 16)
    with pytest.raises(ConfigError, match=r"1\.\.256"):
        BusConfig("b", NS, 16, 0, 257)
    with pytest.raises(ConfigError, match="at least one"):
        MemorySystem([], [BusConfig("b", NS, 16, 0, 16)], [SRAM])


def test_sram_banks_serve_disjoint_streams_at_once():
    # two banks interleaved by 64: two ports on different banks end like one alone (one beat each,
    # read channel shared: one cycle apart), on the same bank the second word waits a cycle too
    spec = SramConfig("sram", NS, 2, 64, 64, 2, 1 << 20)
    ports = [PortConfig(f"p{i}", i, NS, 64, 4) for i in range(2)]
    buses = [BusConfig(f"b{i}", NS, 64, 0, 256) for i in range(2)]
    apart, same = (MemorySystem(ports, buses, [spec]) for _ in range(2))
    for port, base in enumerate((0, 64)):
        read(apart, base, 64, port=port)
        read(same, 0, 64, port=port)
    assert finish(apart) == [4000, 4000]
    assert finish(same) == [4000, 5000]
    assert same.memory_counters(0)["conflict_cycles"] == 1
