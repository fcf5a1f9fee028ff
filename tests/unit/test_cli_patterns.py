"""Mixed steps, speculation and extra layers on the command line."""

from __future__ import annotations

import json

import pytest

from npusim.cli.app import main

CHUNK = ("--set", "workload.chunk_tokens=32", "--set", "workload.chunk_context_len=64")
SPECULATION = ("--set", "workload.speculate_tokens=2", "--set", "workload.accept_frac=0.5")


def ran(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    code = main([str(word) for word in argv])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_inspect_shows_a_mixed_step(capsys):
    lengths = ("--context", 100, "--batch", 4)
    code, text, _ = ran(capsys, "inspect", "smollm2-135m", *lengths, *CHUNK, "--json")
    facts = json.loads(text)["phases"]
    assert code == 0
    assert list(facts) == ["prefill", "mixed"]
    # 30 layers of 36 x 3,538,944 + 465,408 + 3,538,944, and lm_head over five rows
    assert facts["mixed"]["macs"] == 30 * 131_406_336 + 141_557_760
    assert facts["mixed"]["kv_bytes_read"] == 30 * 384_000
    assert facts["mixed"]["kv_bytes_written"] == 36 * 23_040


def test_inspect_shows_checks_and_drafts(capsys):
    draft = ("--set", "workload.draft_model=smollm2-135m")
    argv = ("inspect", "smollm2-135m", "--context", 100, *SPECULATION, *draft, "--json")
    code, text, _ = ran(capsys, *argv)
    facts = json.loads(text)["phases"]
    assert code == 0
    assert list(facts) == ["prefill", "decode", "draft"]
    plain = json.loads(ran(capsys, "inspect", "smollm2-135m", "--context", 100, "--json")[1])
    assert facts["draft"] == plain["phases"]["decode"]
    assert facts["prefill"] == plain["phases"]["prefill"]
    # embedding rows apart, a check reads the weights of a step
    more = facts["decode"]["weight_bytes_read"] - facts["draft"]["weight_bytes_read"]
    assert more == 2 * 576 * 2


def test_inspect_counts_layers_that_predict_further_tokens(capsys):
    argv = ("inspect", "deepseek-v3", "--phase", "prefill", "--prompt", 4, "--json")
    code, text, _ = ran(capsys, *argv, "--set", "workload.mtp_layers=1")
    assert code == 0
    assert json.loads(text)["parameters"] == 671_026_419_200 + 11_610_068_224
    stages = {stage["stage"]: stage for stage in json.loads(text)["phases"]["prefill"]["stages"]}
    assert stages["mtp_proj"]["macs"] == 4 * 2 * 7168 * 7168
    assert stages["lm_head"]["operators"] == 2


def test_a_trace_of_mixed_steps_is_exported_and_runs_alike(capsys, tmp_path):
    lengths = ("--context", 8, "--batch", 2, "--generate", 2, "--set", "workload.chunk_tokens=4")
    path = tmp_path / "mixed.jsonl"
    assert ran(capsys, "trace", "smollm2-135m", *lengths, "-o", path)[0] == 0
    analytic = ("--fidelity", "analytic", "--json")
    direct = json.loads(ran(capsys, "run", "tpu-v6e", "smollm2-135m", *lengths, *analytic)[1])
    replayed = json.loads(ran(capsys, "run", "tpu-v6e", path, *analytic)[1])
    assert direct["phases"] == replayed["phases"]
    assert direct["workload"] == replayed["workload"]
    assert direct["workload"]["chunk_tokens"] == 4


def test_a_workload_file_brings_its_pattern(capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model: smollm2-135m\ncontext_len: 100\nbatch: 4\ngenerate_len: 1\n"
                    "chunk_tokens: 32\nchunk_context_len: 64\n")  # fmt: skip
    options = ("smollm2-135m", "--context", 100, "--batch", 4, *CHUNK)
    told = [ran(capsys, "inspect", *words, "--json") for words in ((path,), options)]
    assert told[0] == told[1]
    traces = [ran(capsys, "trace", *words) for words in ((path,), options)]
    assert traces[0] == traces[1]
    assert traces[0][0] == 0
    code, text, _ = ran(capsys, "inspect", "llama-3.1-8b-speculative", "--json")
    assert code == 0
    assert list(json.loads(text)["phases"]) == ["prefill", "decode", "draft"]


def test_explain_program_shows_the_mixed_step(capsys):
    argv = ("explain-program", "edge-npu", "smollm2-135m", "--context", 8, "--no-fold", "--json")
    chunk = ("--set", "workload.chunk_tokens=4", "--kernel", "layers.0.chunk_k_append")
    code, text, _ = ran(capsys, *argv, *chunk)
    assert code == 0
    assert json.loads(text)["phase"] == "mixed"
    assert any("chunk_k_append" in line for line in json.loads(text)["lines"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("run", "edge-npu", "--prompt", 8, *CHUNK[:2]), "chunk_tokens=32: needs context_len"),
        (("run", "edge-npu", "--context", 8, *SPECULATION[:2]), "needs accept_frac (got 2)"),
        (("run", "edge-npu", "--context", 8, "--set", "workload.mtp_layers=1"), "states 0 multi"),
        (("trace", "--context", 8, *SPECULATION), "speculate_tokens: a trace holds passes of one"),
        (("inspect", "--set", "workload.chunk_token=1"), "did you mean 'workload.chunk_tokens'"),
        (("inspect", "--set", "system.name=x"), "must name a key below the start of the path"),
    ],
)
def test_bad_settings_are_told_in_one_line(capsys, argv, message):
    at = 2 if argv[0] == "run" else 1
    code, text, error = ran(capsys, *argv[:at], "smollm2-135m", *argv[at:])
    assert (code, text) == (2, "")
    assert message in error
    assert error.count("\n") == 1
