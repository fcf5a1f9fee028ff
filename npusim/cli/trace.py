"""``npusim trace`` and ``npusim import``: operator graphs as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json
from npusim.cli.request import file_values, workload_config
from npusim.cli.requests import refuse_given, show, write
from npusim.errors import WorkloadError

if TYPE_CHECKING:
    from npusim.workload.importers.imported import Imported
    from npusim.workload.trace import OperatorTrace

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="A .jsonl or .parquet file. Default: JSONL on stdout.",
    ),
]
Routing = Annotated[
    str | None,
    typer.Option(
        "--expert-routing",
        metavar="R",
        help="uniform, zipf:S, balanced or a routing trace. Default: uniform.",
    ),
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The file to import.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse operators that the device cannot compute.")
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=N", help="Size of a symbolic dimension. May be repeated.",
        show_default=False,
    ),
]  # fmt: skip

_NOTHING = "nothing was written; give -o FILE.jsonl to keep the trace"


def trace(
    model: given.Model,
    prompt: given.Prompt = None,
    generate: given.Generate = None,
    context: given.Context = None,
    batch: given.Batch = None,
    quant: given.Quant = None,
    kv_dtype: given.KvDtype = None,
    expert_routing: Routing = None,
    seed: given.Seed = None,
    overrides: given.WorkloadOverrides = None,
    output: Output = None,
) -> None:
    """Export the operators of a run as an operator trace, to edit and to replay.

    For example:

    npusim trace qwen2-1.5b --prompt 128 --quant w8a8 > t.jsonl

    npusim trace llama-3.1-8b --context 2048 -o t.parquet

    npusim trace llama-3.1-8b --context 512 --batch 8 --set workload.chunk_tokens=256 -o m.jsonl

    npusim run rk3588 t.jsonl
    """
    values = file_values(model)
    if (prompt is None) == (context is None) and (prompt is not None or len(values) == 1):
        raise WorkloadError("run length", "needs --prompt N or --context N, and not both")
    # networkx and pydantic are slow to load
    from npusim.config.overrides import apply_workload_overrides
    from npusim.workload.loading import load_model
    from npusim.workload.trace import OperatorTrace
    from npusim.workload.workload import Workload

    config = load_model(values["model"])
    if prompt is not None or context is not None:
        values |= {"prompt_len": prompt, "context_len": context}
    given_values = {"generate_len": generate, "batch": batch, "quant": quant, "kv_dtype": kv_dtype}
    given_values["expert_routing"] = expert_routing
    values |= {key: value for key, value in given_values.items() if value is not None}
    values.setdefault("generate_len", 1 if values.get("prompt_len") is None else 0)
    settings = workload_config(**values)
    settings = apply_workload_overrides(settings, overrides or [])
    workload = Workload.of(config, settings, seed or 0)
    _write(OperatorTrace.of(workload), output)


def import_(
    file: File,
    output: Output = None,
    prompt: given.Prompt = None,
    generate: given.Generate = None,
    context: given.Context = None,
    dims: Dims = None,
    strict: Strict = False,
    json: given.Json = False,
) -> None:
    """Turn a foreign file into an operator trace; its kind is detected and shown.

    Reads ONNX, PyTorch execution traces, Kineto traces with shapes, Chakra traces (.et and JSON),
    GGUF and safetensors headers, SCALE-Sim topologies and ONNXim models. Request traces (Azure,
    Mooncake, CSV, JSONL) become a request trace. Without --output only what was found is shown.
    For example:

    npusim import model.onnx --dim L=128 -o t.jsonl

    npusim import resnet50.csv -o t.jsonl

    npusim import model.gguf --context 512 -o t.jsonl

    npusim import mooncake.jsonl -o requests.jsonl
    """
    # networkx and pydantic are slow to load
    from npusim.workload.importers import import_file
    from npusim.workload.request_readers import request_kind

    if file.is_file() and request_kind(file) is not None:
        settings = {
            "--prompt": prompt, "--generate": generate, "--context": context, "--dim": dims,
            "--strict": strict,
        }  # fmt: skip
        refuse_given(settings, "a request trace has its own lengths and no operators")
        _import_requests(file, output, json=json)
        return
    lengths = {"prompt_len": prompt, "generate_len": generate, "context_len": context}
    imported = import_file(file, strict=strict, dims=_dims(dims or []), lengths=lengths)
    if output is not None:
        _write(imported.trace, output)
    if json:
        print_json(imported.facts())
    else:
        _print(imported, output)


def _import_requests(file: Path, output: Path | None, *, json: bool) -> None:
    requests = show(file, json=json)
    if output is not None:
        write(requests, output)
    elif not json:
        print(_NOTHING)


def _write(trace: OperatorTrace, output: Path | None) -> None:
    """To a file, or to stdout."""
    if output is None:
        for line in trace.lines():
            sys.stdout.write(f"{line}\n")
        return
    from npusim.workload.trace_files import write_trace  # pydantic is slow to load

    write_trace(trace, output)
    note(f"{output}: {sum(map(len, trace.steps))} operators")


def _print(imported: Imported, output: Path | None) -> None:
    """What was found."""
    facts = imported.facts()
    print(f"kind      {facts['kind']}")
    print(f"operators {facts['operators']} in {facts['steps']} step(s), {facts['macs']:,} MACs")
    for name, count in facts["fallbacks"].items():
        print(f"fallback  {name} x {count}: computed by the host")
    for text in facts["notes"]:
        print(f"note      {text}")
    if output is None:
        print(_NOTHING)


def _dims(texts: list[str]) -> dict[str, int]:
    """Sizes of symbolic dimensions."""
    sizes = {}
    for text in texts:
        name, equals, number = text.partition("=")
        if not (name and equals and number.isascii() and number.isdigit() and int(number) > 0):
            raise WorkloadError("--dim", "must be NAME=N with a positive integer N", text)
        sizes[name] = int(number)
    return sizes
