"""Typed reading of a config.json: every complaint names file, key, expected type and value."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from npusim.errors import WorkloadError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: sizes beyond this are typing errors, and would only exhaust memory later
MAX_SIZE = 2**31 - 1

#: a config.json has a few KB; larger files are something else
MAX_FILE_BYTES = 4 * 2**20


class Facts:
    """Keys of one configuration file.

    Parameters
    ----------
    where : str
        File, for messages.
    values : Mapping[str, object]
        Parsed top level.
    """

    def __init__(self, where: str, values: Mapping[str, object]) -> None:
        self.where = where
        self._values = values

    def is_given(self, key: str) -> bool:
        """Whether the key is present and not null."""
        return self._values.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the key is present and null."""
        return key in self._values and self._values[key] is None

    def get(self, key: str) -> object:
        """The value as it is; None if absent."""
        return self._values.get(key)

    def size(
        self, key: str, default: int | None = None, most: int = MAX_SIZE, least: int = 1
    ) -> int:
        """An integer from `least` on; `default` if absent or null, required if that is None."""
        expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
        value = self._value(key, default, expected)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self._refuse(key, f"must be an integer from {least} to {most}", value)
        return value

    def count(self, key: str) -> int:
        """A required integer of at least zero."""
        value = self._value(key, None, "an integer of at least 0")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self._refuse(key, "must be an integer of at least 0", value)
        return value

    def text(self, key: str) -> str:
        """A required text."""
        value = self._value(key, None, "a text")
        if not isinstance(value, str):
            self._refuse(key, "must be a text", value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A boolean; `default` if absent or null."""
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            self._refuse(key, "must be true or false", value)
        return value

    def number(self, key: str, default: float) -> float:
        """A positive number; `default` if absent or null."""
        value = self._value(key, default, "a positive number")
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
            self._refuse(key, "must be a positive number", value)
        return float(value)

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of some texts; `default` if absent or null, required if that is None."""
        value = self._value(key, default, f"one of {', '.join(choices)}")
        if not isinstance(value, str) or value not in choices:
            hint = nearest(value, choices) if isinstance(value, str) else None
            self._refuse(key, f"must be one of {', '.join(choices)}", value, hint)
        return value

    def choices(self, key: str, choices: Sequence[str], length: int) -> tuple[str, ...]:
        """A list of `length` texts out of some."""
        value = self._values.get(key)
        if not isinstance(value, list) or len(value) != length:
            self._refuse(key, f"must be a list with {length} entries", value)
        for entry in value:
            if entry not in choices:
                self._refuse(key, f"entries must be among {', '.join(choices)}", entry)
        return tuple(value)

    def counts(self, key: str) -> tuple[int, ...]:
        """A list of integers of at least zero; empty if absent or null."""
        value = self._values.get(key) or []
        if not isinstance(value, list):
            self._refuse(key, "must be a list of integers", value)
        for entry in value:
            if not isinstance(entry, int) or isinstance(entry, bool) or entry < 0:
                self._refuse(key, "entries must be integers of at least 0", entry)
        return tuple(value)

    def is_text(self, key: str, text: str) -> bool:
        """Whether the key holds this text."""
        return self._values.get(key) == text

    def inner(self, key: str) -> Facts:
        """An object inside this one; empty if absent or null."""
        value = self._values.get(key)
        if value is None:
            return Facts(f"{self.where}: {key}", {})
        if not isinstance(value, dict):
            self._refuse(key, "must be an object", value)
        return Facts(f"{self.where}: {key}", value)

    def _value(self, key: str, default: object, expected: str) -> object:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is not None:
            return default
        state = "is null" if key in self._values else "is missing"
        close = get_close_matches(key, [k for k in self._values if k != key], n=1, cutoff=0.8)
        hint = f"did you mean {close[0]!r}?" if close else None
        raise WorkloadError(self.where, f"{key} {state}; it must be {expected}", None, hint)

    def _refuse(self, key: str, rule: str, value: object, hint: str | None = None) -> NoReturn:
        if value is None:
            raise WorkloadError(self.where, f"{key} is null or missing; it {rule}", None, hint)
        raise WorkloadError(self.where, f"{key} {rule}", _short(value), hint)


def read_facts(path: Path) -> Facts:
    """Parse a config.json.

    Raises
    ------
    WorkloadError
        If the file is missing, a directory, too large, not UTF-8, malformed (with line and column),
        too deeply nested, has NaN or a repeated key, or is not an object.
    """
    return parse_facts(_read_text(path), str(path))


def parse_facts(text: str, where: str) -> Facts:
    """Parse the JSON object of a config.json or of a line; `where` is for messages.

    Raises
    ------
    WorkloadError
        If it is malformed, too deeply nested, has NaN or a repeated key, or is not an object.
    """
    try:
        values = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except json.JSONDecodeError as error:
        rule = f"line {error.lineno} column {error.colno}: not valid JSON: {error.msg}"
        raise WorkloadError(where, rule) from None
    except RecursionError:
        raise WorkloadError(where, "is nested too deeply") from None
    except ValueError as error:
        raise WorkloadError(where, str(error)) from None
    if not isinstance(values, dict):
        raise WorkloadError(where, "must hold one JSON object", type(values).__name__)
    return Facts(where, values)


def _read_text(path: Path) -> str:
    """Text of a regular file of sensible size."""
    where = str(path)
    if path.is_dir():
        raise WorkloadError(where, "is a directory; a config.json file is needed")
    if not path.is_file():
        raise WorkloadError(where, "no such file")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            rule = f"must be at most {MAX_FILE_BYTES} bytes; is this a model configuration?"
            raise WorkloadError(where, rule, path.stat().st_size)
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise WorkloadError(where, f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise WorkloadError(where, f"cannot be read: {error.strerror}") from None
    if not text.strip():
        raise WorkloadError(where, "line 1: the file is empty; a JSON object is needed")
    return text


def _no_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which JSON does not have."""
    raise ValueError(f"numbers must be finite, found {name}")


def _no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse an object that has a key twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} appears twice")
    return values


def _short(value: object) -> object:
    """The value, cut if its text is long."""
    text = repr(value)
    return value if len(text) <= 80 else f"{text[:77]}..."
