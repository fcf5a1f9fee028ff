"""Issue 2, must hold 5: every leaf of every hwconfig changes a result, or is exempt with a reason.

A leaf is doubled, halved or set to another valid value through the override machinery; where a rule
between fields forbids one value the next is tried. Probes are runs of small decoders, those nearest
to the leaf's block first; a device of more cores keeps two. A leaf is alive when a probe's figures
change (those that only repeat the configuration do not count) or the run is refused. An exemption
of a leaf that is alive fails too.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from functools import cache

import pytest

from npusim.config.compute import ComputeDtype
from npusim.config.document import dotted, leaves, value_at
from npusim.config.fields import FieldType
from npusim.config.overrides import apply_overrides
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError, NpusimError
from npusim.memory.dram.address_map import ORDERS
from npusim.simulation import simulate_run
from npusim.units import format_quantity
from tests.validation.test_systems_support import (
    MINI,
    SYSTEMS,
    run_spec,
    system_named,
    tiny_model,
)

FAST = "edge-npu"
PROBE_CORES = 2
NO_HARDWARE = ("name", "description", "sources", "calibration")
#: texts that stand for one of several choices
CHOICES = {"standard": ("DDR4-3200", "LPDDR5-6400", "HBM2-2000"), "address_map": tuple(ORDERS)}
#: figures of a summary that only repeat the configuration
ECHOES = {
    *("wall_s", "hashes", "overrides", "clock_hz", "peak_macs_per_cycle", "utilization"),
    *("capacity_bytes", "peak_bytes_per_s", "approximations", "bound_ps", "cycles"),
}

DECODE = {"context_len": 24, "generate_len": 1}
PREFILL = {"prompt_len": 40}
WIDE = {"num_hidden_layers": 1}
LARGE = {"num_hidden_layers": 1, "hidden_size": 512, "intermediate_size": 2048}
WIDE_FFN = {"num_hidden_layers": 1, "hidden_size": 512, "intermediate_size": 8192}
LONG, WRITES, SPILL, GEMV = "long prefill", "many writes", "spilled prefill", "large vectors"
APART, WIDE_APART = "prefill kernel by kernel", "wide prefill kernel by kernel"
UNFUSED = (  # scores travel to the DRAM, in cut rows
    *("compiler.fusion=off", "compiler.staging=tiles"),
    "compiler.activation_residency=dram",
)
EVICTS = "more than the cache"
PROBES = {
    "decode": (MINI, {**DECODE, "quant": "w4a16"}, ()),
    "prefill": (MINI, {**PREFILL, "quant": "w4a16"}, ()),
    "wide prefill": (WIDE, {**PREFILL, "quant": "w16a16"}, ()),
    "eager": (MINI, {**DECODE, "quant": "w4a16"}, ("compiler.launch=eager",)),
    "graph": (MINI, {**DECODE, "quant": "w4a16"}, ("compiler.launch=graph",)),
    "in dram": (WIDE, {**PREFILL, "quant": "w4a16"}, ("compiler.activation_residency=dram",)),
    "int8": (MINI, {**DECODE, "quant": "w8a8", "kv_dtype": "int8"}, ()),
    "int8 prefill": (WIDE, {**PREFILL, "quant": "w8a8", "kv_dtype": "int8"}, ()),
    "fp16": ({**MINI, "torch_dtype": "float16"}, {**DECODE, "quant": "w16a16"}, ()),
    WRITES: (WIDE, {"prompt_len": 256, "quant": "w4a16"}, ("compiler.activation_residency=dram",)),
    LONG: (LARGE, {"prompt_len": 1024, "batch": 2, "quant": "w16a16"}, ()),
    EVICTS: (LARGE, {**PREFILL, "quant": "w16a16"}, ()),
    SPILL: (LARGE, {"prompt_len": 1024, "batch": 4, "quant": "w16a16"}, UNFUSED),
    APART: (MINI, {**PREFILL, "quant": "w4a16"}, UNFUSED),
    WIDE_APART: (WIDE, {"prompt_len": 256, "quant": "w4a16"}, UNFUSED),
    GEMV: (WIDE_FFN, {**DECODE, "quant": "w16a16"}, ()),
}
#: probes for hardware that small runs leave empty; elsewhere they take too long
ONLY_ON = {
    EVICTS: ("jetson-agx-orin",),
    **dict.fromkeys((LONG, SPILL, GEMV, APART, WIDE_APART), ("tpu-v6e",)),
    WRITES: ("ascend-910b", "jetson-agx-orin"),
}
#: probes that a key, or else a block, is most likely to show in
FIRST_PROBES = {
    "accumulator_buffer_bytes": (LONG,),
    "bytes_per_cycle": (LONG,),
    "preload_overlapped": (LONG,),
    "gemv": (GEMV,),
    "rsqrt": (LONG, "int8 prefill"),
    "write_high_frac": (WRITES, WIDE_APART, SPILL),
    "partial_write": (APART,),
    "ways": (EVICTS,),
    "memories": ("prefill", "in dram"),
    "buses": ("prefill", "in dram"),
    "host": ("eager", "graph"),
}

CORE = "devices.npu.core"
INT4 = "no wXaY of this version computes in 4-bit integers: activations have 8 or 16 bits"
FP32 = "vector operators compute in 16 bits, which every unit here can"
FUSION = "holds live values of fused operators, and this product's compiler fuses none"
SLOW_LANES = "the lanes take longer than the way to the scratchpad, with spills and without"
TANH = "acts in models with gelu or soft caps; the workloads of this test have neither"
COPY = "acts where experts or imported graphs copy; the workloads of this test do not"
FLOATS = "only integer operands and sums are converted so, and this unit computes in floats"
NO_TIER = "rate of paths other than to DRAM, and this device has no shared SRAM"
NO_RIVAL = "one engine loads and one stores, on channels of their own: nothing to arbitrate"
DRAIN = "applies to the output-stationary dataflow, which this array does not have"
SLOW_ARRAY = "the array takes longer than its operand path whatever the buffer holds"
UNFUSING = tuple(name for name in SYSTEMS if name != "tpu-v6e")
#: leaf (of one system, or of all as "*") to why nothing changes with it
EXEMPT: dict[tuple[str, str], str] = {
    ("*", "host.fallback_bytes_per_s"): "acts in imported graphs with operators that the device "
    "cannot compute (tests/unit/test_workload_importers.py); no shipped model has one",
    **{(name, f"{CORE}.register_file_bytes"): FUSION for name in UNFUSING},
    **{(name, f"{CORE}.vector.lanes.fp32"): FP32 for name in UNFUSING},
    ("tpu-v6e", f"{CORE}.register_file_bytes"): SLOW_LANES,
    ("tpu-v6e", "devices.npu.shared_tiles"): "a single core shares no tiles",
    ("tpu-v6e", f"{CORE}.dma.bytes_per_cycle"): NO_TIER,
    ("*", f"{CORE}.vector.op_cycles.copy"): COPY,
    ("*", f"{CORE}.vector.op_cycles.tanh"): TANH,
    **{("*", f"{CORE}.matrix.cube.int4.{axis}"): INT4 for axis in "mkn"},
    ("edge-npu", f"{CORE}.matrix.accumulator_convert"): FLOATS,
    ("edge-npu", f"{CORE}.vector.op_cycles.convert"): FLOATS,
    ("rk3588", f"{CORE}.dma.bytes_per_cycle"): NO_TIER,
    ("rk3588", f"{CORE}.matrix.operand_buffer_bytes"): SLOW_ARRAY,
    ("tpu-v6e", "buses.axi.arbitration"): NO_RIVAL,
    ("tpu-v6e", f"{CORE}.matrix.drain"): DRAIN,
    ("tpu-v6e", f"{CORE}.matrix.operand_buffer_bytes"): SLOW_ARRAY,
}
#: leaf to the keys it is tied to: no other value is valid alone
TIED = {f"{CORE}.matrix.kind": "each kind has required keys of its own and refuses the other's"}


def reason(system, leaf):
    return EXEMPT.get((system, leaf), EXEMPT.get(("*", leaf)))


@cache
def hardware(system):
    """The system as plain data, without provenance."""
    data = system_named(system).model_dump(mode="json")
    return {key: value for key, value in data.items() if key not in NO_HARDWARE}


@cache
def leaves_of(system):
    """Dotted paths of numbers, switches and choices; absent optional keys are no leaves."""
    data = hardware(system)
    return tuple(dotted(p) for p in leaves(data) if _values(p, value_at(data, p)))


def values_of(system, leaf):
    path = tuple(leaf.split("."))
    return _values(path, value_at(hardware(system), path))


def valid_alone(system, leaf):
    """Overrides of one leaf that break no rule between fields."""
    valid = []
    for value in values_of(system, leaf):
        with suppress(ConfigError):
            apply_overrides(probe_spec(system, "decode"), [f"system.{leaf}={value}"])
            valid.append(f"system.{leaf}={value}")
    return valid


def exempt_leaves(system):
    return [leaf for leaf in leaves_of(system) if reason(system, leaf) is not None]


def _values(path, value):
    """Other values of a leaf, as an override spells them."""
    place = FieldType(SystemConfig).below(path)
    if value is None or path[-1] in ("bus", "memory"):
        return []
    if place.choices is not None:
        return [choice.value for choice in place.choices if choice.value != value]
    if place.annotation is bool:
        return ["false" if value else "true"]
    if place.annotation is str:
        return [other for other in CHOICES[path[-1]] if other != value]
    if place.annotation is float:
        return [str(value / 4), str((1 + value) / 2)]
    return _numbers(place, Fraction(value))


def _numbers(place, value):
    """Twice, half, and further away for what is not the bottleneck; something for nothing."""
    whole = [
        value * 2,
        value // 2,
        value * 16,
        value // 16,
        value // 64,
        value // 1024,
        Fraction(1),
    ]
    if value == 0:
        whole = [Fraction(1000), Fraction(10**6)]
    fresh = [n for n in dict.fromkeys(whole) if n not in (0, value)]
    if place.dimension is None:
        return [str(number) for number in fresh]
    return [format_quantity(number, place.dimension, None) for number in fresh]


def figures(summary):
    """A summary without what repeats the configuration."""
    if isinstance(summary, dict):
        return {key: figures(value) for key, value in summary.items() if key not in ECHOES}
    return [figures(item) for item in summary] if isinstance(summary, list) else summary


@cache
def probe_spec(system, name):
    model, workload, sets = PROBES[name]
    if name != WRITES and hardware(system)["devices"]["npu"]["cores"] > PROBE_CORES:
        sets = (f"system.devices.npu.cores={PROBE_CORES}", *sets)
    return run_spec(system, tiny_model(**model), fidelity="burst", sets=sets, **workload)


def outcome(spec):
    """Figures of a run, or why it is refused."""
    try:
        return figures(simulate_run(spec).summary())
    except NpusimError as error:
        return type(error).__name__


@cache
def baseline(system, name):
    """Figures of a probe; None where the system has no unit for its precision."""
    found = outcome(probe_spec(system, name))
    return None if isinstance(found, str) else found


def probes_of(system):
    """Probes that run on a system."""
    wanted = [name for name in PROBES if system in ONLY_ON.get(name, SYSTEMS)]
    return [name for name in wanted if baseline(system, name) is not None]


def what_changes(system, leaf):
    """(probe, override) of the first change that is seen, or None."""
    path = tuple(leaf.split("."))
    first = FIRST_PROBES.get(path[-1], FIRST_PROBES.get(path[0], ()))
    if path[-1] in ("m", "k", "n") or path[-2] in ("macs_per_pe", "lanes"):
        dtype = ComputeDtype(next(p for p in path if p in list(ComputeDtype)))
        first = {ComputeDtype.INT8: ("int8",), ComputeDtype.FP16: ("fp16",)}.get(dtype, ())
    known = probes_of(system)
    for name in dict.fromkeys((*(p for p in first if p in known), *known)):
        for text in values_of(system, leaf):
            override = f"system.{leaf}={text}"
            try:
                spec = apply_overrides(probe_spec(system, name), [override])
            except ConfigError:
                continue
            if outcome(spec) != baseline(system, name):
                return name, override
    return None


def per_system():
    for system in SYSTEMS:
        yield pytest.param(system, marks=() if system == FAST else pytest.mark.slow)


def cases():
    for system in SYSTEMS:
        marks = () if system == FAST else pytest.mark.slow
        for leaf in leaves_of(system):
            if reason(system, leaf) is None and leaf not in TIED:
                yield pytest.param(system, leaf, marks=marks, id=f"{system}-{leaf}")


@pytest.mark.parametrize(("system", "leaf"), list(cases()))
def test_every_leaf_changes_a_result(system, leaf):
    assert what_changes(system, leaf), f"{leaf} of {system} is dead: no probe changes with it"


@pytest.mark.parametrize("system", list(per_system()))
@pytest.mark.parametrize("step", [0, 1])
def test_exempt_leaves_together_change_nothing(system, step):
    """Twice (step 0) and half of all of them at once; an exemption that is stale shows here."""
    texts = []
    for leaf in exempt_leaves(system):
        values = valid_alone(system, leaf)
        texts.append(values[min(step, len(values) - 1)])
    for name in probes_of(system):
        spec = apply_overrides(probe_spec(system, name), texts)
        assert outcome(spec) == baseline(system, name), name


@pytest.mark.parametrize("system", SYSTEMS)
def test_leaves_tied_to_their_block_cannot_change_alone(system):
    for leaf in TIED:
        for value in values_of(system, leaf):
            with pytest.raises(ConfigError):
                apply_overrides(probe_spec(system, "decode"), [f"system.{leaf}={value}"])


def test_exemptions_name_leaves_that_exist_and_give_reasons():
    tied = {("*", leaf): text for leaf, text in TIED.items()}
    for (system, leaf), text in {**EXEMPT, **tied}.items():
        systems = SYSTEMS if system == "*" else (system,)
        assert any(leaf in leaves_of(name) for name in systems), leaf
        assert len(text.split()) >= 4, leaf


def test_leaves_are_those_of_the_file_and_not_provenance():
    assert "devices.npu.core.matrix.cube.int4.m" in leaves_of(FAST)
    assert "memories.dram.posted_writes" in leaves_of(FAST)
    assert "devices.npu.core.matrix.rows" not in leaves_of(FAST)  # a cube has no rows
    assert not [leaf for leaf in leaves_of(FAST) if leaf.startswith(("sources", "name"))]
