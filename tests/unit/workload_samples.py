"""Runs of shipped systems for tests of workloads."""

from __future__ import annotations

from npusim.config.loader import load_system
from npusim.config.run_spec import RunSpec, WorkloadConfig


def run_spec(system: str, **workload: object) -> RunSpec:
    """A run of a shipped system with default settings."""
    return RunSpec(system=load_system(system), workload=WorkloadConfig.model_validate(workload))
