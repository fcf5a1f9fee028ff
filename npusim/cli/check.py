"""``npusim check`` and ``npusim schema``: whether a file is right, and what it may say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from npusim.cli import options as given
from npusim.cli.output import print_json, result_console
from npusim.errors import ConfigError

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="System, workload, run or reproduction YAML, or config.json."
    ),
]
Part = Annotated[
    str, typer.Argument(metavar="PART", help="run, system, workload, compiler or simulation.")
]

_RUN_KEYS = {"system", "workload", "compiler", "simulation"}


def check(file: File, json: given.Json = False) -> None:
    """Validate a file and say what it is.

    For example:

    npusim check my-chip.yaml

    npusim check workloads/chat.yaml

    npusim check config.json --json
    """
    facts = _checked(file)
    if json:
        print_json(facts)
    else:
        print(f"{file}: a valid {facts['kind']}: {facts['text']}")
        for remark in facts.get("remarks", ()):
            print(f"  remark: {remark}")


def _checked(file: Path) -> dict[str, Any]:
    """Kind and gist of a valid file; ConfigError or WorkloadError for any other."""
    if file.suffix == ".json":
        return _checked_model(file)
    if file.suffix not in (".yaml", ".yml"):
        if file.is_dir():
            raise ConfigError(str(file), "must be a file, not a folder")
        raise ConfigError(str(file), "must end in .yaml, .yml or .json")
    # pydantic is slow to load
    from npusim.config.document import read_document

    keys = set(read_document(file).data)
    if {"system", "workload"} <= keys or (keys and keys <= _RUN_KEYS):
        return _checked_run(file)
    if "published" in keys:
        return _checked_reproduction(file)
    return _checked_workload(file) if "model" in keys else _checked_system(file)


def _checked_system(file: Path) -> dict[str, Any]:
    """A system."""
    # pydantic is slow to load
    from npusim.config.check import check_system
    from npusim.config.loader import load_system

    system = load_system(file)
    remarks = check_system(system)
    parts = [
        f"memory {', '.join(system.memories)}; bus {', '.join(system.buses)}",
        *(f"device {name} with {d.cores} cores" for name, d in system.devices.items()),
    ]
    assumed = sum("assumed" in source for source in system.sources.values())
    parts.append(f"{len(system.sources)} numbers with a source, {assumed} of them assumed")
    text = "; ".join([system.name, *parts])
    return {"kind": "system", "name": system.name, "text": text, "remarks": list(remarks)}


def _checked_workload(file: Path) -> dict[str, Any]:
    """A workload, its model included."""
    # pydantic and networkx are slow to load
    from npusim.config.loader import load_workload
    from npusim.workload.loading import load_model
    from npusim.workload.workload import Workload

    settings = load_workload(file)
    workload = Workload.of(load_model(settings.model), settings)
    phases = " and ".join(workload.phases)
    text = f"{workload.model.name}, {settings.quant}, batch {settings.batch}, {phases}"
    return {"kind": "workload", "name": file.stem, "text": text}


def _checked_run(file: Path) -> dict[str, Any]:
    """A whole run."""
    # pydantic and networkx are slow to load
    from npusim.config.loader import load_run_yaml
    from npusim.workload.loading import load_model
    from npusim.workload.workload import Workload

    spec = load_run_yaml(file)
    workload = Workload.of(load_model(spec.workload.model), spec.workload)
    phases = " and ".join(workload.phases)
    text = f"{workload.model.name} on {spec.system.name}, {spec.workload.quant}, {phases}"
    return {"kind": "run", "name": file.stem, "text": text}


def _checked_reproduction(file: Path) -> dict[str, Any]:
    """Published figures and the configuration behind them; nothing is simulated."""
    # pydantic and numba are slow to load
    from npusim.studies.reproduction import free_parameters
    from npusim.studies.reproductions import load_reproduction

    found = load_reproduction(file)
    free = len(free_parameters(found))
    text = f"{found.title}; {len(found.published)} published figures, {free} free numbers"
    return {"kind": "reproduction", "name": found.name, "text": text}


def _checked_model(file: Path) -> dict[str, Any]:
    """A config.json."""
    # networkx is slow to load
    from npusim.workload.counts import parameters
    from npusim.workload.loading import load_model

    model = load_model(file)
    size = f"{model.num_layers} layers, {parameters(model):,} parameters"
    text = "; ".join([f"{model.model_type}, {size}", *model.notes])
    return {"kind": "model", "name": model.name, "text": text}


def schema(part: Part = "run", json: given.Json = False) -> None:
    """Show every key of a part of the configuration: type, unit, default, meaning.

    For example:

    npusim schema system

    npusim schema system --json > system.schema.json
    """
    from npusim.config.schema import describe_fields, json_schema  # pydantic is slow to load

    if json:
        print_json(json_schema(part))
        return
    # slow to load
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("key", "type", "unit", "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for row in describe_fields(part):
        table.add_row(row.path, row.type, row.unit, row.default, row.doc)
    result_console().print(table)
