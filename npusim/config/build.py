"""From plain data to validated models: units first, then pydantic, then one clear message."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from npusim.config.document import Path
from npusim.config.fields import FieldType
from npusim.config.problems import Problem, first_problem, problem_of
from npusim.config.spec import Spec
from npusim.units import parse_quantity

if TYPE_CHECKING:
    pass

Model = TypeVar("Model", bound=Spec)


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
        found = [problem_of(details, model, shown) for details in error.errors(include_url=False)]
        problems = [*problems, *(problem for problem in found if problem.path not in blamed)]
        raise first_problem(problems, locate) from None
    if problems:
        raise first_problem(problems, locate)
    return built
