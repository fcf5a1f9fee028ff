"""The published latency formula, as printed and corrected."""

from __future__ import annotations

import numpy as np
import pytest

from npusim.analytic.golden_formula import (
    PUBLISHED_BETA,
    blended_bandwidth,
    fitted_latency_s,
    golden_latency_s,
)
from npusim.errors import ConfigError


# 12.8 / 100 GB/s x (1 - 0.25) = 0.096 ms; beta 1.83 multiplies to 0.17568 ms, or divides.
def test_beta_multiplies_as_published_and_divides_when_corrected():
    beta = PUBLISHED_BETA["ascend_910b"]
    published = golden_latency_s(100e9, 0.25, beta)
    corrected = golden_latency_s(100e9, 0.25, beta, "corrected")
    assert published == pytest.approx(0.17568e-3)
    assert corrected == pytest.approx(0.096e-3 / 1.83)
    assert golden_latency_s(100e9, 0.25) == pytest.approx(0.096e-3)


def test_arrays_broadcast():
    bandwidth = np.array([[64e9], [128e9]])
    latency = golden_latency_s(bandwidth, np.array([0.0, 0.5]))
    assert latency == pytest.approx(np.array([[200e-6, 100e-6], [100e-6, 50e-6]]))


# 1 ms + 2 GB / 10 GB/s + half of 1 GB / 10 GB/s
def test_the_fitted_form_prunes_kv_bytes_only():
    assert fitted_latency_s(1e-3, 2e9, 1e9, 10e9, 0.5) == pytest.approx(0.251)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "bandwidth_bytes_per_s: must be above 0 (got 0.0)"),
        ((float("nan"),), "bandwidth_bytes_per_s: must be above 0 (got nan)"),
        ((1e9, 1.0), "pruned_frac: must be at least 0 and below 1 (got 1.0)"),
        ((1e9, -0.1), "pruned_frac: must be at least 0 and below 1 (got -0.1)"),
        ((1e9, 0.0, 0), "beta: must be above 0 (got 0)"),
        ((1e9, 0.0, 1.0, "printed"), "variant: must be one of as_published, corrected"),
    ],
)
def test_values_out_of_range_are_refused(arguments, message):
    with pytest.raises(ConfigError) as error:
        golden_latency_s(*arguments)
    assert message in str(error.value)


def test_the_published_blend_of_tiers_is_the_formula_not_the_printed_figure():
    # 768 x 0.82 + 176 x 0.18 = 629.76 + 31.68; the article prints 682.9
    assert blended_bandwidth(768, 176, 0.82) == pytest.approx(661.44)
    # 1 / (0.82 / 768 + 0.18 / 176) = 1 / (0.001067708 + 0.001022727)
    assert blended_bandwidth(768, 176, 0.82, "harmonic") == pytest.approx(478.369, abs=1e-3)


@pytest.mark.parametrize("mean", ["arithmetic", "harmonic"])
def test_a_blend_lies_between_its_tiers(mean):
    assert blended_bandwidth(768, 176, 0.0, mean) == pytest.approx(176)
    assert blended_bandwidth(768, 176, 1.0, mean) == pytest.approx(768)
    assert 176 < blended_bandwidth(768, 176, 0.3, mean) < 768


def test_a_blend_refuses_shares_and_means_that_do_not_exist():
    with pytest.raises(ConfigError, match=r"hit_frac: must lie in 0\.\.1"):
        blended_bandwidth(768, 176, 1.2)
    with pytest.raises(ConfigError, match="mean: must be one of"):
        blended_bandwidth(768, 176, 0.5, "geometric")
