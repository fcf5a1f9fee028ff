"""Exceptions of npusim; every one carries positional fields so that SimPy can rebuild it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NpusimError(Exception):
    """Something npusim refuses, with the place, the rule that failed, the value and a fix.

    Parameters
    ----------
    where : str
        File and line, field path, operator or component.
    rule : str
        What must hold, as a sentence.
    value : object, optional
        The offending value.
    hint : str, optional
        The nearest valid name or another fix.
    """

    def __init__(
        self, where: str, rule: str, value: object = None, hint: str | None = None
    ) -> None:
        super().__init__(where, rule, value, hint)
        self.where = where
        self.rule = rule
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.rule}"
        if self.value is not None:
            text += f" (got {self.value!r})"
        if self.hint:
            text += f"; {self.hint}"
        return text


class ConfigError(NpusimError):
    """A system, override or simulation setting is wrong."""


class WorkloadError(NpusimError):
    """A model, trace or run length is wrong."""


class MappingError(NpusimError):
    """The compiler cannot map an operator onto the device."""


class ResultError(NpusimError):
    """A stored result cannot be read or written."""


class SimulationError(NpusimError):
    """A simulation broke one of its own invariants."""


class ProtocolError(SimulationError):
    """A program or component broke the command protocol."""


class HazardError(SimulationError):
    """A run used data before it was there, or lost a barrier."""


class DeadlockError(SimulationError):
    """Nothing can move any more; `value` lists who waits for whom."""


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Hint naming the valid name nearest to `name`, or the whole list when none is near."""
    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid: {', '.join(names)}" if names else None
