"""Arguments of the Python entry points: as objects, names or mappings, or one clear refusal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from npusim.config.loader import load_system
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.workload.workload import Workload

Settings = TypeVar("Settings", bound=Spec)


def check_workload(workload: object) -> None:
    """Refuse what `transformer` did not make."""
    if not isinstance(workload, Workload):
        hint = "make one with npusim.transformer(...)"
        raise ConfigError("workload", "must be a Workload", type(workload).__name__, hint)


def system_of(system: object) -> SystemConfig:
    """A system as given, or loaded by name or path.

    Raises
    ------
    ConfigError
        If it is neither, or cannot be loaded.
    """
    if isinstance(system, SystemConfig):
        return system
    if isinstance(system, (str, Path)):
        return load_system(system)
    raise ConfigError("system", "must be a SystemConfig, a name or a path", type(system).__name__)


def settings_of(kind: type[Settings], given: object, where: str) -> Settings:
    """Settings as given, by their keys, or their defaults.

    Raises
    ------
    ConfigError
        If it is neither, or a key or value is wrong.
    """
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        return kind(**given)
    rule = f"must be a {kind.__name__} or a mapping of its keys"
    raise ConfigError(where, rule, type(given).__name__)
