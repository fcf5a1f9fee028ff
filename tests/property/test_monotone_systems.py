"""Issue 2, must hold 4: more hardware never slows a run by more than 1 %.

Array shape is exempt; the compiler may leave cores unused. What it predicts is strictly monotone.
"""

from __future__ import annotations

import logging

import pytest

from npusim.compiler.compile import compile_graph
from npusim.errors import ConfigError, MappingError, NpusimError
from npusim.simulation.memories import peak_bytes_per_s
from tests.validation.test_systems_support import (
    MANY_CORES,
    MINI,
    SYSTEMS,
    dram_of,
    run_spec,
    simulated,
    some_slow,
    system_named,
    tiny_model,
    workload_of,
)

LOG = logging.getLogger(__name__)

TOLERANCE_FRAC = 0.01
NPU = "devices.npu"
#: what is doubled: dotted path of a whole number, its unit, and what it stands for
DOUBLED = {
    "memories.dram.channels": "",
    "buses.axi.clock_hz": " Hz",
    f"{NPU}.clock_hz": " Hz",
    f"{NPU}.core.matrix.units": "",
    f"{NPU}.cores": "",
    f"{NPU}.core.scratchpad.capacity_bytes": " B",
    f"{NPU}.core.matrix.accumulator_buffer_bytes": " B",
    f"{NPU}.shared_sram.capacity_bytes": " B",
}
RUNS = {
    "decode": {"context_len": 64, "generate_len": 1},
    "prefill": {"prompt_len": 48},
}


def value_of(system, path):
    """Value at a dotted path, None where the system has no such block."""
    here = system_named(system)
    for name in path.split("."):
        here = here[name] if isinstance(here, dict) else getattr(here, name)
        if here is None:
            return None
    return here


def doubled(system, path):
    return f"system.{path}={2 * value_of(system, path)}{DOUBLED[path]}"


def paths_of(system):
    return [path for path in DOUBLED if value_of(system, path) is not None]


def violations(system, model, fidelity, phase, quant):
    """Doublings that slow the run by more than the tolerance, and by how much."""
    settings = {"fidelity": fidelity, "quant": quant, **RUNS[phase]}
    before_ps = simulated(system, model, **settings).elapsed_ps
    found = []
    for path in paths_of(system):
        after_ps = simulated(system, model, sets=(doubled(system, path),), **settings).elapsed_ps
        slower = after_ps / before_ps - 1
        LOG.info("%s %s %s, twice %s: %+.2f %%", system, phase, fidelity, path, 100 * slower)
        if slower > TOLERANCE_FRAC:
            found.append(f"{path}: {100 * slower:+.2f} %")
    return found


@pytest.mark.parametrize("phase", RUNS)
@pytest.mark.parametrize("system", ["edge-npu", "rk3588"])
def test_more_of_anything_never_slows_a_small_model_at_burst(system, phase):
    assert violations(system, tiny_model(**MINI), "burst", phase, "w4a16") == []


@pytest.mark.slow
@pytest.mark.parametrize("phase", RUNS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_more_of_anything_never_slows_a_two_layer_model(system, phase):
    fidelity = "transfer" if system in MANY_CORES else "burst"
    assert violations(system, tiny_model(), fidelity, phase, "w4a16") == []


@pytest.mark.slow
@pytest.mark.parametrize("phase", RUNS)
def test_more_cores_never_slow_a_real_model_on_edge_npu(phase):
    settings = {"fidelity": "burst", "quant": "w4a16", **RUNS[phase]}
    before_ps = simulated("edge-npu", "smollm2-135m", **settings).elapsed_ps
    sets = (doubled("edge-npu", f"{NPU}.cores"),)
    after_ps = simulated("edge-npu", "smollm2-135m", sets=sets, **settings).elapsed_ps
    assert after_ps <= before_ps * (1 + TOLERANCE_FRAC)


def test_more_cores_never_slow_a_two_layer_model_on_edge_npu():
    settings = {"fidelity": "burst", "quant": "w4a16", **RUNS["prefill"]}
    before_ps = simulated("edge-npu", tiny_model(), **settings).elapsed_ps
    sets = (doubled("edge-npu", f"{NPU}.cores"),)
    after_ps = simulated("edge-npu", tiny_model(), sets=sets, **settings).elapsed_ps
    assert after_ps <= before_ps * (1 + TOLERANCE_FRAC)


def test_a_second_core_never_slows_a_small_model_on_tpu_v6e():
    settings = {"fidelity": "burst", "quant": "w4a16", **RUNS["decode"]}
    before_ps = simulated("tpu-v6e", tiny_model(**MINI), **settings).elapsed_ps
    sets = (f"system.{NPU}.cores=2",)
    after_ps = simulated("tpu-v6e", tiny_model(**MINI), sets=sets, **settings).elapsed_ps
    assert after_ps <= before_ps * (1 + TOLERANCE_FRAC)


@pytest.mark.parametrize("system", some_slow(SYSTEMS))
def test_predicted_cost_of_every_matmul_is_strictly_monotone(system):
    def predicted(sets):
        spec = run_spec(system, tiny_model(**MINI), sets=sets, quant="w4a16", prompt_len=48)
        rates = peak_bytes_per_s(spec.system)
        graph = workload_of(spec).prefill_graph()
        plans = compile_graph(graph, spec.system, spec.compiler, rates, kv_capacity_tokens=48).plans
        clock_hz = spec.system.devices["npu"].clock_hz
        return {name: plan.predicted_cycles / clock_hz for name, plan in plans.items()}

    before = predicted(())
    for path in paths_of(system):
        after = predicted((doubled(system, path),))
        slower = {n: (before[n], after[n]) for n in before if after[n] > before[n] * (1 + 1e-9)}
        assert slower == {}, path


@pytest.mark.parametrize("system", some_slow(SYSTEMS))
def test_a_scratchpad_below_the_working_set_costs_dram_bytes_or_fails_loudly(system):
    """Half by half until it is refused; DRAM bytes never fall and the refusal names the need."""
    path = f"{NPU}.core.scratchpad.capacity_bytes"
    capacity, banks = value_of(system, path), value_of(system, f"{NPU}.core.scratchpad.banks")
    settings = {"quant": "w4a16", **RUNS["prefill"]}
    first = moved = dram_bytes(simulated(system, tiny_model(**MINI), **settings))
    refusal = None
    while refusal is None:
        capacity //= 4
        sets = (f"system.{path}={capacity // banks * banks} B",)
        try:
            now = dram_bytes(simulated(system, tiny_model(**MINI), sets=sets, **settings))
        except NpusimError as error:
            refusal = error
        else:
            assert now >= 0.99 * moved
            moved = now
    assert isinstance(refusal, (ConfigError, MappingError))
    assert "bytes" in str(refusal)
    assert moved >= first


def dram_bytes(result):
    dram = dram_of(result, "prefill")
    return dram.read_bytes + dram.write_bytes
