"""Fidelity `transfer`: fair rates by hand, bounds, and the interface of the burst kernel."""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest

from npusim.memory import efficiency
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.measure import Mix, Source
from npusim.memory.patterns import LONG, LONG_BYTES, Pattern, blocks_touched, pattern_of
from npusim.memory.sharing import SharingMemory
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

NS = Fraction(1000)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    efficiency.efficiency.cache_clear()


def sram_system(ports=2, outstanding=16):
    return SharingMemory(
        [PortConfig(f"p{i}", 0, NS, 64, outstanding) for i in range(ports)],
        [BusConfig("bus", NS, 64, 20_000, 64)],
        [SramConfig("sram", NS, 4, 64, 64, 2, 1 << 20)],
    )


def test_two_flows_share_the_bus_direction():
    # 64 bytes/ns shared: 32 each; 32 kB take 1024 ns, then 20 + 1 + 3 ns of latency
    memory = sram_system()
    for port in range(2):
        memory.submit(0, port, 0, False, np.array([[port << 16, 32_768, 0, 1]]))
    assert [at for at, _ in memory.advance(None)] == [1_048_000, 1_048_000]


def test_a_flow_held_back_by_its_port_leaves_the_bus_to_the_others():
    # ports of 16, 64 and 64 bytes/ns on a bus of 64: 16, 24 and 24; 32 kB take 2048 and 1365.3 ns
    ports = [PortConfig(f"p{i}", 0, NS, rate, 16) for i, rate in enumerate((16, 64, 64))]
    memory = SharingMemory(
        ports,
        [BusConfig("bus", NS, 64, 20_000, 64)],
        [SramConfig("sram", NS, 4, 64, 64, 2, 1 << 20)],
    )
    for port in range(3):
        memory.submit(0, port, 0, False, np.array([[port << 16, 32_768, 0, 1]]))
    first = memory.advance(None)
    assert [at for at, _ in first] == [1_365_334 + 24_000] * 2
    # of the slow one 10923 1/3 bytes are left then: it never had more or less than its 16 bytes/ns
    assert memory.advance(None) == [(2_048_000 + 24_000, 0)]


def test_first_come_first_served_weighs_flows_by_the_bytes_asked_for():
    # 16 bursts of 4096 bytes against one of 4096: the bus of 64 bytes/ns gives 16/17 and 1/17, so
    # the small one waits for all that was asked before it: 17 x 4096 / 64 = 1088 ns, then latency
    memory = sram_system()
    memory.submit(0, 0, 0, False, np.array([[0, 1 << 18, 0, 1]]))
    memory.submit(0, 1, 0, False, np.array([[1 << 18, 4096, 0, 1]]))
    assert memory.advance(None) == [(1_088_000 + 24_000, 1)]


def test_short_rows_cost_whole_beats_and_whole_port_cycles():
    # 64 rows of 8 bytes: a beat and a port cycle of 1 ns each, as many as rows of 64 bytes need
    ends = []
    for size in (8, 64):
        memory = sram_system(1, outstanding=32)
        memory.submit(0, 0, 0, False, np.array([[0, size, 320, 64]]))
        ends.append(memory.advance(None)[0][0])
    assert ends[0] == ends[1] == 64_000 + 24_000


def test_rows_on_one_bank_get_what_one_bank_gives():
    # rows of 64 bytes, 256 apart, lie on one of 4 banks of 64 bytes/ns; ports of 256 on such a bus.
    # of 64 bursts the 16 outstanding ones are spread: load 0.75 x 4 + 0.25 = 3.25 times the mean
    ends = []
    for stride in (256, 320):
        memory = SharingMemory(
            [PortConfig("p", 0, NS / 4, 64, 16)],
            [BusConfig("bus", NS / 4, 64, 0, 64)],
            [SramConfig("sram", NS, 4, 64, 64, 0, 1 << 20)],
        )
        memory.submit(0, 0, 0, False, np.array([[0, 64, stride, 64]]))
        ends.append(memory.advance(None)[0][0])
    latency = memory.unloaded_latency_ps(0, 0)
    spread = ends[1] - latency
    assert spread == pytest.approx(16_000, rel=0.15)  # 64 rows of 1/4 ns
    assert ends[0] - latency == pytest.approx(3.25 * 16_000, rel=0.02)


def test_transfers_of_a_port_follow_each_other_without_a_gap():
    memory = sram_system(1)
    for i in range(2):
        memory.submit(0, 0, 0, False, np.array([[i << 16, 65_536, 0, 1]]))
    done = [memory.advance(None)[0][0], memory.advance(None)[0][0]]
    assert done == [1_048_000, 2_072_000]


