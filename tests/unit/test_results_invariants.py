"""Mutation tests: each way of losing a picosecond or a byte makes the result an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npusim.errors import SimulationError
from npusim.results.invariants import check_phase
from tests.unit.results_samples import tiny_phase


def changed(part, index, **changes):
    """The tiny phase with one item of one part changed."""
    record = tiny_phase()
    items = list(getattr(record, part))
    items[index] = replace(items[index], **changes)
    return replace(record, **{part: tuple(items)})


MUTATIONS = [
    (replace(tiny_phase(), elapsed_ps=0), "phase decode: a run takes time"),
    (replace(tiny_phase(), steps=0), "a phase has steps"),
    (replace(tiny_phase(), bound_ps=1002), "closed-form bound of 1002 ps .*got 1001"),
    (replace(tiny_phase(), macs=61), "MACs of the stages must equal MACs of the phase: 61"),
    (changed("stages", 0, elapsed_ps=699), "stage times must equal elapsed_ps: 1001.*-1"),
    (changed("stages", 0, dram_bytes=63), "DRAM bytes of the stages must equal .*96.*-1"),
    (changed("stages", 1, active_ps=1002), "stage lm_head: active_ps must not exceed the phase"),
    (changed("stages", 0, launch_ps=701), "stage attention: launch_ps must not exceed"),
    (changed("stages", 0, bound_by="magic"), "bound_by is one of"),
    (changed("engines", 1, busy_ps=601), r"engine npu.c0.dma: busy \+ idle \+ stalls .*1001.*\+1"),
    (changed("engines", 2, idle_ps=-1), "engine npu.c0.matrix: zero must not exceed idle time"),
    (changed("engines", 1, stalls_ps={"buffer_full": 299}), "engine npu.c0.dma: .*-1"),
    (changed("engines", 1, stalls_ps={}), "engine npu.c0.dma"),
    (changed("memories", 0, read_bytes=65), "DRAM bytes of the stages"),
    (changed("memories", 0, bytes_by_role={"weight": 64}), "memory dram: bytes by role .*96"),
    (changed("memories", 0, bytes_by_role={"weight": 64, "other": 32}), "has the roles"),
    (changed("memories", 0, row_hits=2), r"row hits \+ misses \+ conflicts .*accesses: 3"),
    (changed("memories", 0, footprint_bytes=8193), "footprint must not exceed capacity"),
    (changed("memories", 0, peak_bytes_per_s=90_000_000_000), "bytes at the peak rate"),
    (changed("sram", 0, hit_bytes=121), "SRAM npu.c0.scratchpad: hit_bytes must not exceed"),
    (changed("sram", 0, peak_occupancy_bytes=1025), "occupancy must not exceed capacity"),
]


def test_the_unchanged_record_passes():
    check_phase(tiny_phase())


@pytest.mark.parametrize(("record", "message"), MUTATIONS)
def test_a_wrong_record_is_refused_by_name(record, message):
    with pytest.raises(SimulationError, match=message):
        check_phase(record)


def test_ideal_memory_may_move_more_than_its_peak():
    record = changed("engines", 2, stalls_ps={"launch": 500})
    memories = changed("memories", 0, peak_bytes_per_s=1).memories
    check_phase(replace(record, memories=memories), is_memory_ideal=True)


def test_ideal_memory_causes_no_stalls():
    with pytest.raises(SimulationError, match=r"an ideal memory causes no stalls.*dram_data"):
        check_phase(tiny_phase(), is_memory_ideal=True)


def test_shared_sram_has_no_rows_to_account_for():
    check_phase(
        replace(
            changed("memories", 0, kind="shared_sram", row_hits=0),
            stages=tuple(replace(stage, dram_bytes=0) for stage in tiny_phase().stages),
        )
    )
