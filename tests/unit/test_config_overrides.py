"""Dotted overrides: values as in YAML, paths that exist, the whole result validated."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.config.document import dotted, leaves, value_at
from npusim.config.hashing import spec_hash
from npusim.config.loader import as_yaml_data, load_system
from npusim.config.overrides import OVERRIDE_SOURCE, apply_overrides, apply_system_overrides
from npusim.config.run_spec import RunSpec, WorkloadConfig
from npusim.errors import ConfigError

SYSTEM = load_system("edge-npu")


@pytest.fixture(scope="module")
def run() -> RunSpec:
    """A run on the system with most kinds of keys."""
    workload = WorkloadConfig(model="qwen2-1.5b", prompt_len=512, generate_len=64)
    return RunSpec(system=SYSTEM, workload=workload)


def value_of(run: RunSpec, path: str) -> Any:
    """Python value at a dotted path."""
    value: Any = run
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("system.devices.npu.core.dma.queue_depth=8", 8),
        ("system.devices.npu.clock_hz=1.2 GHz", 1_200_000_000),
        ("system.devices.npu.clock_hz = 1.2 GHz ", 1_200_000_000),
        ("system.devices.npu.core.scratchpad.capacity_bytes=512 KiB", 524_288),
        ("system.devices.npu.core.convert.fixed_cycles=2.3 cycles", Fraction(23, 10)),
        ("system.devices.npu.core.convert.fixed_cycles=16/15 cycles", Fraction(16, 15)),
        ("system.devices.npu.core.matrix.cube.int4.k=32", 32),
        ("system.devices.npu.core.vector.op_cycles.exp=6 cycles", 6),
        ("system.memories.dram.write_high_frac=0.9", 0.9),
        ("system.memories.dram.write_high_frac=1", 1.0),
        ("system.memories.dram.posted_writes=false", False),
        ("system.memories.dram.refresh=none", "none"),
        ("system.host.launch=eager", "eager"),
        ("system.devices.npu.address_limit_bytes=4 GiB", 4 * 2**30),
        ("compiler.launch=eager", "eager"),
        ("compiler.max_cores=2", 2),
        ("compiler.max_cores=null", None),
        ("simulation.fold_tolerance_frac=1e-4", 1e-4),
        ("simulation.fold=false", False),
        ("workload.quant=w8a8", "w8a8"),
        ("workload.kv_dtype=int8", "int8"),
        ("workload.kv_dtype=8", "8"),
        ("workload.kv_dtype='null'", "null"),
        ("workload.batch=4", 4),
    ],
)
def test_an_override_sets_one_value(run: RunSpec, override: str, value: object) -> None:
    path = override.partition("=")[0].strip()
    assert value_of(apply_overrides(run, [override]), path) == value


def test_other_values_stay_and_the_original_too(run: RunSpec) -> None:
    before = spec_hash(run)
    changed = apply_overrides(run, ["system.devices.npu.cores=2"])
    assert apply_overrides(changed, ["system.devices.npu.cores=4"]).system.devices == (
        run.system.devices
    )
    assert spec_hash(run) == before
    assert spec_hash(changed) != before


def test_no_override_changes_nothing(run: RunSpec) -> None:
    assert apply_overrides(run, []) is run


def test_the_last_override_wins(run: RunSpec) -> None:
    changed = apply_overrides(run, ["workload.batch=2", "workload.batch=3"])
    assert changed.workload.batch == 3


def test_a_block_is_removed_by_null_and_written_in_braces(run: RunSpec) -> None:
    bare = apply_overrides(
        run,
        ["system.devices.npu.shared_sram=null", "system.devices.npu.shared_tiles=multicast"],
    )
    assert bare.system.devices["npu"].shared_sram is None
    convert = "{elems_per_cycle: 8, fixed_cycles: 2 cycles}"
    changed = apply_overrides(run, [f"system.devices.npu.core.convert={convert}"])
    unit = changed.system.devices["npu"].core.convert
    assert unit is not None
    assert (unit.elems_per_cycle, unit.fixed_cycles) == (8, Fraction(2))


def test_an_overridden_number_loses_its_source(run: RunSpec) -> None:
    path = "devices.npu.clock_hz"
    changed = apply_overrides(run, [f"system.{path}=1 GHz"])
    assert changed.system.sources[path] == OVERRIDE_SOURCE
    assert run.system.sources[path] != OVERRIDE_SOURCE


def test_a_system_alone_can_be_patched() -> None:
    system = apply_system_overrides(load_system("rk3588"), ["system.devices.npu.cores=1"])
    assert system.devices["npu"].cores == 1
    with pytest.raises(ConfigError, match="must name a key"):
        apply_system_overrides(system, ["workload.batch=1"])


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        (
            "system.devices.npu.core.dma.queue_dept=8",
            ["has no such key", "'queue_dept'", "'system.devices.npu.core.dma.queue_depth'"],
        ),
        (
            "system.device.npu.cores=8",
            ["system has no such key", "'device'", "'system.devices.npu.cores'"],
        ),
        ("system.cores=8", ["has no such key", "'cores'", "'system.devices.npu.cores'"]),
        ("sytem.devices.npu.cores=8", ["the run has no such key", "'sytem'", "system"]),
        ("system.memories.foo.channels=8", ["'foo'", "'system.memories.dram.channels'"]),
        ("system.devices.npu.core.matrix.cube.int8.k=8", ["has no such key", "'int8'", "int4"]),
        ("system.devices.npu.core.matrix.rows.x=8", ["rows is null", "'x'"]),
        ("workload.prompt=8", ["has no such key", "'prompt'", "'workload.prompt_len'"]),
        ("system.devices.npu.clock_hz=1000", ["clock_hz=1000", "needs a unit", "1.8 GHz"]),
        ("system.devices.npu.clock_hz=1 KiB", ["'KiB'", "GHz"]),
        ("system.devices.npu.core.dma.queue_depth=0", ["must be greater than 0 (got 0)"]),
        ("system.devices.npu.core.dma.queue_depth=two", ["must be a whole number", "'two'"]),
        ("system.devices.npu.core.dma.queue_depth=null", ["must have a value", "'null'"]),
        ("system.devices.npu.core=5", ["must be a block of keys", "5"]),
        ("compiler.launch=egaer", ["must be one of system, eager, graph", "'eager'"]),
        ("compiler.max_cores=0", ["must be greater than 0 (got 0)"]),
        ("workload.prompt_len=0", ["must be greater than 0 (got 0)"]),
        ("workload.context_len=4", ["excludes prompt_len", "4"]),
        ("workload.quant=8", ["must be wXaY", "'8'"]),
        ("system.memories.dram.channels=6", ["must be a power of two (got 6)"]),
        ("system.memories.dram.write_low_frac=0.95", ["must be below write_high_frac=0.8"]),
        ("system.sources=x", ["cannot be overridden"]),
        ("system.devices.npu.bus=xia", ["must name something", "'xia'"]),
        ("system.devices.npu.cores", ["must be path=value"]),
        ("system.devices.npu.cores=", ["must be path=value"]),
        ("=8", ["has no such key"]),
        ("system=8", ["must be a block of keys"]),
        ("simulation.seed=!!python/name:os.system x", ["tags are not allowed"]),
        ("simulation.seed=[1", ["not valid YAML"]),
    ],
)
def test_a_bad_override_is_refused(run: RunSpec, override: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(run, [override])
    message = str(caught.value)
    assert message.startswith("--set ")
    for part in parts:
        assert part in message


def test_a_rule_between_two_overrides_is_checked(run: RunSpec) -> None:
    with pytest.raises(ConfigError, match="needs a shared_sram block"):
        apply_overrides(run, ["system.devices.npu.shared_sram=null"])


def leaf_overrides() -> list[str]:
    """Every value of a shipped system as an override that sets it to itself."""
    data = as_yaml_data(SYSTEM)
    skipped = ("sources", "calibration")
    paths = [path for path in leaves(data) if path[0] not in skipped]
    return [f"system.{dotted(path)}={_text(value_at(data, path))}" for path in paths]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


OVERRIDES = leaf_overrides()


@settings(max_examples=30)
@given(chosen=st.lists(st.sampled_from(OVERRIDES), min_size=1, max_size=5))
def test_setting_values_to_themselves_changes_nothing(chosen: list[str]) -> None:
    assert spec_hash(apply_system_overrides(SYSTEM, chosen)) == spec_hash(SYSTEM)
