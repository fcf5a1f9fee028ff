"""Bytes held by scratchpads over time, and flows between spans."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from npusim.program import (
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    MemorySpace,
    Opcode,
    Program,
    Region,
)
from npusim.simulation import occupancy
from npusim.simulation.occupancy import occupancy_series
from npusim.simulation.spans import _flows

ENGINES = (Engine("matrix", EngineKind.MATRIX, "npu", 0, 1000),)
SPACES = (
    MemorySpace("dram", "dram", 1 << 20, 0),
    MemorySpace("pad", "scratchpad", 4096),
)


def execute(*rows):
    """Program and times from rows (start, end, reads, writes), regions as (offset, bytes)."""
    commands = [
        Command(
            0,
            Opcode.MATMUL,
            1,
            reads=tuple(Region(1, *r) for r in reads),
            writes=tuple(Region(1, *w) for w in writes),
        )
        for _, _, reads, writes in rows
    ]
    starts, ends = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    execution = SimpleNamespace(start_ps=starts, end_ps=ends, elapsed_ps=int(ends.max()))
    return Program.from_commands(commands, ENGINES, SPACES), execution


def levels(*rows):
    """Changes of the level over a run of 256 ps, so that a bin is one picosecond."""
    ((name, bin_ps, held),) = occupancy_series(*execute(*rows))
    assert (name, bin_ps, len(held)) == ("pad", 1, 256)
    steps = np.flatnonzero(np.diff(held, prepend=0))
    return [(int(i), int(held[i])) for i in steps]


def test_bytes_are_held_from_the_write_to_the_last_read():
    # 64 bytes written from 10, last read until 90; 32 bytes written from 60, never read
    rows = (
        (10, 20, (), ((0, 64),)),
        (20, 50, ((0, 64),), ()),
        (60, 90, ((0, 64),), ((64, 32),)),
        (200, 256, (), ((0, 16),)),
    )
    assert levels(*rows) == [(10, 64), (60, 96), (90, 0), (200, 16)]


def test_a_command_that_updates_its_bytes_keeps_them_held():
    rows = (
        (0, 10, (), ((0, 8),)),
        (30, 40, ((0, 8),), ((0, 8),)),
        (50, 256, ((0, 8),), ()),
    )
    assert levels(*rows) == [(0, 8)]


def test_an_overwrite_that_begins_before_the_reader_ends_counts_once():
    # 8 bytes, read from 10 to 60; 4 of them are overwritten from 40 on and not read again
    rows = (
        (0, 10, (), ((0, 8),)),
        (10, 60, ((0, 8),), ()),
        (40, 256, (), ((0, 4),)),
    )
    assert levels(*rows) == [(0, 8), (60, 4)]


def test_bytes_nobody_wrote_are_held_from_the_start():
    assert levels((100, 120, ((0, 8),), ()), (250, 256, (), ((8, 1),))) == [
        *((0, 8), (120, 0), (250, 1)),
    ]


def test_a_bin_shows_the_most_held_at_once_in_it():
    # a bin is 2 ps: 5 bytes during one half of the second bin only
    ((_, bin_ps, held),) = occupancy_series(
        *execute((3, 4, (), ((0, 5),)), (511, 512, (), ((0, 1),)))
    )
    assert bin_ps == 2
    assert held.tolist() == [0, 5, *[0] * 253, 1]


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_many_accesses_are_looked_at_in_parts(monkeypatch, limit):
    generator = np.random.default_rng(3)
    rows, now = [], 0
    for _ in range(60):
        low, size = (int(v) for v in generator.integers(0, 40, 2))
        access = ((low, size + 1),)
        reads, writes = ((), access) if generator.integers(2) else (access, ())
        rows.append((now, now + 4, reads, writes))
        now += 4
    rows.append((255, 256, (), ((0, 1),)))
    whole = levels(*rows)
    assert whole == by_byte(rows)
    monkeypatch.setattr(occupancy, "_MAX_ENTRIES", limit)
    assert levels(*rows) == whole


def by_byte(rows):
    """The same, byte by byte and picosecond by picosecond."""
    held = [set() for _ in range(256)]
    for byte in range(100):
        since, until = 0, 0
        for start, end, reads, writes in rows:
            if any(low <= byte < low + size for low, size in reads):
                until = end
            if any(low <= byte < low + size for low, size in writes):
                for now in range(since, min(until, start)):
                    held[now].add(byte)
                since, until = start, end
        for now in range(since, until):
            held[now].add(byte)
    counts = [0, *(len(bytes_held) for bytes_held in held)]
    return [(i, counts[i + 1]) for i in range(256) if counts[i + 1] != counts[i]]


def test_flows_are_edges_between_recorded_commands():
    waits = ((), (Edge(0),), (Edge(0, EdgeKind.ORDER), Edge(1, EdgeKind.BUFFER_FREE)))
    program = Program.from_commands(
        [Command(0, Opcode.MATMUL, 1, waits=w) for w in waits], ENGINES, SPACES
    )
    # spans in this order: command 1, a stall (3 commands, so 3 is the first stall), 0, 2
    flows = _flows(program, np.array([1, 3, 0, 2]))
    rows = zip(flows.producer.tolist(), flows.consumer.tolist(), flows.kind.tolist(), strict=True)
    assert sorted(rows) == [
        (0, 3, EdgeKind.BUFFER_FREE),
        (2, 0, EdgeKind.DATA),
        (2, 3, EdgeKind.ORDER),
    ]
    assert len(_flows(program, np.array([1, 3]))) == 0
