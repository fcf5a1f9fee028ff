"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer


def at_least(least: int) -> Callable[[str], int]:
    """Parser of an integer option; the message names rule and value."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise typer.BadParameter(f"must be an integer of at least {least} (got {text!r})")
        return value

    return parse


def folder(text: str) -> Path:
    """Parser of a folder to write into; an empty text would mean the current one."""
    if not text.strip():
        raise typer.BadParameter(f"must name a folder (got {text!r})")
    return Path(text)


System = Annotated[
    str, typer.Argument(metavar="SYSTEM", help="Name from `npusim systems`, or a YAML file.")
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Name from `npusim models`, a config.json, or a workload YAML (file or name).",
    ),
]
Prompt = Annotated[
    int | None,
    typer.Option(
        "--prompt", parser=at_least(1), metavar="N", help="Prefill N tokens per sequence."
    ),
]
Generate = Annotated[
    int | None,
    typer.Option(
        "--generate",
        parser=at_least(0),
        metavar="N",
        help="Generate N tokens per sequence. After a prefill the first of them comes from it. "
        "Default: 0 with --prompt, 1 with --context.",
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        parser=at_least(1),
        metavar="N",
        help="No prefill; decode starts with N cached tokens.",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", parser=at_least(1), metavar="N", help="Sequences at once. Default: 1."),
]
Quant = Annotated[
    str | None,
    typer.Option(
        "--quant",
        metavar="wXaY[_gN]",
        help="Bits of weights and activations, and the group size of scales. Default: w16a16.",
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option("--kv-dtype", metavar="D", help="Format of the KV cache: fp16, int8, int4, ..."),
]
KvPrune = Annotated[
    str | None,
    typer.Option("--kv-prune", metavar="SPEC", help="Pruning of the KV cache; only `none` so far."),
]
FidelityName = Annotated[
    str | None,
    typer.Option(
        "--fidelity",
        metavar="burst|transfer|analytic",
        help="How exactly memory is simulated. Default: burst.",
    ),
]
ExecutorName = Annotated[
    str | None,
    typer.Option(
        "--executor", metavar="auto|simpy|compiled", help="What runs the program. Default: auto."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="path=value",
        help="Change one value; the path starts at system., workload., compiler. or simulation. "
        "May be repeated.",
        show_default=False,
    ),
]
WorkloadOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="workload.KEY=value",
        help="Change one value of the workload. May be repeated.",
        show_default=False,
    ),
]
NoFold = Annotated[
    bool,
    typer.Option("--no-fold", help="Simulate every layer and step instead of one of each kind."),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", parser=at_least(0), metavar="N", help="Seed of random choices."),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `npusim run --out` wrote.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        parser=folder,
        metavar="DIR",
        help="Write result.json, Parquet tables and timeline.html there.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        parser=at_least(1),
        metavar="N",
        help="Worker processes. Default: one per CPU.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
SweepFile = Annotated[
    str, typer.Argument(metavar="SPEC", help="Name in workloads/sweeps, or a YAML file.")
]
SweepFolder = Annotated[
    Path,
    typer.Option("--out", parser=folder, metavar="DIR", help="Folder of the sweep or search."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what is in DIR: only what is missing runs.")
]
