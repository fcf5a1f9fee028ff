"""YAML to systems and runs: units, places in messages, extends, and back."""

from __future__ import annotations

import os
from copy import deepcopy
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.config.build import validated, with_units_converted
from npusim.config.document import MAX_FILE_BYTES, dotted, leaves, value_at
from npusim.config.fields import FieldType
from npusim.config.loader import (
    as_yaml_data,
    dump_system,
    load_run_yaml,
    load_system,
    load_workload,
)
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.paths import named_files

SHIPPED = ("ascend-910b", "edge-npu", "jetson-agx-orin", "rk3588", "tpu-v6e")


@pytest.fixture
def edge_text() -> str:
    """Text of a shipped system with every optional block."""
    return named_files("system")["edge-npu"].read_text(encoding="utf-8")


def edited(folder: Path, text: str, old: str, new: str, name: str = "mine.yaml") -> Path:
    """File with one change, which must apply."""
    assert old in text
    path = folder / name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def line_of(path: Path, fragment: str) -> int:
    """Number of the first line with a fragment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if fragment in line)


def refusal(path: Path | str) -> ConfigError:
    """What `load_system` says."""
    with pytest.raises(ConfigError) as caught:
        load_system(path)
    return caught.value


def test_quantities_become_exact_integers_in_base_units() -> None:
    system = load_system("rk3588")
    npu = system.devices["npu"]
    assert npu.clock_hz == 1_000_000_000
    assert npu.core.scratchpad.capacity_bytes == 384 * 1024
    assert npu.address_limit_bytes == 4 * 2**30
    assert system.memories["dram"].latency_ps == 20_000
    assert system.buses["axi"].data_bits == 512


def test_fractional_cycles_stay_exact() -> None:
    convert = load_system("edge-npu").devices["npu"].core.convert
    assert convert is not None
    assert convert.fixed_cycles == Fraction(9, 5)


@pytest.mark.parametrize("name", SHIPPED)
def test_dump_and_load_give_the_same_system(name: str, tmp_path: Path) -> None:
    system = load_system(name)
    path = tmp_path / "copy.yaml"
    path.write_text(dump_system(system), encoding="utf-8")
    assert load_system(path) == system


def test_a_system_is_returned_as_it_is() -> None:
    system = load_system("rk3588")
    assert load_system(system) is system


def test_order_of_blocks_in_a_file_has_no_meaning(tmp_path: Path, edge_text: str) -> None:
    path = edited(
        tmp_path, edge_text, "fp32: 32\n          fp16: 64", "fp16: 64\n          fp32: 32"
    )
    system = load_system(path)
    assert list(system.devices["npu"].core.vector.lanes) == ["bf16", "fp16", "fp32"]
    assert system == load_system("edge-npu")


def test_user_folder_is_searched_first(tmp_path: Path, edge_text: str) -> None:
    edited(tmp_path, edge_text, "cores: 4", "cores: 2", name="edge-npu.yaml")
    assert load_system("edge-npu", [tmp_path]).devices["npu"].cores == 2


# old text, new text, text on the line that is named, and what the message must contain
BAD_VALUES = [
    (
        "clock_hz: 1.5 GHz\n    bus:",
        "clock: 1.5 GHz\n    bus:",
        "clock: 1.5 GHz",
        ["devices.npu.clock: unknown key", "'clock'", "did you mean 'clock_hz'?"],
    ),
    (
        "queue_depth: 8\n",
        "queue_dept: 8\n",
        "queue_dept: 8",
        ["devices.npu.core.dma.queue_dept: unknown key", "did you mean 'queue_depth'?", "1 more"],
    ),
    (
        "capacity_bytes: 1 MiB",
        "capacity_bytes: 1048576",
        "capacity_bytes: 1048576",
        ["scratchpad.capacity_bytes: needs a unit", "1048576", "for example '64 KiB'"],
    ),
    (
        "capacity_bytes: 1 MiB",
        "capacity_bytes: '1048576'",
        "capacity_bytes: '1048576'",
        ["scratchpad.capacity_bytes", "has no unit", "64 KiB"],
    ),
    (
        "clock_hz: 1.5 GHz\n    bus:",
        "clock_hz: 1.5 GiB\n    bus:",
        "clock_hz: 1.5 GiB",
        ["devices.npu.clock_hz", "'GiB'", "1.8 GHz"],
    ),
    (
        "clock_hz: 1.5 GHz\n    bus:",
        "clock_hz: 1.5 Ghz\n    bus:",
        "clock_hz: 1.5 Ghz",
        ["devices.npu.clock_hz", "did you mean 'GHz'?"],
    ),
    (
        "port_bytes: 32 B",
        "port_bytes: -32 B",
        "port_bytes: -32 B",
        ["scratchpad.port_bytes", "negative", "-32 B"],
    ),
    (
        "port_bytes: 32 B",
        "port_bytes: 0 B",
        "port_bytes: 0 B",
        ["scratchpad.port_bytes: must be greater than 0", "'0 B'"],
    ),
    (
        "port_bytes: 32 B",
        "port_bytes: 0.5 B",
        "port_bytes: 0.5 B",
        ["scratchpad.port_bytes", "whole number", "0.5 B"],
    ),
    ("cores: 4", "cores: 0", "cores: 0", ["devices.npu.cores: must be greater than 0 (got 0)"]),
    ("cores: 4", "cores: -4", "cores: -4", ["devices.npu.cores: must be greater than 0 (got -4)"]),
    ("cores: 4", "cores: 4.0", "cores: 4.0", ["devices.npu.cores: must be a whole number"]),
    ("cores: 4", "cores: true", "cores: true", ["devices.npu.cores: must be a whole number"]),
    ("cores: 4", "cores: '4'", "cores: '4'", ["devices.npu.cores: must be a whole number"]),
    ("cores: 4", "cores: 4 cores", "4 cores", ["must be a whole number", "'4 cores'"]),
    ("cores: 4", "cores: .inf", "cores: .inf", ["cores: is not a finite number", "'.inf'"]),
    ("cores: 4", "cores: 99999", "cores: 99999", ["devices.npu.cores: must be at most 4096"]),
    (
        "latency_cycles: 8 cycles",
        "latency_cycles: 8.5 cycles",
        "latency_cycles: 8.5",
        ["vector.latency_cycles: must be a whole number of cycles", "8.5 cycles"],
    ),
    (
        "bf16: {m: 8",
        "fp17: {m: 8",
        "fp17: {m: 8",
        ["matrix.cube.fp17: unknown key", "did you mean 'fp16'?"],
    ),
    ("k: 64", "k: 0", "k: 0", ["cube.int4.k: must be greater than 0 (got 0)"]),
    (
        "kind: cube\n        units",
        "kind: cubes\n        units",
        "kind: cubes",
        ["matrix.kind: must be one of systolic, cube", "'cubes'", "did you mean 'cube'?"],
    ),
    (
        "launch: graph",
        "launch: nothing",
        "launch: nothing",
        ["host.launch: must be one of eager, graph", "'nothing'"],
    ),
    (
        "posted_writes: true",
        "posted_writes: yes",
        "posted_writes: yes",
        ["posted_writes: must be true or false", "'yes'"],
    ),
    (
        "write_high_frac: 0.8",
        "write_high_frac: 80",
        "write_high_frac: 80",
        ["write_high_frac: must be at most 1", "80"],
    ),
    (
        "write_low_frac: 0.2",
        "write_low_frac: 0.9",
        "write_low_frac: 0.9",
        ["write_low_frac: must be below write_high_frac=0.8", "0.9"],
    ),
    (
        "channels: 8",
        "channels: 6",
        "channels: 6",
        ["memories.dram.channels: must be a power of two (got 6)"],
    ),
    (
        "channel_interleave_bytes: 256 B",
        "channel_interleave_bytes: 300 B",
        "channel_interleave_bytes: 300 B",
        ["channel_interleave_bytes: must be a power of two (got 300)"],
    ),
    (
        "capacity_bytes: 16 GiB",
        "capacity_bytes: 1000000001 B",
        "capacity_bytes: 1000000001 B",
        ["memories.dram.capacity_bytes: must be a multiple of", "1000000001"],
    ),
    (
        "banks: 8\n",
        "banks: 7\n",
        "banks: 7",
        ["shared_sram.banks: must be a power of two (got 7)"],
    ),
    (
        "banks: 16\n",
        "banks: 7\n",
        "capacity_bytes: 1 MiB",
        ["scratchpad.capacity_bytes: must be a multiple of banks=7", "1048576"],
    ),
    (
        "data_bits: 1024 bit",
        "data_bits: 24 bit",
        "data_bits: 24 bit",
        ["buses.axi.data_bits: must be a power of two (got 24)"],
    ),
    (
        "max_burst_beats: 32",
        "max_burst_beats: 257",
        "max_burst_beats: 257",
        ["buses.axi.max_burst_beats: must be at most 256 (got 257)"],
    ),
    (
        "memory: dram",
        "memory: drum",
        "memory: drum",
        ["buses.axi.memory: must name something", "'drum'", "did you mean 'dram'?"],
    ),
    (
        "bus: axi",
        "bus: xia",
        "bus: xia",
        ["devices.npu.bus: must name something", "'xia'", "axi"],
    ),
    (
        "dram_bytes_per_cycle: 64 B/cycle",
        "dram_bytes_per_cycle: 256 B/cycle",
        "dram_bytes_per_cycle: 256",
        ["dma.dram_bytes_per_cycle: must not exceed bytes_per_cycle=128 (got 256)"],
    ),
    (
        "exp: 4 cycles",
        "expo: 4 cycles",
        "expo: 4 cycles",
        ["op_cycles.expo: is no operation", "did you mean 'exp'?"],
    ),
    (
        "          exp: 4 cycles\n",
        "",
        "op_cycles:",
        ["vector.op_cycles: lacks the operation 'exp'"],
    ),
    (
        "      convert:\n        elems_per_cycle: 64\n        fixed_cycles: 1.8 cycles\n",
        "",
        "weight_dequant: convert_unit",
        ["core.weight_dequant: needs a convert block", "convert_unit"],
    ),
    (
        "          fp32: 32\n          fp16: 64\n",
        "",
        "lanes:",
        ["vector.lanes: must have fp16 or fp32", "bf16"],
    ),
    ("name: edge-npu", "name: Edge NPU!", "name: Edge", ["name: must be lower-case", "Edge NPU!"]),
    (
        "  dram:\n",
        "  DRAM:\n",
        "DRAM:",
        ["memories.DRAM: a name needs lower-case letters", "'DRAM'"],
    ),
    (
        "    barrier_cycles: 16 cycles\n",
        "",
        "  npu:",
        ["devices.npu.barrier_cycles: is required", "1.8 cycles"],
    ),
    (
        "    cores: 4\n",
        "    cores: 4\n    cores: 5\n",
        "cores: 5",
        ["cores: duplicate key", "line"],
    ),
    ("cores: 4", "cores: [4]", "cores: [4]", ["devices.npu.cores: must be a whole number"]),
    ("description: >-", "description: [1]\nx: >-", "x: >-", ["x: unknown key", "'x'"]),
]


@pytest.mark.parametrize(("old", "new", "marked", "parts"), BAD_VALUES)
def test_a_bad_value_is_refused_with_place_rule_value_and_hint(
    old: str, new: str, marked: str, parts: list[str], tmp_path: Path, edge_text: str
) -> None:
    path = edited(tmp_path, edge_text, old, new)
    message = str(refusal(path))
    assert message.startswith(f"{path}:{line_of(path, marked)}: ")
    for part in parts:
        assert part in message
    assert "pydantic" not in message
    assert "Input should" not in message


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("", None, ["is empty"]),
        ("# nothing\n", None, ["is empty"]),
        ("- a\n- b\n", 1, ["must be a mapping", "list"]),
        ("just text\n", 1, ["must be a mapping", "str"]),
        ("a: 1\n---\nb: 2\n", 2, ["not valid YAML", "another document"]),
        ("a: [1\n", 2, ["not valid YAML"]),
        ("a: b: c\n", 1, ["not valid YAML"]),
        ("a: \x01\n", None, ["not valid YAML"]),
        ("a: 1\n\tb: 2\n", 2, ["not valid YAML"]),
        ("x: !!python/object/apply:os.system ['true']\n", 1, ["tags are not allowed", "python"]),
        ("x: !include other.yaml\n", 1, ["x: YAML tags are not allowed", "!include"]),
        ("x: !!binary aGk=\n", 1, ["x: YAML tags are not allowed", "!!binary"]),
        ("a: &a {b: 1}\nc:\n  <<: *a\n", 3, ["merge keys are not supported", "extends"]),
        ("a: &a\n  b: *a\n", 1, ["must not contain itself"]),
        ("? [1, 2]\n: 3\n", 1, ["a key must be a word"]),
        ("a: *nothing\n", 1, ["not valid YAML", "undefined alias"]),
    ],
)
def test_a_malformed_file_is_refused(
    text: str, line: int | None, parts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    message = str(refusal(path))
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    for part in parts:
        assert part in message


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)) == f"{tmp_path}: is a directory; a YAML file is needed"


def test_a_missing_file_is_refused_with_the_nearest_one(tmp_path: Path, edge_text: str) -> None:
    (tmp_path / "mine.yaml").write_text(edge_text, encoding="utf-8")
    message = str(refusal(tmp_path / "mnie.yaml"))
    assert "mnie.yaml: no such file" in message
    assert "did you mean 'mine.yaml'?" in message


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    message = str(refusal("rk3558"))
    assert "no system has this name" in message
    assert "'rk3558'" in message
    assert "did you mean 'rk3588'?" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_refused(tmp_path: Path, edge_text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(edge_text, encoding="utf-8")
    path.chmod(0)
    assert "cannot be read" in str(refusal(path))


def test_a_device_file_is_refused() -> None:
    assert str(refusal("/dev/null")) == "/dev/null: is not a regular file"


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"name: \xff\n")
    assert str(refusal(path)).startswith(f"{path}: is not UTF-8 text: byte 6")


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("#" * (MAX_FILE_BYTES + 1), encoding="utf-8")
    assert f"exceeds {MAX_FILE_BYTES} bytes" in str(refusal(path))


def test_aliases_cannot_blow_up_a_small_file(tmp_path: Path) -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(levels), encoding="utf-8")
    assert "too large or nested too deeply" in str(refusal(path))


@pytest.mark.parametrize("depth", [100, 600])
def test_deep_nesting_is_refused(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("a: " + "[" * depth + "]" * depth, encoding="utf-8")
    assert str(path) in str(refusal(path))


def test_anchors_and_aliases_are_data(tmp_path: Path, edge_text: str) -> None:
    text = edge_text.replace("fp16: {m: 8, k: 16, n: 16}", "fp16: &half {m: 8, k: 16, n: 16}")
    text = text.replace("bf16: {m: 8, k: 16, n: 16}", "bf16: *half")
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_system(path) == load_system("edge-npu")


def test_the_first_problem_is_told_and_the_others_are_counted(
    tmp_path: Path, edge_text: str
) -> None:
    text = edge_text.replace("cores: 4", "cores: 0").replace("units: 1", "units: -1")
    path = edited(tmp_path, text, "port_bytes: 32 B", "port_bytes: 32")
    error = refusal(path)
    assert error.rule.startswith("needs a unit")
    assert error.hint == "and 2 more problems"


# --- extends ----------------------------------------------------------------------------------


def test_extends_merges_blocks_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "half.yaml"
    path.write_text(
        "extends: ascend-910b\nname: half\ndevices:\n  npu:\n    cores: 12\n", encoding="utf-8"
    )
    half, full = load_system(path), load_system("ascend-910b")
    assert half.name == "half"
    assert half.devices["npu"].cores == 12
    assert half.devices["npu"].core == full.devices["npu"].core
    assert half.memories == full.memories


def test_a_changed_number_loses_its_inherited_source(tmp_path: Path) -> None:
    path = tmp_path / "half.yaml"
    path.write_text(
        "extends: ascend-910b\nname: half\ndevices: {npu: {cores: 12, clock_hz: 1 GHz}}\n"
        "sources:\n  devices.npu.clock_hz: 'assumed: a slow bin'\n",
        encoding="utf-8",
    )
    half, full = load_system(path), load_system("ascend-910b")
    assert "devices.npu.cores" not in half.sources
    assert half.sources["devices.npu.clock_hz"] == "assumed: a slow bin"
    assert set(full.sources) - set(half.sources) == {"devices.npu.cores"}


def test_null_removes_a_block_and_its_sources(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text(
        "extends: ascend-910b\nname: bare\n"
        "devices: {npu: {shared_sram: null, shared_tiles: read_per_core}}\n",
        encoding="utf-8",
    )
    bare = load_system(path)
    assert bare.devices["npu"].shared_sram is None
    assert not [key for key in bare.sources if "shared_sram" in key]


def test_extends_takes_a_path_from_the_folder_of_the_file(tmp_path: Path, edge_text: str) -> None:
    (tmp_path / "base.yaml").write_text(edge_text, encoding="utf-8")
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "mine.yaml"
    path.write_text("extends: ../base.yaml\nname: mine\n", encoding="utf-8")
    assert load_system(path).devices == load_system("edge-npu").devices


def test_extends_may_be_chained(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: rk3588\nname: a\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("extends: a\nname: b\n", encoding="utf-8")
    assert load_system("b", [tmp_path]).devices == load_system("rk3588").devices


def test_a_cycle_of_extends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: ./b.yaml\nname: a\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("extends: ./a.yaml\nname: b\n", encoding="utf-8")
    message = str(refusal(tmp_path / "a.yaml"))
    assert "extends itself" in message
    assert f"{tmp_path / 'a.yaml'} -> {tmp_path / 'b.yaml'} -> {tmp_path / 'a.yaml'}" in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("extends: rk3558\nname: x\n", ["extends: no system has this name", "'rk3588'"]),
        ("extends: [rk3588]\nname: x\n", ["extends: must be the name or path", "rk3588"]),
        ("extends: ./no.yaml\nname: x\n", ["no.yaml: no such file"]),
        ("extends: rk3588\n", ["name: is required"]),
        ("extends: rk3588\nname: x\ndevices: {npu: {clock: 1}}\n", ["clock_hz"]),
    ],
)
def test_a_bad_extension_is_refused(text: str, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    message = str(refusal(path))
    for part in parts:
        assert part in message


# --- workloads and runs -------------------------------------------------------------------------


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


def test_systems_are_frozen() -> None:
    system = load_system("rk3588")
    with pytest.raises(ValueError, match="frozen"):
        system.name = "other"  # type: ignore[misc]
    assert isinstance(system, SystemConfig)


# --- anything else -----------------------------------------------------------------------------

DATA = as_yaml_data(load_system("edge-npu"))
PLACES = [path for path in leaves(DATA) if path[0] != "sources"]
JUNK: list[object] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**40,
    "",
    " ",
    "64 KiB",
    "1e99 GHz",
    "1/0 cycles",
    "[key]",
]
JUNK += ["\ud800", [], {}, [1], {"a": 1}, {"": {}}, {"[key]": 1}, {"m": 1, "k": None}]


@given(place=st.sampled_from(PLACES), junk=st.sampled_from(JUNK), depth=st.integers(1, 6))
def test_junk_anywhere_is_accepted_or_refused_with_its_place(
    place: tuple[str | int, ...], junk: object, depth: int
) -> None:
    data = deepcopy(DATA)
    path = place[:depth]
    value_at(data, path[:-1])[path[-1]] = deepcopy(junk)
    converted, problems = with_units_converted(data, FieldType(SystemConfig))
    message = ""
    try:
        validated(SystemConfig, converted, dotted, problems, data)
    except ConfigError as error:  # nothing else may come out
        message = str(error)
    assert "validation error" not in message
