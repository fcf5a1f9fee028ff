"""Workload and run files."""

from __future__ import annotations

from pathlib import Path

import pytest

from npusim.config.loader import load_run_yaml, load_system, load_workload
from npusim.errors import ConfigError


def test_a_workload_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text(
        "model: qwen2-1.5b\nprompt_len: 512\ngenerate_len: 64\nquant: w8a8\n", encoding="utf-8"
    )
    workload = load_workload(path)
    assert (workload.model, workload.prompt_len, workload.generate_len) == ("qwen2-1.5b", 512, 64)


def test_the_model_of_a_workload_counts_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text("model: ./config.json\nprompt_len: 8\n", encoding="utf-8")
    assert Path(load_workload(path).model) == tmp_path / "config.json"
    drafted = "prompt_len: 8\nspeculate_tokens: 2\naccept_frac: 0.5\ndraft_model: ./draft.json\n"
    path.write_text(f"model: qwen2-1.5b\n{drafted}", encoding="utf-8")
    loaded = load_workload(path)
    assert (loaded.model, Path(str(loaded.draft_model))) == ("qwen2-1.5b", tmp_path / "draft.json")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("prompt_len: 8\n", [":1: model: is required"]),
        ("model: x\n", ["prompt_len: one of prompt_len and context_len is required"]),
        ("model: x\nprompt_len: 0\n", [":2: prompt_len: must be greater than 0 (got 0)"]),
        ("model: x\nprompt_len: 1\nbatch: -1\n", [":3: batch: must be greater than 0 (got -1)"]),
        ("model: x\nprompt: 8\n", [":2: prompt: unknown key", "did you mean 'prompt_len'?"]),
        ("model: x\nprompt_len: 8\ncontext_len: 8\n", [":3: context_len: excludes prompt_len"]),
        ("model: x\ncontext_len: 8\n", ["generate_len: must be positive with context_len"]),
        (
            "model: x\nprompt_len: 8\nquant: 8bit\n",
            [":3: quant: must be wXaY or wXaY_gN", "'8bit'", "w8a8"],
        ),
        ("model: 7\nprompt_len: 8\n", [":1: model: must be text", "7"]),
    ],
)
def test_a_bad_workload_is_refused(text: str, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_workload(path)
    for part in parts:
        assert part in str(caught.value)


def test_a_run_joins_a_named_system_and_blocks(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "system: rk3588\nworkload: {model: m, prompt_len: 8}\ncompiler: {launch: eager}\n"
        "simulation: {fidelity: transfer, seed: 7}\n",
        encoding="utf-8",
    )
    run = load_run_yaml(path)
    assert run.system == load_system("rk3588")
    assert run.compiler.launch == "eager"
    assert (run.simulation.fidelity, run.simulation.seed) == ("transfer", 7)


def test_a_run_takes_files_beside_it_and_an_extended_block(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text("model: m\nprompt_len: 8\n", encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text(
        "system: {extends: rk3588, name: one, devices: {npu: {cores: 1}}}\nworkload: ./chat.yaml\n",
        encoding="utf-8",
    )
    run = load_run_yaml(path)
    assert run.system.devices["npu"].cores == 1
    assert run.workload.prompt_len == 8


def test_a_bad_key_of_a_run_is_placed_in_the_file_it_stands_in(tmp_path: Path) -> None:
    chat = tmp_path / "chat.yaml"
    chat.write_text("model: m\nprompt_len: 0\n", encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text("system: rk3588\nworkload: ./chat.yaml\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_run_yaml(path)
    assert str(caught.value) == f"{chat}:2: workload.prompt_len: must be greater than 0 (got 0)"
