"""Top-down stall tree: where the time of every engine went, without rest.

The root is elapsed time times the number of engines. Its children are work, families of causes and
idle time; a family's children are its causes. Every node is the exact sum of its children.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npusim.engine import StallCause
from npusim.errors import ResultError, nearest
from npusim.results.records import BUSY, IDLE
from npusim.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from npusim.results.records import PhaseRecord

#: causes of each family, in the order in which they are shown; every cause is in one family
FAMILIES: Mapping[str, tuple[StallCause, ...]] = MappingProxyType(
    {
        "dependency": (StallCause.DEPENDENCY, StallCause.ORDER),
        "dram": (
            StallCause.DRAM_DATA,
            StallCause.DRAM_OTHER,
            StallCause.DRAM_ARBITRATION,
            StallCause.DRAM_ROW,
            StallCause.DRAM_BANK_CONFLICT,
            StallCause.DRAM_REFRESH,
            StallCause.DRAM_TURNAROUND,
            StallCause.DRAM_COMMAND,
            StallCause.DRAM_LATENCY,
        ),
        "bus": (StallCause.BUS,),
        "sram": (StallCause.SRAM, StallCause.SRAM_CONFLICT),
        "buffer": (StallCause.BUFFER_FULL, StallCause.BUFFER_FREE, StallCause.DMA_ISSUE),
        "barrier": (StallCause.BARRIER,),
        "convert": (StallCause.CONVERT,),
        "launch": (StallCause.LAUNCH,),
    }
)
ALL = "all"


@dataclass(frozen=True, slots=True)
class Node:
    """Some of the engines' time.

    Attributes
    ----------
    path : tuple[str, ...]
        Names from below the root to this node; empty for the root.
    time_ps : int
        Time of all engines together.
    by_kind : Mapping[str, int]
        The same by kind of engine; sums to `time_ps`.
    children : tuple[Node, ...]
        Parts that sum to this node; empty for a single cause.
    """

    path: tuple[str, ...]
    time_ps: int
    by_kind: Mapping[str, int]
    children: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        """Last name of the path."""
        return self.path[-1] if self.path else ALL

    def walk(self) -> Iterator[Node]:
        """The node itself, then all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class StallTree:
    """Where the time of all engines went, in a phase or in one of its stages.

    Attributes
    ----------
    phase : str
        Name of the phase.
    stage : str or None
        A stage, or None for the whole phase.
    elapsed_ps : int
        Time of the phase, or exclusive time of the stage.
    engines : Mapping[str, int]
        Engines by kind.
    root : Node
        Its time is `elapsed_ps` times the number of engines.
    """

    phase: str
    stage: str | None
    elapsed_ps: int
    engines: Mapping[str, int]
    root: Node

    def share_frac(self, node: Node, kind: str | None = None) -> float:
        """Share of a node in the time of all engines, or of those of one kind."""
        if kind is None:
            return node.time_ps / self.root.time_ps if self.root.time_ps else 0.0
        whole_ps = self.elapsed_ps * self.engines[kind]
        return node.by_kind.get(kind, 0) / whole_ps if whole_ps else 0.0

    def table(self) -> Table:
        """One row per node."""
        nodes = list(self.root.walk())
        columns: dict[str, list[Any]] = {
            "phase": [self.phase] * len(nodes),
            "stage": [self.stage] * len(nodes),
            "node": ["/".join(node.path) or ALL for node in nodes],
            "depth": [len(node.path) for node in nodes],
            "time_ps": [node.time_ps for node in nodes],
            "share_frac": [self.share_frac(node) for node in nodes],
        }
        for kind in self.engines:
            columns[f"{kind}_ps"] = [node.by_kind.get(kind, 0) for node in nodes]
        return Table("stall_tree", columns)

    def to_frame(self) -> pd.DataFrame:
        """One row per node, as a frame."""
        return self.table().to_frame()

    def summary(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "stage": self.stage,
            "elapsed_ps": self.elapsed_ps,
            "engines": dict(self.engines),
            "nodes": [
                {
                    "node": "/".join(node.path) or ALL,
                    "time_ps": node.time_ps,
                    "share_frac": self.share_frac(node),
                    "by_kind_ps": dict(node.by_kind),
                }
                for node in self.root.walk()
            ],
        }


