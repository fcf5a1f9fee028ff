"""Systems, workloads and whole runs from YAML files, and back.

In a file every dimensioned key carries a unit (``clock_hz: 1.8 GHz``); counts and ``_frac`` are
plain numbers. A system may start from another one with ``extends: name-or-path``: blocks are
merged key by key, ``null`` removes a key, and a number that is written again loses the inherited
entry in ``sources``. The name is never inherited.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from npusim.config.build import validated, with_units_converted
from npusim.config.document import Document, dotted, leaves, read_document
from npusim.config.fields import FieldType
from npusim.config.run_spec import RunSpec, WorkloadConfig
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.paths import Kind, find_named
from npusim.units import format_quantity

Model = TypeVar("Model", bound=Spec)

_YAML_ENDINGS = (".yaml", ".yml")


def load_system(
    name_or_path: str | Path | SystemConfig, extra_dirs: Sequence[str | Path] = ()
) -> SystemConfig:
    """Load a system.

    Parameters
    ----------
    name_or_path : str, Path or SystemConfig
        Name of a system (``rk3588``), path of a YAML file, or a system, which is returned.
    extra_dirs : Sequence, optional
        The user's folders, searched first for names.

    Returns
    -------
    SystemConfig
        Validated system; numbers in base units.

    Raises
    ------
    ConfigError
        If there is no such system or anything in it is wrong: file and line, dotted path, rule,
        value, nearest valid name.
    """
    if isinstance(name_or_path, SystemConfig):
        return name_or_path
    folders = tuple(map(Path, extra_dirs))
    path = _file("system", name_or_path, folders)
    return _built(SystemConfig, _extended(path, folders, ()))


def load_workload(
    name_or_path: str | Path, extra_dirs: Sequence[str | Path] = ()
) -> WorkloadConfig:
    """Load a workload; see `load_system`.

    A `model` with a slash is a path from the folder of the workload's file.
    """
    path = _file("workload", name_or_path, tuple(map(Path, extra_dirs)))
    return _built(WorkloadConfig, _workload_document(path))


def load_run_yaml(path: str | Path, extra_dirs: Sequence[str | Path] = ()) -> RunSpec:
    """Load a whole run.

    Parameters
    ----------
    path : str or Path
        YAML file with the keys ``system``, ``workload``, ``compiler`` and ``simulation``. System
        and workload are blocks, names, or paths from the folder of the file.
    extra_dirs : Sequence, optional
        The user's folders, searched first for names.

    Returns
    -------
    RunSpec
        Validated run.

    Raises
    ------
    ConfigError
        As `load_system`.
    """
    folders = tuple(map(Path, extra_dirs))
    file = Path(path)
    document = read_document(file)
    system, workload = document.get(("system",)), document.get(("workload",))
    if isinstance(system, str):
        document.graft("system", _extended(_file("system", system, folders, file), folders, ()))
    elif isinstance(system, dict):
        document.graft("system", _merged_with_base(document.part("system"), file, folders, ()))
    if isinstance(workload, str):
        document.graft("workload", _workload_document(_file("workload", workload, folders, file)))
    return _built(RunSpec, document)


def dump_system(system: SystemConfig) -> str:
    """YAML text that `load_system` turns back into an equal system.

    Parameters
    ----------
    system : SystemConfig
        Any system, with or without ``sources``.

    Returns
    -------
    str
        Every key on its own line, quantities with exact units; ``None`` is left out.
    """
    from ruamel.yaml import YAML  # slow to import, needed only for files

    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = False
    yaml.width = 2**20  # one line per key
    text = StringIO()
    yaml.dump(as_yaml_data(system), text)
    return text.getvalue()


def as_yaml_data(spec: Spec) -> dict[str, Any]:
    """Plain data of a model as a YAML file has it: quantities with units, no ``None``."""
    data = spec.model_dump(mode="json", exclude_none=True)
    result: dict[str, Any] = _with_units(data, FieldType(type(spec)))
    return result


def _with_units(data: Any, place: FieldType | None) -> Any:
    """Inverse of `with_units_converted` for the dump of a model."""
    if place is None:
        return data
    if isinstance(data, dict):
        return {key: _with_units(value, place.child(key)) for key, value in data.items()}
    if isinstance(data, list):
        return [_with_units(value, place.child(i)) for i, value in enumerate(data)]
    if place.dimension is None:
        return data
    return format_quantity(Fraction(data), place.dimension)


def _built(model: type[Model], document: Document) -> Model:
    """Model of a document."""
    data, problems = with_units_converted(document.data, FieldType(model))
    return validated(model, data, document.where, problems, document.data)


def _file(
    kind: Kind, name_or_path: str | Path, folders: Sequence[Path], beside: Path | None = None
) -> Path:
    """File that a name or path means; a path counts from the folder of `beside`."""
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or "/" in text or text.endswith(_YAML_ENDINGS)
    if not is_path:
        return find_named(kind, text, folders)
    return Path(text) if beside is None else beside.parent / text


def _workload_document(path: Path) -> Document:
    """Document of a workload, paths of its models made to count from the working folder."""
    document = read_document(path)
    for key in ("model", "draft_model"):
        model = document.get((key,))
        if isinstance(model, str) and "/" in model:
            document.data[key] = str(path.parent / model)
    return document


def _extended(path: Path, folders: Sequence[Path], children: tuple[Path, ...]) -> Document:
    """Document of a system with everything it extends merged in."""
    resolved = path.resolve()
    if resolved in children:
        cycle = " -> ".join(str(child) for child in (*children, resolved))
        raise ConfigError(str(children[-1]), "extends itself", cycle, "break the cycle")
    return _merged_with_base(read_document(path), path, folders, (*children, resolved))


def _merged_with_base(
    document: Document, path: Path, folders: Sequence[Path], children: tuple[Path, ...]
) -> Document:
    """The document over the one that its key ``extends`` names, if it has one."""
    base_name = document.take("extends")
    if base_name is None:
        return document
    where = document.where(("extends",))
    if not isinstance(base_name, str):
        raise ConfigError(where, "must be the name or path of one system", base_name)
    try:
        base_path = _file("system", base_name, folders, path)
    except ConfigError as error:
        raise ConfigError(where, error.rule, error.value, error.hint) from None
    base = _extended(base_path, folders, children)
    base.take("name")
    return _merged(base, document)


def _merged(base: Document, over: Document) -> Document:
    """Deep merge: `over` wins, its nulls remove, its numbers drop inherited sources."""
    own_sources = over.data.get("sources")
    own = own_sources if isinstance(own_sources, dict) else {}
    sources = base.data.get("sources")
    if isinstance(sources, dict):
        written = [dotted(path) for path in leaves(over.data) if path[0] != "sources"]
        base.data["sources"] = {
            path: text
            for path, text in sources.items()
            if path in own or not any(_covers(key, path) for key in written)
        }
    return Document(_merged_data(base.data, over.data), base.marks | over.marks)


def _covers(written: str, path: str) -> bool:
    """Whether a written key is `path` or, being null or another kind, one of its parents."""
    return path == written or path.startswith(written + ".")


def _merged_data(base: Any, over: Any) -> Any:
    """Recursive part of `_merged`."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged_data(base.get(key), value)
    return merged
