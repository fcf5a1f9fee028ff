"""What every reproduction of published figures has: a file, figures beside ours, checks, freedom.

The file (``workloads/reproductions/NAME.yaml``) holds the published figures, the configuration that
is simulated, and for every number of it where it comes from. Numbers whose source begins with
"chosen" are free: nothing published fixes them. How many there are is told beside the number of
figures, because enough free numbers reproduce anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npusim.config.document import dotted, leaves, value_at
from npusim.config.hashing import spec_hash
from npusim.config.spec import Name, ShareFrac, Spec
from npusim.errors import ConfigError, nearest
from npusim.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FREE = "chosen"


class Published(Spec):
    """A published figure and how near ours must come, or a published range that ours lies in."""

    value: float | None = None
    """The figure; its name says the unit."""
    tolerance_frac: ShareFrac = 0.0
    """Largest relative difference; 0: exact."""
    low: float | None = None
    """Range: least value."""
    high: float | None = None
    """Range: largest value."""


class ReproductionFile(Spec):
    """The file of a reproduction; each reproduction adds a `config`."""

    name: Name
    """Which reproduction this is."""
    title: str
    """One line."""
    origin: str
    """Where the figures were published."""
    published: dict[str, Published]
    """Published figures by name."""
    sources: dict[str, str]
    """Where the numbers of `config` come from, by dotted path; a block's path serves all below."""
    notes: tuple[str, ...] = ()
    """Where the published figures contradict themselves or each other, and what was done."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `published` is None where the source has none, or a `published_range`."""

    name: str
    published: float | None
    ours: float
    tolerance_frac: float = 0.0
    published_range: tuple[float, float] | None = None

    @property
    def is_published(self) -> bool:
        """Whether the source has it."""
        return self.published is not None or self.published_range is not None

    @property
    def difference_frac(self) -> float | None:
        """Ours against published, signed; None without one, or if that is 0 and ours is not."""
        if self.published is None:
            return None
        if self.published == 0:
            return 0.0 if self.ours == 0 else None
        return self.ours / self.published - 1

    @property
    def holds(self) -> bool:
        """Whether ours is within the tolerance or range."""
        if self.published_range is not None:
            low, high = self.published_range
            return low <= self.ours <= high
        if self.published is None:
            return True
        return abs(self.ours - self.published) <= self.tolerance_frac * abs(self.published) + 1e-9


@dataclass(frozen=True, slots=True)
class Check:
    """Something other than a figure that must hold: an order, a refusal."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """One free number of a configuration."""

    path: str
    value: str
    why: str


@dataclass(frozen=True)
class Outcome:
    """What a reproduction's simulations gave: figures by name, checks, and anything else.

    `remarks` are sentences of what else was seen, `details` the same and more for programs.
    """

    figures: Mapping[str, float]
    checks: tuple[Check, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """A reproduction that can be run: the model of its file, and what simulates its config."""

    file: type[ReproductionFile]
    run: Callable[[Any], Outcome]


@dataclass(frozen=True)
class Reproduction:
    """A finished reproduction."""

    name: str
    title: str
    origin: str
    config_hash: str
    overrides: tuple[str, ...]
    figures: tuple[Figure, ...]
    checks: tuple[Check, ...]
    remarks: tuple[str, ...]
    free_parameters: tuple[Parameter, ...]
    notes: tuple[str, ...]
    details: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether every published figure is met and every check holds."""
        return all(figure.holds for figure in self.figures) and all(c.holds for c in self.checks)

    @property
    def num_reproduced(self) -> int:
        """Published figures that are met."""
        return sum(f.holds for f in self.figures if f.is_published)

    @property
    def num_published(self) -> int:
        """Published figures."""
        return sum(f.is_published for f in self.figures)

    @property
    def table(self) -> Table:
        """One row per figure."""
        rows = self.summary()["figures"]
        return Table("figures", {name: [row[name] for row in rows] for name in rows[0]})

    def summary(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "name": self.name,
            "title": self.title,
            "origin": self.origin,
            "config_hash": self.config_hash,
            "overrides": list(self.overrides),
            "holds": self.holds,
            "figures": [
                {
                    "figure": figure.name,
                    "published": figure.published,
                    "published_range": figure.published_range and [*figure.published_range],
                    "ours": figure.ours,
                    "difference_frac": figure.difference_frac,
                    "tolerance_frac": figure.tolerance_frac,
                    "holds": figure.holds,
                }
                for figure in self.figures
            ],
            "checks": [{"check": check.text, "holds": check.holds} for check in self.checks],
            "remarks": list(self.remarks),
            "figures_published": self.num_published,
            "figures_reproduced": self.num_reproduced,
            "free_parameters": [
                {"path": p.path, "value": p.value, "why": p.why} for p in self.free_parameters
            ],
            "notes": list(self.notes),
            "details": dict(self.details),
        }


def finish(file: ReproductionFile, outcome: Outcome, overrides: tuple[str, ...]) -> Reproduction:
    """Put published figures beside ours.

    Raises
    ------
    ConfigError
        If the file names a figure that the reproduction does not have.
    """
    for name in file.published:
        if name not in outcome.figures:
            hint = nearest(name, outcome.figures)
            raise ConfigError(f"{file.name}: published.{name}", "is no figure here", hint=hint)
        known = file.published[name]
        ends = sum(end is not None for end in (known.low, known.high))
        if ends != (0 if known.value is not None else 2):
            rule = "must have a value, or low and high"
            raise ConfigError(f"{file.name}: published.{name}", rule)
    figures = [_figure(name, ours, file.published) for name, ours in outcome.figures.items()]
    return Reproduction(
        name=file.name,
        title=file.title,
        origin=file.origin,
        config_hash=spec_hash(file),
        overrides=overrides,
        figures=tuple(figures),
        checks=outcome.checks,
        remarks=outcome.remarks,
        free_parameters=free_parameters(file),
        notes=file.notes,
        details=outcome.details,
    )


def _figure(name: str, ours: float, published: Mapping[str, Published]) -> Figure:
    """One figure beside what is published of it."""
    known = published.get(name)
    if known is None:
        return Figure(name, None, ours)
    ends = (known.low, known.high)
    span = None if ends[0] is None or ends[1] is None else (ends[0], ends[1])
    return Figure(name, known.value, ours, known.tolerance_frac, span)


def free_parameters(file: ReproductionFile) -> tuple[Parameter, ...]:
    """Numbers of the configuration that nothing published fixes.

    Raises
    ------
    ConfigError
        If a number has no source, or a source no number.
    """
    config = file.model_dump(mode="json")["config"]
    used, found = set(), []
    for path in leaves(config):
        parents = [dotted(path[:end]) for end in range(len(path), 0, -1)]
        key = next((parent for parent in parents if parent in file.sources), None)
        if key is None:
            rule = "every number of config needs an entry in sources"
            raise ConfigError(f"{file.name}: config.{dotted(path)}", rule)
        used.add(key)
        if file.sources[key].startswith(_FREE):
            value = str(value_at(config, path))
            found.append(Parameter(f"config.{dotted(path)}", value, file.sources[key]))
    for key in file.sources:
        if key not in used and value_at(config, tuple(key.split("."))) is None:
            raise ConfigError(f"{file.name}: sources.{key}", "is no key of config")
    return tuple(found)
