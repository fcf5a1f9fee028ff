"""Closed-form lower bounds: no simulation of a graph may be faster."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from npusim.analytic.peaks import Peaks, peaks_of
from npusim.config.compiler import WeightResidency
from npusim.workload.tensor import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from npusim.config.compiler import CompilerConfig
    from npusim.config.system import SystemConfig
    from npusim.workload.graph import OperatorGraph
    from npusim.workload.operator import Operator

PS_PER_S = 10**12


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bound of one phase or operator, and what it is made of.

    All times are rounded down, so that what is simulated is never below them.
    """

    compute_ps: int
    dram_ps: int
    bus_ps: int
    macs: int
    dram_read_bytes: int
    dram_write_bytes: int

    @property
    def elapsed_ps(self) -> int:
        """The largest of the three times."""
        return max(self.compute_ps, self.dram_ps, self.bus_ps)

    @property
    def limited_by(self) -> str:
        """Which of them it is: "compute", "dram" or "bus"."""
        times = {"compute": self.compute_ps, "dram": self.dram_ps, "bus": self.bus_ps}
        return max(times, key=lambda name: times[name])

    @property
    def dram_bytes(self) -> int:
        """Bytes read and written."""
        return self.dram_read_bytes + self.dram_write_bytes


def phase_bound_ps(
    graph: OperatorGraph,
    system: SystemConfig,
    compiler: CompilerConfig,
    peak_bytes_per_s: Mapping[str, int],
) -> Bound:
    """Bound of a whole graph.

    MACs at the peak rate of the formats they use, or compulsory bytes at the peak rate of the
    memory or of the bus, whichever takes longest. Compulsory: weights once (none if
    `compiler.weight_residency` keeps them on chip), cached KV once, appended KV, graph inputs and
    outputs. Activations between operators, vector work, launches and latencies count nothing.

    Parameters
    ----------
    graph : OperatorGraph
        One phase, or one decode step.
    system : SystemConfig
        The hardware.
    compiler : CompilerConfig
        Read for `max_cores` and `weight_residency`.
    peak_bytes_per_s : Mapping[str, int]
        Peak rate of every memory by name.
    """
    peaks = peaks_of(system, compiler, peak_bytes_per_s)
    has_resident_weights = compiler.weight_residency is WeightResidency.RESIDENT
    roles = [role for role in Role if role is not Role.WEIGHT or not has_resident_weights]
    return _bound(
        graph,
        peaks,
        read_bytes=sum(graph.compulsory_read_bytes(role) for role in roles),
        write_bytes=sum(graph.compulsory_write_bytes(role) for role in roles),
    )


def operator_bound(operator: Operator, peaks: Peaks, *, counts_activations: bool = False) -> Bound:
    """Bound of one operator alone, its weights and KV coming from DRAM.

    Not additive: KV that an earlier operator of the graph appended counts here as a read.
    With `counts_activations`, its activations come from and go to DRAM too, as in eager mode.
    """
    roles = [role for role in Role if counts_activations or role is not Role.ACTIVATION]
    return _bound(
        [operator],
        peaks,
        read_bytes=sum(operator.read_bytes(role) for role in roles),
        write_bytes=sum(operator.write_bytes(role) for role in roles),
    )


def operator_bound_ps(operator: Operator, peaks: Peaks) -> int:
    """Picoseconds of `operator_bound`."""
    return operator_bound(operator, peaks).elapsed_ps


def _bound(operators: Iterable[Operator], peaks: Peaks, read_bytes: int, write_bytes: int) -> Bound:
    """Bound of MACs and bytes that overlap perfectly."""
    macs: dict[str, int] = defaultdict(int)
    for operator in operators:
        if operator.macs:
            assert operator.compute_dtype is not None
            macs[operator.compute_dtype] += operator.macs
    busy_s = sum(
        (Fraction(count, peaks.macs_per_s[dtype]) for dtype, count in macs.items()), Fraction(0)
    )
    one_way_bytes = max(read_bytes, write_bytes)
    return Bound(
        compute_ps=int(busy_s * PS_PER_S),
        dram_ps=(read_bytes + write_bytes) * PS_PER_S // peaks.dram_bytes_per_s,
        bus_ps=one_way_bytes * PS_PER_S // peaks.bus_bytes_per_s,
        macs=sum(macs.values()),
        dram_read_bytes=read_bytes,
        dram_write_bytes=write_bytes,
    )
