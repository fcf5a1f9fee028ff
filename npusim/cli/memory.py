"""``npusim memory``: the memory kernel alone, on request traces and on reference cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim.cli import options as given
from npusim.cli.output import note, print_json, result_console

if TYPE_CHECKING:
    from npusim.memory.reference.cases import Validation
    from npusim.memory.replay import ReplayResult
    from npusim.memory.specs import DramConfig

EXIT_FAILED, EXIT_BAD_INPUT = 1, 2

app = typer.Typer(
    name="memory",
    help="The memory kernel alone: DRAM devices, trace replay, validation.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("devices")
def devices(json: given.Json = False) -> None:
    """List the DRAM devices of the shipped table.

    For example:

    npusim memory devices

    npusim memory devices --json
    """
    # numba is slow to load
    from npusim.memory.dram.timing import dram_device_names

    rows = [_device_row(name) for name in dram_device_names()]
    if json:
        print_json(rows)
    else:
        shown = ("name", "standard", "channel_GB_per_s", "channel_GiB", "burst_bytes", "banks")
        _print_table(shown, [[str(row[key]) for key in shown] for row in map(_shown, rows)])


def _device_row(name: str) -> dict[str, Any]:
    """Facts on one device."""
    from npusim.memory.dram.timing import load_dram_device, spacings  # numba is slow to load

    device = load_dram_device(name)
    banks = device.bank_groups * device.banks_per_group * device.stack_ids
    return {
        "name": name,
        "standard": device.standard,
        "cycle_ps": float(device.cycle_ps),
        "channel_bytes": device.channel_bytes,
        "channel_peak_bytes_per_s": int(device.channel_peak_bytes_per_s),
        "burst_bytes": device.burst_bytes,
        "pseudo_channels": device.pseudo_channels,
        "banks": banks,
        "timing_nCK": dict(device.timing),
        "spacings_cycles": spacings(device),
        "source": device.source,
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the units of the table."""
    return row | {
        "channel_GB_per_s": f"{row['channel_peak_bytes_per_s'] / 1e9:.2f}",
        "channel_GiB": f"{row['channel_bytes'] / 2**30:g}",
    }


def _print_table(heads: tuple[str, ...], rows: list[list[str]]) -> None:
    """A plain table on stdout."""
    from rich import box  # slow to load
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*row)
    result_console().print(table)


TraceFile = Annotated[
    Path, typer.Argument(metavar="TRACE.npz", help="addr, is_write, arrival_cycle.")
]
Device = Annotated[str, typer.Option(metavar="NAME", help="From `npusim memory devices`.")]
Map = Annotated[
    str,
    typer.Option(
        "--map",
        metavar="MAP",
        help="BGlow, RowLinear, BankLow, BGlowXOR, or bit by bit: "
        "BankGroup:5-6,Column:7-12,Bank:13-14,Row:15-29;Bank^=Row[1:0].",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Take device, controller and map from DIR/results.json."),
]


def _count(name: str, text: str) -> Any:
    """Option of a whole number above 0; None: not given."""
    return typer.Option(name, parser=given.at_least(1), metavar="N", help=text)


Channels = Annotated[int | None, _count("--channels", "Channels. Default: 1.")]
Ranks = Annotated[int | None, _count("--ranks", "Ranks per channel. Default: 1.")]
Interleave = Annotated[
    int | None, _count("--channel-interleave-bytes", "Bytes in one channel. Default: a burst.")
]
QueueDepth = Annotated[int | None, _count("--queue-depth", "Entries of each queue. Default: 32.")]
PageCap = Annotated[
    int | None, _count("--page-cap", "Accesses after which closed_cap closes a row. Default: 1.")
]
BankQueue = Annotated[
    int | None, _count("--bank-queue-depth", "bank_round_robin: commands per bank. Default: 8.")
]
HitLimit = Annotated[
    int | None,
    _count("--row-hit-limit", "bank_round_robin: accesses before a conflict. Default: 4."),
]
Controller = Annotated[str | None, typer.Option(help="frfcfs or bank_round_robin.")]
Scheduler = Annotated[str | None, typer.Option(help="frfcfs_row_hit or frfcfs.")]
PagePolicy = Annotated[str | None, typer.Option(help="open, closed or closed_cap.")]
Refresh = Annotated[str | None, typer.Option(help="all_bank, per_bank or none.")]


@app.command("replay")
def replay(
    trace: TraceFile,
    device: Device,
    address_map: Map,
    reference: Reference = None,
    channels: Channels = None,
    ranks: Ranks = None,
    channel_interleave_bytes: Interleave = None,
    queue_depth: QueueDepth = None,
    controller: Controller = None,
    scheduler: Scheduler = None,
    page_policy: PagePolicy = None,
    page_cap: PageCap = None,
    bank_queue_depth: BankQueue = None,
    row_hit_limit: HitLimit = None,
    refresh: Refresh = None,
    json: given.Json = False,
) -> None:
    """Replay a trace of DRAM bursts on the controllers alone.

    For example:

    npusim memory replay trace.npz --device LPDDR5-6400 --map BGlow

    npusim memory replay trace.npz --device DDR5-4800 --map RowLinear --channels 2 --json
    """
    from npusim.memory.reference.cases import read_trace  # numba is slow to load
    from npusim.memory.replay import replay as run

    settings = {
        "channels": channels, "ranks": ranks, "read_queue_depth": queue_depth,
        "channel_interleave_bytes": channel_interleave_bytes, "write_queue_depth": queue_depth,
        "controller": controller, "scheduler": scheduler, "page_policy": page_policy,
        "page_cap": page_cap, "bank_queue_depth": bank_queue_depth,
        "row_hit_limit": row_hit_limit, "refresh": refresh,
    }  # fmt: skip
    stated = {key: value for key, value in settings.items() if value is not None}
    memory = _memory(device, address_map, reference, stated)
    facts = _replay_facts(memory, address_map, run(*read_trace(trace), memory))
    if json:
        print_json(facts)
        return
    counters = facts.pop("counters")
    for key, value in (facts | counters).items():
        print(f"{key:28} {value}")


def _memory(
    device: str, address_map: str, reference: Path | None, stated: dict[str, Any]
) -> DramConfig:
    """The memory to replay on; what is stated comes before a reference's settings."""
    # numba is slow to load
    from npusim.memory.dram.timing import load_dram_device
    from npusim.memory.reference.cases import ReferenceFolder
    from npusim.memory.replay import replay_memory

    if reference is None:
        return replay_memory(load_dram_device(device), address_map, **stated)
    return ReferenceFolder(reference).memory(device, address_map, **stated)


def _replay_facts(memory: DramConfig, address_map: str, result: ReplayResult) -> dict[str, Any]:
    """What a replay says."""
    moved = (result.reads + result.writes) * memory.device.burst_bytes
    total_ps = float(result.total_cycles * memory.device.cycle_ps)
    achieved = moved * 1e12 / total_ps
    return {
        "device": memory.device.name,
        "address_map": address_map,
        "channels": memory.channels,
        "controller": memory.controller,
        "reads": result.reads,
        "writes": result.writes,
        "total_cycles": result.total_cycles,
        "total_ns": total_ps / 1000,
        "achieved_bytes_per_s": achieved,
        "peak_bytes_per_s": float(memory.peak_bytes_per_s),
        "efficiency_frac": achieved / float(memory.peak_bytes_per_s),
        "mean_read_latency_cycles": result.mean_read_latency_cycles,
        "counters": {k: v for k, v in result.counters.items() if not k.endswith("_bytes")},
    }


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="results.json and traces/.")]


