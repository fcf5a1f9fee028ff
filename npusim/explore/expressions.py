"""Expressions over configuration values: constraints and derived columns of a sweep.

A small part of Python's expression syntax, walked as a tree and never handed to an interpreter:
numbers, texts, ``true``/``false`` as in Python, dotted paths (``system.devices["a-b"].cores`` for
names with dashes), ``+ - * / // %``, comparisons, ``and or not``, ``x if c else y`` and a few
functions. There is no power, no attribute of anything but the configuration, no text arithmetic.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError, nearest
from npusim.units import dimension_of_key, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Path = tuple[str, ...]
Number = int | float | Fraction

MAX_CHARS = 1000
MAX_NODES = 200

_ARITHMETIC: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }
)
_ORDER: Mapping[type[ast.AST], Callable[[Any, Any], bool]] = MappingProxyType(
    {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
)
_EQUALITY: Mapping[type[ast.AST], Callable[[Any, Any], bool]] = MappingProxyType(
    {ast.Eq: operator.eq, ast.NotEq: operator.ne}
)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"min": min, "max": max, "abs": abs, "ceil": math.ceil, "floor": math.floor, "log2": math.log2}
)
#: functions that read a quantity with its unit
_QUANTITIES = ("bytes", "bits", "hz", "ps", "ns", "bytes_per_s", "bytes_per_cycle", "cycles")


@dataclass(frozen=True)
class Expression:
    """A checked expression.

    Attributes
    ----------
    text, where : str
        As written, and its place for messages.
    root : ast.expr
        Tree of allowed nodes only.
    """

    text: str
    where: str
    root: ast.expr

    def paths(self) -> Iterator[Path]:
        """Every configuration value that the expression reads."""
        yield from _paths(self.root)

    def value(self, lookup: Callable[[Path], object]) -> Any:
        """Value of the expression; ConfigError where it has none.

        Parameters
        ----------
        lookup : callable
            Value of a dotted path, a number, text, boolean or None.
        """
        try:
            return _Evaluation(self, lookup).of(self.root)
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise ConfigError(self.where, f"has no value: {error}", self.text) from None

    def truth(self, lookup: Callable[[Path], object]) -> bool:
        """Value of a constraint, which must be true or false."""
        found = self.value(lookup)
        if not isinstance(found, bool):
            raise ConfigError(self.where, "a constraint must be true or false", found)
        return found

    def number(self, lookup: Callable[[Path], object]) -> int | float:
        """Value of a derived column, which must be a finite number."""
        found = self.value(lookup)
        if not _is_number(found):
            raise ConfigError(self.where, "must be a number", found)
        if isinstance(found, Fraction):
            found = found.numerator if found.denominator == 1 else float(found)
        if not math.isfinite(found) or abs(found) >= 2**63:
            raise ConfigError(self.where, "must be a finite number below 2^63", self.text)
        return found  # type: ignore[no-any-return]  # a number, as checked


def parse_expression(text: str, where: str) -> Expression:
    """Read an expression and refuse everything that is not on the list.

    Raises
    ------
    ConfigError
        With the place, the rule and the offending part.
    """
    if len(text) > MAX_CHARS:
        raise ConfigError(where, f"an expression has at most {MAX_CHARS} characters", len(text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes, which are no paths anyway
            root = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise ConfigError(where, f"is not an expression: {reason}", text[:80]) from None
    if sum(1 for _ in ast.walk(root)) > MAX_NODES:
        raise ConfigError(where, f"an expression has at most {MAX_NODES} parts", text[:80])
    _check(root, where)
    return Expression(text, where, root)


def _check(node: ast.expr, where: str) -> None:
    """Refuse a node or a part of it that is not on the list."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        if _path(node) is None:
            raise _refusal(node, where, 'a path is names joined by dots or ["name"]')
        return
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (int, float, str)):
            raise _refusal(node, where, "only numbers, texts, True and False are values")
        if isinstance(node.value, float) and not math.isfinite(node.value):
            raise _refusal(node, where, "must be a finite number")
        return
    for part in _parts(node, where):
        _check(part, where)


