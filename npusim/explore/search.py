"""Search: points proposed by what the earlier ones gave, instead of a whole grid.

A batch is proposed, simulated and told in the order of its proposals, so that a search depends on
its file and seed alone, not on the number of workers. To resume is to search again: what the store
has is not simulated a second time, and every proposal comes out as before.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError
from npusim.explore.executor import ProcessPool
from npusim.explore.plan import Plan, load_space
from npusim.explore.spec import Goal, SearchMethod
from npusim.explore.store import Store
from npusim.explore.table import SUMMARY_FILE, write_sweep
from npusim.explore.worker import Task
from npusim.results.files import prepare_directory, remove_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from optuna import Study, Trial
    from optuna.samplers import BaseSampler

    from npusim.explore.executor import Executor
    from npusim.explore.journal import BatchedJournal
    from npusim.explore.plan import Point, Space
    from npusim.explore.spec import SearchSpec, SweepSpec
    from npusim.explore.sweep import SweepProgress
    from npusim.explore.table import SweepResult

    Levels = tuple[int, ...]

JOURNAL_FILE = "search.journal"
#: proposals per point of the budget; repeated and forbidden ones count too
MAX_PROPOSALS = 20


def search(
    spec: str | Path | SweepSpec | Mapping[str, Any],
    *,
    out: str | Path,
    jobs: int | None = None,
    resume: bool = False,
    progress: SweepProgress | None = None,
    executor: Executor | None = None,
) -> SweepResult:
    """Search the grid of a sweep for the best trade-offs of its objectives.

    Parameters
    ----------
    spec : str, Path, SweepSpec or mapping
        As for `sweep`, with the keys ``search`` and ``objectives``.
    out : str or Path
        Folder of the search: as of a sweep, and ``search.journal`` with every proposal, in the
        journal format of Optuna.
    jobs, resume, progress, executor
        As for `sweep`.

    Returns
    -------
    SweepResult
        The points simulated, in the order in which they were proposed.

    Raises
    ------
    ConfigError, ResultError
        If the specification is wrong, Optuna is not installed, or the folder cannot be used.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs", "must be a whole number of at least 1", jobs)
    space = load_space(spec)
    settings = _settings(space)
    folder = prepare_directory(out)
    store = Store(folder, space.digest, resume=resume)
    pool = executor or ProcessPool(jobs or os.cpu_count() or 1)
    started = time.perf_counter()
    try:
        earlier = len(store.outcomes())
        remove_file(folder / SUMMARY_FILE)  # from here to the end the search is unfinished
        remove_file(folder / JOURNAL_FILE)
        hunt = _Hunt(space, settings, folder / JOURNAL_FILE, store, pool, progress)
        hunt.run()
        outcomes = store.outcomes()
        plan = Plan(space.spec, space.axes, tuple(hunt.points.values()), hunt.forbidden)
        result = write_sweep(folder, plan, outcomes, plan.excluded)
    finally:
        pool.close()
        store.close()
    result.summary["proposals"] = hunt.proposals
    result.summary["computed"] = len(outcomes) - earlier
    result.summary["wall_s"] = time.perf_counter() - started
    return result


