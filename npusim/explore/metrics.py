"""Columns that a sweep can take from a result, by the names of the summary JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npusim.explore.spec import SweepSpec
    from npusim.results.run import RunResult

HEADLINES = ("elapsed_ps", "ttft_ps", "tpot_ps", "tokens_per_s")
PHASES = ("prefill", "decode")
_SUMMARY = ("elapsed_ps", "cycles", "bound_ps", "tokens", "commands", "kernels", "macs")
_UTILIZATION = ("mac_frac", "matrix_busy_frac", "dram_bandwidth_frac")
_TRAFFIC = ("dram_read_bytes", "dram_write_bytes")
METRICS = (
    *HEADLINES,
    *(f"{phase}.{name}" for phase in PHASES for name in (*_SUMMARY, *_UTILIZATION, *_TRAFFIC)),
)


def metrics_of(result: RunResult) -> dict[str, int | float | None]:
    """Every metric of a result; None where its phase did not run."""
    summary = result.summary()
    found: dict[str, int | float | None] = dict.fromkeys(METRICS)
    found |= {name: summary[name] for name in HEADLINES if name in summary}
    found["elapsed_ps"] = result.elapsed_ps
    for phase, facts in summary["phases"].items():
        found |= {f"{phase}.{name}": facts[name] for name in _SUMMARY}
        found |= {f"{phase}.{name}": facts["utilization"][name] for name in _UTILIZATION}
        dram = [memory for memory in facts["memories"] if memory["name"] in _dram_names(result)]
        found[f"{phase}.dram_read_bytes"] = sum(memory["read_bytes"] for memory in dram)
        found[f"{phase}.dram_write_bytes"] = sum(memory["write_bytes"] for memory in dram)
    return found


def _dram_names(result: RunResult) -> set[str]:
    return {
        memory.name
        for record in result.phases.values()
        for memory in record.memories
        if memory.kind == "dram"
    }


def check_metrics(
    spec: SweepSpec,
    workloads: list[dict[str, Any]],
    where: Callable[[tuple[str | int, ...]], str],
) -> None:
    """Refuse metrics that no result has, and objectives that are no column.

    Raises
    ------
    ConfigError
        With the nearest name, or the phase that the workload lacks.
    """
    for i, name in enumerate(spec.metrics):
        if name not in METRICS:
            raise ConfigError(where(("metrics", i)), "no metric", name, nearest(name, METRICS))
        needed = {"ttft_ps": "prefill", "tpot_ps": "decode"}.get(name, name.partition(".")[0])
        if needed in PHASES and not any(_may_have(needed, workload) for workload in workloads):
            raise ConfigError(where(("metrics", i)), f"the workload has no {needed}", name)
    for name in spec.derived:
        if name in METRICS or not name.isidentifier():
            raise ConfigError(where(("derived", name)), "must be a word and no metric", name)
    columns = [*spec.metrics, *spec.derived]
    for name in spec.objectives:
        if name not in columns:
            rule = "must be one of the sweep's metrics and derived columns"
            raise ConfigError(where(("objectives", name)), rule, name, nearest(name, columns))


def _may_have(phase: str, workload: Mapping[str, Any]) -> bool:
    """Whether a workload runs a phase; a trace says so itself, so it may."""
    if workload["prompt_len"] is None and workload["context_len"] is None:
        return True
    if phase == "prefill":
        return workload["prompt_len"] is not None
    return bool(workload["context_len"] is not None or workload["generate_len"] > 1)