def dram_parts():
    device = load_dram_device("LPDDR5-6400")
    return (
        [PortConfig("p", 0, NS, 64, 32)],
        [BusConfig("bus", NS, 64, 20_000, 64)],
        [DramConfig("dram", device, 2, device.channel_bytes * 2, "BGlow", 256)],
    )


def test_agrees_with_the_burst_kernel_on_a_long_stream_and_stays_below_peak():
    run = np.array([[0, 1 << 20, 0, 1]])
    times = []
    for make in (MemorySystem, SharingMemory):
        memory = make(*dram_parts())
        memory.submit(0, 0, 0, False, run)
        times.append(memory.advance(None)[0][0])
        assert times[-1] * memory.peak_bytes_per_s(0) >= (1 << 20) * 10**12
        counts = memory.transfer_counters(0)
        assert sum(counts[1:4]) == counts[0]
    assert times[1] == pytest.approx(times[0], rel=0.03)


def test_attribution_sums_to_elapsed_time():
    memory = SharingMemory(*dram_parts())
    memory.submit(0, 0, 0, False, np.array([[0, 1 << 20, 0, 1]]))
    memory.advance(None)
    now = memory.clock_ps + 5_000_000
    split = memory.attribution(now, 0)
    assert int(split.sum()) == 2 * now
    assert split.min() >= 0


def test_refreshes_follow_from_the_time_and_the_interval():
    # LPDDR5-6400: nREFI = 3124 cycles of 1250 ps = 3.905 us; one per channel and interval
    ports, buses, memories = dram_parts()
    memory = SharingMemory(ports, buses, memories)
    interval_ps = int(memories[0].device.timing["nREFI"] * memories[0].device.cycle_ps)
    counts = []
    for at in (interval_ps - 1, interval_ps, 10 * interval_ps):
        memory.submit(at, 0, 0, False, np.array([[0, 64, 0, 1]]))
        counts.append(memory.memory_counters(0)["refreshes"])
    assert counts == [0, 2, 20]


def test_looking_at_the_time_in_between_changes_nothing():
    ends = []
    for looks in (0, 7):
        memory = SharingMemory(*dram_parts())
        memory.submit(0, 0, 0, False, np.array([[0, 1 << 18, 0, 1]]))
        for i in range(looks):
            assert memory.advance(i * 31_337) == []
            memory.attribution(i * 31_337, 0)
        ends.append(memory.advance(None))
    assert ends[0] == ends[1]


def test_blocks_are_counted_row_by_row():
    # 10 bytes every 24, blocks of 16: rows at 0 24 48 72 ... touch 1 2 1 2 ... blocks
    assert blocks_touched(0, 10, 24, 6, 16) == 9
    assert blocks_touched(60, 8, 0, 1, 64) == 2


@pytest.mark.parametrize(
    ("row", "stride", "rows", "expected"),
    [
        (100, 0, 1, Pattern(128, 0)),  # two accesses of 64
        (100, 1024, 9, Pattern(128, 1024)),
        (64 * 19, 4096, 2, Pattern(64 * 16, 4096)),  # 0b10011 accesses, three digits kept
        (64, 64, 9, LONG),
        (LONG_BYTES + 5, 0, 1, LONG),
    ],
)
def test_patterns_are_classed_by_accesses(row, stride, rows, expected):
    assert pattern_of(row, stride, rows, 64) == expected


@pytest.mark.parametrize("mix", list(Mix))
def test_measured_shares_are_shares(mix):
    found = efficiency.efficiency(dram_parts()[2][0], Source(2, 32, 4096), LONG, mix)
    assert 0.3 < found.bandwidth_frac <= 1
    assert 0 <= found.hit_frac + found.miss_frac <= 1
    assert sum(found.overhead_frac) == pytest.approx(1)
    assert (found.write_frac > 0) == (mix is not Mix.READ)


def test_measured_efficiency_is_stored_and_survives_a_broken_file(tmp_path):
    spec = dram_parts()[2][0]
    first = efficiency.efficiency(spec, Source(1, 32, 4096), Pattern(256, 0), Mix.READ)
    stored = {path: efficiency.load(path) for path in tmp_path.rglob("*.json")}
    assert first in stored.values()
    path = next(path for path, found in stored.items() if found == first)
    path.write_text("{", encoding="utf-8")
    assert efficiency.load(path) is None
    path.write_text(json.dumps(asdict(first) | {"bandwidth_frac": 0}), encoding="utf-8")
    assert efficiency.load(path) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    efficiency.efficiency.cache_clear()
    found = efficiency.efficiency(dram_parts()[2][0], Source(1, 32, 4096), LONG, Mix.READ)
    assert found.bandwidth_frac > 0.5
