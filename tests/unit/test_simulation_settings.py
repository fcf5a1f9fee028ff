"""Settings of a simulation that are refused before time starts."""

from __future__ import annotations

import pytest

from npusim.config.loader import load_system
from npusim.config.overrides import apply_system_overrides
from npusim.config.run_spec import Executor, Fidelity, SimulationConfig
from npusim.errors import ConfigError, MappingError, WorkloadError
from npusim.simulation import simulate, simulate_operator
from npusim.simulation.run import executor_of
from npusim.workload.workload import transformer


@pytest.mark.parametrize("fidelity", list(Fidelity))
def test_the_compiled_executor_is_refused_at_every_fidelity(fidelity):
    with pytest.raises(ConfigError, match=r"SimPy machine only.*'compiled'.*use 'auto' or 'simpy'"):
        executor_of(SimulationConfig(fidelity=fidelity, executor=Executor.COMPILED))


def test_the_closed_form_does_not_pretend_to_be_simpy():
    settings = SimulationConfig(fidelity=Fidelity.ANALYTIC, executor=Executor.SIMPY)
    with pytest.raises(ConfigError, match="executes nothing"):
        executor_of(settings)


def test_a_unit_that_cannot_hold_one_pass_is_refused_with_need_and_budget():
    key = "system.devices.npu.core.matrix.accumulator_buffer_bytes"
    system = apply_system_overrides(load_system("rk3588"), [f"{key}=64 B"])
    # one row of the 1 x 32 x 32 cube leaves 32 sums of 4 bytes
    with pytest.raises(MappingError, match=r"one pass needs 128 bytes .*got 64"):
        simulate_operator(system, "matmul", "8x64x64", quant="w8a8")


def test_a_model_larger_than_the_address_space_is_refused_before_it_is_simulated():
    workload = transformer("llama-3.1-8b", phase="decode", context_len=512, quant="w8a8")
    with pytest.raises(WorkloadError, match=r"address_limit_bytes=4294967296.*narrower --quant"):
        simulate("rk3588", workload)
