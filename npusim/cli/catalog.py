"""``npusim systems`` and ``npusim models``: what there is to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.errors import NpusimError
from npusim.paths import named_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from npusim.config.system import SystemConfig
    from npusim.workload.model_config import ModelConfig

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Show this one in full; none lists all.")
]


def systems(name: Name = None, json: given.Json = False) -> None:
    """List the systems, or show one.

    For example:

    npusim systems

    npusim systems rk3588 > my-chip.yaml

    npusim systems --json
    """
    from npusim.config.loader import as_yaml_data, dump_system, load_system  # pydantic is slow

    if name is not None:
        system = load_system(name)
        if json:
            print_json(as_yaml_data(system))
        else:
            print(dump_system(system), end="")
        return
    facts = _readable(named_files("system"), lambda path: _system_facts(load_system(path)))
    if not json:
        facts = [{**row, "description": _first_clause(row["description"])} for row in facts]
    _print_list(facts, json)


def _first_clause(text: str) -> str:
    """A description up to its first colon or full stop."""
    return text.partition(": ")[0].partition(". ")[0]


def _system_facts(system: SystemConfig) -> dict[str, Any]:
    """One line on a system."""
    return {
        "name": system.name,
        "cores": sum(device.cores for device in system.devices.values()),
        "capacity_bytes": sum(memory.capacity_bytes for memory in system.memories.values()),
        "precisions": sorted({d for v in system.devices.values() for d in v.core.matrix.dtypes}),
        "description": system.description,
    }


def models(name: Name = None, json: given.Json = False) -> None:
    """List the models, or show the facts of one.

    For example:

    npusim models

    npusim models qwen2-1.5b

    npusim models path/to/config.json --json
    """
    from npusim.workload.loading import load_model  # networkx is slow to load

    if name is not None:
        facts = model_facts(load_model(name))
        if json:
            print_json(facts)
        else:
            _print_one(facts)
        return
    rows = _readable(named_files("model"), lambda path: _short(model_facts(load_model(path))))
    _print_list(rows, json)


def _readable(
    files: Mapping[str, Path], facts_of: Callable[[Path], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Facts of every file that can be read; of each other one a note says why not."""
    facts = []
    for name, path in files.items():
        try:
            facts.append(facts_of(path))
        except NpusimError as error:
            note(f"{name} is not listed: {error}")
    return facts


def model_facts(model: ModelConfig) -> dict[str, Any]:
    """Architecture, parameters and bytes of a model at 16 bits."""
    # networkx is slow to load
    from npusim.workload.counts import parameters, weight_bytes
    from npusim.workload.kv_cache import kv_bytes_per_token

    windows = sorted({window for window in model.windows if window is not None})
    return {
        "name": model.name,
        "model_type": model.model_type,
        "parameters": parameters(model),
        "weight_bytes": weight_bytes(model, "w16a16"),
        "kv_bytes_per_token": kv_bytes_per_token(model, model.dtype),
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "max_positions": model.max_positions,
        "windows": windows,
        "dtype": model.dtype,
        "tie_word_embeddings": model.tie_word_embeddings,
        "notes": list(model.notes),
    }


def _short(facts: dict[str, Any]) -> dict[str, Any]:
    """The columns of the list."""
    keys = ("name", "model_type", "parameters", "num_layers", "hidden_size", "num_heads")
    return {key: facts[key] for key in (*keys, "num_kv_heads", "max_positions")}


def _print_list(facts: list[dict[str, Any]], is_json: bool) -> None:
    """A list as JSON or as one table."""
    if is_json:
        print_json(facts)
        return
    from rich import box  # slow to load
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in facts[0] if facts else ():
        is_number = isinstance(facts[0][key], int)
        is_fixed = is_number or key == "name"
        heading = key.removesuffix("_bytes").replace("_", " ")  # values show their units
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_fixed)
    for row in facts:
        table.add_row(*(text(key, value) for key, value in row.items()))
    result_console().print(table)


def _print_one(facts: dict[str, Any]) -> None:
    """Facts of one item, a line each."""
    width = max(map(len, facts))
    for key, value in facts.items():
        print(f"{key:<{width}}  {text(key, value)}")


def text(key: str, value: object) -> str:
    """A value in the unit that its key names."""
    from npusim.units import dimension_of_key, format_quantity  # beside its only use

    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    dimension = dimension_of_key(key)
    if dimension is not None and isinstance(value, int):
        return format_quantity(value, dimension, digits=4)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
