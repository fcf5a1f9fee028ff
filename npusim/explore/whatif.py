"""What would change the time of a run: every hardware parameter, and bounds of what a fix gives."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from math import log
from typing import TYPE_CHECKING, Any, Literal, Protocol

from npusim.config.run_spec import Fidelity
from npusim.errors import ConfigError, SimulationError
from npusim.explore.executor import ProcessPool
from npusim.explore.parameters import parameters
from npusim.explore.worker import Task
from npusim.simulation.arguments import spec_of
from npusim.simulation.ideal import IDEALS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from npusim.config.compiler import CompilerConfig
    from npusim.config.run_spec import RunSpec, SimulationConfig
    from npusim.config.system import SystemConfig
    from npusim.explore.executor import Executor
    from npusim.explore.parameters import Parameter
    from npusim.explore.worker import Outcome
    from npusim.workload.workload import Workload

Kind = Literal["parameter", "recompiled", "ideal"]
_BASE = "base"
MAX_STEP_FRAC = 10.0


@dataclass(frozen=True)
class Effect:
    """What one change does to the time of a run.

    Attributes
    ----------
    kind : {"parameter", "recompiled", "ideal"}
        A parameter with the same program; one with which the compiler made another program; a
        cost that is taken away from the same program, a bound of what a fix can give.
    name : str
        Dotted path, or the name of the bound.
    base, value : str
        Old and new value with units; of a bound "" and what is gone.
    elapsed_ps : int or None
        Time with the change; None where it failed. A bound is never above the run itself: who
        removes a cost may as well leave it.
    change_frac : float or None
        Signed change of the time, relative to the run.
    elasticity : float or None
        ``ln(T' / T) / ln(x' / x)``: per cent of time per per cent of parameter. None for bounds and
        where the parameter was 0.
    error : str or None
        Why there is no time.
    note : str or None
        Of a bound whose simulation was slower than the run: by how much. Without the cost commands
        ask for memory in another order, which can cost more than it saves.
    """

    kind: Kind
    name: str
    base: str
    value: str
    elapsed_ps: int | None = None
    change_frac: float | None = None
    elasticity: float | None = None
    error: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class WhatIf:
    """Effects on one run: parameters, then bounds, the largest first."""

    system: str
    model: str
    fidelity: str
    elapsed_ps: int
    effects: tuple[Effect, ...]

    def of(self, *kinds: Kind) -> list[Effect]:
        """Effects of some kinds."""
        return [effect for effect in self.effects if effect.kind in kinds]

    def to_frame(self) -> pd.DataFrame:
        """One row per effect, columns as in `Effect`."""
        import pandas as pd  # slow to load

        return pd.DataFrame([asdict(effect) for effect in self.effects])

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"effects": [asdict(effect) for effect in self.effects]}


class WhatIfProgress(Protocol):
    """Told after every simulation."""

    def update(self, done: int, failed: int, total: int, earlier: int) -> None:
        """`earlier` is 0: nothing is kept from one call to the next."""


def whatif(
    system: SystemConfig | str,
    workload: Workload,
    *,
    compiler: CompilerConfig | Mapping[str, object] | None = None,
    simulation: SimulationConfig | Mapping[str, object] | None = None,
    step_frac: float = 0.1,
    jobs: int | None = None,
) -> WhatIf:
    """Sensitivity of a workload's time to every number of a system, and idealised bounds.

    Parameters
    ----------
    system, workload, compiler, simulation
        As for `simulate`.
    step_frac : float
        Relative step of a parameter; whole numbers of at most 32 grow by one. What a rule of the
        configuration refuses doubles, or else shrinks.
    jobs : int, optional
        Worker processes; default: one per CPU.

    Returns
    -------
    WhatIf
        Time is the sum of the run's phases. Failed changes are effects with an `error`.

    Raises
    ------
    NpusimError
        If an argument is wrong, or the unchanged run fails.
    """
    spec = spec_of(system, workload, compiler, simulation)
    return whatif_run(spec, step_frac=step_frac, jobs=jobs, workload=workload)


def whatif_run(
    spec: RunSpec,
    *,
    step_frac: float = 0.1,
    jobs: int | None = None,
    workload: Workload | None = None,
    progress: WhatIfProgress | None = None,
    executor: Executor | None = None,
) -> WhatIf:
    """The same for a run; `workload` is what `spec.workload` describes, if it is at hand."""
    if not 0 < step_frac <= MAX_STEP_FRAC:
        rule = f"must be above 0 and at most {MAX_STEP_FRAC:g}"
        raise ConfigError("step_frac", rule, step_frac)
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs", "must be a whole number of at least 1", jobs)
    changes = parameters(spec, step_frac)
    tasks = [Task(_BASE, spec, workload=workload)]
    tasks += [Task(p.path, p.run, workload=workload) for p in changes if p.run is not None]
    if spec.simulation.fidelity is not Fidelity.ANALYTIC:
        tasks += [Task(name, spec, name, workload) for name in IDEALS]
    found = _outcomes(tasks, executor or ProcessPool(jobs or os.cpu_count() or 1), progress)
    base = found[_BASE]
    if base.error is not None:
        raise SimulationError("the unchanged run", base.error)
    effects = [_effect_of_parameter(p, base, found.get(p.path)) for p in changes]
    effects += [_effect_of_ideal(name, base, found[name]) for name in IDEALS if name in found]
    return WhatIf(
        system=spec.system.name,
        model=spec.workload.model,
        fidelity=spec.simulation.fidelity.value,
        elapsed_ps=_elapsed_ps(base),
        effects=tuple(sorted(effects, key=_rank)),
    )


def _outcomes(
    tasks: list[Task], pool: Executor, progress: WhatIfProgress | None
) -> dict[str, Outcome]:
    """Outcome of every task by its key; none is left out, failed ones have an error."""
    found: dict[str, Outcome] = {}
    failed = 0
    try:
        for outcome in pool.run(tasks):
            found[outcome.key] = outcome
            failed += outcome.error is not None
            if progress is not None:
                progress.update(len(found), failed, len(tasks), 0)
    finally:
        pool.close()
    return found


def _elapsed_ps(outcome: Outcome) -> int:
    elapsed_ps = outcome.metrics["elapsed_ps"]
    assert isinstance(elapsed_ps, int)
    return elapsed_ps


def _effect_of_parameter(parameter: Parameter, base: Outcome, outcome: Outcome | None) -> Effect:
    name, old, new = parameter.path, parameter.text(parameter.base), parameter.text(parameter.value)
    error = parameter.error if outcome is None else outcome.error
    if outcome is None or error is not None:
        return Effect("parameter", name, old, new, error=error)
    ratio = _elapsed_ps(outcome) / _elapsed_ps(base)
    return Effect(
        kind="parameter" if outcome.program == base.program else "recompiled",
        name=name,
        base=old,
        value=new,
        elapsed_ps=_elapsed_ps(outcome),
        change_frac=ratio - 1,
        elasticity=log(ratio) / log(parameter.value / parameter.base) if parameter.base else None,
    )


def _effect_of_ideal(name: str, base: Outcome, outcome: Outcome) -> Effect:
    gone = IDEALS[name].text
    if outcome.error is not None:
        return Effect("ideal", name, "", gone, error=outcome.error)
    change_frac = _elapsed_ps(outcome) / _elapsed_ps(base) - 1
    if change_frac > 0:
        note = f"simulated {change_frac:+.2%}: memory is asked in another order"
        return Effect("ideal", name, "", gone, _elapsed_ps(base), 0.0, note=note)
    return Effect("ideal", name, "", gone, _elapsed_ps(outcome), change_frac)


def _rank(effect: Effect) -> tuple[bool, bool, float, str]:
    """Parameters before bounds, failures last, then the largest effect first."""
    size = abs(effect.change_frac or 0.0)
    return effect.kind == "ideal", effect.change_frac is None, -size, effect.name
