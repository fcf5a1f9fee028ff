"""Where systems, models and workloads are found: the user's folders first, then the shipped ones.

A user's folder comes from ``--config-path`` or from the environment variable
``NPUSIM_CONFIG_PATH`` (several are separated as in ``PATH``). It may hold systems (``*.yaml``)
directly, or ``hwconfigs/``, ``workloads/`` and ``workloads/models/`` as in the source tree.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["system", "model", "workload", "sweep", "reproduction"]

ENV_CONFIG_PATH = "NPUSIM_CONFIG_PATH"

#: endings of operator traces and of foreign files, which are never names of models
TRACE_ENDINGS = (".jsonl", ".parquet")
IMPORT_ENDINGS = (".onnx", ".gguf", ".safetensors", ".et", ".csv", ".gz")
MODEL_ENDINGS = (".json", *TRACE_ENDINGS, *IMPORT_ENDINGS)

# Kind: folder below a root (shipped or a user's), and the file endings that count there.
_FOLDERS: Mapping[Kind, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "system": ("hwconfigs", (".yaml", ".yml")),
        "workload": ("workloads", (".yaml", ".yml")),
        "model": ("workloads/models", (".json",)),
        "sweep": ("workloads/sweeps", (".yaml", ".yml")),
        "reproduction": ("workloads/reproductions", (".yaml", ".yml")),
    }
)


def hwconfig_dirs(extra: Sequence[Path] = ()) -> list[Path]:
    """Existing folders with systems, in search order.

    Parameters
    ----------
    extra : Sequence[Path], optional
        Folders given by the user, searched before those of the environment variable.

    Returns
    -------
    list[Path]
        A user's folder itself, then its ``hwconfigs/``; the shipped folder last.

    Raises
    ------
    ConfigError
        If a user's folder does not exist.
    """
    return _dirs("system", extra)


def workload_dirs(extra: Sequence[Path] = ()) -> list[Path]:
    """Existing folders with workloads, in search order; see `hwconfig_dirs`."""
    return _dirs("workload", extra)


def model_dirs(extra: Sequence[Path] = ()) -> list[Path]:
    """Existing folders with model configurations, in search order; see `hwconfig_dirs`."""
    return _dirs("model", extra)


def named_files(kind: Kind, extra: Sequence[Path] = ()) -> dict[str, Path]:
    """Every file of a kind by its name (the file name without its ending), sorted.

    Parameters
    ----------
    kind : {"system", "model", "workload", "sweep", "reproduction"}
        What to look for.
    extra : Sequence[Path], optional
        Folders given by the user.

    Returns
    -------
    dict[str, Path]
        Of two files with the same name, the one found first.

    Raises
    ------
    ConfigError
        If a user's folder does not exist.
    """
    endings = _FOLDERS[kind][1]
    found: dict[str, Path] = {}
    for folder in _dirs(kind, extra):
        for path in sorted(folder.iterdir()):
            if path.suffix in endings and path.is_file():
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def find_named(kind: Kind, name: str, extra: Sequence[Path] = ()) -> Path:
    """File of the system, model or workload called `name`.

    Parameters
    ----------
    kind : {"system", "model", "workload", "sweep", "reproduction"}
        What to look for.
    name : str
        A name as `named_files` lists it; never a path.
    extra : Sequence[Path], optional
        Folders given by the user.

    Returns
    -------
    Path
        The first match in search order.

    Raises
    ------
    ConfigError
        If there is no such name (the hint gives the nearest one), or a user's folder is missing.
    """
    files = named_files(kind, extra)
    if name in files:
        return files[name]
    searched = ", ".join(str(folder) for folder in _dirs(kind, extra))
    rule = f"no {kind} has this name in {searched or 'any folder'}"
    raise ConfigError(f"{kind} name", rule, name, nearest(name, files))


def is_model_path(name_or_path: str) -> bool:
    """Whether what a run calls its model is a path: by a separator or a known ending."""
    return len(Path(name_or_path).parts) != 1 or name_or_path.endswith(MODEL_ENDINGS)


def model_file(name_or_path: str) -> Path:
    """File of a model, trace or foreign file; ConfigError if no model has the name."""
    if is_model_path(name_or_path):
        return Path(name_or_path)
    return find_named("model", name_or_path)


def _dirs(kind: Kind, extra: Sequence[Path]) -> list[Path]:
    """Existing folders of a kind: the user's, then the shipped one."""
    subfolder = _FOLDERS[kind][0]
    candidates: list[Path] = []
    for root in _user_roots(extra):
        candidates += [root, root / subfolder] if kind == "system" else [root / subfolder]
    candidates.append(_shipped_root() / subfolder)
    return [folder for folder in candidates if folder.is_dir()]


def _user_roots(extra: Sequence[Path]) -> list[Path]:
    """Folders of the argument, then of the environment variable; each must exist."""
    entries = os.environ.get(ENV_CONFIG_PATH, "").split(os.pathsep)
    asked = [("--config-path", Path(path)) for path in extra]
    asked += [(ENV_CONFIG_PATH, Path(entry)) for entry in entries if entry]
    for where, folder in asked:
        if not folder.is_dir():
            raise ConfigError(where, "must name an existing folder", str(folder))
    return [folder for _, folder in asked]


def _shipped_root() -> Path:
    """Root of the shipped folders: package data in a wheel, else the top of the source tree."""
    package = Path(__file__).resolve().parent
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent
