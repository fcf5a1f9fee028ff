"""Sweeps: what is refused, which points are taken, and that nothing disturbs the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import npusim as ns
from npusim.cli import main
from npusim.errors import ConfigError, ResultError
from npusim.explore.executor import ProcessPool
from npusim.explore.expressions import parse_expression
from npusim.explore.plan import load_plan
from npusim.explore.worker import Task
from npusim.paths import find_named, named_files

BASE = {
    "name": "t",
    "systems": ["edge-npu"],
    "models": ["smollm2-135m"],
    "workload": {"prompt_len": 16, "generate_len": 1},
    "simulation": {"fidelity": "analytic"},
    "axes": [{"path": "system.devices.npu.cores", "values": [1, 2, 4]}],
}


@pytest.mark.parametrize("model", named_files("model"))
def test_every_model_by_name_has_a_plan(model):
    assert len(load_plan(BASE | {"models": [model]}).points) == 3


def test_a_point_changes_its_key_with_each_file_that_it_reads(tmp_path):
    files = {name: tmp_path / name for name in ("model.json", "draft.json", "routing.jsonl")}
    shipped = find_named("model", "smollm2-135m").read_text()
    for name, file in files.items():
        file.write_text(shipped if name.endswith(".json") else '{"layer": 0, "experts": [0]}\n')
    workload = {
        **BASE["workload"],
        "speculate_tokens": 2,
        "accept_frac": 0.5,
        "draft_model": str(files["draft.json"]),
        "expert_routing": str(files["routing.jsonl"]),
    }
    spec = BASE | {"models": [str(files["model.json"])], "workload": workload}
    keys = [load_plan(spec).points[0].key]
    for file in files.values():
        file.write_text(file.read_text() + "\n")
        keys.append(load_plan(spec).points[0].key)
    assert len(set(keys)) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"speculate_tokens": 2, "accept_frac": 0.5, "draft_model": "smollm2-13"},
        {"speculate_tokens": 2, "accept_frac": 0.5, "draft_model": "no/draft.json"},
        {"expert_routing": "no/routing.jsonl"},
    ],
)
def test_a_missing_file_of_the_workload_is_refused(wrong):
    with pytest.raises(ConfigError, match="workload"):
        load_plan(BASE | {"workload": {**BASE["workload"], **wrong}})


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__",
        "[x for x in (1, 2)]",
        "lambda: 1",
        "9 ** 9 ** 9",
        "1 << 99",
        "f'{1}'",
        "(x := 1)",
        "max(*a)",
        "open('x')",
        "1j",
        "1e999",
        "(" * 500,
        "-" * 900 + "1",
        "1 +" * 250 + "1",
        "a[0]",
        "bytes(1)",
        "bytes('8 ns')",
        "",
    ],
)
def test_a_hostile_expression_is_refused(text):
    with pytest.raises(ConfigError, match="here:1"):
        parse_expression(text, "here:1")


@pytest.mark.parametrize(("text", "rule"), [("1 / 0", "no value"), ("'a' * 9", "must be a number")])
def test_an_expression_without_a_value_is_refused(text, rule):
    with pytest.raises(ConfigError, match=rule):
        parse_expression(text, "here").value({}.get)


def test_expressions_compute_over_paths():
    text = 'bytes("1 KiB") * a["b-c"].d == 3072 and not min(2, 1) > 1'
    assert parse_expression(text, "here").truth({("a", "b-c", "d"): 3}.__getitem__) is True


def test_a_log_range_and_a_constraint_give_the_points_counted_by_hand():
    axis = {"path": "system.memories.dram.capacity_bytes"}
    axis["log"] = {"start": "2 GiB", "stop": "16 GiB", "steps": 4}
    plan = load_plan(BASE | {"axes": [axis, *BASE["axes"]], "constraints": [CONSTRAINT]})
    # cores <= GiB / 2 with capacities 2, 4, 8, 16 GiB: 1, 2, 3 and 3 of the cores 1, 2, 4
    assert (len(plan.points), plan.excluded) == (9, 3)


CONSTRAINT = 'system.devices.npu.cores * bytes("2 GiB") <= system.memories.dram.capacity_bytes'


@pytest.mark.parametrize(("method", "points"), [("random", 2), ("lhs", 6)])
def test_sampling_repeats_with_its_seed(method, points):
    spec = BASE | {"sampling": {"method": method, "points": points, "seed": 3}}
    levels = [point.values for point in load_plan(spec).points]
    assert levels == [point.values for point in load_plan(spec).points]
    assert len(levels) == points
    if method == "lhs":  # six strata over three levels: each twice
        assert sorted(levels) == [(1,), (1,), (2,), (2,), (4,), (4,)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("axes: [{path: system.devices.npu.corse, values: [1]}]", "did you mean"),
        ("axes: [{path: system.devices.npu.clock_hz, values: [1]}]", "needs a unit"),
        ("axes: [{path: system.devices.npu.cores, values: [-1]}]", "greater than 0"),
        ("constraints: [system.devices.npu.corse < 2]", "did you mean"),
        ("constraints: [1 + 1]", "true or false"),
        ("metrics: [ttft_p]", "ttft_ps"),
        ("metrics: [tpot_ps]", "no decode"),
        ("objectives: {ttft: min}", "elapsed_ps"),
        ("sampling: {method: gird}", "grid"),
        ("modells: [x]", "models"),
    ],
)
def test_a_bad_spec_is_refused_at_its_line_before_anything_runs(line, told, tmp_path, capsys):
    file = tmp_path / "bad.yaml"
    file.write_text(
        "name: bad\nsystems: [edge-npu]\nmodels: [smollm2-135m]\n"
        f"workload: {{prompt_len: 16}}\n{line}\n",
        "utf-8",
    )
    out = tmp_path / "out"
    assert main(["sweep", str(file), "--out", str(out)]) == 2
    message = capsys.readouterr().err
    assert f"{file}:5" in message
    assert told in message
    assert not out.exists()


@pytest.mark.slow
def test_one_and_two_workers_give_the_table_of_single_runs(tmp_path):
    tables = [ns.sweep(BASE, out=tmp_path / str(n), jobs=n).table for n in (1, 2)]
    assert tables[0].equals(tables[1])
    runs = [ns.simulate_run(point.run).elapsed_ps for point in load_plan(BASE).points]
    assert tables[0]["elapsed_ps"].to_pylist() == runs
    again = ns.load_sweep(tmp_path / "1")
    assert again.table.equals(tables[0])


def test_a_failing_point_is_a_row_and_stops_nothing(tmp_path):
    axis = {"path": "system.memories.dram.channels", "values": [1, 8]}  # 16 GiB need 8 channels
    frame = ns.sweep(BASE | {"axes": [axis]}, out=tmp_path, jobs=1).to_frame()
    assert frame["status"].tolist() == ["failed", "done"]
    assert "hold" in frame["error"][0]
    assert frame["elapsed_ps"].isna().tolist() == [True, False]


def test_a_store_is_refused_without_resume_and_for_another_sweep(tmp_path):
    first = ns.sweep(BASE, out=tmp_path, jobs=1)
    with pytest.raises(ResultError, match="--resume"):
        ns.sweep(BASE, out=tmp_path, jobs=1)
    other = BASE | {"axes": [{"path": "system.devices.npu.cores", "values": [2]}]}
    with pytest.raises(ResultError, match="another sweep"):
        ns.sweep(other, out=tmp_path, jobs=1, resume=True)
    again = ns.sweep(BASE, out=tmp_path, jobs=1, resume=True)
    assert again.summary["computed"] == 0
    assert again.table.equals(first.table)


def test_a_damaged_store_is_refused_in_one_line(tmp_path):
    (tmp_path / "sweep.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(ResultError, match="start over"):
        ns.sweep(BASE, out=tmp_path, jobs=1)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_loses_no_point():
    tasks = [Task(p.key, p.run) for p in load_plan(BASE).points]
    pool = ProcessPool(1)
    outcomes = pool.run(tasks)
    found = [next(outcomes)]
    os.kill(pool._workers[0].process.pid, signal.SIGKILL)
    found += list(outcomes)
    assert [outcome.key for outcome in found] == [task.key for task in tasks]
    assert [outcome.error for outcome in found] == [None] * 3


@pytest.mark.slow
def test_a_killed_parent_leaves_a_store_that_resume_completes(tmp_path):
    whole = ns.sweep("edge-small", out=tmp_path / "whole", jobs=1)
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "npusim", "sweep", "edge-small", "--out", str(out)]
    with subprocess.Popen([*command, "--jobs", "1"], stderr=subprocess.DEVNULL) as process:
        log = out / "sweep.sqlite-wal"  # two pages of 4 KiB or more per point, after the tables
        while not (log.exists() and log.stat().st_size > 80_000) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    resumed = ns.sweep("edge-small", out=out, jobs=1, resume=True)
    assert 0 < resumed.summary["computed"] < len(whole.table)
    assert resumed.table.equals(whole.table)
