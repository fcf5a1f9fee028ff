"""Values of an axis: lists as written, ranges spread exactly, quantities in base units."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from npusim.config.build import with_units_converted
from npusim.config.document import Document, Path
from npusim.config.fields import FieldType
from npusim.config.overrides import override_path
from npusim.config.run_spec import RunSpec
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.explore.spec import AxisSpec, RangeSpec


@dataclass(frozen=True)
class Level:
    """One step of an axis: a value for each of its paths, and where it is written."""

    values: tuple[Any, ...]
    where: str


@dataclass(frozen=True)
class Axis:
    """Paths that change together, and their levels in order."""

    names: tuple[str, ...]
    paths: tuple[Path, ...]
    levels: tuple[Level, ...]


def build_axis(
    axis: AxisSpec, at: Path, document: Document, bases: list[dict[str, Any]], *, units: bool
) -> Axis:
    """Axis with every value checked for its unit and every path for its existence in each base.

    Raises
    ------
    ConfigError
        File and line, rule, value and the nearest path.
    """
    if axis.zip is not None:
        names = tuple(axis.zip)
        places = [_place(name, bases, document.where((*at, "zip", name))) for name in names]
        columns = [
            [
                _value(value, place, document.where((*at, "zip", name, i)), units)
                for i, value in enumerate(axis.zip[name])
            ]
            for name, (_, place) in zip(names, places, strict=True)
        ]
        wheres = [document.where((*at, "zip", names[0], i)) for i in range(len(columns[0]))]
        levels = [Level(v, w) for *v_, w in zip(*columns, wheres, strict=True) for v in [tuple(v_)]]
        return Axis(names, tuple(path for path, _ in places), tuple(levels))
    assert axis.path is not None
    path, place = _place(axis.path, bases, document.where((*at, "path")))
    if axis.values is not None:
        written = [(v, document.where((*at, "values", i))) for i, v in enumerate(axis.values)]
        levels = [Level((_value(v, place, where, units),), where) for v, where in written]
    else:
        kind = "lin" if axis.lin is not None else "log"
        spread = axis.lin or axis.log
        assert spread is not None
        where = document.where((*at, kind))
        values = _spread(spread, place, where, is_log=kind == "log", units=units)
        levels = [Level((value,), where) for value in values]
    return Axis((axis.path,), (path,), tuple(levels))


def _place(name: str, bases: list[dict[str, Any]], where: str) -> tuple[Path, FieldType]:
    """Path of a name, which must exist in every base, and what stands there."""
    path: Path = ()
    for base in bases:
        path = override_path(name, base, where)
    if path == ("workload", "model") or len(path) < 2:
        raise ConfigError(where, "cannot be an axis; list models and systems at the top", name)
    place = FieldType(RunSpec).below(path)
    assert place is not None
    return path, place


def _value(value: object, place: FieldType, where: str, units: bool) -> Any:
    """Value in base units; Python may give integers where a file needs a unit."""
    if value is None and not place.is_optional:
        raise ConfigError(where, "must have a value; null is for optional keys")
    if not units and isinstance(value, (int, float)):
        return value
    converted, problems = with_units_converted(value, place)
    if problems:
        raise ConfigError(where, *problems[0].message)
    return converted


def _spread(
    spread: RangeSpec, place: FieldType, where: str, *, is_log: bool, units: bool
) -> list[Any]:
    """Values of a range; all of them different."""
    if place.annotation not in (int, float, Fraction):
        raise ConfigError(where, "a range needs a key that holds a number")
    ends = [_number(getattr(spread, key), place, where, key, units) for key in ("start", "stop")]
    step = Fraction(1 if place.annotation is int else 0)
    if spread.multiple_of is not None:
        step = _number(spread.multiple_of, place, where, "multiple_of", units)
    if is_log and min(ends) <= 0:
        raise ConfigError(where, "a log range needs positive ends", str(min(ends)))
    start, stop = ends
    raw = [
        _between(start, stop, Fraction(i, spread.steps - 1), is_log) for i in range(spread.steps)
    ]
    rounded = [round(value / step) * step if step else value for value in raw]
    if len(set(rounded)) < len(rounded):
        rule = "has equal values after rounding"
        raise ConfigError(where, rule, spread.steps, "use fewer steps or a finer multiple_of")
    if place.annotation is float:
        return [float(value) for value in rounded]
    return [value.numerator if value.denominator == 1 else str(value) for value in rounded]


def _number(value: object, place: FieldType, where: str, key: str, units: bool) -> Fraction:
    """One end of a range, exactly."""
    converted = _value(value, place, f"{where}.{key}", units)
    is_text = isinstance(converted, str) and place.dimension is None
    if isinstance(converted, (bool, dict, list, type(None))) or is_text:
        raise ConfigError(f"{where}.{key}", "must be a number", value)
    return Fraction(converted)


def _between(start: Fraction, stop: Fraction, share: Fraction, is_log: bool) -> Fraction:
    """Value at a share of the way; the ends are exact."""
    if share in (0, 1):
        return stop if share else start
    if not is_log:
        return start + (stop - start) * share
    return Fraction(float(start) * float(stop / start) ** float(share)).limit_denominator(10**6)
