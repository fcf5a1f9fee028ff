"""Fidelity `analytic`: launches and rooflines by hand."""

from __future__ import annotations

import pytest

from npusim.analytic.bounds import operator_bound
from npusim.analytic.peaks import peaks_of
from npusim.simulation.memories import peak_bytes_per_s
from npusim.simulation.run import simulate_run
from tests.validation.test_systems_support import MINI, run_spec, tiny_model, workload_of

DECODE = {"context_len": 16, "generate_len": 1, "fidelity": "analytic"}


def decode(*sets, system="edge-npu"):
    """(spec, decode phase, roofline times of its kernels)."""
    spec = run_spec(system, tiny_model(**MINI), sets=sets, **DECODE)
    peaks = peaks_of(spec.system, spec.compiler, peak_bytes_per_s(spec.system))
    graph = workload_of(spec).decode_graph(16)
    times = [operator_bound(op, peaks, counts_activations=True).elapsed_ps for op in graph]
    return spec, simulate_run(spec).phase("decode"), times


def test_eager_kernels_take_the_host_or_the_device_whichever_is_longer():
    spec, phase, times = decode("compiler.launch=eager")
    host = spec.system.host
    each = [max(host.host_issue_ps, host.device_start_ps + t) for t in times]
    assert phase.elapsed_ps == sum(each) + host.sync_ps


def test_graph_nodes_are_dispatched_while_the_kernel_before_runs():
    spec, phase, times = decode("compiler.launch=graph")
    host = spec.system.host
    each = [max(host.graph_node_ps, t) for t in times]
    assert phase.elapsed_ps == sum(each) + host.graph_launch_ps + host.sync_ps


def test_graph_nodes_wait_for_each_other_without_prefetch():
    spec, phase, times = decode("compiler.launch=graph", "compiler.prefetch=false")
    host = spec.system.host
    each = [host.graph_node_ps + t for t in times]
    assert phase.elapsed_ps == sum(each) + host.graph_launch_ps + host.sync_ps


@pytest.mark.parametrize("launch", ["eager", "graph"])
def test_stage_times_and_launches_sum_to_the_phase(launch):
    _, phase, _ = decode(f"compiler.launch={launch}")
    assert sum(stage.elapsed_ps for stage in phase.stages) == phase.elapsed_ps
    assert 0 < sum(stage.launch_ps for stage in phase.stages) <= phase.elapsed_ps
    assert phase.kernels == 18
    assert phase.kernels_per_layer == 15


def test_what_was_not_simulated_is_not_reported():
    _, phase, _ = decode()
    assert phase.engines == ()
    assert [note.kind for note in phase.approximations] == ["analytic_fidelity"]
