"""When and how often the kernel is called, and in which order ports submit, changes nothing."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.memory.sharing import SharingMemory
from npusim.memory.system import MemorySystem
from tests.property.test_memory_oracle import programs


def run(make, program, stops=(), reverse=False, follow_up=True):
    """Drive a memory as SimPy would; completions of the first transfers submit one more each.

    `stops` are times at which something unrelated happens. Returns {(order, follow-up): ps}.
    """
    system, submissions = program
    memory = make(*system)
    events = [(now, 0, i) for i, (now, *_) in enumerate(submissions)] + [(t, 1, -1) for t in stops]
    heapq.heapify(events)
    names, done = {}, {}

    def submit(name, now, port, mem, is_write, rows):
        names[memory.submit(now, port, mem, is_write, np.array(rows))] = name

    while True:
        horizon = events[0][0] if events else None
        found = memory.advance(horizon)
        for at, tid in found:
            heapq.heappush(events, (at, 2, tid))
        if found:
            continue
        if horizon is None:
            return done
        batch = []
        while events and events[0][0] == horizon:
            batch.append(heapq.heappop(events))
        fresh = [submissions[i] for _, kind, i in batch if kind == 0]
        order = [i for _, kind, i in batch if kind == 0]
        pairs = list(zip(order, fresh, strict=True))
        ports = [port for _, port, *_ in fresh]
        if reverse and len(set(ports)) == len(ports):
            pairs.reverse()
        for i, (now, port, mem, is_write, rows) in pairs:
            submit((i, 0), now, port, mem, is_write, rows)
        finished = sorted(names[tid] for _, kind, tid in batch if kind == 2)
        for i, generation in finished:
            done[i, generation] = horizon
            if follow_up and generation == 0:
                _, port, mem, is_write, rows = submissions[i]
                submit((i, 1), horizon, port, mem, not is_write, rows)


@settings(max_examples=20, deadline=None)
@given(programs(), st.lists(st.integers(0, 8_000_000), max_size=40))
def test_unrelated_events_change_no_completion(program, stops):
    assert run(MemorySystem, program, stops) == run(MemorySystem, program)


@settings(max_examples=20, deadline=None)
@given(programs())
def test_order_of_same_time_submits_from_different_ports_changes_nothing(program):
    assert run(MemorySystem, program, reverse=True) == run(MemorySystem, program)


@settings(max_examples=20, deadline=None)
@given(programs())
def test_a_run_repeats_itself(program):
    assert run(MemorySystem, program) == run(MemorySystem, program)


@settings(max_examples=20, deadline=None)
@given(programs())
def test_nothing_beats_the_peak(program):
    (_ports, _buses, memories), submissions = program
    done = run(MemorySystem, program, follow_up=False)
    for m, spec in enumerate(memories):
        mine = [i for i, s in enumerate(submissions) if s[2] == m]
        size = sum(r[1] * r[3] for i in mine for r in submissions[i][4] if not submissions[i][3])
        if size:
            last = max(done[i, 0] for i in mine)
            first = min(submissions[i][0] for i in mine)
            assert (last - first) * spec.peak_bytes_per_s / 10**12 >= size


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(programs())
def test_transfer_fidelity_is_deterministic_and_complete(program):
    first = run(SharingMemory, program)
    assert first == run(SharingMemory, program)
    assert len(first) == 2 * len(program[1])
