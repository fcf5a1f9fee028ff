"""YAML files as plain data plus the file and line of every key.

The reader accepts data only: no tags, no merge keys, no duplicate keys, one document, UTF-8, at
most 1 MiB. Anchors and aliases are allowed as long as they do not contain themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

Path = tuple[str | int, ...]

MAX_FILE_BYTES = 2**20
_MAX_NODES = 100_000  # what a few nested aliases can blow a small file up to
_MAX_DEPTH = 64
_FOLD = "\a"  # ruamel's mark of a fold in a folded text; YAML itself has no such character
_TAG = "tag:yaml.org,2002:"
_DATA_TAGS = {"str", "int", "float", "bool", "null", "timestamp", "map", "seq"}


@dataclass(frozen=True)
class Mark:
    """Where a key stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass
class Document:
    """Nested dictionaries, lists and scalars, and a `Mark` for every path in them."""

    data: dict[str, Any]
    marks: dict[Path, Mark] = field(default_factory=dict)

    def where(self, path: Path) -> str:
        """File, line and dotted path; the line is that of the nearest key that is written."""
        marks = (self.marks.get(path[:end]) for end in range(len(path), -1, -1))
        mark = next((str(mark) for mark in marks if mark is not None), "")
        return ": ".join(part for part in (mark, dotted(path)) if part)

    def line(self, path: Path) -> int:
        """Line of the nearest key that is written, for ordering problems."""
        marks = (self.marks.get(path[:end]) for end in range(len(path), -1, -1))
        return next((mark.line for mark in marks if mark is not None), 0)

    def get(self, path: Path) -> object:
        """Raw value at a path; None where there is none."""
        return value_at(self.data, path)

    def take(self, key: str) -> object:
        """Remove a top-level key and return its value, or None."""
        return self.data.pop(key, None)

    def graft(self, key: str, other: Document) -> None:
        """Put another document below a top-level key."""
        self.data[key] = other.data
        self.marks |= {(key, *path): mark for path, mark in other.marks.items() if path}

    def part(self, key: str) -> Document:
        """The document below a top-level key that holds a mapping."""
        marks = {path[1:]: mark for path, mark in self.marks.items() if path[:1] == (key,)}
        return Document(self.data[key], marks)


def dotted(path: Path) -> str:
    """A path as people write it."""
    return ".".join(map(str, path))


def value_at(data: object, path: Path) -> Any:
    """Value at a path of nested dictionaries and lists; None where there is none."""
    for name in path:
        if isinstance(data, dict):
            data = data.get(name)
        elif isinstance(data, list) and isinstance(name, int) and name < len(data):
            data = data[name]
        else:
            return None
    return data


def leaves(data: object, path: Path = ()) -> Iterator[Path]:
    """Paths of all single values in nested dictionaries and lists."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    else:
        yield path


def read_document(path: FilePath) -> Document:
    """Read a YAML file whose top level is a mapping.

    Parameters
    ----------
    path : Path
        A regular file, UTF-8, at most 1 MiB.

    Returns
    -------
    Document
        Plain data with the line of every key.

    Raises
    ------
    ConfigError
        If the file cannot be read, is empty, is not one YAML mapping, or has tags, merge keys,
        duplicate keys or aliases that contain themselves.
    """
    document = parse_document(_read_text(path), str(path))
    data: object = document.data
    if not isinstance(data, dict):
        rule = "must be a mapping of keys to values"
        raise ConfigError(f"{path}:1", rule, type(data).__name__)
    return document


def parse_document(text: str, name: str) -> Document:
    """Like `read_document` for text; the top level may be any value.

    Parameters
    ----------
    text : str
        One YAML document.
    name : str
        What to call it in messages.
    """
    from ruamel.yaml import YAML  # slow to import, needed only to load files
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    _check_nesting(text, name)
    try:
        node = YAML(typ="rt", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ConfigError(where, f"not valid YAML: {error.problem or error.context}") from None
    except YAMLError as error:
        raise ConfigError(name, f"not valid YAML: {str(error).splitlines()[0]}") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(name, f"not valid YAML: {type(error).__name__}") from None
    if node is None:
        raise ConfigError(name, "is empty")
    return _Builder(name).document(node)


def _check_nesting(text: str, name: str) -> None:
    """Refuse what a parser would take long to refuse: brackets or dashes many levels deep.

    Counts characters, also those of texts and comments, which have no such runs of them.
    """
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        dashes = len(line) - len(line.lstrip("-? \t"))
        if line[:dashes].count("- ") + line[:dashes].count("? ") > _MAX_DEPTH:
            depth = _MAX_DEPTH + 1
        for character in line:
            if character in "[{":
                depth += 1
            elif character in "]}":
                depth = max(depth - 1, 0)
            if depth > _MAX_DEPTH:
                raise ConfigError(f"{name}:{number}", f"is nested deeper than {_MAX_DEPTH} levels")


def _read_text(path: FilePath) -> str:
    """Text of a regular file of acceptable size."""
    try:
        if path.is_dir():
            raise ConfigError(str(path), "is a directory; a YAML file is needed")
        if not path.exists():
            hint = nearest(path.name, _yaml_names(path.parent))
            raise ConfigError(str(path), "no such file", hint=hint)
        if not path.is_file():
            raise ConfigError(str(path), "is not a regular file")
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise ConfigError(str(path), f"exceeds {MAX_FILE_BYTES} bytes", size_bytes)
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        rule = f"is not UTF-8 text: byte {error.start} cannot be decoded"
        raise ConfigError(str(path), rule, error.object[error.start]) from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(str(path), f"cannot be read: {reason}") from None


def _yaml_names(folder: FilePath) -> list[str]:
    """Names of the YAML files in a folder, for a hint."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.glob("*.y*ml"))[:20]


