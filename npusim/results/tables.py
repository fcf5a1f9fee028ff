"""Results as plain tables: one row per item, raw integers, units in the column names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from npusim.results.derived import (
    achieved_bytes_per_s,
    cycles_of,
    effective_bandwidth,
    hit_share_frac,
    stage_cycles,
    tier_bytes_per_s,
    utilization_of,
)
from npusim.results.invariants import ROLES
from npusim.results.records import (
    CACHE_COUNTS,
    Approximation,
    BarrierRecord,
    OperatorRecord,
    StageTimeRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from npusim.results.records import PhaseRecord

    Phases = Mapping[str, PhaseRecord]


@dataclass(frozen=True)
class Table:
    """Columns of equal length.

    Attributes
    ----------
    name : str
        Also the name of its file in a saved result.
    columns : Mapping[str, Sequence]
        Values by column name, in display order; None where a value does not exist.
    """

    name: str
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per row."""
        names = tuple(self.columns)
        return [
            dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)
        ]

    def to_frame(self) -> pd.DataFrame:
        """One row per item; a column of integers stays integral where a value is missing."""
        import pandas as pd  # slow to load

        frame = pd.DataFrame({name: list(values) for name, values in self.columns.items()})
        for name, values in self.columns.items():
            kinds = {type(value) for value in values}
            if kinds == {int, type(None)}:
                frame[name] = pd.array(list(values), dtype="Int64")
        return frame

    def _repr_html_(self) -> str:
        """The frame's table, for notebooks."""
        html: str = self.to_frame().to_html(max_rows=60, index=False)
        return html


