"""Keys that no shipped system sets: without them nothing happens, with them a result changes."""

from __future__ import annotations

import pytest

from npusim.config.overrides import apply_overrides
from npusim.errors import ConfigError
from npusim.simulation import simulate_run
from tests.validation.test_leaves import figures
from tests.validation.test_systems_support import MINI, run_spec, tiny_model

DMA = "system.devices.npu.core.dma"
BUS = "system.buses.axi"
#: two engines of a core load operands, so that there is somebody to prefer
RIVALS = (f"{DMA}.load_engines=2", f"{BUS}.arbitration=qos")
CASES = {
    f"{BUS}.crossing_cycles=3 cycles": (),
    f"{DMA}.gather_issue_cycles=20 cycles": (),
    f"{DMA}.gather_pieces_per_fetch=4": (f"{DMA}.gather_issue_cycles=20 cycles",),
    f"{DMA}.ids=1": (f"{DMA}.outstanding_bursts=8",),
    f"{DMA}.outstanding_per_id=1": (f"{DMA}.ids=2",),
    f"{DMA}.qos={{load1: 8}}": RIVALS,
}


def outcome(*overrides):
    spec = run_spec(
        "edge-npu", tiny_model(**MINI), fidelity="burst", sets=("system.devices.npu.cores=2",),
        prompt_len=40, quant="w4a16",
    )  # fmt: skip
    return figures(simulate_run(apply_overrides(spec, overrides)).summary())


@pytest.mark.parametrize(("key", "context"), list(CASES.items()))
def test_an_optional_key_changes_a_result(key, context):
    assert outcome(*context, key) != outcome(*context)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (f"{DMA}.gather_pieces_per_fetch=4", "needs gather_issue_cycles"),
        (f"{DMA}.outstanding_per_id=4", "outstanding_per_id=4: needs ids"),
        (f"{DMA}.qos={{load7: 3}}", "is no DMA engine; did you mean 'load0'"),
        (f"{DMA}.qos={{load0: 16}}", "15"),
        (f"{DMA}.ids=0", "ids"),
        (f"{BUS}.arbitration=lottery", "qos"),
        (f"{BUS}.crossing_cycles=3", "unit"),
    ],
)
def test_a_wrong_optional_key_is_refused(key, message):
    spec = run_spec("edge-npu", tiny_model(**MINI), fidelity="burst", prompt_len=40, quant="w4a16")
    with pytest.raises(ConfigError, match=message):
        apply_overrides(spec, [key])
