"""The compiled kernel against the plain oracle, on random small programs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.memory.dram.timing import load_dram_device
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem
from tests.property.memory_oracle import Oracle

DEVICES = ("DDR4-3200", "LPDDR5-6400", "LPDDR4X-4266", "HBM2-2000", "HBM3-6400", "DDR5-5600")
SPAN_BYTES = 1 << 16


@st.composite
def drams(draw):
    device = load_dram_device(draw(st.sampled_from(DEVICES)))
    often = draw(st.booleans())
    if often:  # refresh within a short program
        timing = dict(device.timing)
        row_cycle = timing.get("nRC", timing["nRAS"] + timing["nRP"])
        timing["nREFI"] = timing["nRFC"] + row_cycle + draw(st.integers(100, 400))
        if "nREFIpb" in timing:
            timing["nREFIpb"] = timing["nPBR2PBR"] + row_cycle + draw(st.integers(20, 200))
        device = replace(device, timing=MappingProxyType(timing))
    modes = ["none", "all_bank"] + ["per_bank"] * ("nRFCpb" in device.timing)
    plain = not (device.two_step_activate or device.rising_edge_only)
    controller = draw(st.sampled_from(["frfcfs"] + ["bank_round_robin"] * plain))
    pages = ["open", "open", "closed", "closed_cap"]
    if controller == "bank_round_robin":
        modes, pages = ["none", "all_bank"], ["open"]
    return DramConfig(
        name="dram",
        device=device,
        channels=draw(st.sampled_from([1, 2, 3])),
        capacity_bytes=1 << 26,
        address_map=draw(st.sampled_from(["BGlow", "RowLinear", "BankLow", "BGlowXOR"])),
        channel_interleave_bytes=device.burst_bytes * draw(st.sampled_from([1, 4])),
        ranks=draw(st.sampled_from([1, 1, 2])),
        read_queue_depth=draw(st.integers(1, 6)),
        write_queue_depth=draw(st.integers(2, 6)),
        controller=controller,
        bank_queue_depth=draw(st.integers(1, 3)),
        row_hit_limit=draw(st.integers(1, 4)),
        merged_reads=draw(st.integers(0, 2)),
        page_policy=draw(st.sampled_from(pages)),
        page_cap=draw(st.integers(1, 3)),
        refresh=draw(st.sampled_from(modes)),
        posted_writes=draw(st.booleans()),
        partial_write=draw(st.sampled_from(["masked", "read_modify_write"])),
        latency_ps=draw(st.sampled_from([0, 12345])),
        scheduler=draw(st.sampled_from(["frfcfs", "frfcfs_row_hit"])),
    )


@st.composite
def srams(draw):
    word = draw(st.sampled_from([8, 32]))
    return SramConfig(
        name="sram",
        clock_period_ps=Fraction(draw(st.sampled_from([700, 1000]))),
        banks=draw(st.integers(1, 4)),
        port_bytes=word,
        interleave_bytes=word * draw(st.sampled_from([1, 4])),
        latency_cycles=draw(st.integers(0, 5)),
        capacity_bytes=1 << 20,
    )


@st.composite
def systems(draw):
    periods = st.sampled_from([Fraction(1000), Fraction(1250), Fraction(10**6, 1300)])
    buses = [
        BusConfig(
            f"bus{i}", draw(periods), draw(st.sampled_from([8, 32, 128])),
            draw(st.sampled_from([0, 999, 20000])), draw(st.sampled_from([1, 4, 16, 256])),
            draw(st.sampled_from(["round_robin", "fixed", "qos"])),
            draw(st.sampled_from([0, 0, 1, 3])),
        )
        for i in range(draw(st.integers(1, 2)))
    ]  # fmt: skip
    ports = []
    for i in range(draw(st.integers(1, 3))):
        ids = draw(st.sampled_from([0, 1, 2, 3]))
        ports.append(
            PortConfig(
                f"port{i}", draw(st.integers(0, len(buses) - 1)), draw(periods),
                draw(st.sampled_from([4, 32, 256])), draw(st.integers(1, 4)), ids,
                draw(st.integers(0, 2)) if ids else 0, draw(st.sampled_from([0, 3, 15])),
            )
        )  # fmt: skip
    memories = draw(st.lists(st.one_of(drams(), drams(), srams()), min_size=1, max_size=2))
    return ports, buses, memories


@st.composite
def programs(draw):
    ports, buses, memories = draw(systems())
    cut = min(b.max_burst_beats * b.data_bytes for b in buses)
    sizes = [size for size in (1, 24, 64, 200, 600) if size <= 8 * cut]  # few bursts per row
    times = sorted(
        draw(
            st.lists(
                st.sampled_from([0, 0, 1000, 50_000, 777_777, 6_000_000]), min_size=1, max_size=5
            )
        )
    )
    submissions = []
    for now in times:
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            size = draw(st.sampled_from(sizes))
            stride = draw(st.sampled_from([size, size + 40, 4096, 8256]))
            count = draw(st.integers(1, 2))
            rows.append((draw(st.integers(0, SPAN_BYTES)), size, stride, count))
        submissions.append(
            (now, draw(st.integers(0, len(ports) - 1)), draw(st.integers(0, len(memories) - 1)),
             draw(st.booleans()), rows)
        )  # fmt: skip
    return (ports, buses, memories), submissions


def run_kernel(system, submissions):
    """All submissions known beforehand; returns completion times by submission, and the system."""
    memory = MemorySystem(*system)
    todo, done, completions = list(submissions), {}, []
    while True:
        waiting = [todo[0][0]] if todo else []
        waiting += completions[:1] and [completions[0][0]]
        horizon = min(waiting) if waiting else None
        found = memory.advance(horizon)
        completions = sorted(completions + found)
        if found:
            continue
        if horizon is None:
            return [done[i] for i in range(len(submissions))], memory
        while completions and completions[0][0] <= horizon:
            at, tid = completions.pop(0)
            done[tid] = at
        while todo and todo[0][0] == horizon:
            now, port, mem, is_write, rows = todo.pop(0)
            memory.submit(now, port, mem, is_write, np.array(rows))


def check_program(program):
    system, submissions = program
    expected = Oracle(*system).run(submissions)
    found, memory = run_kernel(system, submissions)
    assert found == expected
    check_conservation(memory, submissions)


def check_conservation(memory, submissions):
    memory.drain()
    asked = [[0, 0] for _ in memory.memories]
    for i, (_, _, mem, is_write, rows) in enumerate(submissions):
        size = sum(r[1] * r[3] for r in rows)
        asked[mem][is_write] += size
        accesses, hits, misses, conflicts, moved = memory.transfer_counters(i)
        assert hits + misses + conflicts == accesses
        assert moved == size
    for m, spec in enumerate(memory.memories):
        counts = memory.memory_counters(m)
        assert [counts["read_bytes"], counts["write_bytes"]] == asked[m]
        kinds = counts["row_hits"] + counts["row_misses"] + counts["row_conflicts"]
        assert kinds == counts["accesses"]
        if isinstance(spec, DramConfig):
            assert counts["accesses"] == counts["read_commands"] + counts["write_commands"]
        now = memory.clock_ps + 12345
        assert int(memory.attribution(now, m).sum()) == memory.data_buses(m) * now
        assert memory.attribution(now, m).min() >= 0


@settings(max_examples=50, deadline=None)
@given(programs())
def test_completion_times_equal_the_oracle(program):
    check_program(program)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(programs())
def test_completion_times_equal_the_oracle_on_a_thousand_programs(program):
    check_program(program)


def test_a_refresh_that_falls_due_keeps_the_write_mode_from_being_judged():
    # Found by the random programs: at the cycle a refresh falls due the write queue is empty and
    # reads wait, which would end the write mode; one write more arrives before the refresh is over.
    device = load_dram_device("DDR5-5600")
    device = replace(device, timing=MappingProxyType({**device.timing, "nREFI": 1061}))
    dram = DramConfig(
        "dram", device, 1, 1 << 26, "BGlowXOR", 64, read_queue_depth=6, write_queue_depth=3,
        posted_writes=False, partial_write="read_modify_write", latency_ps=12345,
    )  # fmt: skip
    fast, slow = Fraction(10**6, 1300), Fraction(1250)
    buses = [
        BusConfig("bus0", slow, 32, 20000, 4, "qos", 3),
        BusConfig("bus1", fast, 32, 20000, 4, "qos", 1),
    ]
    ports = [
        PortConfig("port0", 0, slow, 4, 1, 2, 0, 0),
        PortConfig("port1", 0, fast, 256, 2, 3, 1, 0),
        PortConfig("port2", 1, slow, 4, 2, 2, 2, 0),
    ]
    submissions = [
        (0, 2, 0, True, [(204, 200, 4096, 2), (16, 600, 8256, 2)]),
        (0, 0, 0, False, [(240, 64, 104, 1)]),
        (50_000, 1, 0, True, [(8959, 200, 4096, 1), (2825, 600, 8256, 2)]),
        (777_777, 1, 0, True, [(27468, 1, 1, 1), (53002, 600, 640, 2)]),
        (777_777, 1, 0, False, [(257, 24, 64, 2), (34, 24, 64, 2), (253, 200, 4096, 1)]),
    ]
    check_program(((ports, buses, [dram]), submissions))