class _Builder:
    """Turns ruamel's node tree into plain data and marks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._marks: dict[Path, Mark] = {}
        self._active: set[int] = set()
        self._nodes = 0

    def document(self, root: Node) -> Document:
        """Document of a node tree."""
        self._marks[()] = self._mark(root)
        data = self._build(root, ())
        return Document(data, self._marks)

    def _mark(self, node: Node) -> Mark:
        return Mark(self._name, node.start_mark.line + 1)

    def _refuse(self, node: Node, path: Path, rule: str, value: object = None) -> ConfigError:
        where = ": ".join(part for part in (str(self._mark(node)), dotted(path)) if part)
        return ConfigError(where, rule, value)

    def _build(self, node: Node, path: Path) -> Any:
        self._nodes += 1
        if self._nodes > _MAX_NODES or len(path) > _MAX_DEPTH:
            raise self._refuse(node, path[:3], "is too large or nested too deeply")
        if id(node) in self._active:
            raise self._refuse(node, path, "an alias must not contain itself")
        tag = str(node.tag)
        if not tag.startswith(_TAG) or tag.removeprefix(_TAG) not in _DATA_TAGS:
            raise self._refuse(node, path, "YAML tags are not allowed", tag.replace(_TAG, "!!"))
        self._active.add(id(node))
        try:
            return self._value(node, path)
        finally:
            self._active.remove(id(node))

    def _value(self, node: Node, path: Path) -> Any:
        from ruamel.yaml.nodes import MappingNode, ScalarNode  # with its parent, see above

        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        return [self._child(item, (*path, i), item) for i, item in enumerate(node.value)]

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if str(key_node.tag) == _TAG + "merge":
                rule = "merge keys are not supported; use extends, or an alias for a whole block"
                raise self._refuse(key_node, path, rule, "<<")
            if not isinstance(key, str) or not key:
                raise self._refuse(key_node, path, "a key must be a word")
            if key in data:
                rule = f"duplicate key, first on line {self._marks[(*path, key)].line}"
                raise self._refuse(key_node, (*path, key), rule, key)
            data[key] = self._child(value_node, (*path, key), key_node)
        return data

    def _child(self, node: Node, path: Path, marked: Node) -> Any:
        self._marks[path] = self._mark(marked)
        return self._build(node, path)

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        text, kind = node.value, str(node.tag).removeprefix(_TAG)
        if node.style == ">":
            text = text.replace(_FOLD, "")
        if kind == "null":
            return None
        if kind == "bool":
            return bool(text.lower() == "true")
        try:
            return _number(text, kind) if kind in ("int", "float") else text
        except ValueError:
            raise self._refuse(node, path, "is not a finite number", text) from None


def _number(text: str, kind: str) -> int | float:
    """Value of a YAML 1.2 number; ValueError for infinities, NaN and thousands of digits."""
    digits = text.replace("_", "")
    if kind == "int":
        has_prefix = digits.lstrip("+-").lower().startswith(("0x", "0o", "0b"))
        return int(digits, 0 if has_prefix else 10)
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError
    return value
