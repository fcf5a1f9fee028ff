"""A whole sweep: plan, compute what is missing, keep it, write the table."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from npusim.errors import ConfigError
from npusim.explore.executor import Executor, ProcessPool
from npusim.explore.plan import load_plan
from npusim.explore.store import Store
from npusim.explore.table import SUMMARY_FILE, SweepResult, write_sweep
from npusim.explore.worker import Task
from npusim.results.files import prepare_directory, remove_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from npusim.explore.plan import Plan
    from npusim.explore.spec import SweepSpec


class SweepProgress(Protocol):
    """Told after every point."""

    def update(self, done: int, failed: int, total: int, earlier: int) -> None:
        """Points finished, failed ones among them, all, and those that an earlier run finished."""


def sweep(
    spec: str | Path | SweepSpec | Mapping[str, Any],
    *,
    out: str | Path,
    jobs: int | None = None,
    resume: bool = False,
    progress: SweepProgress | None = None,
    executor: Executor | None = None,
) -> SweepResult:
    """Run every point of a sweep.

    Parameters
    ----------
    spec : str, Path, SweepSpec or mapping
        Name in ``workloads/sweeps``, path of a YAML file, or the content of one.
    out : str or Path
        Folder of the sweep: store, table, configurations.
    jobs : int, optional
        Worker processes; default: one per CPU.
    resume : bool
        Compute only what the store in `out` lacks.
    progress : SweepProgress, optional
        Told after every point.
    executor : Executor, optional
        What computes points; default: a pool of `jobs` processes.

    Returns
    -------
    SweepResult
        The table; failed points are rows with their error.

    Raises
    ------
    ConfigError, ResultError
        If the specification is wrong, before anything runs, or the folder cannot be used.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs", "must be a whole number of at least 1", jobs)
    plan = load_plan(spec)
    folder = prepare_directory(out)
    store = Store(folder, plan.digest, resume=resume)
    pool = executor or ProcessPool(jobs or os.cpu_count() or 1)
    started = time.perf_counter()
    try:
        earlier = len(store.outcomes())
        remove_file(folder / SUMMARY_FILE)  # from here to the end the sweep is unfinished
        _compute(plan, store, pool, progress)
        outcomes = store.outcomes()
        result = write_sweep(folder, plan, outcomes, plan.excluded)
    finally:
        pool.close()
        store.close()
    result.summary["computed"] = len(outcomes) - earlier
    result.summary["cpu_s"] = sum(outcome.cpu_s for outcome in outcomes.values())
    result.summary["wall_s"] = time.perf_counter() - started
    return result


def _compute(plan: Plan, store: Store, pool: Executor, progress: SweepProgress | None) -> None:
    """Compute the points that the store lacks, each one once."""
    outcomes = store.outcomes()
    runs = {point.key: point.run for point in plan.points if point.run is not None}
    tasks = [Task(key, run) for key, run in runs.items() if key not in outcomes]
    earlier = done = len(runs) - len(tasks)
    failed = sum(1 for outcome in outcomes.values() if outcome.error is not None)
    if progress is not None:
        progress.update(done, failed, len(runs), earlier)
    for outcome in pool.run(tasks):
        store.add(outcome)
        done += 1
        failed += outcome.error is not None
        if progress is not None:
            progress.update(done, failed, len(runs), earlier)
