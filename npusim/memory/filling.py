"""Progressive filling: max-min fair rates under per-flow caps and shared resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL = 1e-12


def fill(caps: Sequence[float], uses: Sequence[Sequence[tuple[int, float]]]) -> list[float]:
    """Rates of flows that grow together until a cap or a resource of capacity 1 stops them.

    Parameters
    ----------
    caps : sequence of float
        Upper limit of each flow's rate, above 0.
    uses : sequence of (resource, share per unit of rate) lists
        What each flow takes of the resources.

    Returns
    -------
    list of float
        Max-min fair rates.

    Examples
    --------
    >>> fill([10.0, 1.0], [[(0, 0.25)], [(0, 0.25)]])
    [3.0, 1.0]
    """
    rates = [0.0] * len(caps)
    left: dict[int, float] = {}
    for use in uses:
        for resource, _ in use:
            left[resource] = 1.0
    growing = set(range(len(caps)))
    while growing:
        load = dict.fromkeys(left, 0.0)
        for i in growing:
            for resource, share in uses[i]:
                load[resource] += share
        step = min(caps[i] - rates[i] for i in growing)
        for resource, share in load.items():
            if share > 0:
                step = min(step, left[resource] / share)
        for i in growing:
            rates[i] += step
        for resource, share in load.items():
            left[resource] -= step * share
        full = {resource for resource, share in left.items() if share <= FULL}
        growing = {
            i
            for i in growing
            if caps[i] - rates[i] > FULL * caps[i] and not any(r in full for r, _ in uses[i])
        }
    return rates