@app.command("validate")
def validate(folder: Folder, json: given.Json = False) -> int:
    """Replay every reference case of a folder and compare total cycles and command lists.

    Exit code 1 if a device misses the target (3 % mean, 8 % at worst), 2 if one cannot be built.

    For example:

    npusim memory validate tests/data/dram

    npusim memory validate tests/data/dram --json
    """
    from npusim.memory.reference.cases import validate_folder  # numba is slow to load

    found = validate_folder(folder)
    if json:
        print_json(_validation_json(found))
    else:
        _print_validation(found)
    for name, text in found.refused.items():
        note(f"npusim: not replayed: {name}: {text}")
    if found.refused:
        return EXIT_BAD_INPUT
    return 0 if found.meets_target else EXIT_FAILED


def _validation_json(found: Validation) -> dict[str, Any]:
    """Devices and cases; `commands_exact` is null without a reference command list."""
    devices = {
        name: {
            "cases": summary.cases,
            "mean_abs_err_frac": summary.mean_abs_err_frac,
            "max_abs_err_frac": summary.max_abs_err_frac,
            "worst_case": summary.worst_case,
        }
        for name, summary in found.devices.items()
    }
    cases = [
        {
            "id": case.id,
            "total_cycles": case.total_cycles,
            "reference_cycles": case.reference_cycles,
            "err_frac": case.err_frac,
            "commands_exact": case.commands_exact,
        }
        for case in found.cases
    ]
    return {"devices": devices, "cases": cases}


def _print_validation(found: Validation) -> None:
    """Cases that differ, then a line per device."""
    shown = ("case", "cycles", "reference", "error", "commands")
    told = {None: "-", True: "exact", False: "differ"}
    rows = [
        [c.id, str(c.total_cycles), str(c.reference_cycles), f"{100 * c.err_frac:+.3f} %",
         told[c.commands_exact]]
        for c in found.cases
    ]  # fmt: skip
    _print_table(shown, rows)
    heads = ("device", "cases", "mean error", "worst error", "worst case", "target")
    lines = [
        [name, str(s.cases), f"{100 * s.mean_abs_err_frac:.3f} %",
         f"{100 * s.max_abs_err_frac:.3f} %", s.worst_case, "met" if s.meets_target else "MISSED"]
        for name, s in found.devices.items()
    ]  # fmt: skip
    _print_table(heads, lines)
