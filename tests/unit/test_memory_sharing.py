"""Fidelity `transfer`: fair rates by hand, bounds, and the interface of the burst kernel."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from npusim.memory import efficiency
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.filling import fill
from npusim.memory.sharing import SharingMemory
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

NS = Fraction(1000)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_filling_is_max_min_fair():
    # one resource of 12 per unit time; the second flow is capped at 2, the others share 10
    uses = [[(0, 1 / 12)]] * 3
    assert fill([100.0, 2.0, 100.0], uses) == pytest.approx([5.0, 2.0, 5.0])


def sram_system(ports=2):
    return SharingMemory(
        [PortConfig(f"p{i}", 0, NS, 64, 16) for i in range(ports)],
        [BusConfig("bus", NS, 64, 20_000, 64)],
        [SramConfig("sram", NS, 4, 64, 64, 2, 1 << 20)],
    )


def test_two_flows_share_the_bus_direction():
    # 64 bytes/ns shared: 32 each; 32 kB take 1024 ns, then 20 + 1 + 3 ns of latency
    memory = sram_system()
    for port in range(2):
        memory.submit(0, port, 0, False, np.array([[port << 16, 32_768, 0, 1]]))
    assert [at for at, _ in memory.advance(None)] == [1_048_000, 1_048_000]


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


def test_measured_efficiency_is_stored_and_survives_a_broken_file(tmp_path):
    spec = dram_parts()[2][0]
    first = efficiency.efficiency(spec, 256, "read")
    [path] = tmp_path.rglob("*.json")
    assert efficiency.load(path) == first
    path.write_text("{", encoding="utf-8")
    assert efficiency.load(path) is None
    assert 0.1 < first.bandwidth_frac <= 1
