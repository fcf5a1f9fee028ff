"""What a measured row is compared with beside the simulation: three closed forms.

roofline
    max(c, b): MACs at peak rate, compulsory bytes at peak bandwidth; no schedule is faster.
fold
    cycles of the matrix unit alone, every matmul as one product; memory and launch cost nothing.
two-term
    floor + max(c / e1, b / e2) with three constants fitted to the rows the simulator was fitted to.
    The fit is the exact minimum of the mean relative error over a grid of e1 and e2: for each, the
    best floor is a weighted median.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.analytic.bounds import phase_bound_ps
from npusim.compiler.target import Target
from npusim.compiler.unit_timing import matrix_array_cycles
from npusim.config.compiler import CompilerConfig
from npusim.simulation.memories import peak_bytes_per_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from npusim.config.system import SystemConfig
    from npusim.workload.graph import OperatorGraph

    Floats = NDArray[np.float64]

#: shares of peak that are tried
_SHARES = np.arange(20, 101) / 100
MIN_ROWS = 4  # fewer rows than this do not fit three constants


@dataclass(frozen=True, slots=True)
class Terms:
    """Nanoseconds of a graph's MACs and bytes at peak rates, and of its folds."""

    compute_ns: float
    memory_ns: float
    fold_ns: float

    @property
    def roofline_ns(self) -> float:
        """The longer of the two terms."""
        return max(self.compute_ns, self.memory_ns)


def terms_of(graph: OperatorGraph, system: SystemConfig) -> Terms:
    """Closed-form terms of a graph on a system."""
    peaks = peak_bytes_per_s(system)
    bound = phase_bound_ps(graph, system, CompilerConfig(), peaks)
    target = Target(system, peaks)
    cycles = 0
    for operator in graph:
        if operator.matmul is not None and operator.compute_dtype is not None:
            dtype = target.compute_dtype(operator.compute_dtype, operator.name)
            shape = operator.matmul
            one = int(matrix_array_cycles(target.core.matrix, dtype, shape.m, shape.k, shape.n))
            cycles += -(-shape.batch // target.cores) * one
    fold_ns = cycles * float(target.period_ps) / 1e3
    return Terms(bound.compute_ps / 1e3, bound.dram_ps / 1e3, fold_ns)


@dataclass(frozen=True, slots=True)
class TwoTerm:
    """floor + max(c / e1, b / e2)."""

    floor_ns: float
    compute_share: float
    memory_share: float

    def ns(self, terms: Terms) -> float:
        """Predicted time."""
        longest = max(terms.compute_ns / self.compute_share, terms.memory_ns / self.memory_share)
        return self.floor_ns + longest


def fit_two_term(terms: Sequence[Terms], measured_ns: Sequence[float]) -> TwoTerm | None:
    """The constants with the least mean relative error; None for fewer than `MIN_ROWS` rows."""
    if len(terms) < MIN_ROWS:
        return None
    measured = np.array(measured_ns)
    compute = np.array([t.compute_ns for t in terms])
    memory = np.array([t.memory_ns for t in terms])
    best = (np.inf, 0.0, 1.0, 1.0)
    for e1 in _SHARES:
        longest = np.maximum(compute / e1, memory / _SHARES[:, np.newaxis])
        floors = weighted_median(measured - longest, 1 / measured)
        floors = np.maximum(floors, 0.0)
        errors = np.abs(floors[:, np.newaxis] + longest - measured) / measured
        means = errors.mean(axis=1)
        index = int(means.argmin())
        best = min(best, (float(means[index]), float(floors[index]), e1, float(_SHARES[index])))
    return TwoTerm(best[1], float(best[2]), best[3])


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Weighted median of each row: minimises the weighted sum of absolute differences."""
    order = np.argsort(values, axis=1)
    ranked = np.take_along_axis(values, order, axis=1)
    reached = np.cumsum(weights[order], axis=1)
    index = (reached >= reached[:, -1:] / 2).argmax(axis=1)
    result: Floats = ranked[np.arange(len(ranked)), index]
    return result
