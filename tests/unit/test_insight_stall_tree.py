"""Stall trees: every node is the sum of its parts, and every picosecond is in one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.engine import StallCause
from npusim.errors import ResultError, SimulationError
from npusim.insight.stall_tree import FAMILIES, family_of, stage_stall_trees, stall_tree
from npusim.results.invariants import check_phase
from npusim.results.loading import load_result
from npusim.results.records import EngineRecord, StageTimeRecord
from tests.unit.insight_samples import real_run
from tests.unit.results_samples import tiny_phase, tiny_run

PHASES = ("prefill", "decode")


def assert_sums(tree):
    """Every node equals its parts, by kind too, and the root is elapsed time times engines."""
    assert tree.root.time_ps == tree.elapsed_ps * sum(tree.engines.values())
    for node in tree.root.walk():
        assert node.time_ps == sum(node.by_kind.values())
        if node.children:
            assert node.time_ps == sum(child.time_ps for child in node.children)
    for kind, count in tree.engines.items():
        assert tree.root.by_kind.get(kind, 0) == tree.elapsed_ps * count


def test_every_cause_is_in_one_family():
    found = Counter(cause for causes in FAMILIES.values() for cause in causes)
    assert found == Counter(StallCause)


def test_tiny_tree_by_hand():
    # host 1 busy + 1000 idle; dma 600 + 101 idle + 300 full; matrix 501 + 100 launch + 400 data
    tree = stall_tree(tiny_phase())
    found = {"/".join(node.path): node.time_ps for node in tree.root.walk()}
    assert found == {
        "": 3003,
        "busy": 1102,
        "dram": 400,
        "dram/dram_data": 400,
        "buffer": 300,
        "buffer/buffer_full": 300,
        "launch": 100,
        "launch/launch": 100,
        "idle": 1101,
    }
    assert tree.share_frac(tree.root.children[1], "matrix") == 400 / 1001
    assert_sums(tree)


@given(st.lists(st.integers(0, 10**9), min_size=22, max_size=22), st.integers(1, 5))
def test_trees_of_any_engines_sum_exactly(parts, copies):
    busy, idle, *stalls = parts
    elapsed = sum(parts)
    causes = {c.value: ps for c, ps in zip(StallCause, stalls, strict=True)}
    engine = EngineRecord("e", "matrix", "npu", 0, busy, idle, causes, 1)
    host = EngineRecord("h", "host", "host", None, elapsed, 0, {}, 1)
    record = replace(tiny_phase(), elapsed_ps=elapsed, engines=(engine,) * copies + (host,))
    tree = stall_tree(record)
    assert_sums(tree)
    found = {node.path[-1]: node.time_ps for node in tree.root.walk() if len(node.path) == 2}
    assert found == {cause: copies * ps for cause, ps in causes.items() if ps}


@pytest.mark.parametrize("phase", PHASES)
def test_a_real_run_sums_by_phase_and_by_stage(phase):
    record = real_run().phase(phase)
    whole = stall_tree(record)
    assert_sums(whole)
    stages = stage_stall_trees(record)
    assert list(stages) == [s.stage for s in record.stages if s.elapsed_ps]
    for tree in stages.values():
        assert_sums(tree)
    for node in whole.root.walk():
        same = [n for tree in stages.values() for n in tree.root.walk() if n.path == node.path]
        assert sum(n.time_ps for n in same) == node.time_ps


def test_stage_times_survive_a_folder(tmp_path):
    run = real_run()
    run.save(tmp_path)
    loaded = load_result(tmp_path)
    assert loaded.stage_times.rows() == run.stage_times.rows()
    assert len(run.stage_times) > 100


@pytest.mark.parametrize("delta", [-1, 1])
def test_a_picosecond_moved_between_stages_is_refused(delta):
    record = real_run().phase("prefill")
    rows = list(record.stage_times)
    other = next(
        i
        for i, row in enumerate(rows)
        if (row.kind, row.cause) == (rows[0].kind, rows[0].cause) and row.stage != rows[0].stage
    )
    rows[0] = replace(rows[0], time_ps=rows[0].time_ps + delta)
    with pytest.raises(SimulationError, match="of the stages must equal the engines'"):
        check_phase(replace(record, stage_times=tuple(rows)))
    rows[other] = replace(rows[other], time_ps=rows[other].time_ps - delta)
    with pytest.raises(SimulationError, match="causes must equal elapsed_ps x engines"):
        check_phase(replace(record, stage_times=tuple(rows)))


def test_a_negative_stage_time_is_refused():
    record = replace(tiny_phase(), stage_times=(StageTimeRecord("lm_head", "host", "busy", -1),))
    with pytest.raises(SimulationError, match="zero must not exceed busy time"):
        check_phase(record)


def test_no_engines_no_tree():
    with pytest.raises(ResultError, match="fidelity 'analytic' has none"):
        stall_tree(replace(tiny_phase(), engines=()))


def test_an_unknown_stage_names_the_nearest():
    with pytest.raises(ResultError, match="did you mean 'lm_head'"):
        stall_tree(tiny_run().phase("decode"), "lm_heat")


def test_table_has_a_row_per_node():
    tree = stall_tree(tiny_phase())
    frame = tree.to_frame()
    assert len(frame) == len(tree.summary()["nodes"]) == 9
    assert frame["time_ps"].iloc[0] == 3003
    assert frame["dma_load_ps"].sum() == 2 * 1001 + 300


def test_families_of_causes():
    assert family_of("dram_row") == "dram"
    assert family_of("busy") == "busy"
