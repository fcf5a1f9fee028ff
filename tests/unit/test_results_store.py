"""Saving and loading."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pyarrow.parquet as pq
import pytest

from npusim.config.run_spec import RunSpec
from npusim.errors import ResultError
from npusim.results.files import prepare_directory, replace_file
from npusim.results.loading import load_result
from npusim.results.saving import RESULT_FILE, TABLES
from tests.unit.results_samples import tiny_phase, tiny_run


def test_a_saved_result_loads_equal(tmp_path):
    run = tiny_run()
    assert run.save(tmp_path / "run") == tmp_path / "run"
    loaded = load_result(tmp_path / "run")
    assert loaded.summary() == run.summary()
    for name in TABLES:
        assert getattr(loaded, name).rows() == getattr(run, name).rows()


def test_spans_and_series_come_back_bit_for_bit(tmp_path):
    run = tiny_run()
    run.save(tmp_path)
    loaded = load_result(tmp_path)
    for phase, record in run.phases.items():
        spans = loaded.phases[phase].spans
        for field in fields(spans):
            was, now = getattr(record.spans, field.name), getattr(spans, field.name)
            assert np.array_equal(was, now), field.name
            assert getattr(was, "dtype", None) == getattr(now, "dtype", None)
        assert np.array_equal(loaded.phases[phase].bandwidth[0][2], record.bandwidth[0][2])
        assert loaded.phases[phase].log == record.log


def test_a_run_without_spans_loads_without_spans(tmp_path):
    tiny_run(phases={"decode": tiny_phase(spans=False)}).save(tmp_path)
    assert load_result(tmp_path).phases["decode"].spans is None


def test_the_folder_holds_json_and_one_parquet_file_per_table(tmp_path):
    tiny_run().save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {RESULT_FILE, "run_spec.json", *(f"{name}.parquet" for name in TABLES)}
    assert json.loads((tmp_path / RESULT_FILE).read_text())["schema_version"] == 1
    assert pq.read_table(tmp_path / "stages.parquet").num_rows == 4


def test_equal_runs_write_equal_bytes(tmp_path):
    for name in ("a", "b"):
        tiny_run().save(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_saving_again_replaces_the_result_and_keeps_other_files(tmp_path):
    tiny_run(seed=1).save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    tiny_run(seed=2).save(tmp_path)
    assert load_result(tmp_path).seed == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_interrupted_save_is_no_result(tmp_path, monkeypatch):
    tiny_run().save(tmp_path)
    monkeypatch.setattr("npusim.results.saving._parquet", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tiny_run().save(tmp_path)
    with pytest.raises(ResultError, match="must hold a finished run"):
        load_result(tmp_path)
    assert not list(tmp_path.glob(".*partial"))


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (RESULT_FILE, b"{", "must be JSON"),
        (RESULT_FILE, b"[]", "schema_version must be 1"),
        (RESULT_FILE, b'{"schema_version": 2}', r"schema_version must be 1 \(got 2\)"),
        (RESULT_FILE, b'{"schema_version": 1}', "damaged result"),
        ("stages.parquet", b"no parquet", "damaged result"),
        ("run_spec.json", b"{}", "damaged result"),
    ],
)
def test_a_damaged_result_is_refused(tmp_path, name, content, message):
    tiny_run().save(tmp_path)
    replace_file(tmp_path / name, content)
    with pytest.raises(ResultError, match=message):
        load_result(tmp_path)


def test_tables_of_another_run_are_noticed(tmp_path):
    tiny_run().save(tmp_path)
    summary = json.loads((tmp_path / RESULT_FILE).read_text())
    summary["phases"]["decode"]["barriers"][0]["waits"] += 1
    replace_file(tmp_path / RESULT_FILE, json.dumps(summary).encode())
    with pytest.raises(ResultError, match="must tell the same"):
        load_result(tmp_path)


def test_an_empty_folder_is_no_result(tmp_path):
    with pytest.raises(ResultError, match="must hold a finished run"):
        load_result(tmp_path)


def test_a_file_is_no_output_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ResultError, match="must be a folder, not a file"):
        prepare_directory(tmp_path / "x")
    with pytest.raises(ResultError, match="must be writable"):
        prepare_directory(tmp_path / "x" / "below")


def test_the_specification_of_a_shipped_system_survives(tmp_path):
    from npusim.config.loader import load_system
    from npusim.config.run_spec import WorkloadConfig

    workload = WorkloadConfig(model="qwen2-1.5b", prompt_len=5, generate_len=3)
    spec = RunSpec(system=load_system("edge-npu"), workload=workload)
    tiny_run(spec=spec).save(tmp_path)
    assert load_result(tmp_path).spec == spec
