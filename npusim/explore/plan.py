"""From a sweep file to its points: everything is read and checked before anything runs."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim import paths
from npusim.config.build import validated, with_units_converted
from npusim.config.document import Document, dotted, read_document, value_at
from npusim.config.fields import FieldType
from npusim.config.hashing import spec_hash
from npusim.config.loader import load_system
from npusim.config.overrides import override_path, set_override
from npusim.config.run_spec import RunSpec, WorkloadConfig
from npusim.errors import ConfigError, NpusimError, nearest
from npusim.explore.axes import build_axis
from npusim.explore.expressions import Expression, parse_expression
from npusim.explore.identity import Identity, refused_key
from npusim.explore.metrics import check_metrics
from npusim.explore.sampling import choose
from npusim.explore.spec import SweepSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class Point:
    """One run: its place in the plan, its configuration and the key of its result.

    `run` is None where the values break a rule of the configuration together; `error` says which.
    """

    index: int
    key: str
    system: str
    model: str
    values: tuple[Any, ...]
    derived: tuple[int | float | None, ...]
    run: RunSpec | None
    error: str | None = None


@dataclass(frozen=True)
class Plan:
    """Every point of a sweep, in order.

    Attributes
    ----------
    axes : tuple[str, ...]
        Dotted paths, one per entry of `Point.values`.
    excluded : int
        Points considered that a constraint left out.
    """

    spec: SweepSpec
    axes: tuple[str, ...]
    points: tuple[Point, ...]
    excluded: int

    @property
    def digest(self) -> str:
        """Hash of the points in order: configurations and version."""
        text = "\n".join(point.key for point in self.points)
        return hashlib.sha256(text.encode()).hexdigest()


def load_plan(spec: str | Path | SweepSpec | Mapping[str, Any]) -> Plan:
    """Plan of a sweep: every point that its sampling takes; see `load_space`."""
    return load_space(spec).plan()


def load_space(spec: str | Path | SweepSpec | Mapping[str, Any]) -> Space:
    """The grid that a sweep or a search is about.

    Parameters
    ----------
    spec : str, Path, SweepSpec or mapping
        Name in ``workloads/sweeps``, path of a YAML file, or the content of one. In a file
        dimensioned values carry units; Python may also give integers in base units.

    Raises
    ------
    ConfigError
        File and line, rule, value and nearest name of what is wrong.
    """
    if isinstance(spec, (str, Path)):
        text = str(spec)
        is_path = isinstance(spec, Path) or "/" in text or text.endswith(_ENDINGS)
        file = Path(text) if is_path else paths.find_named("sweep", text)
        document = read_document(file)
        data, problems = with_units_converted(document.data, FieldType(SweepSpec))
        built = validated(SweepSpec, data, document.where, problems, document.data)
        return Space(built, document, file.parent, units=True)
    if not isinstance(spec, SweepSpec):
        spec = validated(SweepSpec, dict(spec), dotted)
    return Space(spec, Document(spec.model_dump(mode="json")), Path(), units=False)


class Space:
    """The grid of a sweep: bases times the levels of every axis.

    Attributes
    ----------
    sizes : tuple[int, ...]
        Number of bases (systems x models), then of levels of every axis.
    """

    def __init__(self, spec: SweepSpec, document: Document, folder: Path, *, units: bool) -> None:
        self.spec = self._spec = spec
        self._document, self._folder = document, folder
        self._names: list[tuple[str, str]] = []
        self._identity = Identity()
        self._bases = self._base_data()
        self._axes = [
            build_axis(axis, ("axes", i), document, self._bases, units=units)
            for i, axis in enumerate(spec.axes)
        ]
        self._refuse_repeated_paths()
        self._constraints = [
            self._expression(text, ("constraints", i)) for i, text in enumerate(spec.constraints)
        ]
        self._derived = [
            self._expression(text, ("derived", name)) for name, text in spec.derived.items()
        ]

        self.sizes = (len(self._bases), *(len(axis.levels) for axis in self._axes))
        check_metrics(spec, [base["workload"] for base in self._bases], document.where)

    @property
    def axes(self) -> tuple[str, ...]:
        """Dotted paths of the axes, one per entry of `Point.values`."""
        return tuple(name for axis in self._axes for name in axis.names)

    @property
    def digest(self) -> str:
        """Hash of the specification and of the configurations that it starts from."""
        keys = [self._identity.key(validated(RunSpec, base, dotted)) for base in self._bases]
        return hashlib.sha256("\n".join([spec_hash(self._spec), *keys]).encode()).hexdigest()

    def plan(self) -> Plan:
        """Points that the sampling takes and the constraints allow."""
        place = self._document.where(("sampling",)) or "sampling"
        chosen, excluded = choose(self.sizes, self._spec.sampling, self.is_allowed, place)
        points = tuple(self.point(i, levels) for i, levels in enumerate(chosen))
        self._refuse_useless_levels(chosen, points)
        return Plan(self._spec, self.axes, points, excluded)

    def where(self, key: str) -> str:
        """File and line of a key at the top of the file."""
        return self._document.where((key,)) or key

    def _base_data(self) -> list[dict[str, Any]]:
        """Data of a run for every system and model."""
        spec, where = self._spec, self._document.where
        bases = []
        for i, system in enumerate(spec.systems):
            for j, model in enumerate(spec.models):
                try:
                    loaded = load_system(self._beside(system, _ENDINGS))
                except NpusimError as error:
                    raise _at(where(("systems", i)), error) from None
                file = self._beside(model, paths.MODEL_ENDINGS)
                self._check_model(file, where(("models", j)))
                workload = self._workload(file)
                run = RunSpec(
                    system=loaded,
                    workload=workload,
                    compiler=spec.compiler,
                    simulation=spec.simulation,
                )
                self._check_files(run)
                bases.append(run.model_dump(mode="json"))
                self._names.append((system, model))
        return bases

    def _beside(self, name: str, endings: tuple[str, ...]) -> str:
        """A name as it is; a path from the folder of the sweep's file."""
        return str(self._folder / name) if "/" in name or name.endswith(endings) else name

    def _check_model(self, name: str, where: str) -> None:
        if paths.is_model_path(name):
            if not Path(name).is_file():
                raise ConfigError(where, "no such file", name)
        elif name not in (known := paths.named_files("model")):
            raise ConfigError(where, "no model has this name", name, nearest(name, known))

    def _check_files(self, run: RunSpec) -> None:
        """Refuse a file that is missing, unless an axis replaces its key in every point."""
        replaced = {name for axis in self._spec.axes for name in (axis.path, *(axis.zip or ()))}
        if replaced & {"workload.draft_model", "workload.expert_routing"}:
            return
        try:
            self._identity.key(run)
        except NpusimError as error:
            raise _at(self._document.where(("workload",)), error) from None

    def _workload(self, model: str) -> WorkloadConfig:
        """Workload of a base; what is wrong is told at its line."""
        data = {**self._spec.workload, "model": model}
        if "model" in self._spec.workload:
            where = self._document.where(("workload", "model"))
            raise ConfigError(where, "models are listed at the top", self._spec.workload["model"])
        return validated(
            WorkloadConfig, data, lambda path: self._document.where(("workload", *path))
        )

    def _expression(self, text: str, at: tuple[str | int, ...]) -> Expression:
        where = self._document.where(at)
        expression = parse_expression(text, where)
        for path in expression.paths():
            for base in self._bases:
                override_path(".".join(path), base, where)
        return expression

    def _refuse_repeated_paths(self) -> None:
        seen: set[str] = set()
        for i, axis in enumerate(self._axes):
            for name in axis.names:
                if name in seen:
                    raise ConfigError(self._document.where(("axes", i)), "is an axis twice", name)
                seen.add(name)

    def _values(self, levels: tuple[int, ...]) -> dict[tuple[str | int, ...], Any]:
        """Value of every axis path at the levels of a point."""
        return {
            path: value
            for axis, level in zip(self._axes, levels[1:], strict=True)
            for path, value in zip(axis.paths, axis.levels[level].values, strict=True)
        }

    def _lookup(self, levels: tuple[int, ...], path: tuple[str, ...]) -> object:
        """Configuration value of a point; ConfigError for a block."""
        values = self._values(levels)
        return values[path] if path in values else value_at(self._bases[levels[0]], path)

    def is_allowed(self, levels: tuple[int, ...]) -> bool:
        """Whether a point meets the constraints."""
        return all(c.truth(lambda path: self._lookup(levels, path)) for c in self._constraints)

    def point(self, index: int, levels: tuple[int, ...]) -> Point:
        """The point at a base and a level of every axis."""
        base = self._bases[levels[0]]
        data = deepcopy(base)
        values = self._values(levels)
        for path, value in values.items():
            set_override(data, path, value)
        run, error = None, None
        try:
            run = validated(RunSpec, data, dotted)
            key = self._identity.key(run)
        except NpusimError as problem:
            run, error, key = None, str(problem), refused_key(data)
        return Point(
            index=index,
            key=key,
            system=self._names[levels[0]][0],
            model=self._names[levels[0]][1],
            values=tuple(values.values()),
            derived=tuple(d.number(lambda path: self._lookup(levels, path)) for d in self._derived),
            run=run,
            error=error,
        )

    def _refuse_useless_levels(
        self, chosen: list[tuple[int, ...]], points: tuple[Point, ...]
    ) -> None:
        """Refuse a value with which no point is valid: it is wrong, whatever the others are."""
        for i, axis in enumerate(self._axes, 1):
            for number, level in enumerate(axis.levels):
                mine = [p for p, at in zip(points, chosen, strict=True) if at[i] == number]
                if mine and all(point.run is None for point in mine):
                    shown = level.values[0] if len(level.values) == 1 else level.values
                    raise ConfigError(level.where, f"no point is valid: {mine[0].error}", shown)


def _at(where: str, error: NpusimError) -> ConfigError:
    """The same refusal at the line that named the thing."""
    return ConfigError(where, error.rule, error.value, error.hint)
