"""``npusim whatif``: what would change the time of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.cli.request import RunRequest, blaming_options, build_run_spec
from npusim.cli.sweep_progress import show_sweep_progress

if TYPE_CHECKING:
    from npusim.explore.whatif import WhatIf

Step = Annotated[
    float,
    typer.Option("--step", metavar="FRAC", help="Relative step of a parameter."),
]
Rows = Annotated[
    int,
    typer.Option(
        "--rows", parser=given.at_least(1), metavar="N", help="Parameters printed. JSON has all."
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page with a figure there."),
]


def whatif(
    system: given.System,
    model: given.Model,
    prompt: given.Prompt = None,
    generate: given.Generate = None,
    context: given.Context = None,
    batch: given.Batch = None,
    quant: given.Quant = None,
    kv_dtype: given.KvDtype = None,
    fidelity: given.FidelityName = "transfer",
    overrides: given.Overrides = None,
    no_fold: given.NoFold = False,
    seed: given.Seed = None,
    step: Step = 0.1,
    rows: Rows = 20,
    jobs: given.Jobs = None,
    html: Html = None,
    json: given.Json = False,
) -> None:
    """Rank every hardware parameter by its effect, and bound what removing a cost would give.

    For example:

    npusim whatif rk3588 qwen2-1.5b --context 512 --quant w8a8

    npusim whatif edge-npu smollm2-135m --prompt 64 --step 0.25 --html whatif.html --json
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
        fidelity=fidelity,
        is_folding=not no_fold,
        seed=seed,
        overrides=tuple(overrides or ()),
    )
    spec = build_run_spec(request)
    from npusim.explore.whatif import whatif_run  # numba is slow to load

    with blaming_options(request), show_sweep_progress() as progress:
        found = whatif_run(spec, step_frac=step, jobs=jobs, progress=progress)
    if html is not None:
        # plotly is slow to load
        from npusim.report.whatif_figure import whatif_html
        from npusim.results.files import replace_file

        replace_file(html, whatif_html(found.summary()).encode())
        note(f"{html} written")
    if json:
        print_json(found.summary())
    else:
        _print(found, rows)


def _print(found: WhatIf, rows: int) -> None:
    """Parameters with the largest effects, bounds, and what could not be changed."""
    from npusim.cli.show_run import print_rows  # rich is slow to load
    from npusim.report.whatif_tables import (
        BOUND_HEADINGS,
        PARAMETER_HEADINGS,
        bound_rows,
        headline,
        parameter_rows,
    )

    summary = found.summary()
    console = result_console()
    console.print(headline(summary), markup=False)
    table = parameter_rows(summary)
    print_rows(PARAMETER_HEADINGS, table[:rows], console)
    if len(table) > rows:
        console.print(f"{len(table) - rows} parameters with less effect: --rows, --json")
    print_rows(BOUND_HEADINGS, bound_rows(summary), console)
    for effect in found.effects:
        if effect.error is not None:
            console.print(f"not changed: {effect.name}: {effect.error}", markup=False)
