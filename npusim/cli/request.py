"""From command-line options to a `RunSpec`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from npusim.errors import ConfigError, NpusimError, WorkloadError, nearest
from npusim.paths import IMPORT_ENDINGS, MODEL_ENDINGS, TRACE_ENDINGS, is_model_path, named_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum

    from npusim.config.run_spec import RunSpec, SimulationConfig, WorkloadConfig

Choice = TypeVar("Choice", bound="StrEnum")

_WORKLOAD_ENDINGS = (".yaml", ".yml")

# Option that sets a key of the workload or of the simulation.
_OPTIONS = MappingProxyType(
    {
        "prompt_len": "--prompt",
        "generate_len": "--generate",
        "context_len": "--context",
        "batch": "--batch",
        "quant": "--quant",
        "kv_dtype": "--kv-dtype",
        "kv_prune": "--kv-prune",
        "seed": "--seed",
    }
)


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What a command asked for; None where an option was not given."""

    system: str
    model: str
    prompt_len: int | None = None
    generate_len: int | None = None
    context_len: int | None = None
    batch: int | None = None
    quant: str | None = None
    kv_dtype: str | None = None
    kv_prune: str | None = None
    fidelity: str | None = None
    executor: str | None = None
    is_folding: bool = True
    seed: int | None = None
    overrides: tuple[str, ...] = ()


def build_run_spec(request: RunRequest) -> RunSpec:
    """Join system, workload and options, then apply the overrides.

    Parameters
    ----------
    request : RunRequest
        What was asked for.

    Returns
    -------
    RunSpec
        Validated run.

    Raises
    ------
    ConfigError, WorkloadError
        If anything in it is wrong.
    """
    # pydantic is slow to load
    from npusim.config.loader import load_system
    from npusim.config.overrides import apply_overrides
    from npusim.config.run_spec import RunSpec

    spec = RunSpec(
        system=load_system(request.system),
        workload=_workload(request),
        simulation=simulation_config(
            request.fidelity, request.executor, request.is_folding, request.seed
        ),
    )
    spec = apply_overrides(spec, list(request.overrides))
    with blaming_options(request):
        _refuse_pruning(spec.workload.kv_prune)
    return spec


@contextmanager
def blaming_options(request: RunRequest) -> Iterator[None]:
    """Let messages about a value that an option gave name the option."""
    try:
        yield
    except NpusimError as error:
        option = _OPTIONS.get(error.where)
        if option is None or getattr(request, error.where) is None:
            raise
        raise type(error)(option, error.rule, error.value, error.hint) from None


def simulation_config(
    fidelity: str | None, executor: str | None, is_folding: bool, seed: int | None
) -> SimulationConfig:
    """Simulation settings of the options; ConfigError for an unknown name."""
    # pydantic is slow to load
    from npusim.config.build import validated
    from npusim.config.run_spec import Executor, Fidelity, SimulationConfig

    values: dict[str, Any] = {"fold": is_folding}
    if fidelity is not None:
        values["fidelity"] = _choice("--fidelity", fidelity, Fidelity)
    if executor is not None:
        values["executor"] = _choice("--executor", executor, Executor)
    if seed is not None:
        values["seed"] = seed
    return validated(SimulationConfig, values, option_of)


def _choice(option: str, text: str, kind: type[Choice]) -> Choice:
    """Member of an enumeration by its value."""
    names = [member.value for member in kind]
    if text not in names:
        rule = f"must be one of {', '.join(names)}"
        raise ConfigError(option, rule, text, nearest(text, names))
    return kind(text)


def _workload(request: RunRequest) -> WorkloadConfig:
    """Workload file, if the model is one, with the options on top."""
    # pydantic is slow to load
    from npusim.config.build import validated
    from npusim.config.run_spec import WorkloadConfig

    if request.prompt_len is not None and request.context_len is not None:
        raise WorkloadError("--prompt and --context", "exclude each other; give one of them")
    values = _base_values(request.model)
    if request.prompt_len is not None or request.context_len is not None:
        values |= {"prompt_len": request.prompt_len, "context_len": request.context_len}
    for name in ("generate_len", "batch", "quant", "kv_dtype", "kv_prune"):
        if getattr(request, name) is not None:
            values[name] = getattr(request, name)
    if values.get("kv_prune") == "none":
        values["kv_prune"] = None
    if not values["model"].endswith((*TRACE_ENDINGS, *IMPORT_ENDINGS)):
        _check_lengths(values)
    return validated(WorkloadConfig, values, option_of)


def workload_config(**values: Any) -> WorkloadConfig:
    """Workload settings of a command that runs nothing; ConfigError for a wrong value."""
    # pydantic is slow to load
    from npusim.config.build import validated
    from npusim.config.run_spec import WorkloadConfig

    return validated(WorkloadConfig, values, option_of)


def file_values(model: str) -> dict[str, Any]:
    """Values of a workload file, by path or name; those of a plain model are its name alone."""
    is_named = model in named_files("workload") and model not in named_files("model")
    if Path(model).suffix in _WORKLOAD_ENDINGS or is_named:
        return _base_values(model)
    return {"model": model}


def option_of(path: tuple[str | int, ...]) -> str:
    """Option that sets a key, or the key itself where no option does."""
    name = ".".join(map(str, path))
    return _OPTIONS.get(name, name)


def _check_lengths(values: dict[str, Any]) -> None:
    """Refuse a run without anything to run; set the default number of tokens."""
    prompt_len, context_len = values.get("prompt_len"), values.get("context_len")
    if prompt_len is None and context_len is None:
        raise WorkloadError("run length", "needs --prompt N or --context N")
    if context_len is not None and values.setdefault("generate_len", 1) == 0:
        raise WorkloadError("--generate", "must be at least 1 with --context", 0)


def _base_values(model: str) -> dict[str, Any]:
    """Values that MODEL brings: those of a workload file, or just a model."""
    path = Path(model)
    if not is_model_path(model) and path.suffix not in _WORKLOAD_ENDINGS:
        return _named_values(model)
    if path.suffix in _WORKLOAD_ENDINGS:
        return _workload_values(path)
    _refuse_non_file(path)
    if path.suffix not in MODEL_ENDINGS:
        rule = "must be a config.json, a workload YAML, an operator trace or an importable file"
        raise WorkloadError("MODEL", rule, model, "see npusim import --help")
    return {"model": model}


def _named_values(name: str) -> dict[str, Any]:
    """Values of a model's or a workload's name."""
    models, workloads = named_files("model"), named_files("workload")
    if name in models:
        return {"model": name}
    if name in workloads:
        return _workload_values(workloads[name])
    rule = "no model or workload has this name"
    raise WorkloadError("MODEL", rule, name, nearest(name, {**models, **workloads}))


def _workload_values(path: Path) -> dict[str, Any]:
    """Values that a workload file sets."""
    from npusim.config.loader import load_workload  # pydantic is slow to load

    return load_workload(path).model_dump(exclude_unset=True)


def _refuse_non_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if path.is_dir():
        raise WorkloadError("MODEL", "must be a file, not a folder", str(path))
    if not path.is_file():
        raise WorkloadError("MODEL", "no such file", str(path))


def _refuse_pruning(kv_prune: str | None) -> None:
    """Refuse KV pruning, which this version does not simulate."""
    if kv_prune not in (None, "none"):
        raise WorkloadError("kv_prune", "only `none`; pruning is not in this version", kv_prune)
