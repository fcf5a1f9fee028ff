"""JSON schema and a table of every key, for editors and for the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from npusim.config.compiler import CompilerConfig
from npusim.config.fields import FieldType
from npusim.config.run_spec import RunSpec, SimulationConfig, WorkloadConfig
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError, nearest
from npusim.units import Dimension, dimension_of_key, format_quantity

Part = Literal["run", "system", "workload", "compiler", "simulation"]

_MODELS: dict[str, type[Spec]] = {
    "run": RunSpec,
    "system": SystemConfig,
    "workload": WorkloadConfig,
    "compiler": CompilerConfig,
    "simulation": SimulationConfig,
}


@dataclass(frozen=True)
class FieldRow:
    """One key of a configuration file.

    Attributes
    ----------
    path : str
        Dotted path; ``*`` stands for a name of the user's.
    type : str
        What the value is, with the choices of an enumeration.
    unit : str
        Base unit, empty for plain numbers and texts.
    default : str
        Default value, "required", or "optional" for keys that may be left out.
    doc : str
        What the key means.
    """

    path: str
    type: str
    unit: str
    default: str
    doc: str


def json_schema(part: str) -> dict[str, Any]:
    """JSON schema of the YAML form of a part.

    Parameters
    ----------
    part : {"run", "system", "workload", "compiler", "simulation"}
        What to describe.

    Returns
    -------
    dict
        Draft 2020-12 schema; quantities are text with a unit pattern.

    Raises
    ------
    ConfigError
        If there is no such part.
    """
    schema = _model(part).model_json_schema()
    for definition in [schema, *schema.get("$defs", {}).values()]:
        for key, value in definition.get("properties", {}).items():
            _quantities_to_text(value, dimension_of_key(key))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return _with_extends(schema) if part == "system" else schema


def describe_fields(part: str) -> list[FieldRow]:
    """Every key of a part, in file order.

    Parameters
    ----------
    part : {"run", "system", "workload", "compiler", "simulation"}
        What to describe.

    Returns
    -------
    list[FieldRow]
        One row per value; blocks show through their keys.

    Raises
    ------
    ConfigError
        If there is no such part.
    """
    return list(_rows(FieldType(_model(part)), ()))


def _model(part: str) -> type[Spec]:
    """Model of a part's name."""
    if part not in _MODELS:
        rule = f"must be one of {', '.join(get_args(Part))}"
        raise ConfigError("schema", rule, part, nearest(part, _MODELS))
    return _MODELS[part]


def _quantities_to_text(schema: dict[str, Any], dimension: Dimension | None) -> None:
    """Replace numbers by text with a unit, in place, also in unions and mappings."""
    if dimension is None:
        return
    for option in schema.get("anyOf", []):
        _quantities_to_text(option, dimension)
    entries = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    for entry in entries:
        if isinstance(entry, dict):
            _quantities_to_text(entry, dimension)
    if schema.get("type") in ("integer", "number") or schema.get("format") == "fraction":
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            schema.pop(name, None)
        schema |= {
            "type": "string",
            "pattern": _unit_pattern(dimension),
            "examples": [dimension.example],
        }


def _unit_pattern(dimension: Dimension) -> str:
    """Regular expression of a quantity."""
    symbols = sorted(
        [*dimension.scales, *dimension.aliases], key=lambda symbol: (-len(symbol), symbol)
    )
    units = "|".join(re.escape(symbol) for symbol in symbols)
    return rf"^\s*\+?(\d+(\.\d+)?([eE][+-]?\d+)?|\d+/\d+)\s*({units})\s*$"


def _with_extends(schema: dict[str, Any]) -> dict[str, Any]:
    """The system schema, relaxed for files that start from another system."""
    definitions = schema.pop("$defs", {})
    dialect = schema.pop("$schema")
    base = {"type": "string", "description": "Name or path of the system to start from."}
    return {
        "$schema": dialect,
        "$defs": {**definitions, "SystemConfig": schema},
        "if": {"type": "object", "required": ["extends"]},
        "then": {"properties": {"extends": base}, "required": ["name"]},
        "else": {"$ref": "#/$defs/SystemConfig"},
    }


def _rows(place: FieldType, path: tuple[str, ...]) -> Iterator[FieldRow]:
    """Rows of everything below a place."""
    if place.model is not None:
        for name in place.names:
            child = place.child(name)
            assert child is not None
            yield from _rows(child, (*path, name))
    elif place.is_mapping and place.entry.model is not None:
        yield from _rows(place.entry, (*path, "*"))
    else:
        yield _row(place, path)


def _row(place: FieldType, path: tuple[str, ...]) -> FieldRow:
    """Row of one value."""
    info = place.field
    doc = (info.description if info else None) or ""
    unit = place.entry.dimension if place.is_mapping else place.dimension
    return FieldRow(
        path=".".join(path),
        type=_type_text(place),
        unit=unit.base if unit else "",
        default=_default_text(place),
        doc=" ".join(doc.split()),
    )


_TYPE_TEXTS = {
    int: "integer",
    float: "number",
    Fraction: "number",
    bool: "true or false",
    str: "text",
}


def _type_text(place: FieldType) -> str:
    """Type in words."""
    if place.is_mapping:
        return f"{_type_text(place.key_type)}: {_type_text(place.entry)}"
    if place.choices is not None:
        return " | ".join(place.choices)
    if place.is_leaf:
        return _TYPE_TEXTS.get(place.annotation, "text")  # type: ignore[call-overload,no-any-return]
    return f"list of {_type_text(place.entry)}"


def _default_text(place: FieldType) -> str:
    """Default as it would be written in a file."""
    info = place.field
    if info is None or info.is_required():
        return "required"
    if info.default is None:
        return "optional"
    if place.dimension is not None:
        return format_quantity(info.default, place.dimension)
    return str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
