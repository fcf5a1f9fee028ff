"""What a sweep file says."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from npusim.config.compiler import BY_NAME, CompilerConfig
from npusim.config.rules import RuleError
from npusim.config.run_spec import SimulationConfig
from npusim.config.spec import Name, NonNegativeInt, Spec

#: points of one sweep at most
MAX_POINTS = 1_000_000

Steps = Annotated[int, Field(ge=2, le=10_000)]


class RangeSpec(Spec):
    """Evenly spaced values from `start` to `stop`, both included."""

    start: Any
    """First value, written as in a system file."""
    stop: Any
    """Last value."""
    steps: Steps
    """How many values."""
    multiple_of: Any = None
    """Round values to multiples of this; whole-number keys: one base unit if it is not given."""


class AxisSpec(Spec):
    """One axis: a dotted path with `values`, `lin` or `log`, or several paths zipped."""

    path: str | None = None
    """Starts at ``system.``, ``workload.``, ``compiler.`` or ``simulation.``."""
    values: tuple[Any, ...] | None = None
    """The values themselves."""
    lin: RangeSpec | None = None
    """Equal differences."""
    log: RangeSpec | None = None
    """Equal ratios."""
    zip: dict[str, tuple[Any, ...]] | None = None
    """Paths that change together: the n-th value of each."""

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        kinds = [k for k in ("values", "lin", "log", "zip") if getattr(self, k) is not None]
        if len(kinds) != 1:
            rule = "an axis needs exactly one of values, lin, log and zip"
            raise RuleError("path", rule, ", ".join(kinds) or None)
        if (self.path is None) != (self.zip is not None):
            raise RuleError("path", "is required, except beside zip, whose keys are the paths")
        if self.values is not None and not self.values:
            raise RuleError("values", "must have at least one entry")
        return self

    @model_validator(mode="after")
    def _zipped_lists_match(self) -> Self:
        lengths = {path: len(values) for path, values in (self.zip or {}).items()}
        if self.zip is not None and (not lengths or 0 in lengths.values()):
            raise RuleError("zip", "must have at least one path and one value")
        if len(set(lengths.values())) > 1:
            text = ", ".join(f"{path}: {n}" for path, n in lengths.items())
            raise RuleError("zip", "the lists must have the same length", text)
        return self


class Method(StrEnum):
    """Which of the grid's points are taken."""

    GRID = "grid"
    RANDOM = "random"
    LHS = "lhs"


class Sampling(Spec):
    """Which of the grid's points are taken."""

    method: Annotated[Method, BY_NAME] = Method.GRID
    """All of them, a random choice without repetition, or a Latin hypercube."""
    points: Annotated[int, Field(ge=1, le=MAX_POINTS)] | None = None
    """How many, for `random` and `lhs`."""
    seed: NonNegativeInt = 0
    """Seed of the choice."""

    @model_validator(mode="after")
    def _points_belong_to_a_choice(self) -> Self:
        if (self.method is Method.GRID) != (self.points is None):
            raise RuleError("points", "is for random and lhs, and required there", self.points)
        return self


class SearchMethod(StrEnum):
    """Who proposes the next points of a search."""

    NSGA2 = "nsga2"
    NSGA3 = "nsga3"
    TPE = "tpe"
    RANDOM = "random"


class SearchSpec(Spec):
    """How `npusim search` walks through the grid of the axes."""

    method: Annotated[SearchMethod, BY_NAME] = SearchMethod.NSGA2
    """Two genetic algorithms, a Bayesian one, and chance to compare with."""
    points: Annotated[int, Field(ge=1, le=MAX_POINTS)]
    """Different points simulated at most."""
    batch: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Points proposed before any of them is known; population of the genetic methods."""
    seed: NonNegativeInt = 0
    """Seed of the proposals."""


class Goal(StrEnum):
    """Which end of an objective is better."""

    MIN = "min"
    MAX = "max"


class SweepSpec(Spec):
    """A whole sweep."""

    name: Name
    """Names the sweep in reports."""
    description: str = ""
    """For people."""
    systems: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names in hwconfigs/, or paths from the folder of the file."""
    models: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names in workloads/models, or paths from the folder of the file."""
    workload: dict[str, Any] = {}
    """Lengths, batch and precision: the keys of a workload apart from `model`."""
    compiler: CompilerConfig = CompilerConfig()
    """Choices of the compiler in every point."""
    simulation: SimulationConfig = SimulationConfig()
    """Fidelity and other settings of every point."""
    axes: tuple[AxisSpec, ...] = ()
    """What changes between points."""
    constraints: tuple[str, ...] = ()
    """Expressions over configuration values; a point must meet all of them."""
    metrics: Annotated[tuple[str, ...], Field(min_length=1)] = ("elapsed_ps",)
    """Columns taken from each result."""
    derived: dict[str, str] = {}
    """Columns computed from the configuration, for example a cost: name and expression."""
    objectives: dict[str, Annotated[Goal, BY_NAME]] = {}
    """Metrics or derived columns to compare points by."""
    sampling: Sampling = Sampling()
    """Which of the grid's points a sweep takes."""
    search: SearchSpec | None = None
    """How a search finds its points; a sweep ignores it."""
