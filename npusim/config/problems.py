"""What pydantic finds wrong with data, as one clear message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import TYPE_CHECKING

from npusim.config.document import Path, dotted, value_at
from npusim.config.fields import FieldType
from npusim.config.rules import RuleError
from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

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


def config_error(error: ValidationError, model: type[BaseModel], data: object) -> ConfigError:
    """What pydantic found wrong with Python values, as one message."""
    problems = [problem_of(details, model, data) for details in error.errors(include_url=False)]
    return first_problem(problems, lambda path: dotted(path) or model.__name__)


def first_problem(problems: Sequence[Problem], locate: Callable[[Path], str]) -> ConfigError:
    """First problem as an exception, with the count of the others."""
    first = min(problems, key=lambda problem: problem.rank)
    more = len(problems) - 1
    rest = f"and {more} more problem{'s' if more > 1 else ''}" if more else None
    hint = "; ".join(part for part in (first.hint, rest) if part)
    return ConfigError(locate(first.path), first.rule, first.value, hint or None)


def problem_of(details: ErrorDetails, model: type[BaseModel], data: object) -> Problem:
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
