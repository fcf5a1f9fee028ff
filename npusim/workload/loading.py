"""Models by name or path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npusim import paths
from npusim.errors import ConfigError, WorkloadError
from npusim.workload.facts import read_facts
from npusim.workload.model_reader import read_model

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from npusim.workload.model_config import ModelConfig


def load_model(
    name_or_path: str | os.PathLike[str], extra_dirs: Sequence[Path] = ()
) -> ModelConfig:
    """Read the config.json of a decoder.

    Parameters
    ----------
    name_or_path : str or path
        A name in ``workloads/models`` (or in a folder of the user), or the path of a config.json.
        What contains a separator or ends in ``.json`` is a path.
    extra_dirs : Sequence[Path], optional
        Folders of the user, searched first.

    Returns
    -------
    ModelConfig
        Its name is the shipped name; for a path the file stem, or the folder of a ``config.json``.

    Raises
    ------
    WorkloadError
        If there is no such model, or its file cannot be read, is malformed, lacks a key, has a
        wrong type or value, or is of an unsupported model type.

    Examples
    --------
    >>> load_model("qwen2-1.5b").num_layers
    28
    """
    text = str(name_or_path)
    path = Path(name_or_path)
    is_path = isinstance(name_or_path, Path) or path.suffix == ".json" or len(path.parts) != 1
    if not is_path:
        try:
            path = paths.find_named("model", text, extra_dirs)
        except ConfigError as error:
            raise WorkloadError("model", error.rule, error.value, error.hint) from None
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return read_model(name, read_facts(path))


def model_names(extra_dirs: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names that `load_model` knows, sorted."""
    return tuple(paths.named_files("model", extra_dirs))
