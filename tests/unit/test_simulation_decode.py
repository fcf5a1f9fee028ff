"""Decode over many tokens from a few steps: which are simulated and what each stands for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from npusim.simulation.decode import estimate_decode
from npusim.simulation.tally import Tally


def estimate(contexts, elapsed_ps, tolerance_frac=0.005):
    """Estimate with a step time given as a function of the context."""
    simulated = []

    def step(context_len):
        simulated.append(context_len)
        return SimpleNamespace(tally=Tally({("phase", "elapsed_ps"): elapsed_ps(context_len)}))

    progress = []
    result = estimate_decode(contexts, step, tolerance_frac, progress.append)
    assert len(simulated) == len(set(simulated))  # no step is simulated twice
    assert progress[-1] == 1.0
    return result


def total_ps(result):
    steps, weights = result.steps, result.weights
    return sum(steps[c].tally["phase", "elapsed_ps"] * n for c, n in weights.items())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_up_to_three_steps_are_all_simulated(count):
    result = estimate(range(10, 10 + count), lambda c: c**3)
    assert result.weights == dict.fromkeys(range(10, 10 + count), 1)
    assert result.is_exact
    assert total_ps(result) == sum(c**3 for c in range(10, 10 + count))


@pytest.mark.parametrize("count", [4, 5, 64, 101])
def test_steps_linear_in_the_context_sum_exactly_from_three_of_them(count):
    result = estimate(range(100, 100 + count), lambda c: 1000 + 7 * c)
    assert len(result.steps) == 3
    assert sum(result.weights.values()) == count
    assert total_ps(result) == sum(1000 + 7 * c for c in range(100, 100 + count))
    assert not result.is_exact
    assert result.worst_error_frac == 0.0


def test_an_odd_count_lets_the_middle_step_stand_for_itself():
    # 0..4: both ends stand for two steps each, the middle one (2) for itself
    assert estimate(range(5), lambda c: 1000 + c).weights == {0: 2, 4: 2, 2: 1}


def test_a_range_is_halved_until_its_middle_is_within_the_tolerance():
    def jump(context_len):
        return 1000 if context_len < 40 else 2000

    result = estimate(range(64), jump)
    assert sum(result.weights.values()) == 64
    assert result.worst_error_frac <= 0.005
    assert len(result.steps) < 20
    exact = sum(jump(c) for c in range(64))
    assert abs(total_ps(result) - exact) <= 0.005 * exact


def test_the_error_is_that_of_the_straight_line_at_the_middle():
    # 0..8 quadratic: middle 4 is 1016, the line through 1000 and 1064 gives 1032
    result = estimate(range(9), lambda c: 1000 + c * c, tolerance_frac=0.02)
    assert result.worst_error_frac == pytest.approx((1032 - 1016) / 1016)
