"""``npusim validate`` and ``npusim calibrate``: simulated against measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from npusim.config.run_spec import Fidelity
    from npusim.studies.calibration import Calibration
    from npusim.studies.measurements import Measurement
    from npusim.studies.validation import Row, Validation

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="CSV",
        help="Measured operators: columns op,m,k,n,batch,q_heads,kv_heads,q_len,kv_len,head_dim,"
        "model,latency_ns. Default: the rows shipped for the system.",
        show_default=False,
    ),
]
FidelityName = Annotated[
    str | None,
    typer.Option(
        "--fidelity", metavar="burst|transfer", help="How memory is simulated. Default: transfer."
    ),
]


def validate(
    system: given.System,
    data: Data = None,
    fidelity: FidelityName = None,
    json: given.Json = False,
) -> None:
    """Compare a system with measurements of the device it models.

    Runs every measured operator alone and reports the error, per operator and regime, beside the
    roofline, the fold closed form and a two-term closed form fitted to the same rows.

    For example:

    npusim validate tpu-v6e

    npusim validate tpu-v6e --data more-rows.csv --json
    """
    # numba and pydantic are slow to load
    from npusim.config.loader import load_system
    from npusim.studies.measurements import operator_rows
    from npusim.studies.validation import validate as run

    config = load_system(system)
    shipped = _shipped(config.name, is_required=data is None)
    rows = shipped if data is None else operator_rows(data)
    result = run(config, rows, shipped, _fidelity(fidelity), _progress())
    if json:
        print_json(result.summary())
    else:
        _print_validation(result, result_console())


def calibrate(
    system: given.System,
    fidelity: FidelityName = None,
    json: given.Json = False,
) -> None:
    """Fit the numbers a system lists under `calibration` to the rows it names there.

    Prints the best values; the file is not changed.

    For example:

    npusim calibrate tpu-v6e
    """
    # numba and pydantic are slow to load
    from npusim.config.loader import load_system
    from npusim.studies.calibration import calibrate as run

    config = load_system(system)
    shipped = _shipped(config.name, is_required=True)
    result = run(config, shipped, _fidelity(fidelity), note)
    if json:
        print_json(_calibration_summary(result))
        return
    console = result_console()
    console.print(
        f"{result.system}: {result.rows} rows, {len(result.trials)} settings", markup=False
    )
    for name, trial in (("shipped", result.shipped), ("best", result.best)):
        said = ", ".join(f"{path} = {value}" for path, value in trial.values.items())
        console.print(f"{name}: {100 * trial.mean_abs_frac:.2f} % with {said}", markup=False)


def _calibration_summary(result: Calibration) -> dict[str, object]:
    # slow to load
    from dataclasses import asdict

    return asdict(result)


def _shipped(system: str, *, is_required: bool) -> Sequence[Measurement]:
    """Shipped rows of a system; none is fine where the user brings rows."""
    # numba is slow to load
    from npusim.errors import ConfigError
    from npusim.studies.measurements import device_rows

    try:
        return device_rows(system)
    except ConfigError:
        if is_required:
            raise
        return ()


def _fidelity(text: str | None) -> Fidelity:
    # pydantic is slow to load
    from npusim.cli.request import simulation_config
    from npusim.config.run_spec import Fidelity
    from npusim.errors import ConfigError

    wanted = simulation_config(text or "transfer", None, is_folding=True, seed=None).fidelity
    if wanted is Fidelity.ANALYTIC:
        rule = "operators are simulated at burst or transfer"
        raise ConfigError("--fidelity", rule, text)
    return wanted


def _progress() -> Callable[[float, str], None] | None:
    """A line that rewrites itself, on a terminal only."""
    if not sys.stderr.isatty():
        return None

    def show(done: float, name: str) -> None:
        end = "\n" if done >= 1 else ""
        print(f"\r{100 * done:3.0f} % {name:60}", end=end, file=sys.stderr, flush=True)

    return show


def _print_validation(result: Validation, console: Console) -> None:
    """Errors by group and model, worst rows, and what was fitted."""
    from rich.table import Table  # slow to load

    # numba is slow to load
    from npusim.studies.validation import MODELS, ErrorSummary

    console.print(f"{result.system}, {result.fidelity}: mean |error| (bias) in %", markup=False)
    table = Table(box=None, pad_edge=False)
    for name in ("rows", "n", *MODELS):
        table.add_column(name.replace("_", " "), justify="left" if name == "rows" else "right")
    for name, rows in result.groups().items():
        cells = []
        for model in MODELS:
            found = ErrorSummary.of(rows, model)
            cells.append(
                f"{100 * found.mean_abs_frac:.1f} ({100 * found.bias_frac:+.1f})" if found else "-"
            )
        table.add_row(name, str(len(rows)), *cells)
    console.print(table)
    _print_worst(result.worst(), console)
    if result.two_term is not None:
        fit = result.two_term
        text = (
            f"{fit.floor_ns:.0f} ns + max(c / {fit.compute_share:.2f}, b / {fit.memory_share:.2f})"
        )
        console.print(f"two term: {text}", markup=False)
    for path, how in result.parameters.items():
        console.print(f"fitted: {path}: {how}", markup=False)


def _print_worst(rows: Sequence[Row], console: Console) -> None:
    """Rows with the largest errors."""
    from rich.table import Table  # slow to load

    table = Table(box=None, pad_edge=False, title="worst rows", title_justify="left")
    for name in ("row", "measured us", "simulated us", "error %", "regime", "bound by"):
        table.add_column(name, justify="left" if name in ("row", "regime", "bound by") else "right")
    for row in rows:
        table.add_row(
            row.id,
            f"{row.measured_ns / 1e3:.1f}",
            f"{row.simulated_ns / 1e3:.1f}",
            f"{100 * (row.error('simulated') or 0):+.1f}",
            row.regime,
            row.bound_by,
        )
    console.print(table)
