"""``npusim requests``, and how `inspect` and `import` show and convert request traces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console
from npusim.errors import WorkloadError
from npusim.units import format_time_ps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.workload.request_synthesis import Lengths, Lognormal
    from npusim.workload.requests import RequestTrace

app = typer.Typer(
    name="requests",
    help="Request traces: when requests arrive and how many tokens they bring.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Count = Annotated[
    int, typer.Option("--count", parser=given.at_least(1), metavar="N", help="Requests.")
]
Rate = Annotated[float, typer.Option("--rate", metavar="R", help="Mean arrivals per second.")]
Cv = Annotated[
    float,
    typer.Option(
        "--cv",
        metavar="C",
        help="Standard deviation over mean of the times between arrivals: 1 is a Poisson process, "
        "other values draw from a Gamma distribution, 0 is a fixed rate.",
    ),
]
LengthsFile = Annotated[
    Path | None,
    typer.Option(
        "--lengths", metavar="FILE", help="Draw pairs of lengths from this trace or CSV file."
    ),
]
PromptSpec = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="MEDIAN,SIGMA[,MAX]",
        help="Lognormal prompt lengths, drawn again above MAX.",
    ),
]
OutputSpec = Annotated[
    str | None,
    typer.Option("--generate", metavar="MEDIAN,SIGMA[,MAX]", help="The same of generated tokens."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="A .jsonl or .csv file. Default: JSONL on stdout."
    ),
]


@app.callback()
def group() -> None:
    """Request traces: when requests arrive and how many tokens they bring."""


@app.command("synthesize")
def synthesize(
    count: Count,
    rate: Rate,
    cv: Cv = 1.0,
    lengths: LengthsFile = None,
    prompt: PromptSpec = None,
    generate: OutputSpec = None,
    seed: given.Seed = None,
    output: Output = None,
) -> None:
    """Make a request trace of random arrivals and lengths; the same seed gives the same trace.

    Lengths come from a real trace (--lengths) or are lognormal (--prompt and --generate). For
    example:

    npusim requests synthesize --count 1000 --rate 4 --lengths azure.csv -o r.jsonl

    npusim requests synthesize --count 500 --rate 2 --cv 3 --prompt 800,1.0,8192 --generate 200,0.7
    """
    # numpy is slow to load
    from npusim.workload.request_synthesis import generator, synthesize_requests

    trace = synthesize_requests(
        count,
        rate,
        _lengths(lengths, prompt, generate),
        generator(seed or 0),
        cv=cv,
        name="synthetic" if output is None else output.stem,
    )
    write(trace, output)


def _lengths(file: Path | None, prompt: str | None, generate: str | None) -> Lengths:
    """Where lengths come from, by the options."""
    from npusim.workload.request_readers import read_lengths  # pydantic is slow to load
    from npusim.workload.request_synthesis import LognormalLengths

    if file is not None and prompt is None and generate is None:
        return read_lengths(file)
    if file is None and prompt is not None and generate is not None:
        return LognormalLengths(_lognormal("--prompt", prompt), _lognormal("--generate", generate))
    rule = "come from either --lengths FILE, or both --prompt and --generate"
    raise WorkloadError("lengths", rule)


def _lognormal(option: str, text: str) -> Lognormal:
    from npusim.workload.request_synthesis import Lognormal  # numpy is slow to load

    parts = text.split(",")
    try:
        if len(parts) not in (2, 3):
            raise ValueError
        median, sigma = float(parts[0]), float(parts[1])
        most = [int(part) for part in parts[2:]]
    except ValueError:
        rule = "must be MEDIAN,SIGMA or MEDIAN,SIGMA,MAX, such as 800,1.0,8192"
        raise WorkloadError(option, rule, text) from None
    try:
        return Lognormal(median, sigma, *most)
    except WorkloadError as error:
        raise WorkloadError(option, error.rule, error.value) from None


def refuse_given(settings: Mapping[str, object], why: str) -> None:
    """Refuse options that would be ignored."""
    for option, value in settings.items():
        if value not in (None, False, []):
            raise WorkloadError(option, why, str(value))


def write(trace: RequestTrace, output: Path | None) -> None:
    """To a file, or to stdout."""
    from npusim.workload.request_files import request_lines, write_requests  # pydantic is slow

    if output is None:
        sys.stdout.writelines(f"{line}\n" for line in request_lines(trace))
        return
    write_requests(trace, output)
    note(f"{output}: {len(trace)} requests")


def show(file: Path, *, json: bool) -> RequestTrace:
    """Print what a request trace looks like."""
    from npusim.workload.request_readers import read_requests  # pydantic is slow to load
    from npusim.workload.request_statistics import request_statistics

    kind, trace = read_requests(file)
    facts = request_statistics(trace).facts()
    if json:
        print_json({"kind": kind, "name": trace.name, **facts, "notes": list(trace.notes)})
    else:
        _print(kind, trace, facts)
    return trace


def _print(kind: str, trace: RequestTrace, facts: dict[str, Any]) -> None:
    """Tables."""
    from rich.table import Table  # slow to load

    console = result_console()
    rate = facts["rate_per_s"]
    console.print(
        f"{trace.name}: {kind}, {facts['requests']} requests in "
        f"{format_time_ps(facts['duration_ps'])}"
        + (f", {rate:.4g} per second" if rate is not None else ""),
        markup=False,
    )
    table = Table(box=None, padding=(0, 1))
    table.add_column("")
    for heading in ("min", "p50", "p90", "p95", "p99", "max", "mean"):
        table.add_column(heading, justify="right")
    keys = ("minimum", "p50", "p90", "p95", "p99", "maximum")
    for label, name in (("prompt tokens", "prompt_len"), ("generated tokens", "output_len")):
        spread = facts[name]
        table.add_row(label, *(str(spread[key]) for key in keys), f"{spread['mean']:.1f}")
    gaps = facts["interarrival_ps"]
    if gaps is not None:
        shown = (format_time_ps(gaps[key]) for key in keys)
        table.add_row("time between arrivals", *shown, format_time_ps(round(gaps["mean"])))
    console.print(table)
    for label, key in (
        ("burstiness (cv of times between arrivals)", "interarrival_cv"),
        ("index of dispersion (windows of 10 s)", "index_of_dispersion"),
        ("prompt tokens in prefixes seen before", "prefix_reuse_frac"),
    ):
        if facts[key] is not None:
            console.print(f"{label}: {facts[key]:.4g}", markup=False)
    for text in trace.notes:
        console.print(f"note: {text}", markup=False)
