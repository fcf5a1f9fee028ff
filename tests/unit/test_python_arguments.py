"""Wrong Python values are refused as clearly as wrong files; settings may be mappings."""

from __future__ import annotations

import pytest

import npusim as ns
from npusim.errors import ConfigError


def workload():
    return ns.transformer("smollm2-135m", phase="decode", context_len=8)


def test_a_choice_may_be_given_by_its_name():
    assert ns.SimulationConfig(fidelity="transfer").fidelity.value == "transfer"
    assert ns.CompilerConfig(launch="graph").launch.value == "graph"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ns.SimulationConfig(fidelity="brst"), r"fidelity: must be one of .*'burst'\?"),
        (lambda: ns.SimulationConfig(fidelty="burst"), r"fidelty: unknown key .*'fidelity'\?"),
        (lambda: ns.CompilerConfig(buffers=0), "buffers: must be greater than 0 .got 0"),
        (lambda: ns.simulate(3, workload()), "system: must be a SystemConfig, a name or a path"),
        (lambda: ns.simulate("rk3588", 3), "workload: must be a Workload"),
        (lambda: ns.simulate("rk3588", workload(), compiler=3), "compiler: must be a CompilerCon"),
        (lambda: ns.simulate_operator(3, "matmul", "1x1x1"), "system: must be a SystemConfig"),
    ],
)
def test_what_is_wrong_is_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_settings_may_be_mappings_and_closed_forms_run_no_program():
    result = ns.simulate("rk3588", workload(), simulation={"fidelity": "analytic"})
    assert result.fidelity == "analytic"
    assert result.summary()["hashes"]["program"] is None
