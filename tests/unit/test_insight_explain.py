"""Explanations: sentences follow from numbers; the command shows them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from npusim.cli import main
from npusim.errors import ResultError
from npusim.insight.explain import TOP_OPERATORS, explain
from npusim.insight.findings import findings
from npusim.report.explain_tables import tree_headings, tree_rows
from npusim.results.records import Approximation
from tests.unit.insight_samples import real_run
from tests.unit.results_samples import tiny_phase, tiny_run


def texts(record):
    return {finding.topic: finding.text for finding in findings(record)}


def test_sentences_of_the_tiny_phase():
    # 900 of 1001 ps; DRAM moves 96 bytes in 1001 ps: 95.9 GB/s of 100; 64 of 96 bytes weights
    assert texts(tiny_phase()) == {
        "bound": "1.001 ns simulated against a closed-form bound of 900 ps: 89.9 % reached, "
        "101 ps beyond it",
        "resource": "dram bounds the stages of 69.9 % of the time (attention)",
        "stage": "attention is the longest stage: 69.9 % of the time, bound by dram",
        "wait": "matrix engines wait most for DRAM: 40.0 % of their time",
        "matrix": "matrix engines are busy 50.0 % of the time and do 30.0 % of their peak MACs",
        "memory": "dram moves 95.9 GB/s, 95.9 % of its peak, with 33.3 % row hits",
        "bytes": "66.7 % of the 96 B through dram belong to the role weight",
    }


def test_thresholds_of_sentences():
    stages = tiny_phase().stages
    launched = (replace(stages[0], launch_ps=60), stages[1])  # 6 % of 1001 ps
    coarse = Approximation("fold", "layers", 0.02, "two layers")
    other = replace(tiny_phase().engines[2], engine="npu.c1.matrix", busy_ps=100, idle_ps=401)
    record = replace(
        tiny_phase(),
        stages=launched,
        approximations=(coarse,),
        engines=(*tiny_phase().engines, other),
    )
    found = texts(record)
    assert found["launch"] == "launches take 6.0 % of the time (7.5 kernels per layer)"
    assert found["estimate"] == "fold (layers) is off by about 2.0 %"
    assert found["imbalance"].endswith("works 501 ps, the least busy one 100 ps")


def test_a_run_without_engines_is_explained_without_a_tree():
    found = explain(tiny_run(phases={"decode": replace(tiny_phase(), engines=())}))[0]
    assert found.tree is None
    assert found.summary()["stall_tree"] is None
    assert "wait" not in {finding.topic for finding in found.findings}


def test_a_real_run_is_explained():
    prefill, decode = explain(real_run())
    assert sum(prefill.bound_by.values()) == prefill.record.elapsed_ps
    assert next(iter(decode.bound_by)) == "dram"
    assert len(prefill.operators) == TOP_OPERATORS
    assert prefill.operators[0].name == "lm_head"
    assert json.loads(json.dumps(prefill.summary()))["elapsed_ps"] == prefill.record.elapsed_ps


def test_a_stage_chooses_tree_and_operators():
    (found,) = explain(real_run(), "decode", "gate_up")
    assert {item.stage for item in found.operators} == {"gate_up"}
    assert found.tree.elapsed_ps == next(
        s.elapsed_ps for s in found.record.stages if s.stage == "gate_up"
    )


def test_rows_have_a_cell_per_heading_and_no_single_parts():
    tree = explain(real_run())[0].tree
    rows = tree_rows(tree)
    assert {len(row) for row in rows} == {len(tree_headings(tree))}
    names = [row[0].strip() for row in rows]
    assert names.count("barrier") == names.count("launch") == 1
    assert names[0] == "all"


def test_the_command_prints_and_gives_json(capsys, tmp_path):
    real_run().save(tmp_path)
    assert main(["explain", str(tmp_path), "--phase", "prefill"]) == 0
    text = capsys.readouterr().out
    assert "prefill: bound by dram" in text
    assert "dram_other" in text
    assert "layer_folding" in text
    assert main(["explain", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["phase"] for entry in found["phases"]] == ["prefill", "decode"]
    root = found["phases"][0]["stall_tree"]["nodes"][0]
    assert root["node"] == "all"
    assert root["share_frac"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--phase", "decod"], "did you mean 'decode'?"),
        (["--stage", "gate_upp"], "did you mean 'gate_up'?"),
    ],
)
def test_wrong_names_are_refused(capsys, tmp_path, options, message):
    real_run().save(tmp_path)
    assert main(["explain", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused(capsys, tmp_path):
    assert main(["explain", str(tmp_path)]) == 2
    assert "must hold a finished run" in capsys.readouterr().err


def test_a_stage_of_a_run_without_engines_is_refused():
    run = tiny_run(phases={"decode": replace(tiny_phase(), engines=())})
    with pytest.raises(ResultError, match="fidelity 'analytic' has none"):
        explain(run, stage="lm_head")
