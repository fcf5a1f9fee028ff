"""The command line with the real simulator, on a small model."""

from __future__ import annotations

import json

import pytest

from npusim.cli import main
from npusim.results.loading import load_result

RUN = ("run", "tpu-v6e", "smollm2-135m", "--prompt", "16", "--generate", "2", "--quant", "w8a8")

pytestmark = pytest.mark.slow


def run_json(capsys, *argv):
    """Parsed stdout of a command that succeeds."""
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_same_command_gives_the_same_json_and_files(capsys, tmp_path):
    first = run_json(capsys, *RUN, "--out", str(tmp_path))
    second = run_json(capsys, *RUN)
    assert load_result(tmp_path).summary() == first
    assert (tmp_path / "timeline.html").is_file()
    assert {**first, "wall_s": 0} == {**second, "wall_s": 0}
    assert list(first["phases"]) == ["prefill", "decode"]


def test_stage_cycles_sum_and_the_bound_holds(capsys):
    for phase in run_json(capsys, *RUN)["phases"].values():
        for key in ("elapsed_ps", "cycles", "macs"):
            assert sum(stage[key] for stage in phase["stages"]) == phase[key]
        assert phase["elapsed_ps"] >= phase["bound_ps"]


def test_an_operator_runs_with_and_without_memory(capsys):
    argv = ("op", "tpu-v6e", "matmul", "1x512x512")
    real, ideal = run_json(capsys, *argv), run_json(capsys, *argv, "--ideal-memory")
    assert ideal["elapsed_ps"] < real["elapsed_ps"]
    assert ideal["macs"] == real["macs"] == 512 * 512


def test_a_program_is_explained(capsys):
    argv = ("explain-program", "tpu-v6e", "smollm2-135m", "--context", "4", "--limit", "3")
    assert len(run_json(capsys, *argv)["lines"]) > 3
