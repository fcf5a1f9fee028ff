"""``npusim op``: one operator on one system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim.cli import options as given
from npusim.cli.output import print_json, result_console
from npusim.cli.request import option_of, simulation_config
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.results.operator import OperatorResult

_OVERRIDABLE = ("system.", "compiler.", "simulation.")

Operator = Annotated[
    str, typer.Argument(metavar="OP", help="matmul, attention, softmax or ffn_gated.")
]
Shape = Annotated[
    str,
    typer.Argument(
        metavar="SHAPE",
        help="Sizes joined by x. matmul: MxKxN. attention: BxHxKVHxLqxLkxD (sequences, query "
        "heads, KV heads, queries, keys, head size). softmax: RxC. ffn_gated: MxKxN (tokens, model "
        "width, hidden width).",
    ),
]
MatmulBatch = Annotated[
    int,
    typer.Option(
        "--batch", parser=given.at_least(1), metavar="B", help="Independent products of a matmul."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="path=value",
        help="Change one value; the path starts at system., compiler. or simulation. "
        "May be repeated.",
        show_default=False,
    ),
]
IdealMemory = Annotated[
    bool, typer.Option("--ideal-memory", help="Memory answers at once: what the units alone need.")
]


def op(
    system: given.System,
    operator: Operator,
    shape: Shape,
    batch: MatmulBatch = 1,
    quant: given.Quant = None,
    ideal_memory: IdealMemory = False,
    fidelity: given.FidelityName = None,
    executor: given.ExecutorName = None,
    overrides: Overrides = None,
    json: given.Json = False,
) -> None:
    """Simulate one operator alone.

    For example:

    npusim op rk3588 matmul 512x1536x8960 --quant w8a8

    npusim op edge-npu attention 1x12x2x1x512x128 --json

    npusim op tpu-v6e matmul 1x4096x4096 --ideal-memory --set compiler.max_cores=1
    """
    spec = operator_settings(system, batch, quant, fidelity, executor, overrides or [])
    from npusim.simulation import simulate_operator  # numba is slow to load

    result = simulate_operator(
        spec.system,
        operator,
        shape,
        batch=spec.workload.batch,
        quant=spec.workload.quant,
        ideal_memory=ideal_memory,
        compiler=spec.compiler,
        simulation=spec.simulation,
    )
    if json:
        print_json(result.summary())
    else:
        _print(result, f"{operator} {shape} on {spec.system.name}, {spec.workload.quant}")


def operator_settings(
    system: str,
    batch: int,
    quant: str | None,
    fidelity: str | None,
    executor: str | None,
    overrides: list[str],
) -> RunSpec:
    """System and settings of the options; the workload carries batch and precision only."""
    # pydantic is slow to load
    from npusim.config.build import validated
    from npusim.config.loader import load_system
    from npusim.config.overrides import apply_overrides
    from npusim.config.run_spec import RunSpec, WorkloadConfig

    for text in overrides:
        if not text.startswith(_OVERRIDABLE):
            rule = f"paths of an operator start at {', '.join(_OVERRIDABLE)}"
            raise ConfigError(f"--set {text}", rule, hint="use --batch and --quant")
    values: dict[str, Any] = {"model": "operator", "prompt_len": 1, "batch": batch}
    if quant is not None:
        values["quant"] = quant
    spec = RunSpec(
        system=load_system(system),
        workload=validated(WorkloadConfig, values, option_of),
        simulation=simulation_config(fidelity, executor, is_folding=True, seed=None),
    )
    return apply_overrides(spec, overrides)


def _print(result: OperatorResult, title: str) -> None:
    """Facts and tables of the operator."""
    from npusim.cli.show_run import print_approximations, print_phase  # rich is slow to load

    console = result_console()
    console.print(title, markup=False)
    if result.folds:
        units = f"{result.compute_cycles:,} cycles in {result.folds:,} folds"
        console.print(f"matrix unit alone: {units}", markup=False)
    print_phase(result.phase, console)
    print_approximations([result.phase], console)
