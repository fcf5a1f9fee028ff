"""``npusim inspect``: what a model or file computes, before any hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.cli.request import file_values, workload_config
from npusim.cli.requests import refuse_given, show
from npusim.errors import WorkloadError, nearest
from npusim.units import format_bytes

if TYPE_CHECKING:
    from npusim.config.run_spec import WorkloadConfig
    from npusim.workload.graph import OperatorGraph
    from npusim.workload.trace_workload import TraceWorkload
    from npusim.workload.workload import Workload

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL_OR_FILE", help="A model's name, a config.json, a trace, a file."),
]
PhaseName = Annotated[
    str | None, typer.Option("--phase", metavar="prefill|decode", help="Default: both.")
]
Graph = Annotated[
    Path | None,
    typer.Option("--graph", metavar="FILE.html", help="Write the graph, collapsible by layer."),
]
DEFAULT_TOKENS = 512
_PHASES = ("prefill", "decode")
#: settings of decode steps, which a prefill does not have
_OF_STEPS = ("chunk_", "speculate_tokens", "accept_frac", "draft_model", "generate_len")
_BELOW = len("workload.")


def inspect(
    model: Model,
    phase: PhaseName = None,
    prompt: given.Prompt = None,
    context: given.Context = None,
    batch: given.Batch = None,
    quant: given.Quant = None,
    kv_dtype: given.KvDtype = None,
    overrides: given.WorkloadOverrides = None,
    graph: Graph = None,
    json: given.Json = False,
) -> None:
    """Show operators, MACs, bytes and intensity of a model's phases.

    Without lengths: a prefill of 512 tokens, and a decode step on 512 cached tokens. Of a request
    trace: lengths, rate, burstiness and shared prefixes. For example:

    npusim inspect qwen2-1.5b --quant w8a8

    npusim inspect deepseek-v3 --phase decode --context 4096 --json

    npusim inspect deepseek-v3 --set workload.mtp_layers=1

    npusim inspect llama-3.1-8b --phase decode --batch 8 --set workload.chunk_tokens=256

    npusim inspect model.onnx --graph graph.html

    npusim inspect azure.csv
    """
    if phase is not None and phase not in _PHASES:
        rule = f"must be one of {', '.join(_PHASES)}"
        raise WorkloadError("--phase", rule, phase, nearest(phase, _PHASES))
    lengths = {"prefill": prompt, "decode": context}
    if _is_request_trace(model):
        settings = {
            "--phase": phase, "--prompt": prompt, "--context": context, "--batch": batch,
            "--quant": quant, "--kv-dtype": kv_dtype, "--graph": graph,
            "--set": overrides or None,
        }  # fmt: skip
        refuse_given(settings, "a request trace has no operators")
        show(Path(model), json=json)
        return
    workloads = _workloads(model, phase, lengths, (batch, quant, kv_dtype), overrides or [])
    graphs = _graphs(workloads)
    from npusim.workload.inspection import phase_facts  # numpy is slow to load

    any_workload = next(iter(workloads.values()))
    facts: dict[str, Any] = {
        "model": any_workload.model.name,
        "parameters": any_workload.parameters,
        "weight_bytes": any_workload.weight_bytes,
        "weight_bytes_by_dtype": any_workload.weight_bytes_by_dtype,
        "kv_bytes_per_token": any_workload.kv_bytes_per_token,
        "phases": {name: phase_facts(built) for name, built in graphs.items()},
        "notes": list(any_workload.notes),
    }
    if graph is not None:
        from npusim.report.graph_figure import write_graph_html  # plotly is slow to load

        write_graph_html(graphs, graph, str(facts["model"]))
        note(f"graph in {graph}")
    if json:
        print_json(facts)
    else:
        _print(facts)


def _is_request_trace(model: str) -> bool:
    if Path(model).suffix not in (".csv", ".jsonl") or not Path(model).is_file():
        return False
    from npusim.workload.request_readers import request_kind  # pydantic is slow to load

    return request_kind(model) is not None


def _workloads(
    model: str,
    phase: str | None,
    lengths: dict[str, int | None],
    formats: tuple[int | None, str | None, str | None],
    overrides: list[str],
) -> dict[str, Workload | TraceWorkload]:
    """A workload per phase asked for; a file that holds passes has its own."""
    # networkx and the importers are slow to load
    from npusim.workload.importers import import_file
    from npusim.workload.loading import load_model
    from npusim.workload.trace_workload import TraceWorkload
    from npusim.workload.workload import Workload

    path, values = Path(model), file_values(model)
    if (
        len(values) == 1
        and path.suffix
        and path.suffix != ".json"
        and (path.exists() or len(path.parts) > 1)
    ):
        if overrides:
            raise WorkloadError("--set", "a file that holds passes is shown as it is", overrides[0])
        imported = import_file(path)
        note(f"{path}: {imported.kind}")
        workload = TraceWorkload(imported.trace)
        names = [p.value for p in workload.phases if phase in (None, p.value)]
        if not names:
            raise WorkloadError("--phase", f"this file has {', '.join(workload.phases)}", phase)
        return dict.fromkeys(names, workload)
    config = load_model(values["model"])
    tokens = min(DEFAULT_TOKENS, config.max_positions - 1)
    made: dict[str, Workload | TraceWorkload] = {}
    for name, key in (("prefill", "prompt_len"), ("decode", "context_len")):
        if phase in (None, name):
            length = lengths[name] or values.get(key) or tokens
            changed = values | {"prompt_len": None, "context_len": None, key: length}
            chosen = zip(("batch", "quant", "kv_dtype"), formats, strict=True)
            changed |= {option: value for option, value in chosen if value is not None}
            made[name] = Workload.of(config, _settings(changed, overrides, name == "prefill"))
    return made


def _settings(values: dict[str, Any], overrides: list[str], is_prefill: bool) -> WorkloadConfig:
    """Settings of one phase; those of decode steps do not concern a prefill."""
    from npusim.config.overrides import apply_workload_overrides  # pydantic is slow to load

    if is_prefill:
        values = {key: value for key, value in values.items() if not _is_of_steps(key)}
        overrides = [text for text in overrides if not _is_of_steps(text[_BELOW:])]
    settings = workload_config(**{**values, "generate_len": 0 if is_prefill else 1})
    return apply_workload_overrides(settings, overrides)


def _is_of_steps(key: str) -> bool:
    """Whether a setting of a workload, or the text of its override, is about decode steps."""
    return key.startswith(_OF_STEPS)


def _graphs(workloads: dict[str, Workload | TraceWorkload]) -> dict[str, OperatorGraph]:
    """The prefill, and the first step of every other phase."""
    graphs: dict[str, OperatorGraph] = {}
    for name, workload in workloads.items():
        if name == "prefill":
            graphs[name] = workload.prefill_graph()
            continue
        first = workload.decode_contexts[0]
        graphs[workload.step_phase.value] = workload.decode_graph(first)
        if workload.speculation is not None and workload.draft is not None:
            graphs["draft"] = workload.draft_graph(first)
    return graphs


def _print(facts: dict[str, Any]) -> None:
    """Tables."""
    from rich.table import Table  # slow to load

    console = result_console()
    console.print(
        f"{facts['model']}: {facts['parameters'] / 1e9:.3f} B parameters, "
        f"{format_bytes(facts['weight_bytes'])} of weights, "
        f"{facts['kv_bytes_per_token']} bytes of KV per token",
        markup=False,
    )
    for name, phase in facts["phases"].items():
        title = f"{name}: {phase['operators']} operators, {phase['macs']:,} MACs"
        table = Table(title=title, title_justify="left", box=None, padding=(0, 1))
        table.add_column("stage")
        for heading in ("operators", "MACs", "weights", "KV", "activations", "MACs/byte"):
            table.add_column(heading, justify="right")
        for stage in phase["stages"]:
            sizes = (stage[f"{role}_bytes"] for role in ("weight", "kv", "activation"))
            table.add_row(
                stage["stage"],
                str(stage["operators"]),
                f"{stage['macs']:,}",
                *(format_bytes(size) for size in sizes),
                f"{stage['macs_per_byte']:.2f}",
            )
        console.print(table)
    for text in facts["notes"]:
        console.print(f"note: {text}", markup=False)
