"""``npusim run``: one model on one system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.cli.progress import show_progress
from npusim.cli.request import RunRequest, blaming_options, build_run_spec
from npusim.results.files import prepare_directory, remove_file

if TYPE_CHECKING:
    from pathlib import Path

    from npusim.results.run import RunResult

TIMELINE_FILE = "timeline.html"


def run(
    system: given.System,
    model: given.Model,
    prompt: given.Prompt = None,
    generate: given.Generate = None,
    context: given.Context = None,
    batch: given.Batch = None,
    quant: given.Quant = None,
    kv_dtype: given.KvDtype = None,
    kv_prune: given.KvPrune = None,
    fidelity: given.FidelityName = None,
    executor: given.ExecutorName = None,
    overrides: given.Overrides = None,
    no_fold: given.NoFold = False,
    seed: given.Seed = None,
    out: given.Out = None,
    json: given.Json = False,
) -> None:
    """Simulate a model on a system: TTFT, TPOT, and where every cycle went.

    For example:

    npusim run rk3588 qwen2-1.5b --prompt 512 --generate 64 --quant w8a8 --out runs/demo

    npusim run ascend-910b llama-3.1-8b --context 2048 --set compiler.launch=eager

    npusim run my-chip.yaml workloads/chat.yaml --set system.devices.npu.cores=4 --json
    """
    request = RunRequest(
        system=system,
        model=model,
        prompt_len=prompt,
        generate_len=generate,
        context_len=context,
        batch=batch,
        quant=quant,
        kv_dtype=kv_dtype,
        kv_prune=kv_prune,
        fidelity=fidelity,
        executor=executor,
        is_folding=not no_fold,
        seed=seed,
        overrides=tuple(overrides or ()),
    )
    spec = build_run_spec(request)
    folder = prepare_directory(out) if out is not None else None
    from npusim.simulation import simulate_run  # numba is slow to load

    with blaming_options(request), show_progress() as progress:
        result = simulate_run(spec, progress).with_overrides(request.overrides)
    if folder is not None:
        _write(result, folder)
    if json:
        print_json(result.summary())
    else:
        _print(result, folder)


def _write(result: RunResult, folder: Path) -> None:
    """Result, tables, and a timeline if spans were recorded."""
    from npusim.report.timeline_html import write_timeline_html  # plotly is slow to load

    result.save(folder)
    if any(record.spans is not None for record in result.phases.values()):
        write_timeline_html(result, folder / TIMELINE_FILE)
    else:
        remove_file(folder / TIMELINE_FILE)
        note("no spans were recorded, so there is no timeline; see simulation.max_spans")


def _print(result: RunResult, folder: Path | None) -> None:
    """Tables, and where the files are."""
    from npusim.cli.show_run import print_run  # rich is slow to load

    console = result_console()
    print_run(result, console)
    if folder is not None:
        timeline = f", {TIMELINE_FILE}" if (folder / TIMELINE_FILE).is_file() else ""
        console.print(f"files   {folder}/ (result.json, *.parquet{timeline})", markup=False)
