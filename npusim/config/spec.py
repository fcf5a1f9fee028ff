"""The base of every configuration model, and the field types they share."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from npusim.config.problems import config_error
from npusim.config.rules import RuleError

#: largest integer a field takes; sums of a few of them still fit the kernels' int64
MAX_INT = 2**60

PositiveInt = Annotated[int, Field(gt=0, le=MAX_INT)]
NonNegativeInt = Annotated[int, Field(ge=0, le=MAX_INT)]
ClockRate = Annotated[int, Field(gt=0, le=10**12)]  # hertz; a cycle lasts at least 1 ps
PositiveFraction = Annotated[Fraction, Field(gt=0)]
NonNegativeFraction = Annotated[Fraction, Field(ge=0)]
ShareFrac = Annotated[float, Field(ge=0.0, le=1.0)]

#: a name that can stand in a file name and, unlike one with dots, in a dotted path
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=64)]

_Key = TypeVar("_Key", bound=str)
_Value = TypeVar("_Value")


def _sorted(mapping: dict[_Key, _Value]) -> dict[_Key, _Value]:
    """The same mapping in key order: the order of a file must not change a run."""
    return dict(sorted(mapping.items()))


#: marks a mapping whose order in the file has no meaning
Ordered = AfterValidator(_sorted)


def require_power_of_two(path: str, value: int) -> None:
    """Refuse a size that an address map cannot decode with bit fields."""
    if value & (value - 1):
        raise RuleError(path, "must be a power of two", value)


def require_any(path: str, names: Collection[str], wanted: tuple[str, ...]) -> None:
    """Refuse a collection that has none of the names `wanted`."""
    if not any(name in names for name in wanted):
        raise RuleError(path, f"must have {' or '.join(wanted)}", ", ".join(names))


class Spec(BaseModel):
    """Frozen and strict; unknown keys are refused. The text below a field documents it."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True
    )

    def __init__(self, **data: Any) -> None:
        """Validate; what is wrong is a `ConfigError` with key, rule, value and nearest name."""
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise config_error(error, type(self), data) from None

    # nested models and `model_validate` do not come by here
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]
