"""Runs beside each other: which settings differ, and which stages and waits moved.

Every difference is signed and taken against the first run. Stage times sum to the phase, and so do
their differences; waits are means over all engines, which sum to the phase as well, also where the
runs have different numbers of engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any

from npusim.errors import ResultError
from npusim.insight.settings import leaves
from npusim.insight.stall_tree import FAMILIES, stall_tree
from npusim.results.records import BUSY, IDLE
from npusim.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from npusim.config.run_spec import RunSpec
    from npusim.results.records import PhaseRecord
    from npusim.results.run import RunResult

    Number = int | Fraction

#: parts of a system that say where its numbers come from, not what they are
_NOT_SETTINGS = ("system.sources.", "system.calibration.", "system.description")
_ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Setting:
    """A dotted path whose value differs, with its value in every run; ``(absent)`` for none."""

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One quantity in every run.

    Attributes
    ----------
    phase : str or None
        Phase, None for the whole run.
    group : str
        ``run``, ``phase``, ``stage``, ``family`` or ``cause`` (of waiting, with work and idle time)
        or ``memory``.
    name : str
        What of the group.
    unit : str
        ``ps`` or ``bytes``.
    values : tuple
        By run; None where the phase did not run or no engines were simulated.
    """

    phase: str | None
    group: str
    name: str
    unit: str
    values: tuple[Number | None, ...]

    @property
    def deltas(self) -> tuple[Number | None, ...]:
        """Signed differences to the first run."""
        first = self.values[0]
        return tuple(
            None if value is None or first is None else value - first for value in self.values
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Some runs compared.

    Attributes
    ----------
    names : tuple[str, ...]
        Names of the runs; the first one is the baseline.
    settings : tuple[Setting, ...] or None
        What differs in their specifications; None if one of them was not saved.
    differences : tuple[Difference, ...]
        Whole run, then by phase: phase, stages, families, causes, memories.
    """

    names: tuple[str, ...]
    settings: tuple[Setting, ...] | None
    differences: tuple[Difference, ...]

    def of(self, group: str, phase: str | None = None) -> list[Difference]:
        """Quantities of a group, of one phase if it is given."""
        return [d for d in self.differences if d.group == group and phase in (None, d.phase)]

    @property
    def phases(self) -> list[str]:
        """Phases of any of the runs."""
        return [str(d.phase) for d in self.of("phase")]

    def table(self) -> Table:
        """One row per quantity and run; values may be fractions of a picosecond."""
        header = ("phase", "group", "name", "unit", "run", "value", "delta")
        columns: dict[str, list[Any]] = {name: [] for name in header}
        for d in self.differences:
            for run, value, delta in zip(self.names, d.values, d.deltas, strict=True):
                row = (d.phase, d.group, d.name, d.unit, run, _plain(value), _plain(delta))
                for name, cell in zip(header, row, strict=True):
                    columns[name].append(cell)
        return Table("comparison", columns)

    def to_frame(self) -> pd.DataFrame:
        """The table as a frame."""
        return self.table().to_frame()

    def summary(self) -> dict[str, Any]:
        """Plain values for JSON."""
        settings = self.settings
        return {
            "runs": list(self.names),
            "settings": None
            if settings is None
            else [{"path": s.path, "values": list(s.values)} for s in settings],
            "differences": [
                {
                    "phase": d.phase,
                    "group": d.group,
                    "name": d.name,
                    "unit": d.unit,
                    "values": [_plain(value) for value in d.values],
                    "deltas": [_plain(delta) for delta in d.deltas],
                }
                for d in self.differences
            ],
        }


def compare(runs: Mapping[str, RunResult]) -> Comparison:
    """Compare two or more runs.

    Parameters
    ----------
    runs : Mapping[str, RunResult]
        Runs by name; the first one is the baseline.

    Raises
    ------
    ResultError
        If there are fewer than two.
    """
    if len(runs) < 2:
        raise ResultError("comparison", "needs at least two runs", len(runs))
    results = list(runs.values())
    specs = [result.spec for result in results]
    saved = [spec for spec in specs if spec is not None]
    return Comparison(
        names=tuple(runs),
        settings=changed_settings(saved) if len(saved) == len(specs) else None,
        differences=tuple(chain(_of_runs(results), *map(_of_phase, _phases(results)))),
    )


def changed_settings(specs: Sequence[RunSpec]) -> tuple[Setting, ...]:
    """Leaves of the specifications that differ, in the order of the first that has them."""
    flat = [dict(leaves(spec.model_dump(mode="json"))) for spec in specs]
    paths = dict.fromkeys(path for own in flat for path in own)
    rows = (Setting(p, tuple(own.get(p, _ABSENT) for own in flat)) for p in paths)
    return tuple(
        row
        for row in rows
        if not row.path.startswith(_NOT_SETTINGS) and len(set(map(repr, row.values))) > 1
    )


def _of_runs(results: Sequence[RunResult]) -> Iterator[Difference]:
    """Headline times."""
    for name in ("ttft_ps", "tpot_ps"):
        values = tuple(getattr(result, name) for result in results)
        if any(value is not None for value in values):
            yield Difference(None, "run", name.removesuffix("_ps").upper(), "ps", values)


def _phases(results: Sequence[RunResult]) -> list[list[PhaseRecord | None]]:
    """Records of each phase that any run has, by run."""
    names = dict.fromkeys(name for result in results for name in result.phases)
    return [[result.phases.get(name) for result in results] for name in names]


def _of_phase(records: Sequence[PhaseRecord | None]) -> Iterator[Difference]:
    """Quantities of one phase."""
    phase = next(record.phase for record in records if record is not None)
    elapsed = [None if r is None else {"elapsed": int(r.elapsed_ps)} for r in records]
    stages = [
        None if r is None else {s.stage: int(s.elapsed_ps) for s in r.stages} for r in records
    ]
    waits = [None if r is None or not r.engines else _mean_waits(r) for r in records]
    families = [None if w is None else w[0] for w in waits]
    causes = [None if w is None else w[1] for w in waits]
    moved = [
        None
        if r is None
        else {
            f"{m.name} {way}": int(getattr(m, f"{way}_bytes"))
            for m in r.memories
            for way in ("read", "write")
        }
        for r in records
    ]
    groups: tuple[tuple[str, str, Sequence[Mapping[str, Number] | None]], ...] = (
        *(("phase", "ps", elapsed), ("stage", "ps", stages), ("family", "ps", families)),
        *(("cause", "ps", causes), ("memory", "bytes", moved)),
    )
    for group, unit, by_run in groups:
        names = dict.fromkeys(name for found in by_run if found is not None for name in found)
        for name in names:
            values = tuple(None if found is None else found.get(name, 0) for found in by_run)
            yield Difference(phase, group, name, unit, values)


def _mean_waits(record: PhaseRecord) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """Mean time per engine by family and by cause; both sum to the phase."""
    tree = stall_tree(record)
    engines = sum(tree.engines.values())
    times = {"/".join(node.path): Fraction(node.time_ps, engines) for node in tree.root.walk()}
    names = (BUSY, *FAMILIES, IDLE)
    families = {name: times[name] for name in names if name in times}
    causes = {
        path.rpartition("/")[2]: time
        for path, time in times.items()
        if "/" in path or path in (BUSY, IDLE)
    }
    return families, causes


def _plain(value: Number | None) -> int | float | None:
    """A value for JSON: an integer where it is one."""
    if value is None or isinstance(value, int):
        return value
    return int(value) if value.denominator == 1 else float(value)
