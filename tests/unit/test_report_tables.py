"""Tables for people."""

from __future__ import annotations

from dataclasses import replace

from npusim.report.tables import (
    HEADINGS,
    count,
    engine_rows,
    headline,
    memory_rows,
    percent,
    phase_facts,
    stage_rows,
)
from npusim.results.records import EngineRecord
from tests.unit.results_samples import tiny_phase, tiny_run


def test_rows_fit_their_headings():
    record = tiny_phase()
    for name, rows in (
        ("stages", stage_rows(record)),
        ("engines", engine_rows(record)),
        ("memories", memory_rows(record)),
    ):
        assert {len(row) for row in rows} == {len(HEADINGS[name])}


def test_stage_rows_end_with_their_sum():
    rows = stage_rows(tiny_phase())
    assert rows[0] == ("attention", "2", "700 ps", "69.9 %", "1.4 %", "40", "64 B", "dram")
    assert rows[-1][:4] == ("all", "3", "1.001 ns", "100.0 %")


def test_a_stage_without_time_has_no_launch_share():
    stages = tuple(replace(stage, elapsed_ps=0, launch_ps=0) for stage in tiny_phase().stages)
    assert stage_rows(replace(tiny_phase(), stages=stages))[0][4] == "-"


def test_engines_of_a_kind_are_one_row_with_their_largest_stalls():
    stalls = {"a": 5, "b": 10, "c": 20, "d": 30, "e": 40, "f": 0}
    engines = [EngineRecord(f"m{i}", "matrix", "npu", i, 896, 0, stalls, 1) for i in range(2)]
    (row,) = engine_rows(replace(tiny_phase(), engines=tuple(engines)))
    assert row[:4] == ("matrix", "2", "89.5 %", "0.0 %")
    assert row[4] == "e 4.0 %, d 3.0 %, c 2.0 %, b 1.0 %, other 0.5 %"


def test_headline_names_what_ran_and_the_three_figures():
    text = "\n".join(headline(tiny_run()))
    for part in ("tiny on tiny-npu", "prompt 5", "TTFT    1.001 ns", "TPOT    501 ps", "tokens/s"):
        assert part in text


def test_headline_of_a_run_without_prefill_shows_its_context():
    workload = {**tiny_run().workload, "prompt_len": None, "context_len": 9}
    run = tiny_run(ttft_ps=None, workload=workload, phases={"decode": tiny_phase()})
    text = "\n".join(headline(run))
    assert "context 9" in text
    assert "TTFT" not in text


def test_phase_facts_put_the_bound_beside_the_time():
    text = "\n".join(phase_facts(tiny_phase()))
    assert "bound 900 ps, reached 89.9 %" in text
    assert "2 kernels, 7.5 per layer, launch 1.0 % of the time" in text


def test_numbers_read_well():
    assert [count(n) for n in (0, 999, 1000, 1_540_000_000)] == ["0", "999", "1 k", "1.54 G"]
    assert percent(0.25) == "25.0 %"
    assert percent(1, 0) == "-"


def test_the_headline_tells_patterns_of_steps():
    used = {
        "method": "prompt_lookup",
        "speculate_tokens": 4,
        "accept_frac": 0.7,
        "draft_model": None,
        "tokens_per_step": 2.7731,
    }
    run = tiny_run()
    workload = {**run.workload, "speculation": used, "mtp_layers": 1}
    lines = headline(replace(run, workload=workload))
    assert lines[2] == (
        "speculation: 4 tokens per step by lookup in the prompt, accepted with probability 0.7: "
        "2.773 tokens per step"
    )
    assert lines[3] == "multi-token-prediction layers: 1"
    chunked = {**run.workload, "chunk_tokens": 256, "chunk_context_len": 0}
    assert headline(replace(run, workload=chunked))[2] == (
        "mixed steps: 256 tokens of another prompt in each, 0 of it cached at first"
    )
