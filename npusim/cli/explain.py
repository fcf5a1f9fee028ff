"""``npusim explain``: why a finished run took as long as it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.critical import explain_critical
from npusim.cli.output import print_json, result_console
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from npusim.insight.explain import Explanation

Phase = Annotated[
    str | None,
    typer.Option("--phase", metavar="prefill|decode", help="Only this phase. Default: all."),
]
Stage = Annotated[
    str | None,
    typer.Option(
        "--stage", metavar="NAME", help="Stall tree and operators of this stage, not of the phase."
    ),
]
CriticalPath = Annotated[
    bool,
    typer.Option(
        "--critical-path",
        help="Simulate the shown program again and show the chain of commands that set its end.",
    ),
]
Shorten = Annotated[
    str | None,
    typer.Option(
        "--shorten",
        metavar="OPERATOR",
        help="With --critical-path: what half the length of its compute commands gives.",
    ),
]


def explain(
    run: given.RunFolder,
    phase: Phase = None,
    stage: Stage = None,
    critical_path: CriticalPath = False,
    shorten: Shorten = None,
    json: given.Json = False,
) -> None:
    """Say what bounds a finished run, where every engine's time went, and what follows.

    For example:

    npusim run rk3588 qwen2-1.5b --prompt 128 --generate 8 --quant w8a8 --out runs/a

    npusim explain runs/a

    npusim explain runs/a --phase decode --stage gate_up --json

    npusim explain runs/a --critical-path --phase decode --shorten lm_head
    """
    if shorten is not None and not critical_path:
        raise ConfigError("--shorten", "needs --critical-path", shorten)
    if critical_path and stage is not None:
        raise ConfigError("--stage", "has no critical path of its own", stage)
    # pandas and pyarrow are slow to load
    from npusim.insight.explain import explain as explain_run
    from npusim.report.tables import headline
    from npusim.results.loading import load_result

    result = load_result(run)
    if critical_path:
        explain_critical(str(run), result, phase, shorten, as_json=json)
        return
    found = explain_run(result, phase, stage)
    if json:
        print_json({"run": str(run), "phases": [entry.summary() for entry in found]})
        return
    console = result_console()
    for line in headline(result):
        console.print(line, markup=False)
    for entry in found:
        console.print()
        _print(entry, console)
    from npusim.cli.show_run import print_approximations  # rich is slow to load

    print_approximations([entry.record for entry in found], console)


def _print(found: Explanation, console: Console) -> None:
    """One phase: sentences, tree, operators, bytes."""
    # rich is slow to load
    from npusim.cli.show_run import print_rows, print_table
    from npusim.report.explain_tables import (
        OPERATOR_HEADINGS,
        ROOFLINE_HEADINGS,
        bound_line,
        operator_rows,
        roofline_rows,
        tree_headings,
        tree_rows,
    )
    from npusim.report.tables import memory_rows  # beside the others

    console.print(f"{found.record.phase}: {bound_line(found)}", markup=False)
    for finding in found.findings:
        console.print(f"  - {finding.text}", markup=False)
    tree = found.tree
    if tree is None:
        console.print("  no engines were simulated, so there is no stall tree", markup=False)
    else:
        if tree.stage is not None:
            console.print(f"stage {tree.stage}", markup=False)
        print_rows(tree_headings(tree), tree_rows(tree), console)
    print_rows(OPERATOR_HEADINGS, operator_rows(found), console)
    roofline = found.roofline
    print_rows(ROOFLINE_HEADINGS, roofline_rows(roofline, roofline.tightest()), console)
    print_table("memories", memory_rows(found.record), console)
