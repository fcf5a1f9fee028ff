"""From plain data to validated models: units first, then pydantic, then one clear message."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from npusim.config.document import Path, value_at
from npusim.config.fields import FieldType
from npusim.config.spec import RuleError, Spec
from npusim.errors import ConfigError, nearest
from npusim.units import parse_quantity

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=Spec)

# Which of several problems is told first: a misspelt key explains a missing one.
_UNKNOWN, _VALUE, _MISSING = range(3)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the data."""

    path: Path
    rule: str
    value: object = None
    hint: str | None = None
    rank: int = _VALUE

    @property
    def message(self) -> tuple[str, object, str | None]:
        """Rule, value and hint, as `ConfigError` takes them."""
        return self.rule, self.value, self.hint


def with_units_converted(data: object, place: FieldType) -> tuple[Any, list[Problem]]:
    """Replace every quantity by its number in base units.

    Parameters
    ----------
    data : object
        Nested dictionaries, lists and scalars of a YAML file.
    place : FieldType
        What the data should become.

    Returns
    -------
    tuple[Any, list[Problem]]
        The data with ``int`` (or ``"n/d"`` text for a `Fraction`) in place of quantities, and
        what was wrong; wrong values stay as they are. Unknown keys are left to pydantic.
    """
    problems: list[Problem] = []
    return _converted(data, place, (), problems), problems


def _converted(data: object, place: FieldType | None, path: Path, out: list[Problem]) -> Any:
    """Recursive part of `with_units_converted`."""
    if place is None or data is None:
        return data
    if isinstance(data, dict):
        return {k: _converted(v, place.child(k), (*path, k), out) for k, v in data.items()}
    if isinstance(data, list):
        return [_converted(v, place.child(i), (*path, i), out) for i, v in enumerate(data)]
    if place.dimension is None:
        return data
    try:
        return _quantity(data, place)
    except ValueError as error:
        out.append(Problem(path, str(error), data))
        return data


def _quantity(data: object, place: FieldType) -> int | float | str:
    """Number in base units of one dimensioned leaf; ValueError with the rule it breaks."""
    dimension = place.dimension
    assert dimension is not None
    example = f"for example {dimension.example!r}"
    if isinstance(data, bool) or not isinstance(data, (str, int, float)):
        raise ValueError(f"must be a quantity with a unit, {example}")
    if not isinstance(data, str):
        raise ValueError(f"needs a unit, {example}")
    value = parse_quantity(data, dimension)
    if place.annotation is float:
        return float(value)
    if isinstance(value, int):
        return value
    if place.annotation is int:
        raise ValueError(f"must be a whole number of {dimension.base}")
    return str(value)


def validated(
    model: type[Model],
    data: object,
    locate: Callable[[Path], str],
    problems: Sequence[Problem] = (),
    raw: object = None,
) -> Model:
    """Validate data in base units.

    Parameters
    ----------
    model : type
        Model to build.
    data : object
        Nested dictionaries, lists and scalars in base units.
    locate : Callable
        Text of the place of a path for messages.
    problems : Sequence[Problem], optional
        Problems found before, told together with pydantic's.
    raw : object, optional
        The data as the user wrote it, for messages; default `data`.

    Returns
    -------
    Spec
        The model.

    Raises
    ------
    ConfigError
        Place, rule, value and hint of the first problem, and the number of the others.
    """
    try:
        # JSON mode: strict, yet enumerations from text and tuples from lists.
        built = model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        shown = data if raw is None else raw
        blamed = {problem.path for problem in problems}
        found = [_problem(details, model, shown) for details in error.errors(include_url=False)]
        problems = [*problems, *(problem for problem in found if problem.path not in blamed)]
        raise _error(problems, locate) from None
    if problems:
        raise _error(problems, locate)
    return built


def _error(problems: Sequence[Problem], locate: Callable[[Path], str]) -> ConfigError:
    """First problem as an exception, with the count of the others."""
    first = min(problems, key=lambda problem: problem.rank)
    more = len(problems) - 1
    rest = f"and {more} more problem{'s' if more > 1 else ''}" if more else None
    hint = "; ".join(part for part in (first.hint, rest) if part)
    return ConfigError(locate(first.path), first.rule, first.value, hint or None)


def _problem(details: ErrorDetails, model: type[Spec], data: object) -> Problem:
    """Problem that one error of pydantic tells of."""
    path: Path = tuple(details["loc"])
    cause = (details.get("ctx") or {}).get("error")
    if isinstance(cause, RuleError):
        return Problem((*path, *cause.path.split(".")), cause.rule, cause.value, cause.hint)
    if details["type"] == "extra_forbidden":
        return _wrong_key(path, FieldType(model))
    if path[-1:] == ("[key]",):
        return _wrong_key(path[:-1], FieldType(model))
    place = FieldType(model).below(path)
    if details["type"] == "missing":
        dimension = place.dimension if place else None
        hint = f"for example {dimension.example!r}" if dimension else None
        return Problem(path, "is required", None, hint, _MISSING)
    value = value_at(data, path)
    shown = None if isinstance(value, (dict, list)) else value
    if details["type"] == "enum" and place is not None and place.choices is not None:
        choices = list(place.choices)
        close = get_close_matches(str(value), choices, n=1, cutoff=0.5)
        hint = f"did you mean {str(close[0])!r}?" if close else None
        return Problem(path, f"must be one of {', '.join(choices)}", str(value), hint)
    return Problem(path, _rule(details, place), shown)


def _wrong_key(path: Path, root: FieldType) -> Problem:
    """Problem of a key that the model or enumeration does not have."""
    parent = root.below(path[:-1])
    names = parent.names if parent else ()
    is_chosen = parent is not None and parent.is_mapping and not names
    rule = "a name needs lower-case letters, digits and dashes" if is_chosen else "unknown key"
    return Problem(path, rule, path[-1], nearest(str(path[-1]), names), _UNKNOWN)


_RULES = {
    "json_invalid": "text must be valid Unicode",
    "int_type": "must be a whole number without a unit",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_type": "must be a number without a unit",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "model_type": "must be a block of keys",
    "model_attributes_type": "must be a block of keys",
    "dict_type": "must be a block of keys",
    "tuple_type": "must be a list",
    "too_short": "must have at least one entry",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_pattern_mismatch": "must be lower-case letters, digits and dashes",
}


def _rule(details: ErrorDetails, place: FieldType | None) -> str:
    """Sentence for an error type of pydantic."""
    dimension = place.dimension if place else None
    template = _RULES.get(details["type"])
    if dimension is not None and details["type"] in ("int_type", "float_type"):
        return f"must be a quantity with a unit, for example {dimension.example!r}"
    if template is None:
        return str(details["msg"]).lower().removeprefix("value error, ")
    context = {
        # pydantic hands limits of fractions as Fraction, of others as numbers
        name: value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value
        for name, value in (details.get("ctx") or {}).items()
    }
    rule = template.format(**context)
    return f"{rule} {dimension.base}" if dimension and "than" in template else rule
