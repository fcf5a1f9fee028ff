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
    load_system,
)
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.paths import named_files
from tests.unit.config_samples import BAD_VALUES, edited, line_of, refusal

SHIPPED = ("ascend-910b", "edge-npu", "jetson-agx-orin", "rk3588", "tpu-v6e")


@pytest.fixture
def edge_text() -> str:
    """Text of a shipped system with every optional block."""
    return named_files("system")["edge-npu"].read_text(encoding="utf-8")


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