def _parts(node: ast.expr, where: str) -> list[ast.expr]:
    """Operands of an allowed operation."""
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.IfExp):
        return [node.test, node.body, node.orelse]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.UAdd)):
        return [node.operand]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return [node.left, node.right]
    if isinstance(node, ast.Compare) and all(type(o) in {*_ORDER, *_EQUALITY} for o in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call):
        return _arguments(node, where)
    raise _refusal(node, where, "this operation is not allowed")


def _arguments(node: ast.Call, where: str) -> list[ast.expr]:
    """Arguments of a call of a known function."""
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in _FUNCTIONS and name not in _QUANTITIES:
        hint = nearest(name, {*_FUNCTIONS, *_QUANTITIES})
        raise ConfigError(where, "no function has this name", name[:80], hint)
    least = 2 if name in ("min", "max") else 1
    is_plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
    if not is_plain or len(node.args) < least or (least == 1 and len(node.args) > 1):
        raise _refusal(node, where, f"{name} takes {'one value' if least == 1 else 'two or more'}")
    if name in _QUANTITIES:
        argument = node.args[0]
        text = argument.value if isinstance(argument, ast.Constant) else None
        dimension = dimension_of_key(f"x_{name}")
        assert dimension is not None
        if not isinstance(text, str):
            raise _refusal(node, where, f"{name} takes a text such as {dimension.example!r}")
        try:
            parse_quantity(text, dimension)
        except ValueError as error:
            raise ConfigError(where, str(error), text) from None
    return node.args


def _refusal(node: ast.expr, where: str, rule: str) -> ConfigError:
    return ConfigError(where, rule, ast.unparse(node)[:80])


def _path(node: ast.expr) -> Path | None:
    """Path that a name with attributes and text subscripts spells; None if it is none."""
    names: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if not isinstance(node.slice.value, str):
                return None
            names.append(node.slice.value)
            node = node.value
        elif isinstance(node, ast.Name):
            return (node.id, *reversed(names))
        else:
            return None


def _paths(node: ast.AST) -> Iterator[Path]:
    path = _path(node) if isinstance(node, ast.expr) else None
    if path is not None:
        yield path
        return
    children = node.args if isinstance(node, ast.Call) else list(ast.iter_child_nodes(node))
    for child in children:
        yield from _paths(child)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Fraction)) and not isinstance(value, bool)


class _Evaluation:
    """One walk over the tree."""

    def __init__(self, expression: Expression, lookup: Callable[[Path], object]) -> None:
        self._expression = expression
        self._lookup = lookup

    def of(self, node: ast.expr) -> Any:
        """Value of a node."""
        path = _path(node)
        if path is not None:
            return self._lookup(path)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)
            return wanted if any(self._truth(v) is wanted for v in node.values) else not wanted
        if isinstance(node, ast.IfExp):
            return self.of(node.body if self._truth(node.test) else node.orelse)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return _ARITHMETIC[type(node.op)](self._number(node.left), self._number(node.right))
        if isinstance(node, ast.Compare):
            return self._compared(node)
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return self._called(node.func.id, node.args)

    def _unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._truth(node.operand)
        value = self._number(node.operand)
        return -value if isinstance(node.op, ast.USub) else value

    def _compared(self, node: ast.Compare) -> bool:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if type(op) in _ORDER:
                holds = _ORDER[type(op)](self._number(left), self._number(right))
            else:
                holds = _EQUALITY[type(op)](self.of(left), self.of(right))
            if not holds:
                return False
            left = right
        return True

    def _called(self, name: str, arguments: list[ast.expr]) -> Any:
        if name in _QUANTITIES:
            dimension = dimension_of_key(f"x_{name}")
            text = arguments[0]
            assert dimension is not None and isinstance(text, ast.Constant)
            return parse_quantity(str(text.value), dimension)
        return _FUNCTIONS[name](*(self._number(argument) for argument in arguments))

    def _number(self, node: ast.expr) -> Any:
        return self._typed(node, _is_number, "must be a number")

    def _truth(self, node: ast.expr) -> bool:
        found = self._typed(node, lambda value: isinstance(value, bool), "must be true or false")
        return bool(found)

    def _typed(self, node: ast.expr, fits: Callable[[object], bool], rule: str) -> Any:
        value = self.of(node)
        if not fits(value):
            text = ast.unparse(node)[:80]
            raise ConfigError(self._expression.where, f"{text} {rule} here", str(value)[:80])
        return value
