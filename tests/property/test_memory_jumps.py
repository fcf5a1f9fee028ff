"""Jumping over the steady parts of a stream equals stepping, in everything reported."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem

DEVICES = (
    "DDR4-3200", "LPDDR5-6400", "LPDDR4X-4224", "LPDDR5X-8533", "HBM2-2000", "HBM3-6400",
    "DDR5-5600",
)  # fmt: skip
KIB = 1024


@st.composite
def drams(draw):
    device = load_dram_device(draw(st.sampled_from(DEVICES)))
    if draw(st.booleans()):  # refreshes close together: transients cover more of the time
        timing = dict(device.timing)
        timing["nREFI"] = timing["nRFC"] + draw(st.integers(500, 3000))
        device = replace(device, timing=MappingProxyType(timing))
    modes = ["none", "all_bank", "all_bank"] + ["per_bank"] * ("nRFCpb" in device.timing)
    return DramConfig(
        name="dram",
        device=device,
        channels=draw(st.sampled_from([1, 1, 1, 2, 3])),
        capacity_bytes=1 << 26,
        address_map=draw(st.sampled_from(["BGlow", "BGlow", "RowLinear", "BankLow", "BGlowXOR"])),
        channel_interleave_bytes=device.burst_bytes * draw(st.sampled_from([1, 4, 8])),
        ranks=draw(st.sampled_from([1, 1, 2])),
        read_queue_depth=draw(st.sampled_from([8, 32, 32])),
        write_queue_depth=draw(st.sampled_from([4, 32])),
        page_policy=draw(st.sampled_from(["open", "open", "closed"])),
        refresh=draw(st.sampled_from(modes)),
        posted_writes=draw(st.booleans()),
        latency_ps=draw(st.sampled_from([0, 12345])),
        scheduler=draw(st.sampled_from(["frfcfs", "frfcfs_row_hit"])),
    )


@st.composite
def systems(draw):
    periods = st.sampled_from([Fraction(1000), Fraction(625), Fraction(10**6, 1300)])
    bus = BusConfig(
        "bus", draw(periods), draw(st.sampled_from([64, 512, 512])),
        draw(st.sampled_from([0, 999, 40_000])), draw(st.sampled_from([4, 16, 16])),
    )  # fmt: skip
    ports = [
        PortConfig(
            f"port{i}", 0, draw(periods), draw(st.sampled_from([64, 512, 512])),
            draw(st.sampled_from([4, 16, 64])),
        )
        for i in range(2)
    ]  # fmt: skip
    sram = SramConfig("sram", Fraction(1000), 2, 32, 128, 2, 1 << 20)
    return ports, [bus], [draw(drams()), sram]


@st.composite
def programs(draw):
    """Long streams of port 0, whole or in tiles, and now and then a little traffic of port 1."""
    submissions = []
    for now in sorted(draw(st.lists(st.integers(0, 99_000_000), min_size=1, max_size=2))):
        base = draw(st.sampled_from([0, 64, 4096, 65536, 1_000_000]))
        tile = draw(st.sampled_from([64, 512, 512])) * KIB
        is_write = draw(st.sampled_from([0, 0, 0, 0, 1]))
        tiles = range(draw(st.integers(1, 3)))
        submissions += [(now, 0, 0, is_write, base + i * tile, tile) for i in tiles]
    for now in draw(st.lists(st.integers(0, 30_000_000), max_size=3)):
        size = draw(st.sampled_from([64, 1000, 8192]))
        kind = draw(st.integers(0, 1))
        submissions.append(
            (now, 1, draw(st.integers(0, 1)), kind, draw(st.integers(0, 65536)), size)
        )
    return draw(systems()), sorted(submissions, key=lambda row: row[:2])


def drive(system, submissions, stops, jumps):
    """Completions, what every query says at `stops` and at the end, and the hops taken."""
    memory = MemorySystem(*system, jumps=jumps)
    todo, told, done = list(submissions), [], []
    times = [*sorted({now for now, *_ in submissions} | set(stops)), None]
    for horizon in times:
        while True:
            found = memory.advance(horizon)
            done += found
            if not found and (horizon is not None or not memory.pending):
                break
        now = memory.clock_ps + 7 if horizon is None else horizon
        told.append(report(memory, now))
        while todo and todo[0][0] == horizon:
            _, port, mem, is_write, base, size = todo.pop(0)
            memory.submit(horizon, port, mem, bool(is_write), np.array([[base, size, 0, 1]]))
    memory.drain()
    told.append(report(memory, memory.clock_ps + 99))
    told.append([memory.transfer_counters(i) for i in range(len(submissions))])
    return sorted(done), told, open_rows(memory), memory.hops_taken


def report(memory, now):
    numbers = range(len(memory.memories))
    return (
        memory.clock_ps, memory.pending, memory.queued_writes, memory.drained_ps,
        [memory.memory_counters(m) for m in numbers],
        [memory.attribution(now, m).tolist() for m in numbers],
        [memory.own_data_ps(p) for p in range(len(memory.ports))],
    )  # fmt: skip


def open_rows(memory):
    s = memory._state
    rows = []
    for i in range(s[L.H_NUM_CHANNELS]):
        ch = s[L.H_CHANNELS] + i * L.CHANNEL_WORDS
        banks = range(s[ch + L.CH_NUM_BANKS])
        rows += [int(s[s[ch + L.CH_BANKS] + b * L.BANK_WORDS + L.BK_ROW]) for b in banks]
        ranks = range(s[ch + L.CH_NUM_RANKS])
        rows += [int(s[s[ch + L.CH_RANKS] + r * L.RANK_WORDS + L.RK_OPEN]) for r in ranks]
    return rows


def check(program, stops):
    system, submissions = program
    stepped = drive(system, submissions, stops, jumps=False)
    jumped = drive(system, submissions, stops, jumps=True)
    assert stepped[3] == 0
    assert jumped[:3] == stepped[:3]
    return jumped[3]


def test_jumping_equals_stepping():
    taken = []

    @settings(max_examples=15, deadline=None)
    @given(programs(), st.lists(st.integers(0, 60_000_000), max_size=6))
    def run(program, stops):
        taken.append(check(program, stops))

    run()
    assert sum(taken) > 100  # the comparison is about something


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(programs(), st.lists(st.integers(0, 60_000_000), max_size=6))
def test_jumping_equals_stepping_on_many_programs(program, stops):
    check(program, stops)
