"""Dotted overrides: ``system.devices.npu.core.dma.queue_depth=8``.

A path starts at ``system``, ``workload``, ``compiler`` or ``simulation`` and names a key that
exists; the value is written as in YAML. The whole result is validated again, so that rules between
fields hold. The entry in ``sources`` of an overridden number becomes "override".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from npusim.config.build import validated, with_units_converted
from npusim.config.document import Path, dotted, leaves, parse_document
from npusim.config.fields import FieldType
from npusim.config.run_spec import RunSpec, WorkloadConfig
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError, nearest

Model = TypeVar("Model", bound=Spec)

OVERRIDE_SOURCE = "override"
_PROVENANCE = ("sources", "calibration")


def apply_overrides(run_spec: RunSpec, overrides: Sequence[str]) -> RunSpec:
    """Change single values of a run.

    Parameters
    ----------
    run_spec : RunSpec
        Run to start from; not changed.
    overrides : Sequence[str]
        Texts ``path=value``; later ones win. ``null`` unsets an optional key; a block is written
        in braces, ``...core.convert={elems_per_cycle: 64, fixed_cycles: 2 cycles}``.

    Returns
    -------
    RunSpec
        Validated run.

    Raises
    ------
    ConfigError
        If a path does not exist (the hint gives the nearest one), a value is malformed or lacks
        its unit, or the result breaks a rule.
    """
    return _applied(run_spec, overrides, ())


def apply_system_overrides(system: SystemConfig, overrides: Sequence[str]) -> SystemConfig:
    """Change single values of a system; like `apply_overrides`, paths start at ``system``."""
    return _applied(system, overrides, ("system",))


def apply_workload_overrides(workload: WorkloadConfig, overrides: Sequence[str]) -> WorkloadConfig:
    """Change single values of a workload; like `apply_overrides`, paths start at ``workload``."""
    return _applied(workload, overrides, ("workload",))


def apply_spec_overrides(spec: Model, overrides: Sequence[str]) -> Model:
    """Change single values of any spec; like `apply_overrides`, paths start at its own keys."""
    return _applied(spec, overrides, ())


def _applied(spec: Model, overrides: Sequence[str], prefix: Path) -> Model:
    """Spec with the overrides; `prefix` is what paths have in front of it."""
    if not overrides:
        return spec
    data = spec.model_dump(mode="json")
    texts: dict[Path, str] = {}
    for text in overrides:
        path, value = _parsed(text, type(spec), data, prefix)
        _mark_source(data, path, prefix)
        _set(data, path, value)
        texts[path] = text

    def locate(path: Path) -> str:
        hits = [text for key, text in texts.items() if path[: len(key)] == key]
        return f"--set {hits[-1]}" if hits else f"--set {overrides[-1]}: {dotted(prefix + path)}"

    return validated(type(spec), data, locate)


def _parsed(text: str, model: type[Spec], data: dict[str, Any], prefix: Path) -> tuple[Path, Any]:
    """Path below the spec and value in base units of one override."""
    where = f"--set {text}"
    name, equals, written = text.partition("=")
    if not equals or not written.strip():
        hint = "an example: system.devices.npu.clock_hz=1.2 GHz"
        raise ConfigError(where, "must be path=value", text, hint)
    path = _existing(name.strip(), data, prefix, where)
    place = FieldType(model).below(path)
    assert place is not None
    value, problems = with_units_converted(_value(written, place, where), place)
    if problems:
        inner = dotted(problems[0].path)
        raise ConfigError(f"{where}: {inner}" if inner else where, *problems[0].message)
    if value is None and not place.is_optional:
        raise ConfigError(where, "must have a value; null is for optional keys", written.strip())
    return path, value


def _value(written: str, place: FieldType, where: str) -> object:
    """Value of an override as YAML reads it; text fields take numbers and true as text."""
    value: object = parse_document(written, where).data
    if place.annotation is str and value is not None and not isinstance(value, (dict, list)):
        return written.strip().strip("'\"")
    return value


def _existing(name: str, data: dict[str, Any], prefix: Path, where: str) -> Path:
    """Path of a dotted name, which must exist in the data (a key that is None counts)."""
    names: Path = tuple(name.split("."))
    if names[: len(prefix)] != prefix or len(names) == len(prefix):
        hint = nearest(str(names[0]), map(str, prefix or data))
        raise ConfigError(where, "must name a key below the start of the path", name, hint)
    path = names[len(prefix) :]
    if path[0] in _PROVENANCE or path[:2] in {("system", key) for key in _PROVENANCE}:
        raise ConfigError(where, "sources and calibration cannot be overridden", name)
    here: Any = data
    for depth, key in enumerate(path):
        if not isinstance(here, dict) or key not in here:
            parent = dotted(prefix + path[:depth])
            state = "is null" if here is None else "has no such key"
            hint = _nearest_path(name, depth, prefix, path, data, here)
            raise ConfigError(where, f"{parent or 'the run'} {state}", key, hint)
        here = here[key]
    return path


def _nearest_path(
    name: str, depth: int, prefix: Path, path: Path, data: dict[str, Any], here: Any
) -> str | None:
    """Hint: a path that ends alike, the same path with its wrong key corrected, or the keys."""
    known = set(_paths(data, prefix))
    alike = sorted(other for other in known if other.endswith(f".{path[-1]}"))
    if alike:
        return f"did you mean {get_close_matches(name, alike, n=1, cutoff=0.0)[0]!r}?"
    if not isinstance(here, dict):
        return None
    start, rest = prefix + path[:depth], path[depth + 1 :]
    for close in get_close_matches(str(path[depth]), map(str, here), n=3, cutoff=0.6):
        for candidate in (dotted((*start, close, *rest)), dotted((*start, close))):
            if candidate in known:
                return f"did you mean {candidate!r}?"
    return nearest(str(path[depth]), map(str, here))


def _paths(data: dict[str, Any], prefix: Path) -> Iterator[str]:
    """All dotted paths, of blocks and of leaves, that an override may name."""
    for leaf in leaves(data):
        if set(_PROVENANCE).isdisjoint(leaf[:2]):
            yield from (dotted(prefix + leaf[:end]) for end in range(1, len(leaf) + 1))


def _set(data: dict[str, Any], path: Path, value: object) -> None:
    """Put a value at an existing path."""
    here: Any = data
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value


def _mark_source(data: dict[str, Any], path: Path, prefix: Path) -> None:
    """Say in `sources` that a number no longer comes from where the file says."""
    whole = (*prefix, *path)
    if whole[0] != "system" or len(whole) == 1:
        return
    sources = (data if prefix else data["system"])["sources"]
    name = dotted(whole[1:])
    for key in sources:
        if key == name or key.startswith(name + "."):
            sources[key] = OVERRIDE_SOURCE


def override_path(name: str, data: dict[str, Any], where: str) -> Path:
    """Path of a dotted name in the data of a run; ConfigError names the nearest one."""
    return _existing(name, data, (), where)


def set_override(data: dict[str, Any], path: Path, value: object) -> None:
    """Put a value in base units at a path of a run's data, and say so in `sources`."""
    _mark_source(data, path, ())
    _set(data, path, value)
