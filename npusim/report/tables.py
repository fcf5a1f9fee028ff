"""Tables for people: texts in the units that read best, from raw records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.results.derived import (
    achieved_bytes_per_s,
    cycles_of,
    effective_bandwidth,
    stage_cycles,
    tier_bytes_per_s,
    utilization_of,
)
from npusim.units import format_bytes, format_bytes_per_s, format_hz, format_time_ps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.results.records import EngineRecord, MemoryRecord, PhaseRecord
    from npusim.results.run import RunResult

#: heading and whether the column holds numbers, per table
HEADINGS: dict[str, tuple[tuple[str, bool], ...]] = {
    "stages": (
        *(("stage", False), ("cycles", True), ("time", True), ("share", True), ("launch", True)),
        *(("MACs", True), ("DRAM bytes", True), ("bound by", False)),
    ),
    "engines": (
        *(("engines", False), ("count", True), ("busy", True), ("idle", True)),
        ("top stalls (share of all their time)", False),
    ),
    "memories": (
        *(("memory", False), ("read", True), ("written", True), ("weight", True), ("kv", True)),
        *(("activation", True), ("achieved", True), ("of peak", True), ("row hits", True)),
    ),
    "tiers": (
        *(("tier", False), ("latency", True), ("peak", True), ("read", True)),
        *(("achieved", True), ("supplied", True)),
    ),
}
_TOP_STALLS, _LEAST_FRAC = 4, 0.0005  # what shows as 0.1 % or more


def percent(part: float, whole: float = 1) -> str:
    """Share as text with one decimal; a dash without a whole."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def headline(result: RunResult) -> list[str]:
    """What ran and the figures that matter most."""
    workload = result.workload
    length = (
        f"prompt {workload['prompt_len']}"
        if workload["prompt_len"] is not None
        else f"context {workload['context_len']}"
    )
    weights = format_bytes(workload["weight_bytes"])
    what = (
        f"{workload['model']} on {result.system}: {length}, generate {workload['generate_len']}, "
        f"batch {workload['batch']}, {workload['quant']}, KV {workload['kv_dtype']}"
    )
    how = (
        f"{workload['parameters'] / 1e9:.3f} B parameters, {weights} of weights; "
        f"fidelity {result.fidelity}, executor {result.executor}, {result.wall_s:.1f} s of work"
    )
    return [what, how, *_patterns(workload), *_figures(result)]


def _patterns(workload: Mapping[str, Any]) -> list[str]:
    """Chunks, speculation and extra layers, those in use."""
    lines = []
    if "chunk_tokens" in workload:
        lines.append(
            f"mixed steps: {workload['chunk_tokens']} tokens of another prompt in each, "
            f"{workload['chunk_context_len']} of it cached at first"
        )
    if "speculation" in workload:
        used = workload["speculation"]
        source = used["draft_model"] or "lookup in the prompt"
        lines.append(
            f"speculation: {used['speculate_tokens']} tokens per step by {source}, accepted with "
            f"probability {used['accept_frac']:g}: {used['tokens_per_step']:.4g} tokens per step"
        )
    if "mtp_layers" in workload:
        lines.append(f"multi-token-prediction layers: {workload['mtp_layers']}")
    return lines


def _figures(result: RunResult) -> list[str]:
    """TTFT, TPOT and rate, those that exist."""
    lines = []
    if result.ttft_ps is not None:
        lines.append(f"TTFT    {format_time_ps(result.ttft_ps)}")
    if result.tpot_ps is not None:
        lines.append(f"TPOT    {format_time_ps(result.tpot_ps)}")
    lines.append(f"rate    {result.tokens_per_s:.4g} tokens/s")
    return lines


def phase_facts(record: PhaseRecord) -> list[str]:
    """Time beside its bound, utilizations, kernels and launch share of one phase."""
    cycles = cycles_of(record.elapsed_ps, record.clock_hz)
    clock = f"{record.clock} {format_hz(record.clock_hz)}"
    used = utilization_of(record)
    launch_ps = sum(stage.launch_ps for stage in record.stages)
    return [
        f"{record.phase}: {format_time_ps(record.elapsed_ps)}, {cycles:,} cycles of {clock}, "
        f"{record.tokens} tokens in {record.steps} step{'s' if record.steps != 1 else ''}",
        f"  closed-form bound {format_time_ps(record.bound_ps)}, "
        f"reached {percent(record.bound_ps, record.elapsed_ps)}",
        f"  MACs {_share(used.mac_frac)} of peak, matrix units busy "
        f"{_share(used.matrix_busy_frac)}, DRAM {_share(used.dram_bandwidth_frac)} of peak",
        f"  {record.kernels:,} kernels, {record.kernels_per_layer:g} per layer, "
        f"launch {percent(launch_ps, record.elapsed_ps)} of the time",
    ]


def _share(value: float | None) -> str:
    """Percentage or a dash."""
    return "-" if value is None else percent(value)


