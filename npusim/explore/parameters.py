"""The hardware parameters of a system, and one other value of each that is valid."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from npusim.config.build import validated
from npusim.config.check import number_paths
from npusim.config.document import dotted, value_at
from npusim.config.dram_rate import standard_rate_hz
from npusim.config.dram_table import dram_table
from npusim.config.fields import FieldType
from npusim.config.overrides import set_override
from npusim.config.run_spec import RunSpec
from npusim.errors import ConfigError
from npusim.simulation.memories import check_capacity
from npusim.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.units import Dimension

    Number = int | float | Fraction

#: whole numbers up to here count things: they grow by one
SMALL = 32


@dataclass(frozen=True)
class Parameter:
    """One number of a system and another value of it.

    Attributes
    ----------
    path : str
        Dotted path below the run, as ``--set`` takes it.
    base, value : int, float or Fraction
        In base units.
    run : RunSpec or None
        The run with `value`; None where no other value was valid, and then `error` says why.
    """

    path: str
    base: Number
    value: Number
    run: RunSpec | None
    error: str | None = None

    def text(self, value: Number) -> str:
        """A value with its unit."""
        dimension = _dimension(self.path)
        if dimension is None or isinstance(value, float):
            return f"{value:g}" if isinstance(value, float) else str(value)
        return format_quantity(value, dimension, 4)


def parameters(spec: RunSpec, step_frac: float) -> list[Parameter]:
    """Every number of the system with another value.

    Numbers grow by `step_frac`, whole numbers of at most `SMALL` by one; where a rule of the
    configuration refuses that, they double; where it refuses that too, they shrink. The data rate
    of a memory stands for its bandwidth.
    """
    data = spec.model_dump(mode="json")
    return [_changed(data, path, base, step_frac) for path, base in _numbers(spec, data)]


def _numbers(spec: RunSpec, data: dict[str, Any]) -> Iterator[tuple[str, Number]]:
    """Path and value of every number; first the data rates that systems leave to standards."""
    table = dram_table()
    for name, memory in spec.system.memories.items():
        if memory.data_rate_hz is None:
            rate_hz = standard_rate_hz(table["devices"][memory.standard], table["commands"])
            yield f"system.memories.{name}.data_rate_hz", round(rate_hz)
    for path in number_paths(spec.system):
        found = value_at(data, ("system", *path.split(".")))
        value = Fraction(found) if isinstance(found, str) else found
        assert isinstance(value, (int, float, Fraction))
        yield f"system.{path}", value


def _changed(data: dict[str, Any], path: str, base: Number, step_frac: float) -> Parameter:
    error, value = None, base
    for value in _candidates(base, step_frac):
        changed = deepcopy(data)
        written = str(value) if isinstance(value, Fraction) else value
        set_override(changed, tuple(path.split(".")), written)
        try:
            run = validated(RunSpec, changed, dotted)
            check_capacity(run.system)
            return Parameter(path, base, value, run)
        except ConfigError as refusal:
            error = str(refusal)
    return Parameter(path, base, value, None, error)


def _candidates(base: Number, step_frac: float) -> tuple[Number, ...]:
    """A little more, twice as much, a little less, half as much."""
    if isinstance(base, float):
        return base * (1 + step_frac), base * 2, base * max(1 - step_frac, 0.5), base / 2
    if isinstance(base, Fraction) and base.denominator > 1:
        part = Fraction(str(step_frac))
        return base * (1 + part), base * 2, base * max(1 - part, Fraction(1, 2)), base / 2
    whole = int(base)
    step = 1 if whole <= SMALL else max(round(whole * step_frac), 1)
    less = (whole - step, whole // 2) if whole > 1 else ()
    return (whole + step, max(2 * whole, 1), *(value for value in less if value > 0))


def _dimension(path: str) -> Dimension | None:
    place = FieldType(RunSpec).below(tuple(path.split(".")))
    return None if place is None else place.dimension
