"""Two small runs end to end, every figure of their summaries (rewrite: --update-golden=REASON)."""

from __future__ import annotations

import pytest

from tests.validation.test_systems_support import check_accounts, simulated

#: changes with the machine or the release, not with the model of the hardware
VOLATILE = ("wall_s", "npusim_version")
RUN = {"prompt_len": 16, "generate_len": 3}


def stable(result):
    check_accounts(result)
    return {key: value for key, value in result.summary().items() if key not in VOLATILE}


@pytest.mark.slow
def test_smollm2_on_edge_npu_at_burst(golden):
    result = simulated("edge-npu", "smollm2-135m", fidelity="burst", quant="w4a16", **RUN)
    golden("edge-npu-smollm2-burst", stable(result))


@pytest.mark.slow
def test_smollm2_on_rk3588_at_transfer(golden):
    result = simulated("rk3588", "smollm2-135m", fidelity="transfer", quant="w8a8", **RUN)
    golden("rk3588-smollm2-transfer", stable(result))