def stage_rows(record: PhaseRecord) -> list[tuple[str, ...]]:
    """One row per stage, and their sum."""
    rows = [
        (
            stage.stage,
            f"{cycles:,}",
            format_time_ps(stage.elapsed_ps),
            percent(stage.elapsed_ps, record.elapsed_ps),
            percent(stage.launch_ps, stage.elapsed_ps),
            count(stage.macs),
            format_bytes(stage.dram_bytes),
            stage.bound_by,
        )
        for stage, cycles in zip(record.stages, stage_cycles(record), strict=True)
    ]
    total = (
        "all",
        f"{cycles_of(record.elapsed_ps, record.clock_hz):,}",
        format_time_ps(record.elapsed_ps),
        percent(1),
        percent(sum(stage.launch_ps for stage in record.stages), record.elapsed_ps),
        count(record.macs),
        format_bytes(sum(stage.dram_bytes for stage in record.stages)),
        "",
    )
    return [*rows, total]


def count(value: int) -> str:
    """Large count as text, ``1.54 G``; exact below a thousand."""
    scaled = float(value)
    for prefix in ("", "k", "M", "G", "T"):
        if scaled < 1000 or prefix == "T":
            break
        scaled /= 1000
    return str(value) if not prefix else f"{scaled:.4g} {prefix}"


def engine_rows(record: PhaseRecord) -> list[tuple[str, ...]]:
    """One row per kind of engine: shares of the time of all engines of the kind."""
    kinds: dict[str, list[EngineRecord]] = {}
    for engine in record.engines:
        kinds.setdefault(engine.kind, []).append(engine)
    rows: list[tuple[str, ...]] = []
    for kind, engines in kinds.items():
        whole_ps = record.elapsed_ps * len(engines)
        rows.append(
            (
                kind,
                str(len(engines)),
                percent(sum(engine.busy_ps for engine in engines), whole_ps),
                percent(sum(engine.idle_ps for engine in engines), whole_ps),
                _top_stalls(engines, whole_ps),
            )
        )
    return rows


def _top_stalls(engines: list[EngineRecord], whole_ps: int) -> str:
    """Largest causes of waiting, by share; the rest, and what rounds to nothing, in one sum."""
    total: dict[str, int] = {}
    for engine in engines:
        for cause, stall_ps in engine.stalls_ps.items():
            total[cause] = total.get(cause, 0) + stall_ps
    ranked = sorted(((ps, cause) for cause, ps in total.items() if ps), key=_largest_first)
    top = [(ps, cause) for ps, cause in ranked[:_TOP_STALLS] if ps >= _LEAST_FRAC * whole_ps]
    rest_ps = sum(ps for ps, _ in ranked[len(top) :])
    entries = [*top, *([(rest_ps, "other")] if rest_ps >= _LEAST_FRAC * whole_ps else [])]
    return ", ".join(f"{cause} {percent(ps, whole_ps)}" for ps, cause in entries)


def _largest_first(entry: tuple[int, str]) -> tuple[int, str]:
    """Sort key; equal times by name."""
    return -entry[0], entry[1]


def memory_rows(record: PhaseRecord) -> list[tuple[str, ...]]:
    """One row per memory: traffic by role, rate against peak, row hits."""
    return [_memory_row(memory, record.elapsed_ps) for memory in record.memories]


def _memory_row(memory: MemoryRecord, elapsed_ps: int) -> tuple[str, ...]:
    """Texts of one memory."""
    achieved = achieved_bytes_per_s(memory, elapsed_ps)
    roles: Mapping[str, int] = memory.bytes_by_role
    return (
        memory.name,
        format_bytes(memory.read_bytes),
        format_bytes(memory.write_bytes),
        *(format_bytes(roles.get(role, 0)) for role in ("weight", "kv", "activation")),
        format_bytes_per_s(achieved),
        percent(achieved, memory.peak_bytes_per_s),
        percent(memory.row_hits, memory.accesses),
    )


def tier_rows(record: PhaseRecord) -> list[tuple[str, ...]]:
    """One row per level of the memory hierarchy: what it can, what it did, its share of bytes."""
    found = effective_bandwidth(record)
    if found is None:
        return []
    return [
        (
            tier.tier,
            format_time_ps(tier.latency_ps),
            format_bytes_per_s(tier.peak_bytes_per_s),
            format_bytes(tier.read_bytes),
            format_bytes_per_s(tier_bytes_per_s(tier, record.elapsed_ps)),
            percent(tier.supplied_bytes, found.requested_bytes),
        )
        for tier in record.tiers
    ]


def bandwidth_facts(record: PhaseRecord) -> list[str]:
    """Effective bandwidth of a phase beside the blends of its tiers' peak rates."""
    found = effective_bandwidth(record)
    if found is None:
        return []
    return [
        f"  effective bandwidth {format_bytes_per_s(found.simulated_bytes_per_s)} simulated, "
        f"{percent(found.hit_share_frac)} of the bytes from SRAM; blends of the peaks: "
        f"arithmetic {format_bytes_per_s(found.arithmetic_bytes_per_s)}, "
        f"harmonic {format_bytes_per_s(found.harmonic_bytes_per_s)}"
    ]
