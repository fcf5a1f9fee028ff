"""Decode over many tokens from a few simulated context lengths.

Steps ``a .. b`` are estimated as the mean of both ends, which is exact for anything linear in the
context, such as bytes. The middle step is simulated too and compared with that mean; where it is
off by more than the tolerance the range is halved. With an odd number of steps the middle one
counts once by itself, so that weights stay whole numbers and every sum stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from npusim.simulation.phase import Simulated


@dataclass
class DecodeEstimate:
    """Simulated steps by context length, how many steps each stands for, and the error seen."""

    steps: dict[int, Simulated] = field(default_factory=dict)
    weights: dict[int, int] = field(default_factory=dict)
    worst_error_frac: float = 0.0
    is_exact: bool = True

    def add(self, context_len: int, weight: int) -> None:
        """Let a simulated step stand for `weight` steps."""
        self.weights[context_len] = self.weights.get(context_len, 0) + weight


def estimate_decode(
    contexts: range,
    simulate_step: Callable[[int], Simulated],
    tolerance_frac: float,
    progress: Callable[[float], None],
) -> DecodeEstimate:
    """Simulate as few steps as the tolerance allows.

    Parameters
    ----------
    contexts : range
        Cached tokens at the start of each step, consecutive.
    simulate_step : callable
        Simulates one step.
    tolerance_frac : float
        Largest accepted relative error of the elapsed time at an unseen middle step.
    progress : callable
        Told the share of steps settled.
    """
    estimate = DecodeEstimate()
    settled = 0

    def step(context_len: int) -> Simulated:
        if context_len not in estimate.steps:
            estimate.steps[context_len] = simulate_step(context_len)
        return estimate.steps[context_len]

    pending = [(contexts.start, contexts.stop - 1)]
    while pending:
        low, high = pending.pop()
        count = high - low + 1
        if count <= 2:
            for context_len in range(low, high + 1):
                step(context_len)
                estimate.add(context_len, 1)
        else:
            middle = (low + high) // 2
            error = _error(step(low), step(high), step(middle), (middle - low) / (high - low))
            if error > tolerance_frac and count > 3:
                pending += [(middle + 1, high), (low, middle)]
                continue
            _settle(estimate, low, high, middle, error)
        settled += count
        progress(settled / len(contexts))
    return estimate


def _settle(estimate: DecodeEstimate, low: int, high: int, middle: int, error: float) -> None:
    count = high - low + 1
    if count == 3:
        for context_len in (low, middle, high):
            estimate.add(context_len, 1)
        return
    estimate.is_exact = False
    estimate.worst_error_frac = max(estimate.worst_error_frac, error)
    half = count // 2
    estimate.add(low, half)
    estimate.add(high, half)
    if count % 2:
        estimate.add(middle, 1)


def _error(low: Simulated, high: Simulated, middle: Simulated, position: float) -> float:
    """Relative error of the straight line between two ends at the middle step."""
    ends = [s.tally["phase", "elapsed_ps"] for s in (low, high)]
    line = ends[0] + (ends[1] - ends[0]) * position
    actual = middle.tally["phase", "elapsed_ps"]
    return abs(line - actual) / actual
