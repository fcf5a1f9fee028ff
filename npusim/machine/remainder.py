"""Sharing an integer in proportion to weights, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def largest_remainder(total: int, weights: Sequence[int]) -> list[int]:
    """Integers that sum to `total` in proportion to the weights; without weight, all to the last.

    Examples
    --------
    >>> largest_remainder(10, (1, 1, 1, 0, 0, 0, 0, 0, 0))
    [4, 3, 3, 0, 0, 0, 0, 0, 0]
    """
    weight = sum(weights)
    if not weight:
        return [0] * (len(weights) - 1) + [total]
    parts = [total * w // weight for w in weights]
    left = total - sum(parts)
    if left:
        remainders = [total * w % weight for w in weights]
        by_remainder = sorted(range(len(weights)), key=remainders.__getitem__, reverse=True)
        for index in by_remainder[:left]:
            parts[index] += 1
    return parts
