"""Arguments of the Python entry points: as objects, names or mappings, or one clear refusal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from npusim.config.compiler import CompilerConfig
from npusim.config.loader import load_system
from npusim.config.run_spec import RunSpec, SimulationConfig, WorkloadConfig
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.simulation.workloads import pattern_settings
from npusim.workload.workload import Workload

Settings = TypeVar("Settings", bound=Spec)


def spec_of(
    system: SystemConfig | str,
    workload: Workload,
    compiler: CompilerConfig | Mapping[str, object] | None,
    simulation: SimulationConfig | Mapping[str, object] | None,
) -> RunSpec:
    """Specification of a run from Python's arguments.

    Raises
    ------
    ConfigError
        If an argument is wrong.
    """
    check_workload(workload)
    return RunSpec(
        system=system_of(system),
        workload=WorkloadConfig(
            model=workload.model.name,
            prompt_len=workload.prompt_len,
            context_len=workload.context_len,
            generate_len=workload.generate_len,
            batch=workload.batch,
            quant=workload.quant.name,
            kv_dtype=workload.kv_dtype,
            expert_routing=workload.routing.text,
            **pattern_settings(workload),
        ),
        compiler=settings_of(CompilerConfig, compiler, "compiler"),
        simulation=settings_of(SimulationConfig, simulation, "simulation"),
    )


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
