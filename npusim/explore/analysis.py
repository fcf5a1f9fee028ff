"""What a finished sweep says: best trade-offs, which axes matter, what a budget buys."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.errors import ConfigError, nearest
from npusim.explore.spec import Goal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from npusim.explore.table import SweepResult

    Values = NDArray[np.float64]


@dataclass(frozen=True)
class AxisEffect:
    """How one axis moves one column.

    Attributes
    ----------
    share_frac : float
        Share of the column's variance between the axis' levels: ``SS_between / SS_total``. 0 where
        the column is constant.
    levels : tuple
        (level, mean of the column, points) in the order of the levels.
    """

    column: str
    axis: str
    share_frac: float
    levels: tuple[tuple[Any, float, int], ...]


@dataclass(frozen=True)
class Interaction:
    """What two axes do together beyond what each does alone.

    `share_frac` is the share of variance between the cells of both, less both main effects. Of a
    sweep whose cells hold unequal numbers of points the parts overlap, and it may be negative.
    """

    column: str
    axes: tuple[str, str]
    share_frac: float


@dataclass(frozen=True)
class BudgetStep:
    """The best point whose cost is at most `budget`; `point` is its number."""

    budget: float
    best: float
    point: int


@dataclass(frozen=True)
class SweepAnalysis:
    """A sweep's answers.

    Attributes
    ----------
    axes : tuple[str, ...]
        Systems, models and paths with more than one level.
    aliases : dict
        Paths that change exactly when an axis does (zipped ones), with that axis.
    objectives : dict
        Columns with ``min`` or ``max``.
    points : pandas.DataFrame
        Rows of the points that were done and have every objective.
    left_out : int
        Points that failed or lack an objective.
    is_balanced : bool
        Whether every combination of levels has the same number of points, so that shares of
        variance add up.
    pareto : tuple[int, ...]
        Numbers of the points that no other point beats in one objective without losing another.
    budgets : dict
        Per (objective, cost column) the steps of what more cost buys.
    """

    name: str
    axes: tuple[str, ...]
    aliases: dict[str, str]
    objectives: dict[str, str]
    points: pd.DataFrame
    left_out: int
    is_balanced: bool
    pareto: tuple[int, ...]
    effects: tuple[AxisEffect, ...]
    interactions: tuple[Interaction, ...]
    budgets: dict[tuple[str, str], tuple[BudgetStep, ...]]

    def pareto_frame(self) -> pd.DataFrame:
        """Rows of the front, sorted by the first objective, best first."""
        front = self.points[self.points["point"].isin(self.pareto)]
        first, goal = next(iter(self.objectives.items()))
        return front.sort_values([first, "point"], ascending=[goal == Goal.MIN, True])

    def rows(self) -> list[dict[str, Any]]:
        """Its points as plain rows."""
        return _records(self.points)

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "points": len(self.points),
            "left_out": self.left_out,
            "is_balanced": self.is_balanced,
            "axes": list(self.axes),
            "aliases": self.aliases,
            "objectives": self.objectives,
            "pareto": _records(self.pareto_frame()),
            "main_effects": [
                {
                    "column": effect.column,
                    "axis": effect.axis,
                    "share_frac": effect.share_frac,
                    "levels": [
                        {"value": _plain(value), "mean": mean, "points": count}
                        for value, mean, count in effect.levels
                    ],
                }
                for effect in self.effects
            ],
            "interactions": [
                {"column": i.column, "axes": list(i.axes), "share_frac": i.share_frac}
                for i in self.interactions
            ],
            "best_per_budget": [
                {
                    "objective": objective,
                    "budget": cost,
                    "steps": [
                        {"budget": s.budget, "best": s.best, "point": s.point} for s in steps
                    ],
                }
                for (objective, cost), steps in self.budgets.items()
            ],
        }


def analyse(
    result: SweepResult,
    objectives: Mapping[str, str] | None = None,
    budgets: Sequence[str] | None = None,
) -> SweepAnalysis:
    """Analyse a finished sweep.

    Parameters
    ----------
    result : SweepResult
        From `sweep` or `load_sweep`.
    objectives : mapping, optional
        Column and ``"min"`` or ``"max"``; default: those of the sweep.
    budgets : sequence of str, optional
        Columns that cost something: what the first objective reaches within a budget of each.
        Default: the other objectives that are minimised.

    Raises
    ------
    ConfigError
        If a column or goal does not exist, there is no objective, or no point has every objective.
    """
    frame = result.to_frame()
    goals = dict(objectives or result.summary["objectives"])
    _check(frame, goals, budgets or ())
    done = frame[frame["status"] == "done"].dropna(subset=list(goals)).reset_index(drop=True)
    if not len(done):
        raise ConfigError("sweep", "no point has every objective", ", ".join(goals))
    axes, aliases = _axes_of(result, done)
    first = next(iter(goals))
    costs = budgets or [n for n, goal in goals.items() if n != first and goal == Goal.MIN]
    values = {name: done[name].to_numpy(dtype=np.float64) for name in (*goals, *costs)}
    signed = np.column_stack([values[n] if g == Goal.MIN else -values[n] for n, g in goals.items()])
    numbers = done["point"].to_numpy()
    pairs = list(combinations(axes, 2))
    return SweepAnalysis(
        name=result.summary["name"],
        axes=axes,
        aliases=aliases,
        objectives=goals,
        points=done,
        left_out=len(frame) - len(done),
        is_balanced=_is_balanced(done, axes),
        pareto=tuple(numbers[pareto_mask(signed)].tolist()),
        effects=tuple(_effect(done, axis, name) for name in goals for axis in axes),
        interactions=tuple(_interaction(done, pair, name) for name in goals for pair in pairs),
        budgets={
            (first, cost): _best_within(values[first], goals[first], values[cost], numbers)
            for cost in costs
        },
    )


def pareto_mask(costs: Values) -> NDArray[np.bool_]:
    """Rows that no other row dominates: none is as good everywhere and better somewhere.

    Parameters
    ----------
    costs : array, shape (points, objectives)
        Smaller is better.

    Returns
    -------
    array of bool, shape (points,)
        Equal rows are all kept.
    """
    order = np.lexsort(costs.T[::-1])  # a row is dominated only by earlier ones, or equal
    keep = np.zeros(len(costs), dtype=bool)
    front = np.empty((0, costs.shape[1]))
    for row in order:
        point = costs[row]
        dominates = (front <= point).all(axis=1) & (front < point).any(axis=1)
        if not dominates.any():
            keep[row] = True
            front = np.vstack([front, point])
    return keep


def _check(frame: pd.DataFrame, goals: Mapping[str, str], budgets: Sequence[str]) -> None:
    """Refuse columns that are no numbers, and goals that are neither min nor max."""
    if not goals:
        hint = "give --objective COLUMN=min, or objectives: in the sweep's file"
        raise ConfigError("objectives", "the sweep has none", hint=hint)
    numeric = frame.select_dtypes("number").columns.drop("point")
    for column in (*goals, *budgets):
        if column not in numeric:
            rule = "must be a column of numbers in the sweep's table"
            raise ConfigError("objective", rule, column, nearest(column, numeric))
    for column, goal in goals.items():
        if goal not in (Goal.MIN, Goal.MAX):
            raise ConfigError(f"objective {column}", "must be min or max", goal)


def _axes_of(result: SweepResult, done: pd.DataFrame) -> tuple[tuple[str, ...], dict[str, str]]:
    """Axes with several levels (systems, models, then the file's paths), and their aliases."""
    axes: list[str] = []
    aliases: dict[str, str] = {}
    for name in ("system", "model", *result.summary["axes"]):
        levels = done[name].nunique()
        if levels < 2:
            continue
        same = (a for a in axes if done[a].nunique() == levels == done.groupby([a, name]).ngroups)
        other = next(same, None)
        if other is None:
            axes.append(name)
        else:
            aliases[name] = other
    return tuple(axes), aliases


def _is_balanced(done: pd.DataFrame, axes: tuple[str, ...]) -> bool:
    if not axes:
        return True
    counts = done.groupby(list(axes)).size()
    cells = np.prod([done[axis].nunique() for axis in axes])
    return len(counts) == cells and counts.nunique() == 1


def _share(done: pd.DataFrame, by: list[str], column: str) -> float:
    """SS_between / SS_total of a column over groups of rows."""
    values = done[column].astype(float)
    total = float(((values - values.mean()) ** 2).sum())
    means = values.groupby([done[name] for name in by]).transform("mean")
    between = float(((means - values.mean()) ** 2).sum())
    return between / total if total else 0.0


def _effect(done: pd.DataFrame, axis: str, column: str) -> AxisEffect:
    groups = done[column].astype(float).groupby(done[axis], sort=True)
    levels = tuple((level, float(rows.mean()), len(rows)) for level, rows in groups)
    return AxisEffect(column, axis, _share(done, [axis], column), levels)


def _interaction(done: pd.DataFrame, axes: tuple[str, str], column: str) -> Interaction:
    alone = sum(_share(done, [axis], column) for axis in axes)
    return Interaction(column, axes, _share(done, list(axes), column) - alone)


def _best_within(
    best: Values, goal: str, cost: Values, numbers: NDArray[np.int64]
) -> tuple[BudgetStep, ...]:
    """Costs at which the best reachable value improves, cheapest first."""
    value = best if goal == Goal.MIN else -best
    steps: list[BudgetStep] = []
    least = np.inf
    for row in np.lexsort((value, cost)):
        if value[row] < least:
            least = value[row]
            steps.append(BudgetStep(float(cost[row]), float(best[row]), int(numbers[row])))
    return tuple(steps)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    shown = frame.drop(columns=["status", "error"])
    return [{str(k): _plain(v) for k, v in row.items()} for row in shown.to_dict("records")]


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    return value.item() if isinstance(value, np.generic) else value
