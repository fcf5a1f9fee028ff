"""The result of one run: raw integers once, everything else derived."""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

from npusim.errors import ResultError, SimulationError, nearest
from npusim.results.derived import PS_PER_S, mean_step_ps
from npusim.results.invariants import check_phase
from npusim.results.series import bandwidth_table, flow_table, occupancy_table, span_table
from npusim.results.summary import phase_summary
from npusim.results.tables import (
    Table,
    approximation_table,
    barrier_table,
    conflict_table,
    effective_bandwidth_table,
    engine_table,
    log_table,
    memory_table,
    operator_table,
    phase_table,
    sram_table,
    stage_table,
    stage_time_table,
    stall_table,
    tier_table,
)
from npusim.results.views import view_named
from npusim.units import format_time_ps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pandas as pd

    from npusim.config.run_spec import RunSpec
    from npusim.results.records import PhaseRecord

#: version of the summary JSON and of the folder of a saved result
SCHEMA_VERSION = 1

HASH_KEYS = ("system", "workload", "compiler", "simulation", "program")
WORKLOAD_KEYS = (
    *("model", "parameters", "weight_bytes", "weight_bytes_by_dtype", "kv_bytes_per_token"),
    *("quant", "kv_dtype", "batch", "prompt_len", "context_len", "generate_len"),
)
#: keys of a workload that are present where they are in use
PATTERN_KEYS = ("chunk_tokens", "chunk_context_len", "mtp_layers", "speculation")
#: phases whose steps generate tokens
_STEP_PHASES = ("decode", "mixed")


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run found; every invariant holds for an object that exists.

    Parameters
    ----------
    npusim_version : str
        Version that ran.
    seed : int
        Seed of every random choice.
    fidelity, executor : str
        What ran, not what was asked for.
    overrides : tuple[str, ...]
        ``path=value`` texts applied to the run.
    hashes : Mapping[str, str | None]
        Of `HASH_KEYS`: every part of the run's specification and the program.
    system, clock : str
        Name of the system, and of the clock in which cycles are counted.
    workload : Mapping[str, object]
        `WORKLOAD_KEYS`; lengths that do not apply are None. And `PATTERN_KEYS` in use.
    ttft_ps : int or None
        Time to first token; None without a prefill.
    phases : Mapping[str, PhaseRecord]
        ``prefill``, ``draft_prefill``, ``decode`` or ``mixed``, ``draft``, those that ran, in
        this order.
    wall_s : float
        Wall-clock time of the simulation; the only number that differs between equal runs.
    spec : RunSpec or None
        The specification, saved beside the result.
    is_memory_ideal : bool
        Memory answered at once, so its peak rates do not limit it; not saved.

    Raises
    ------
    SimulationError
        If time, work or bytes of a phase do not add up (see `check_phase`).
    """

    npusim_version: str
    seed: int
    fidelity: str
    executor: str
    overrides: tuple[str, ...]
    hashes: Mapping[str, str | None]
    system: str
    clock: str
    workload: Mapping[str, Any]
    ttft_ps: int | None
    phases: Mapping[str, PhaseRecord]
    wall_s: float
    spec: RunSpec | None = None
    is_memory_ideal: bool = False

    def __post_init__(self) -> None:
        if not self.phases:
            raise SimulationError("run", "at least one phase ran")
        for name, record in self.phases.items():
            if name != record.phase:
                raise SimulationError(f"phase {name}", "is stored by its name", record.phase)
            check_phase(record, self.is_memory_ideal)
        _check_keys("hashes", self.hashes, HASH_KEYS)
        used = tuple(key for key in PATTERN_KEYS if key in self.workload)
        _check_keys("workload", self.workload, (*WORKLOAD_KEYS, *used))
        by_dtype = sum(self.workload["weight_bytes_by_dtype"].values())
        if by_dtype != self.workload["weight_bytes"]:
            rule = f"weight_bytes_by_dtype must sum to {self.workload['weight_bytes']}"
            raise SimulationError("workload", rule, by_dtype)

    @property
    def elapsed_ps(self) -> int:
        """Simulated time of all phases."""
        return sum(int(record.elapsed_ps) for record in self.phases.values())

    @property
    def tpot_ps(self) -> int | None:
        """Mean time per generated token of a sequence, rounded up; None without decode.

        A decode or mixed step yields one; a speculative step, with its draft, the expected number.
        """
        steps = self._steps()
        if steps is None:
            return None
        if "speculation" not in self.workload:
            return int(mean_step_ps(steps))
        return ceil(self._steps_ps(steps) / (int(steps.steps) * self._tokens_per_step()))

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all sequences per second: generated ones in decode, else prompt tokens."""
        steps = self._steps()
        if steps is not None and "speculation" in self.workload:
            tokens = int(self.workload["batch"]) * int(steps.steps) * self._tokens_per_step()
            return float(tokens * PS_PER_S / self._steps_ps(steps))
        record = steps or next(iter(self.phases.values()))
        return int(record.tokens) * PS_PER_S / int(record.elapsed_ps)

    def _steps(self) -> PhaseRecord | None:
        """The phase whose steps generate tokens."""
        return next((self.phases[name] for name in _STEP_PHASES if name in self.phases), None)

    def _steps_ps(self, steps: PhaseRecord) -> Fraction:
        """Time of these steps and of the drafts between them."""
        draft = self.phases.get("draft")
        return Fraction(int(steps.elapsed_ps) + (int(draft.elapsed_ps) if draft else 0))

    def _tokens_per_step(self) -> Fraction:
        """Expected tokens per sequence of a speculative step."""
        return Fraction(self.workload["speculation"]["tokens_per_step"])

    @property
    def stages(self) -> Table:
        """One row per phase and stage."""
        return stage_table(self.phases)

    @property
    def operators(self) -> Table:
        """One row per phase and simulated kernel."""
        return operator_table(self.phases)

    @property
    def engines(self) -> Table:
        """One row per phase and engine; busy, idle and stalls sum to the phase."""
        return engine_table(self.phases)

    @property
    def stalls(self) -> Table:
        """One row per phase, engine and cause."""
        return stall_table(self.phases)

    @property
    def stage_times(self) -> Table:
        """One row per phase, stage, kind of engine and cause, work and idle time included."""
        return stage_time_table(self.phases)

    @property
    def memories(self) -> Table:
        """One row per phase and memory: bytes, row states, rates."""
        return memory_table(self.phases)

    @property
    def sram(self) -> Table:
        """One row per phase and SRAM."""
        return sram_table(self.phases)

    @property
    def sram_conflicts(self) -> Table:
        """One row per phase, scratchpad and pair of engines: time lost to bank conflicts."""
        return conflict_table(self.phases)

    @property
    def tiers(self) -> Table:
        """One row per phase and level of the memory hierarchy: latency, rates, bytes supplied."""
        return tier_table(self.phases)

    @property
    def effective_bandwidth(self) -> Table:
        """One row per phase: hit share, blends of the tiers' rates, and the simulated rate."""
        return effective_bandwidth_table(self.phases)

    @property
    def barriers(self) -> Table:
        """One row per phase and barrier."""
        return barrier_table(self.phases)

    @property
    def approximations(self) -> Table:
        """One row per estimate, with its error where it is known."""
        return approximation_table(self.phases)

    @property
    def spans(self) -> Table:
        """One row per recorded span."""
        return span_table(self.phases)

    @property
    def flows(self) -> Table:
        """One row per edge between recorded spans, which it names by their row in the phase."""
        return flow_table(self.phases)

    @property
    def bandwidth(self) -> Table:
        """One row per memory and time bin."""
        return bandwidth_table(self.phases)

    @property
    def occupancy(self) -> Table:
        """One row per scratchpad and time bin."""
        return occupancy_table(self.phases)

    @property
    def log(self) -> Table:
        """One row per line that a compiler pass logged."""
        return log_table(self.phases)

    def to_frame(self) -> pd.DataFrame:
        """One row per phase: times, counts, utilizations."""
        return phase_table(self.phases).to_frame()

    def phase(self, name: str) -> PhaseRecord:
        """Raw record of a phase; ResultError names the phases that ran."""
        if name not in self.phases:
            raise ResultError("phase", "did not run", name, nearest(name, self.phases))
        return self.phases[name]

    def timeline(self, phase: str | None = None) -> Any:
        """Timeline of one phase, or of all with buttons to choose.

        Parameters
        ----------
        phase : str, optional
            ``prefill`` or ``decode``.

        Returns
        -------
        plotly.graph_objects.Figure
            Above 3000 spans per phase, time bins coloured by what dominates them.

        Raises
        ------
        ResultError
            If the phase did not run or no spans were recorded.
        """
        return view_named("timeline")(self, phase)

    def export(
        self, format_name: str, path: Path | str, phase: str | None = None
    ) -> tuple[str, ...]:
        """Write a trace or all tables for another tool.

        Parameters
        ----------
        format_name : str
            ``perfetto`` or ``chrome`` (a file with the recorded spans), ``csv`` or ``parquet`` (a
            folder with all tables).
        path : Path or str
            File of a trace, folder of tables.
        phase : str, optional
            Only this phase.

        Returns
        -------
        tuple[str, ...]
            What is missing from a trace; empty if nothing is.

        Raises
        ------
        ResultError
            If there is no such format or phase, nothing was recorded, or it cannot be written.
        """
        written: tuple[str, ...] = view_named("export")(self, format_name, path, phase)
        return written

    def report(self, path: Path | str) -> None:
        """Write one HTML page about the run; see `npusim.report.run_page.write_report`."""
        view_named("report")(self, path)

    def save(self, directory: Path | str) -> Path:
        """Write result.json, run_spec.json and one Parquet file per table; see `save_result`."""
        from npusim.results.saving import save_result  # it needs pyarrow, which is slow to load

        return save_result(self, directory)

    def with_overrides(self, overrides: Iterable[str]) -> RunResult:
        """The same result, saying which ``path=value`` texts made its specification."""
        return replace(self, overrides=tuple(overrides))

    def summary(self) -> dict[str, Any]:
        """The summary JSON as a dictionary; equal for equal runs apart from ``wall_s``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "npusim_version": self.npusim_version,
            "wall_s": float(self.wall_s),
            "seed": int(self.seed),
            "fidelity": str(self.fidelity),
            "executor": str(self.executor),
            "overrides": list(self.overrides),
            "hashes": {key: self.hashes[key] for key in HASH_KEYS},
            "system": {"name": self.system, "clock": self.clock},
            "workload": self._workload(),
            "ttft_ps": None if self.ttft_ps is None else int(self.ttft_ps),
            "tpot_ps": self.tpot_ps,
            "tokens_per_s": self.tokens_per_s,
            "phases": {name: phase_summary(record) for name, record in self.phases.items()},
        }

    def _workload(self) -> dict[str, Any]:
        """Workload keys in their documented order, formats sorted."""
        used = [key for key in PATTERN_KEYS if key in self.workload]
        workload = {key: self.workload[key] for key in (*WORKLOAD_KEYS, *used)}
        by_dtype = workload["weight_bytes_by_dtype"]
        workload["weight_bytes_by_dtype"] = {str(k): int(by_dtype[k]) for k in sorted(by_dtype)}
        return workload

    def _repr_html_(self) -> str:
        """Headline and stage table, for notebooks."""
        what = f"{self.workload['model']} on {self.system}, {self.workload['quant']}"
        facts = [f"{self.tokens_per_s:.4g} tokens/s"]
        if self.tpot_ps is not None:
            facts.insert(0, f"TPOT {format_time_ps(self.tpot_ps)}")
        if self.ttft_ps is not None:
            facts.insert(0, f"TTFT {format_time_ps(self.ttft_ps)}")
        head = f"<p><b>{html.escape(what)}</b>: {html.escape(', '.join(facts))}</p>"
        return head + self.stages._repr_html_()


def _check_keys(where: str, found: Mapping[str, object], wanted: tuple[str, ...]) -> None:
    """Refuse missing and unknown keys."""
    if set(found) != set(wanted):
        missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise SimulationError(where, f"needs {missing}, does not know {unknown}")
