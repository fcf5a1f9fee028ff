"""The summary JSON, derived numbers and tables of a run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from npusim.errors import ResultError, SimulationError
from npusim.results.derived import cycles_of, stage_cycles, utilization_of
from npusim.results.operator import OperatorResult
from tests.unit.results_samples import tiny_phase, tiny_run

TOP_KEYS = [
    *("schema_version", "npusim_version", "wall_s", "seed", "fidelity", "executor", "overrides"),
    *("hashes", "system", "workload", "ttft_ps", "tpot_ps", "tokens_per_s", "phases"),
]
WORKLOAD_KEYS = [
    *("model", "parameters", "weight_bytes", "weight_bytes_by_dtype", "kv_bytes_per_token"),
    *("quant", "kv_dtype", "batch", "prompt_len", "context_len", "generate_len"),
]
# Keys of the contract, which others may stand between.
PHASE_KEYS = [
    *("elapsed_ps", "cycles", "clock", "bound_ps", "tokens", "commands", "kernels", "macs"),
    *("stages", "engines", "memories", "sram", "barriers", "energy_j", "approximations"),
]
ITEM_KEYS = {
    "stages": "stage elapsed_ps active_ps cycles share_frac macs dram_bytes bound_by",
    "engines": "engine device core busy_ps idle_ps stalls_ps",
    "memories": "name read_bytes write_bytes bytes_by_role accesses row_hits row_misses "
    "row_conflicts refreshes achieved_bytes_per_s peak_bytes_per_s footprint_bytes capacity_bytes",
    "sram": "name hit_share_frac conflict_ps peak_occupancy_bytes capacity_bytes",
    "barriers": "name waits wait_ps",
    "approximations": "kind scope estimated_error_frac basis",
}


def test_summary_has_the_keys_of_the_contract_in_order():
    summary = tiny_run().summary()
    assert list(summary) == TOP_KEYS
    assert list(summary["workload"]) == WORKLOAD_KEYS
    assert list(summary["system"]) == ["name", "clock"]
    assert list(summary["hashes"]) == ["system", "workload", "compiler", "simulation", "program"]
    for phase in summary["phases"].values():
        assert [key for key in phase if key in PHASE_KEYS] == PHASE_KEYS


@pytest.mark.parametrize("part", ITEM_KEYS)
def test_items_have_the_keys_of_the_contract_in_order(part):
    wanted = ITEM_KEYS[part].split()
    for item in tiny_run().summary()["phases"]["decode"][part]:
        assert [key for key in item if key in wanted] == wanted


def test_summary_is_plain_json_and_equal_runs_give_equal_text():
    texts = {json.dumps(tiny_run(wall_s=0.5).summary(), allow_nan=False) for _ in range(2)}
    assert len(texts) == 1
    assert json.loads(texts.pop()) == tiny_run(wall_s=0.5).summary()


def test_headline_figures_follow_from_the_phases():
    run = tiny_run()
    assert run.elapsed_ps == 2002
    assert run.tpot_ps == 501  # 1001 / 2 = 500.5, rounded up
    assert run.tokens_per_s == pytest.approx(2e12 / 1001)


def test_without_decode_the_rate_is_that_of_the_prompt():
    run = tiny_run(phases={"prefill": replace(tiny_phase("prefill", 1), tokens=5)})
    assert run.tpot_ps is None
    assert run.tokens_per_s == pytest.approx(5e12 / 1001)


def test_cycles_round_up_and_stage_cycles_sum_to_the_phase():
    # 500 ps per cycle; borders 0, 700, 1001 ps are edges 0, 2, 3.
    record = tiny_phase()
    assert cycles_of(record.elapsed_ps, record.clock_hz) == 3
    assert stage_cycles(record) == (2, 1)


def test_three_utilizations_are_told_apart():
    used = utilization_of(tiny_phase())
    # 60 MACs of 100 per cycle in 2.002 cycles; matrix busy 501 of 1001 ps; 96 of 100.1 bytes
    assert used.mac_frac == pytest.approx(60 / 200.2)
    assert used.matrix_busy_frac == pytest.approx(501 / 1001)
    assert used.dram_bandwidth_frac == pytest.approx(96 / 100.1)


def test_shares_of_nothing_are_null():
    sram = tiny_run().summary()["phases"]["decode"]["sram"]
    assert [item["hit_share_frac"] for item in sram] == [0.25, None]
    idle = replace(tiny_phase(), peak_macs_per_cycle=0, macs=0)
    stages = tuple(replace(stage, macs=0) for stage in idle.stages)
    assert utilization_of(replace(idle, stages=stages)).mac_frac is None


def test_every_role_is_listed_and_sums_to_the_bytes_moved():
    memory = tiny_run().summary()["phases"]["decode"]["memories"][0]
    assert memory["bytes_by_role"] == {"weight": 64, "kv": 32, "activation": 0}
    assert memory["achieved_bytes_per_s"] == 96 * 10**12 // 1001


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        *(("stages", 4), ("operators", 4), ("engines", 6), ("stalls", 6), ("memories", 2)),
        *(("sram", 4), ("barriers", 2), ("approximations", 2), ("spans", 8), ("bandwidth", 6)),
        ("log", 4),
    ],
)
def test_tables_have_a_row_per_item_and_phase(table, rows):
    frame = getattr(tiny_run(), table).to_frame()
    assert len(frame) == len(getattr(tiny_run(), table)) == rows
    assert list(frame["phase"].unique()) == ["prefill", "decode"]


def test_engine_rows_sum_to_the_phase():
    frame = tiny_run().engines.to_frame()
    assert (frame["busy_ps"] + frame["idle_ps"] + frame["stall_ps"] == 1001).all()


def test_integers_stay_integers_where_a_value_is_missing():
    frame = tiny_run().operators.to_frame()
    assert str(frame["layer"].dtype) == "Int64"
    assert frame["layer"].isna().sum() == 2


def test_an_empty_table_keeps_its_columns():
    run = tiny_run(phases={"decode": replace(tiny_phase(), barriers=())})
    assert list(run.barriers.to_frame().columns) == ["phase", "name", "waits", "wait_ps"]
    assert run.barriers.rows() == []


def test_frame_of_the_run_has_a_row_per_phase():
    assert tiny_run().to_frame()["elapsed_ps"].tolist() == [1001, 1001]


def test_asking_for_a_phase_that_did_not_run_names_those_that_did():
    run = tiny_run(phases={"decode": tiny_phase()})
    with pytest.raises(ResultError, match=r"phase: did not run \(got 'prefill'\); .*decode"):
        run.phase("prefill")


def test_notebook_form_escapes_names():
    workload = {**tiny_run().workload, "model": "<b>x</b>"}
    text = tiny_run(workload=workload)._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "TTFT" in text


def test_overrides_are_recorded():
    run = tiny_run().with_overrides(["workload.batch=2"])
    assert run.summary()["overrides"] == ["workload.batch=2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phases": {}}, "at least one phase"),
        ({"phases": {"prefill": tiny_phase()}}, "phase prefill: is stored by its name"),
        ({"hashes": {"system": "0"}}, "hashes: needs .*program"),
        ({"workload": {**tiny_run().workload, "colour": 1}}, "workload: .*colour"),
        (
            {"workload": {**tiny_run().workload, "weight_bytes": 101}},
            r"weight_bytes_by_dtype must sum to 101 \(got 100\)",
        ),
    ],
)
def test_an_inconsistent_run_cannot_be_made(changes, message):
    with pytest.raises(SimulationError, match=message):
        tiny_run(**changes)


def test_operator_summary_is_the_phase_plus_its_own_keys():
    result = OperatorResult(
        phase=tiny_phase("operator", 1), compute_cycles=3, folds=1, macs=60, bound_ps=900
    )
    summary = result.summary()
    assert [key for key in summary if key in PHASE_KEYS] == PHASE_KEYS
    assert (summary["compute_cycles"], summary["folds"], summary["macs"]) == (3, 1, 60)


def test_an_operator_that_contradicts_its_phase_is_refused():
    with pytest.raises(SimulationError, match="macs must equal the phase's 60"):
        OperatorResult(
            phase=tiny_phase("operator", 1), compute_cycles=3, folds=1, macs=61, bound_ps=900
        )