def stall_tree(record: PhaseRecord, stage: str | None = None) -> StallTree:
    """Tree of a phase, or of the time in which one of its stages completed.

    Parameters
    ----------
    record : PhaseRecord
        A phase.
    stage : str, optional
        One of its stages.

    Returns
    -------
    StallTree
        Only nodes with time in them.

    Raises
    ------
    ResultError
        If the phase has no such stage, or no engines were simulated (fidelity ``analytic``).

    Notes
    -----
    The stage whose kernel advances the completion frontier owns that time of *every* engine, so the
    time in which an engine already works on the next stage counts for this one.
    """
    if not record.engines:
        rule = "needs simulated engines; fidelity 'analytic' has none"
        raise ResultError(f"stall tree of {record.phase}", rule)
    engines: dict[str, int] = {}
    for engine in record.engines:
        engines[engine.kind] = engines.get(engine.kind, 0) + 1
    if stage is None:
        elapsed_ps, times = int(record.elapsed_ps), _engine_times(record)
    else:
        elapsed_ps, times = _stage_elapsed_ps(record, stage), _stage_times(record, stage)
    return StallTree(record.phase, stage, elapsed_ps, engines, _root(times))


def stage_stall_trees(record: PhaseRecord) -> dict[str, StallTree]:
    """Tree of every stage that took time, in program order."""
    return {s.stage: stall_tree(record, s.stage) for s in record.stages if s.elapsed_ps}


def family_of(cause: str) -> str:
    """Family of a stall cause; work and idle time are families of their own."""
    return next((name for name, causes in FAMILIES.items() if cause in causes), cause)


def _engine_times(record: PhaseRecord) -> dict[str, dict[str, int]]:
    """Time by cause and kind of engine."""
    times: dict[str, dict[str, int]] = {}
    for engine in record.engines:
        parts = {BUSY: engine.busy_ps, IDLE: engine.idle_ps, **engine.stalls_ps}
        for cause, part_ps in parts.items():
            of_cause = times.setdefault(cause, {})
            of_cause[engine.kind] = of_cause.get(engine.kind, 0) + int(part_ps)
    return times


def _stage_times(record: PhaseRecord, stage: str) -> dict[str, dict[str, int]]:
    """Time of one stage by cause and kind of engine."""
    times: dict[str, dict[str, int]] = {}
    for row in record.stage_times:
        if row.stage == stage:
            times.setdefault(row.cause, {})[row.kind] = int(row.time_ps)
    return times


def _stage_elapsed_ps(record: PhaseRecord, stage: str) -> int:
    """Exclusive time of a stage; ResultError names the stages there are."""
    elapsed = {s.stage: int(s.elapsed_ps) for s in record.stages}
    if stage not in elapsed:
        raise ResultError("stage", "is not in this phase", stage, nearest(stage, elapsed))
    return elapsed[stage]


def _root(times: Mapping[str, Mapping[str, int]]) -> Node:
    """Tree of times by cause and kind."""
    busy = _leaf((BUSY,), times.get(BUSY, {}))
    families = [
        _sum((name,), [_leaf((name, c.value), times.get(c.value, {})) for c in causes])
        for name, causes in FAMILIES.items()
    ]
    idle = _leaf((IDLE,), times.get(IDLE, {}))
    return _sum((), [busy, *families, idle])


def _leaf(path: tuple[str, ...], by_kind: Mapping[str, int]) -> Node:
    """A node without parts."""
    return Node(path, sum(by_kind.values()), {k: ps for k, ps in by_kind.items() if ps})


def _sum(path: tuple[str, ...], children: list[Node]) -> Node:
    """A node of those parts that have time in them."""
    by_kind: dict[str, int] = {}
    for child in children:
        for kind, ps in child.by_kind.items():
            by_kind[kind] = by_kind.get(kind, 0) + ps
    kept = tuple(child for child in children if child.time_ps)
    return Node(path, sum(by_kind.values()), by_kind, kept)
