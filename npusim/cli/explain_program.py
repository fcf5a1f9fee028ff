"""``npusim explain-program``: the commands that a run would execute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as given
from npusim.cli.op import operator_settings
from npusim.cli.output import print_json
from npusim.cli.request import RunRequest, blaming_options, build_run_spec
from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from npusim.config.run_spec import WorkloadConfig
    from npusim.program import Program

ModelOrOperator = Annotated[
    str,
    typer.Argument(metavar="MODEL|OP", help="As for `npusim run`; with SHAPE, as for `npusim op`."),
]
Shape = Annotated[
    str | None,
    typer.Argument(metavar="SHAPE", help="Sizes of an operator joined by x, as for `npusim op`."),
]
PhaseName = Annotated[
    str | None,
    typer.Option(
        "--phase",
        metavar="prefill|decode|mixed|draft",
        help="Default: the first phase that runs.",
    ),
]
KernelName = Annotated[
    str | None, typer.Option("--kernel", metavar="NAME", help="Only commands of this kernel.")
]
Limit = Annotated[
    int,
    typer.Option("--limit", parser=given.at_least(1), metavar="N", help="Show at most N commands."),
]
_PHASES = ("prefill", "draft_prefill", "decode", "mixed", "draft")


def explain_program(
    system: given.System,
    model: ModelOrOperator,
    shape: Shape = None,
    prompt: given.Prompt = None,
    generate: given.Generate = None,
    context: given.Context = None,
    batch: given.Batch = None,
    quant: given.Quant = None,
    kv_dtype: given.KvDtype = None,
    overrides: given.Overrides = None,
    no_fold: given.NoFold = False,
    phase: PhaseName = None,
    kernel: KernelName = None,
    limit: Limit = 60,
    json: given.Json = False,
) -> None:
    """Show the program of a phase or operator: engines, kernels, commands, what each waits for.

    For example:

    npusim explain-program rk3588 qwen2-1.5b --context 512 --quant w8a8 --limit 30

    npusim explain-program edge-npu qwen2-1.5b --prompt 128 --kernel layers.0.qkv_proj

    npusim explain-program edge-npu matmul 128x512x512 --quant w4a16
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
        is_folding=not no_fold,
        overrides=tuple(overrides or ()),
    )
    with blaming_options(request):
        if shape is None:
            name, program = _run_program(request, phase)
        else:
            name, program = "operator", _operator_program(request, shape, phase)
    from npusim.program.dump import dump_program  # numpy is slow to load

    if kernel is not None:
        _check_kernel(kernel, {entry.name for entry in program.kernels})
    lines = dump_program(program, limit=limit, kernel=kernel)
    if json:
        print_json({"phase": name, "program": program.digest(), "lines": list(lines)})
        return
    for line in lines:
        print(line)


def _run_program(request: RunRequest, phase: str | None) -> tuple[str, Program]:
    """Phase and program of a run."""
    spec = build_run_spec(request)
    name = _phase(phase, spec.workload)
    from npusim.simulation import compile_run  # numpy and networkx are slow to load

    return name, compile_run(spec, name)


def _operator_program(request: RunRequest, shape: str, phase: str | None) -> Program:
    """Program of one operator."""
    given_values = {
        "--prompt": request.prompt_len,
        "--generate": request.generate_len,
        "--context": request.context_len,
        "--kv-dtype": request.kv_dtype,
        "--phase": phase,
    }
    for option, value in given_values.items():
        if value is not None:
            raise ConfigError(option, "an operator has no phases and no cache", value)
    spec = operator_settings(
        request.system, request.batch or 1, request.quant, None, None, list(request.overrides)
    )
    from npusim.simulation import compile_operator  # numpy and networkx are slow to load

    return compile_operator(
        spec.system,
        request.model,
        shape,
        batch=spec.workload.batch,
        quant=spec.workload.quant,
        compiler=spec.compiler,
    )


def _check_kernel(name: str, known: set[str]) -> None:
    """Refuse a kernel that the program does not have."""
    if name not in known:
        raise ConfigError("--kernel", "no kernel has this name", name, nearest(name, known))


def _phase(name: str | None, workload: WorkloadConfig) -> str:
    """The phase asked for, or the first one of the run."""
    if name is None:
        steps = "decode" if workload.chunk_tokens is None else "mixed"
        return steps if workload.prompt_len is None else "prefill"
    if name not in _PHASES:
        rule = f"must be one of {', '.join(_PHASES)}"
        raise ConfigError("--phase", rule, name, nearest(name, _PHASES))
    return name
