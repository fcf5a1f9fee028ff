"""Schemas, the table of keys, and hashes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from npusim.config.compute import VECTOR_OPS
from npusim.config.hashing import spec_hash
from npusim.config.loader import as_yaml_data, dump_system, load_system
from npusim.config.overrides import apply_system_overrides
from npusim.config.run_spec import RunSpec, WorkloadConfig
from npusim.config.schema import Part, describe_fields, json_schema
from npusim.errors import ConfigError
from npusim.workload import operator

PARTS = get_args(Part)
SHIPPED = ("ascend-910b", "edge-npu", "jetson-agx-orin", "rk3588", "tpu-v6e")


KINDS: dict[str, Any] = {
    "object": dict,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "null": type(None),
}


def conforms(data: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether data matches a schema; knows the keywords that ours uses."""
    if "$ref" in schema:
        target: Any = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        return conforms(data, target, root)
    if "if" in schema:
        return conforms(data, schema["then" if "extends" in data else "else"], root)
    if "anyOf" in schema:
        return any(conforms(data, option, root) for option in schema["anyOf"])
    kind = schema.get("type")
    if kind is not None and not isinstance(data, KINDS[kind]):
        return False
    if isinstance(data, dict):
        return object_conforms(data, schema, root)
    has_pattern = isinstance(data, str) and "pattern" in schema
    return data in schema.get("enum", [data]) and (
        not has_pattern or re.search(schema["pattern"], data) is not None
    )


def object_conforms(data: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Part of `conforms` for mappings."""
    if not set(schema.get("required", [])) <= set(data):
        return False
    more = schema.get("additionalProperties", True)
    for key, value in data.items():
        options = [s for p, s in schema.get("patternProperties", {}).items() if re.search(p, key)]
        found = schema.get("properties", {}).get(key, options[0] if options else more)
        if found is False or (isinstance(found, dict) and not conforms(value, found, root)):
            return False
    return True


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_systems_match_the_schema(name: str) -> None:
    schema = json_schema("system")
    assert conforms(as_yaml_data(load_system(name)), schema, schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [("clock_hz", "clock"), ("1.5 GHz", 1500), ("1.5 GHz", "1.5 GiB"), ("1.5 GHz", "fast GHz")],
)
def test_the_schema_refuses_what_the_loader_refuses(old: str, new: object) -> None:
    schema = json_schema("system")
    data = as_yaml_data(load_system("edge-npu"))
    npu = data["devices"]["npu"]
    if old == "clock_hz":
        npu[new] = npu.pop(old)
    else:
        npu["clock_hz"] = new
    assert not conforms(data, schema, schema)


def test_the_schema_accepts_a_file_that_extends_another() -> None:
    schema = json_schema("system")
    assert conforms({"extends": "rk3588", "name": "x"}, schema, schema)
    assert not conforms({"extends": "rk3588"}, schema, schema)


@pytest.mark.parametrize("part", PARTS)
def test_every_key_is_documented(part: str) -> None:
    rows = describe_fields(part)
    assert rows
    for row in rows:
        assert row.doc.endswith("."), row.path
        assert row.type
    assert len({row.path for row in rows}) == len(rows)


def test_the_table_gives_units_and_defaults() -> None:
    rows = {row.path: row for row in describe_fields("run")}
    clock = rows["system.devices.*.clock_hz"]
    assert (clock.type, clock.unit, clock.default) == ("integer", "Hz", "required")
    assert rows["system.devices.*.core.vector.op_cycles"].unit == "cycles"
    assert rows["compiler.buffers"].default == "2"
    assert rows["compiler.prefetch"].default == "true"
    assert rows["compiler.launch"].type == "system | eager | graph"
    assert rows["system.devices.*.address_limit_bytes"].default == "optional"


@pytest.mark.parametrize("call", [json_schema, describe_fields])
def test_an_unknown_part_is_refused(call: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be one of run, .*did you mean 'system'"):
        call("systm")


def test_vector_operations_are_those_of_the_workload() -> None:
    assert set(VECTOR_OPS) == set(operator.VECTOR_OPS)


# --- hashes -------------------------------------------------------------------------------------


def test_a_hash_does_not_depend_on_spelling_or_provenance(tmp_path: Path) -> None:
    system = load_system("rk3588")
    text = dump_system(system)
    text = text.replace("capacity_bytes: 384 KiB", "capacity_bytes: 393216 B")
    text = text.replace("'assumed: one rank'", "other").replace("assumed: one rank", "other")
    path = tmp_path / "copy.yaml"
    path.write_text(text, encoding="utf-8")
    copy = load_system(path)
    assert copy != system  # its sources differ
    assert spec_hash(copy) == spec_hash(system)


def test_a_hash_depends_on_every_value() -> None:
    system = load_system("rk3588")
    changed = apply_system_overrides(system, ["system.host.sync_ps=51 us"])
    assert spec_hash(changed) != spec_hash(system)


def test_the_hash_of_a_run_leaves_out_the_texts_of_its_system() -> None:
    system = load_system("rk3588")
    workload = WorkloadConfig(model="m", prompt_len=8)
    other = system.model_copy(update={"description": "x", "sources": {}})
    assert spec_hash(RunSpec(system=system, workload=workload)) == spec_hash(
        RunSpec(system=other, workload=workload)
    )


def test_hashes_are_those_of_earlier_versions() -> None:
    # canonical form written out: keys sorted, no spaces
    text = (
        '{"batch":1,"context_len":null,"expert_routing":"uniform","generate_len":0,'
        '"kv_dtype":null,"kv_prune":null,'
        '"model":"m","prompt_len":8,"quant":"w16a16"}'
    )
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert spec_hash(WorkloadConfig(model="m", prompt_len=8)) == expected


def test_the_guide_lists_every_key_of_a_system() -> None:
    page = Path(__file__).parents[2] / "docs" / "guide" / "systems.md"
    listed = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| `")]
    rows = []
    for row in describe_fields("system"):
        kind = row.type.replace(" | ", ", ")
        rows.append(f"| `{row.path}` | {kind} | {row.unit} | {row.default} | {row.doc} |")
    assert listed[-len(rows) :] == rows
