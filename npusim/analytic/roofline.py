"""Roofline: operational intensity and attainable rate, per operator and per stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.analytic.bounds import operator_bound

if TYPE_CHECKING:
    from types import ModuleType

    from npusim.analytic.bounds import Bound
    from npusim.analytic.peaks import Peaks
    from npusim.workload.graph import OperatorGraph

FLOPS_PER_MAC = 2


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """One operator or stage.

    Parameters
    ----------
    name, stage : str
        Name of the operator, or the stage twice.
    flops : int
        Two per MAC; vector operations count none.
    dram_bytes : int
        Bytes of its weights and KV.
    compute_ps, bytes_ps : int
        Time of the MACs at peak rate, of the bytes at peak bandwidth.
    """

    name: str
    stage: str
    flops: int
    dram_bytes: int
    compute_ps: int
    bytes_ps: int

    @property
    def intensity(self) -> float:
        """FLOPs per DRAM byte; infinite without bytes, 0 without MACs."""
        if self.flops == 0:
            return 0.0
        return self.flops / self.dram_bytes if self.dram_bytes else float("inf")

    @property
    def bound_ps(self) -> int:
        """The longer of the two times."""
        return max(self.compute_ps, self.bytes_ps)

    @property
    def attainable_flops_per_s(self) -> float:
        """FLOPs over `bound_ps`; 0 without MACs."""
        return self.flops * 1e12 / self.bound_ps if self.bound_ps else 0.0

    @property
    def is_memory_bound(self) -> bool:
        """Whether the bytes take longer than the MACs."""
        return self.bytes_ps > self.compute_ps


def attainable_flops_per_s(
    intensity: Any, peak_flops_per_s: Any, peak_bytes_per_s: Any, xp: ModuleType = np
) -> Any:
    """Attainable rate min(peak, intensity x bandwidth).

    Parameters
    ----------
    intensity : array-like
        FLOPs per DRAM byte.
    peak_flops_per_s, peak_bytes_per_s : array-like
        The roof and its slope; all three broadcast.
    xp : module, optional
        Array namespace, so that the result vectorises and differentiates.
    """
    return xp.minimum(peak_flops_per_s, intensity * peak_bytes_per_s)


def operator_points(graph: OperatorGraph, peaks: Peaks) -> list[RooflinePoint]:
    """One point per operator, in program order."""
    return [_point(op.name, op.stage, operator_bound(op, peaks)) for op in graph]


def stage_points(graph: OperatorGraph, peaks: Peaks) -> list[RooflinePoint]:
    """One point per stage, in order of first appearance; times of its operators add up."""
    points = operator_points(graph, peaks)
    return [_sum([p for p in points if p.stage == stage]) for stage in graph.stages]


def _point(name: str, stage: str, bound: Bound) -> RooflinePoint:
    """Point of a bound."""
    return RooflinePoint(
        name=name,
        stage=stage,
        flops=FLOPS_PER_MAC * bound.macs,
        dram_bytes=bound.dram_bytes,
        compute_ps=bound.compute_ps,
        bytes_ps=max(bound.dram_ps, bound.bus_ps),
    )


def _sum(points: list[RooflinePoint]) -> RooflinePoint:
    """Operators of one stage together."""
    return RooflinePoint(
        name=points[0].stage,
        stage=points[0].stage,
        flops=sum(point.flops for point in points),
        dram_bytes=sum(point.dram_bytes for point in points),
        compute_ps=sum(point.compute_ps for point in points),
        bytes_ps=sum(point.bytes_ps for point in points),
    )
