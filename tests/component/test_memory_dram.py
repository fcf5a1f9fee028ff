"""One DRAM channel behind a bus: hand-derived picoseconds.

DDR4-3200: tCK 625 ps, RCD 22, CL 22, CWL 16, burst 4, RP 22, RFC 576, REFI 12480 cycles. Bus and
port at 1 ns, 64 bytes, 10 ns each way: a read submitted at 0 is at the controller at 10 ns =
cycle 16 and acted on from 17.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from npusim.errors import ConfigError
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.layout import COMMAND_NAMES
from npusim.memory.specs import BusConfig, DramConfig, PortConfig
from npusim.memory.system import MemorySystem

NS = Fraction(1000)
OTHER_ROW = 1 << 17
SAME_GROUP = 256  # next column of the same bank with BGlow


def parts(device="DDR4-3200", outstanding=16, ports=1, latency_ps=20_000, static_ps=0, **options):
    spec = load_dram_device(device)
    options = {
        "channels": 1,
        "capacity_bytes": spec.channel_bytes,
        "address_map": "BGlow",
        "channel_interleave_bytes": 256,
    } | options
    return (
        [PortConfig(f"p{i}", 0, NS, 64, outstanding) for i in range(ports)],
        [BusConfig("bus", NS, 64, latency_ps, 64)],
        [DramConfig("dram", spec, latency_ps=static_ps, **options)],
    )


def system(*args, **options):
    return MemorySystem(*parts(*args, **options))


def transfer(memory, now, base, size=64, is_write=False, port=0):
    memory.submit(now, port, 0, is_write, np.array([[base, size, 0, 1]]))
    [(done, _)] = memory.advance(None)
    return done


def test_read_of_a_closed_bank():
    # ACT 17, RD 39, data until 65 = 40.625, back at 50.625, beat in bus cycle 51
    assert transfer(system(), 0, 0) == 52_000


def test_static_latency_is_added_to_reads():
    slow = MemorySystem(*parts(static_ps=3000))
    assert transfer(slow, 0, 0) == 55_000


def test_row_hit_and_conflict():
    memory = system()
    transfer(memory, 0, 0)
    # at the controller at 1010 ns = cycle 1616: RD 1617, data until 1643 = 1026.875
    assert transfer(memory, 1_000_000, SAME_GROUP) == 1_038_000
    # 2010 ns = 3216: PRE 3217, ACT 3239, RD 3261, data until 3287 = 2054.375, cycle 2065
    assert transfer(memory, 2_000_000, OTHER_ROW) == 2_066_000
    assert [memory.transfer_counters(i)[:4] for i in range(3)] == [
        (1, 0, 1, 0),
        (1, 1, 0, 0),
        (1, 0, 0, 1),
    ]


def test_closed_page_never_conflicts():
    memory = system(page_policy="closed")
    transfer(memory, 0, 0)
    # the bank precharged itself: ACT 1617, RD 1639, data until 1665 = 1040.625
    assert transfer(memory, 1_000_000, OTHER_ROW) == 1_052_000
    assert memory.memory_counters(0)["row_conflicts"] == 0


def test_refresh_blocks_the_channel():
    # at the controller at cycle 12480, the very end of the first interval: REF 12480, ACT 13056,
    # RD 13078, data until 13104 = 8190 ns, back at 8200, beat in cycle 8200
    memory = system()
    assert transfer(memory, 7_790_000, 0) == 8_201_000
    assert memory.memory_counters(0)["refreshes"] == 1
    # one cycle earlier the read goes first: 12479 accepted, ACT would be at 12480 = due: it waits
    assert transfer(system(refresh="none"), 7_790_000, 0) == 7_842_000


def test_idle_time_is_skipped_exactly():
    # three intervals idle, then a read right after the third refresh began: 3 x 12480 + 16 cycles
    memory = system()
    now = 3 * 12_480 * 625
    # at the controller 16 cycles after REF: ACT at 37440 + 576
    act = 3 * 12_480 + 576
    back = (act + 22 + 26) * 625 + 10_000
    assert transfer(memory, now, 0) == (-(-back // 1000) + 1) * 1000
    assert memory.memory_counters(0)["refreshes"] == 3


def test_posted_write_is_over_when_accepted():
    # supplied in port cycle 0, granted at 1, beat until 2, at the controller at 12 ns; answer 10 ns
    memory = system()
    assert transfer(memory, 0, 0, is_write=True) == 22_000
    # accepted in cycle 20, ACT 21, WR 43, written 20 cycles later: 63 x 625
    assert memory.drain() == 39_375


def test_unposted_write_is_over_when_written():
    # 39.375 + 10, port edge 50
    assert transfer(system(posted_writes=False), 0, 0, is_write=True) == 50_000


def test_read_of_a_queued_write_is_forwarded():
    memory = system(outstanding=1)
    memory.submit(0, 0, 0, True, np.array([[0, 64, 0, 1]]))
    memory.submit(0, 0, 0, False, np.array([[0, 64, 0, 1]]))
    done = {tid: at for at, tid in memory.advance(None) + memory.advance(None)}
    # read granted at 2, at the controller at 12 ns like the write (its data took one beat): the
    # write stream enters second at that time, so the read opens the row itself
    assert done[0] == 22_000
    assert memory.memory_counters(0)["accesses"] + memory.memory_counters(0)["forwarded_reads"] == 2


def test_writes_to_one_burst_are_merged():
    memory = system()
    memory.submit(0, 0, 0, True, np.array([[0, 32, 0, 1], [32, 32, 0, 1]]))
    memory.advance(None)
    memory.drain()
    counts = memory.memory_counters(0)
    assert (counts["merged_writes"], counts["write_commands"]) == (1, 1)


@pytest.mark.parametrize(("partial_write", "reads"), [("masked", 0), ("read_modify_write", 1)])
def test_partial_write(partial_write, reads):
    memory = system(partial_write=partial_write)
    transfer(memory, 0, 8, size=8, is_write=True)
    memory.drain()
    counts = memory.memory_counters(0)
    assert (counts["read_commands"], counts["write_commands"]) == (reads, 1)
    assert (counts["write_bytes"], counts["burst_bytes"]) == (8, 64 * (1 + reads))


def test_partial_read_moves_a_full_burst():
    memory = system()
    transfer(memory, 0, 60, size=8)  # last 4 bytes of one burst, first 4 of the next
    counts = memory.memory_counters(0)
    assert (counts["read_bytes"], counts["burst_bytes"], counts["accesses"]) == (8, 128, 2)


def test_fifth_activate_waits_for_tfaw():
    # banks of all four groups and one more: ACTs at 17, 21, 25, 29 (RRD_S 4), the fifth 34 after
    # the first
    memory = system()
    memory.record_commands(64)
    memory.submit(
        0, 0, 0, False, np.array([[i * 64, 64, 0, 1] for i in (0, 1, 2, 3)] + [[1 << 15, 64, 0, 1]])
    )
    memory.advance(None)
    acts = [int(row[0]) for row in memory.commands() if COMMAND_NAMES[row[1]] == "ACT"]
    first = acts[0]
    assert acts[4] - first >= 34
    assert min(b - a for a, b in itertools.pairwise(acts)) >= 4


def test_unloaded_latency_is_a_lower_bound_within_the_clock_alignment():
    for device in ("DDR4-3200", "LPDDR5-6400", "HBM2-2000", "HBM3-6400", "LPDDR4X-4266"):
        memory = system(device)
        size = load_dram_device(device).burst_bytes
        done = transfer(memory, 0, 0, size=size)
        bound = memory.unloaded_latency_ps(0, 0, size)
        assert bound <= done <= bound + 3000, device


@pytest.mark.parametrize("device", ["DDR4-3200", "LPDDR5X-8533", "HBM2E-3200", "HBM3-6400"])
def test_a_stream_comes_close_to_peak_and_never_beats_it(device):
    memory = system(device, outstanding=64, latency_ps=0)
    size = 1 << 20
    done = transfer(memory, 0, 0, size=size)
    share = size * 10**12 / done / float(memory.peak_bytes_per_s(0))
    assert 0.82 < share <= 1.0


def test_attribution_is_complete_and_monotone():
    memory = system("LPDDR5-6400", ports=2)
    memory.submit(0, 0, 0, False, np.array([[0, 1 << 16, 0, 1]]))
    memory.submit(0, 1, 0, True, np.array([[1 << 20, 64, 8256, 200]]))
    before = np.zeros(9, dtype=np.int64)
    for now in range(0, 30_000_000, 777_777):
        while memory.advance(now):
            pass
        after = memory.attribution(now, 0)
        assert int(after.sum()) == now
        assert (after >= before).all()
        before = after


def test_bad_memory_is_refused():
    with pytest.raises(ConfigError, match="capacity_bytes: is at most"):
        system(capacity_bytes=1 << 40)
    with pytest.raises(ConfigError, match="is one of open, closed"):
        system(page_policy="half")
    with pytest.raises(ConfigError, match="did you mean 'BGlow'"):
        system(address_map="BGlo")
    with pytest.raises(ConfigError, match="multiple of the burst of 64"):
        system(channel_interleave_bytes=96)
    with pytest.raises(ConfigError, match="0 <= low < high <= 1"):
        system(write_low_frac=0.9)