def _table(name: str, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> Table:
    """Table from rows; the header keeps an empty table's columns."""
    names = tuple(header)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return Table(name, dict(zip(names, columns, strict=True)))


def _records(name: str, attribute: str, kind: type) -> Callable[[Phases], Table]:
    """Builder of a table whose columns are the fields of a record."""
    header = tuple(field.name for field in fields(kind))

    def build(phases: Phases) -> Table:
        items = ((phase, item) for phase, r in phases.items() for item in getattr(r, attribute))
        rows = ((phase, *(getattr(item, column) for column in header)) for phase, item in items)
        return _table(name, ("phase", *header), rows)

    return build


def phase_table(phases: Phases) -> Table:
    """One row per phase: times, counts and utilizations."""
    header = (
        *("phase", "elapsed_ps", "cycles", "bound_ps", "steps", "tokens", "commands", "kernels"),
        *("macs", "mac_utilization_frac", "matrix_busy_frac", "dram_bandwidth_frac"),
    )
    rows = []
    for phase, r in phases.items():
        used = utilization_of(r)
        cycles = cycles_of(r.elapsed_ps, r.clock_hz)
        times = (phase, r.elapsed_ps, cycles, r.bound_ps)
        counts = (r.steps, r.tokens, r.commands, r.kernels, r.macs)
        shares = (used.mac_frac, used.matrix_busy_frac, used.dram_bandwidth_frac)
        rows.append((*times, *counts, *shares))
    return _table("phases", header, rows)


def stage_table(phases: Phases) -> Table:
    """One row per phase and stage."""
    header = (
        *("phase", "stage", "elapsed_ps", "active_ps", "cycles", "share_frac", "macs"),
        *("dram_bytes", "bound_by", "launch_ps", "kernels", "scratchpad_bytes"),
        "shared_sram_bytes",
    )
    rows = []
    for phase, r in phases.items():
        for s, cycles in zip(r.stages, stage_cycles(r), strict=True):
            share = s.elapsed_ps / r.elapsed_ps
            times = (phase, s.stage, s.elapsed_ps, s.active_ps, cycles, share)
            work = (s.macs, s.dram_bytes, s.bound_by, s.launch_ps, s.kernels)
            rows.append((*times, *work, s.scratchpad_bytes, s.shared_sram_bytes))
    return _table("stages", header, rows)


def engine_table(phases: Phases) -> Table:
    """One row per phase and engine; busy, idle and stalls sum to the phase."""
    header = (
        *("phase", "engine", "kind", "device", "core", "busy_ps", "idle_ps", "stall_ps"),
        "commands",
    )
    rows = []
    for phase, r in phases.items():
        for e in r.engines:
            stall_ps = sum(e.stalls_ps.values())
            place = (phase, e.engine, e.kind, e.device, e.core)
            rows.append((*place, e.busy_ps, e.idle_ps, stall_ps, e.commands))
    return _table("engines", header, rows)


def stall_table(phases: Phases) -> Table:
    """One row per phase, engine and cause of waiting."""
    rows = (
        (phase, e.engine, e.kind, cause, e.stalls_ps[cause])
        for phase, r in phases.items()
        for e in r.engines
        for cause in sorted(e.stalls_ps)
    )
    return _table("stalls", ("phase", "engine", "kind", "cause", "stall_ps"), rows)


def memory_table(phases: Phases) -> Table:
    """One row per phase and memory."""
    header = (
        *("phase", "name", "kind", "read_bytes", "write_bytes"),
        *(f"{role}_bytes" for role in ROLES),
        *("accesses", "row_hits", "row_misses", "row_conflicts", "refreshes"),
        *("achieved_bytes_per_s", "peak_bytes_per_s", "footprint_bytes", "capacity_bytes"),
    )
    rows = []
    for phase, r in phases.items():
        for m in r.memories:
            roles = (m.bytes_by_role.get(role, 0) for role in ROLES)
            access = (m.accesses, m.row_hits, m.row_misses, m.row_conflicts, m.refreshes)
            rates = (achieved_bytes_per_s(m, r.elapsed_ps), m.peak_bytes_per_s)
            place = (phase, m.name, m.kind, m.read_bytes, m.write_bytes, *roles)
            rows.append((*place, *access, *rates, m.footprint_bytes, m.capacity_bytes))
    return _table("memories", header, rows)


def sram_table(phases: Phases) -> Table:
    """One row per phase and SRAM."""
    header = (
        *("phase", "name", "hit_share_frac", "hit_bytes", "requested_bytes", "conflict_ps"),
        *("peak_occupancy_bytes", "capacity_bytes", *CACHE_COUNTS),
    )
    rows = (
        (
            *(phase, s.name, hit_share_frac(s), s.hit_bytes, s.requested_bytes, s.conflict_ps),
            *(s.peak_occupancy_bytes, s.capacity_bytes),
            *(getattr(s, name) for name in CACHE_COUNTS),
        )
        for phase, r in phases.items()
        for s in r.sram
    )
    return _table("sram", header, rows)


def conflict_table(phases: Phases) -> Table:
    """One row per phase, scratchpad and pair of engines: who lost time to busy banks to whom."""
    rows = (
        (phase, s.name, *pair)
        for phase, r in phases.items()
        for s in r.sram
        for pair in s.conflicts
    )
    return _table("sram_conflicts", ("phase", "name", "engine", "by", "lost_ps"), rows)


def tier_table(phases: Phases) -> Table:
    """One row per phase and level of the memory hierarchy, nearest first."""
    header = (
        *("phase", "tier", "kind", "latency_ps", "peak_bytes_per_s", "read_bytes"),
        *("achieved_bytes_per_s", "supplied_bytes"),
    )
    rows = (
        (
            *(phase, t.tier, t.kind, t.latency_ps, t.peak_bytes_per_s, t.read_bytes),
            *(tier_bytes_per_s(t, r.elapsed_ps), t.supplied_bytes),
        )
        for phase, r in phases.items()
        for t in r.tiers
    )
    return _table("tiers", header, rows)


def effective_bandwidth_table(phases: Phases) -> Table:
    """One row per phase that read from memory: simulated rate beside both blends."""
    header = (
        *("phase", "requested_bytes", "hit_share_frac", "arithmetic_bytes_per_s"),
        *("harmonic_bytes_per_s", "simulated_bytes_per_s"),
    )
    rows = []
    for phase, r in phases.items():
        found = effective_bandwidth(r)
        if found is not None:
            shares = (phase, found.requested_bytes, found.hit_share_frac)
            blends = (found.arithmetic_bytes_per_s, found.harmonic_bytes_per_s)
            rows.append((*shares, *blends, found.simulated_bytes_per_s))
    return _table("effective_bandwidth", header, rows)


def log_table(phases: Phases) -> Table:
    """One row per line that a compiler pass logged."""
    rows = ((phase, line) for phase, r in phases.items() for line in r.log)
    return _table("log", ("phase", "line"), rows)


operator_table = _records("operators", "operators", OperatorRecord)
barrier_table = _records("barriers", "barriers", BarrierRecord)
approximation_table = _records("approximations", "approximations", Approximation)
stage_time_table = _records("stage_times", "stage_times", StageTimeRecord)
