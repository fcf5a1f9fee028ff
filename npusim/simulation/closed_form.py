"""Fidelity `analytic`: a phase from closed forms, without events.

Every kernel takes its own roofline time t (weights, KV and activations from DRAM at peak rate, or
MACs at peak rate, whichever is longer) plus its launch. Eager:
``max(host_issue, device_start + t)``. Graph: ``max(graph_node, t)``, since dispatch runs ahead
(``graph_node + t`` without `compiler.prefetch`). One ``graph_launch`` and one ``sync`` per step.
Left out: latency, tiles, vector work, row misses, contention; so engines and stalls are not
reported.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from npusim.analytic.bounds import operator_bound, phase_bound_ps
from npusim.analytic.peaks import peaks_of
from npusim.config.compiler import Launch
from npusim.config.host import LaunchMode
from npusim.results.records import Approximation, MemoryRecord, PhaseRecord, StageRecord
from npusim.simulation.memories import peak_bytes_per_s
from npusim.simulation.tally import Tally
from npusim.workload.tensor import Role

if TYPE_CHECKING:
    from npusim.analytic.bounds import Bound
    from npusim.config.host import HostSpec
    from npusim.config.run_spec import RunSpec
    from npusim.simulation.phase import GraphSource
    from npusim.workload.operator import Operator


_SCORES = ("compute", "dram", "bus", "launch")


def closed_form_tally(source: GraphSource, spec: RunSpec) -> tuple[Tally, int]:
    """Counts of one phase or step, and its lower bound.

    Layers repeat exactly, so one repeat unit is evaluated and multiplied.
    """
    system = spec.system
    rates = peak_bytes_per_s(system)
    peaks = peaks_of(system, spec.compiler, rates)
    launch = _launch_mode(spec)
    prefix = source.prefix_layers
    repeats, rest = divmod(source.num_layers - prefix, source.unit_layers)
    graph = source.build(source.num_layers if rest else prefix + source.unit_layers)
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    first_stage = graph.operators[0].stage
    counts["stage", first_stage, "elapsed_ps"] += _fixed_ps(system.host, launch)
    counts["stage", first_stage, "launch_ps"] += _fixed_ps(system.host, launch)
    for operator in graph:
        is_repeated = operator.layer is not None and operator.layer >= prefix
        times = repeats if is_repeated and not rest else 1
        bound = operator_bound(operator, peaks, counts_activations=True)
        elapsed_ps = _launched_ps(spec, launch, bound.elapsed_ps)
        _count(counts, operator, bound, times, elapsed_ps)
    total = source.build(source.num_layers)
    bound_ps = phase_bound_ps(total, system, spec.compiler, rates).elapsed_ps
    elapsed = sum(n for key, n in counts.items() if key[0] == "stage" and key[2] == "elapsed_ps")
    last_stage = graph.operators[-1].stage
    counts["stage", last_stage, "elapsed_ps"] += max(bound_ps - elapsed, 0)  # rounding down per op
    counts["phase", "elapsed_ps"] = max(elapsed, bound_ps)
    return Tally(dict(counts)), bound_ps


def closed_form_record(
    name: str,
    tally: Tally,
    spec: RunSpec,
    *,
    tokens: int,
    steps: int,
    bound_ps: int,
    footprint_bytes: int,
    num_layers: int,
) -> PhaseRecord:
    """The phase record of summed tallies."""
    device_name, device = next(iter(spec.system.devices.items()))
    memory = spec.system.buses[device.bus].memory
    peaks = peak_bytes_per_s(spec.system)
    cores = min(device.cores, spec.compiler.max_cores or device.cores)
    matrix = device.core.matrix
    return PhaseRecord(
        phase=name,
        elapsed_ps=tally["phase", "elapsed_ps"],
        clock=f"devices.{device_name}",
        clock_hz=device.clock_hz,
        bound_ps=bound_ps,
        tokens=tokens,
        steps=steps,
        commands=0,
        kernels=tally["phase", "kernels"],
        macs=tally["phase", "macs"],
        peak_macs_per_cycle=cores * max(matrix.macs_per_cycle(d) for d in matrix.dtypes),
        stages=_stages(tally),
        operators=(),
        engines=(),
        memories=(
            MemoryRecord(
                name=memory,
                kind="dram",
                read_bytes=tally["bytes", "read"],
                write_bytes=tally["bytes", "write"],
                bytes_by_role={role.value: tally["bytes", role.value] for role in Role},
                accesses=0,
                row_hits=0,
                row_misses=0,
                row_conflicts=0,
                refreshes=0,
                peak_bytes_per_s=peaks[memory],
                footprint_bytes=footprint_bytes,
                capacity_bytes=spec.system.memories[memory].capacity_bytes,
            ),
        ),
        sram=(),
        barriers=(),
        approximations=(
            Approximation(
                "analytic_fidelity",
                name,
                None,
                "sum of per-kernel rooflines and launches; nothing was simulated",
            ),
        ),
        kernels_per_layer=tally["phase", "layer_kernels"] / (num_layers * steps),
    )


def _count(
    counts: dict[tuple[str, ...], int],
    operator: Operator,
    bound: Bound,
    times: int,
    elapsed_ps: int,
) -> None:
    stage = operator.stage
    values = {
        "elapsed_ps": elapsed_ps,
        "active_ps": bound.elapsed_ps,
        "launch_ps": elapsed_ps - bound.elapsed_ps,
        "macs": operator.macs,
        "dram_bytes": bound.dram_bytes,
        "kernels": 1,
        "score.compute": bound.compute_ps,
        "score.dram": bound.dram_ps,
        "score.bus": bound.bus_ps,
        "score.launch": elapsed_ps - bound.elapsed_ps,
    }
    for name, value in values.items():
        counts["stage", stage, name] += times * value
    counts["phase", "kernels"] += times
    counts["phase", "macs"] += times * operator.macs
    counts["phase", "layer_kernels"] += times if operator.layer is not None else 0
    counts["bytes", "read"] += times * bound.dram_read_bytes
    counts["bytes", "write"] += times * bound.dram_write_bytes
    for role in Role:
        moved = operator.read_bytes(role) + operator.write_bytes(role)
        counts["bytes", role.value] += times * moved


def _stages(tally: Tally) -> tuple[StageRecord, ...]:
    return tuple(
        StageRecord(
            stage=stage,
            elapsed_ps=tally["stage", stage, "elapsed_ps"],
            active_ps=tally["stage", stage, "active_ps"],
            macs=tally["stage", stage, "macs"],
            dram_bytes=tally["stage", stage, "dram_bytes"],
            bound_by=max(_SCORES, key=lambda name: tally["stage", stage, f"score.{name}"]),
            launch_ps=tally["stage", stage, "launch_ps"],
            kernels=tally["stage", stage, "kernels"],
        )
        for stage in tally.names("stage")
    )


def _launch_mode(spec: RunSpec) -> LaunchMode:
    wanted = spec.compiler.launch
    return spec.system.host.launch if wanted is Launch.SYSTEM else LaunchMode(wanted.value)


def _fixed_ps(host: HostSpec, launch: LaunchMode) -> int:
    return host.sync_ps + (host.graph_launch_ps if launch is LaunchMode.GRAPH else 0)


def _launched_ps(spec: RunSpec, launch: LaunchMode, kernel_ps: int) -> int:
    host = spec.system.host
    if launch is LaunchMode.GRAPH:
        runs_ahead = spec.compiler.prefetch
        serial_ps = host.graph_node_ps + kernel_ps
        return max(host.graph_node_ps, kernel_ps) if runs_ahead else serial_ps
    return max(host.host_issue_ps, host.device_start_ps + kernel_ps)