@dataclass
class _Hunt:
    """The state of a search."""

    space: Space
    settings: SearchSpec
    journal: Path
    store: Store
    pool: Executor
    progress: SweepProgress | None

    def __post_init__(self) -> None:
        self.points: dict[Levels, Point] = {}
        self.proposals = self.forbidden = 0
        self._outcomes = self.store.outcomes()
        self._earlier = len(self._outcomes)

    def run(self) -> None:
        """Propose, simulate and tell batches until the budget is used up."""
        from npusim.explore.journal import BatchedJournal  # slow to load

        budget = self.settings.points
        journal = BatchedJournal(self.journal)
        study = _study(self.space, self.settings, journal)
        while len(self.points) < budget and self.proposals < MAX_PROPOSALS * budget:
            trials = [study.ask() for _ in range(self.settings.batch)]
            levels = [_levels(trial, self.space.sizes) for trial in trials]
            self.proposals += len(trials)
            for place in levels:
                self._take(place)
            self._simulate()
            for trial, place in zip(trials, levels, strict=True):
                _tell(study, trial, self._objectives(place))
            journal.flush()

    def _take(self, place: Levels) -> None:
        """Make a proposal a point, if it is new, allowed and within the budget."""
        if place in self.points or len(self.points) >= self.settings.points:
            return
        if not self.space.is_allowed(place):
            self.forbidden += 1
            return
        self.points[place] = self.space.point(len(self.points), place)

    def _simulate(self) -> None:
        """Run the points that have no outcome yet."""
        missing = {
            point.key: Task(point.key, point.run)
            for point in self.points.values()
            if point.run is not None and point.key not in self._outcomes
        }
        for outcome in self.pool.run(list(missing.values())):
            self.store.add(outcome)
            self._outcomes[outcome.key] = outcome
            self._report()

    def _report(self) -> None:
        if self.progress is not None:
            failed = sum(1 for outcome in self._outcomes.values() if outcome.error is not None)
            done, total = len(self._outcomes), self.settings.points
            self.progress.update(done, failed, max(total, done), self._earlier)

    def _objectives(self, place: Levels) -> list[float] | None:
        """Objectives of a proposal; None for one that was not simulated or failed."""
        point = self.points.get(place)
        if point is None or point.run is None:
            return None
        outcome = self._outcomes[point.key]
        if outcome.error is not None:
            return None
        derived = dict(zip(self.space.spec.derived, point.derived, strict=True))
        values = [{**outcome.metrics, **derived}[name] for name in self.space.spec.objectives]
        return None if None in values else [float(value) for value in values if value is not None]


def _settings(space: Space) -> SearchSpec:
    """What the file says about the search; ConfigError if something is missing."""
    settings = space.spec.search
    if settings is None:
        hint = "for example search: {method: nsga2, points: 200}"
        raise ConfigError(space.where("search"), "a search needs the key search", hint=hint)
    if not space.spec.objectives:
        raise ConfigError(space.where("objectives"), "a search needs objectives")
    if find_spec("optuna") is None:
        raise ConfigError("search", "needs Optuna", hint="pip install 'npusim[explore]'")
    return settings


def _tell(study: Study, trial: Trial, values: list[float] | None) -> None:
    from optuna.trial import TrialState  # slow to load

    if values is None:
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, values)


def _study(space: Space, settings: SearchSpec, journal: BatchedJournal) -> Study:
    """A fresh study that keeps its journal."""
    import optuna  # slow to load
    from optuna.storages import JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    goals = space.spec.objectives.values()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.create_study(
            study_name=space.spec.name,
            storage=JournalStorage(journal),
            sampler=_sampler(settings),
            directions=["minimize" if goal is Goal.MIN else "maximize" for goal in goals],
        )


def _sampler(settings: SearchSpec) -> BaseSampler:
    """Who proposes."""
    from optuna import samplers  # slow to load

    size, seed = max(settings.batch, 2), settings.seed
    if settings.method is SearchMethod.NSGA2:
        return samplers.NSGAIISampler(population_size=size, seed=seed)
    if settings.method is SearchMethod.NSGA3:
        return samplers.NSGAIIISampler(population_size=size, seed=seed)
    if settings.method is SearchMethod.TPE:
        return samplers.TPESampler(seed=seed, multivariate=True)
    return samplers.RandomSampler(seed=seed)


def _levels(trial: Trial, sizes: tuple[int, ...]) -> Levels:
    """Base and level of every axis that a trial proposes."""
    bases, *axes = sizes
    base = trial.suggest_categorical("base", list(range(bases)))
    return base, *(trial.suggest_int(f"axis{i}", 0, size - 1) for i, size in enumerate(axes))
