"""Issue 2, must hold 8: what launching kernels costs on ascend-910b, eagerly and as a graph.

Kernels of one openPangu-Embedded layer in decode, one per operator: attn_norm, qkv, rope, k and v
append, scores, softmax, context, o_proj, residual, mlp_norm, gate_up, silu_mul, down, residual: 15.
Outside the layers: embedding, final_norm, lm_head.
"""

from __future__ import annotations

import logging

import pytest

from tests.validation.test_systems_support import (
    MINI,
    check_accounts,
    run_spec,
    simulated,
    tiny_model,
)

LOG = logging.getLogger(__name__)

KERNELS_PER_LAYER = 15
LAYERS = {"openpangu-embedded-1b": 26, "openpangu-embedded-7b": 34}
MODELS = [
    pytest.param("openpangu-embedded-1b", marks=pytest.mark.slow),
    pytest.param("openpangu-embedded-7b", marks=pytest.mark.slow),
]
DECODE = {"context_len": 512, "generate_len": 1}


def step(model, launch, *more, **lengths):
    """One decode step on ascend-910b."""
    sets = (f"compiler.launch={launch}", *more)
    result = simulated("ascend-910b", model, sets=sets, **(lengths or DECODE))
    check_accounts(result)
    return result.phase("decode")


def launch_ps(phase):
    return sum(stage.launch_ps for stage in phase.stages)


def check_stages_wait_for_launches(eager, graph):
    """Every stage waits longer in eager mode, but for the first: it gets the graph's launch."""
    assert [s.stage for s in eager.stages] == [s.stage for s in graph.stages]
    for one, other in list(zip(eager.stages, graph.stages, strict=True))[1:]:
        assert one.launch_ps > other.launch_ps, one.stage


@pytest.mark.parametrize("model", MODELS)
def test_openpangu_waits_longer_for_eager_launches_in_every_stage(model):
    eager, graph = step(model, "eager"), step(model, "graph")
    assert eager.elapsed_ps > graph.elapsed_ps
    assert launch_ps(eager) > launch_ps(graph)
    check_stages_wait_for_launches(eager, graph)
    LOG.info(
        "%s decode: eager %.3f ms, %.1f %% launch; graph %.3f ms, %.1f %% launch",
        *(model, eager.elapsed_ps / 1e9, 100 * launch_ps(eager) / eager.elapsed_ps),
        *(graph.elapsed_ps / 1e9, 100 * launch_ps(graph) / graph.elapsed_ps),
    )


@pytest.mark.parametrize("model", MODELS)
def test_openpangu_kernels_per_layer_are_counted(model):
    phase = step(model, "eager")
    assert phase.kernels_per_layer == KERNELS_PER_LAYER
    assert phase.kernels == LAYERS[model] * KERNELS_PER_LAYER + 3
    by_stage = {stage.stage: stage.kernels for stage in phase.stages}
    assert by_stage["kv_append"] == by_stage["residual"] == 2 * LAYERS[model]
    assert by_stage["qkv"] == by_stage["down"] == LAYERS[model]
    assert by_stage["embedding"] == by_stage["final_norm"] == by_stage["lm_head"] == 1


def test_eager_launch_of_a_small_model_is_slower_and_mostly_launch():
    eager = step(tiny_model(**MINI), "eager", context_len=16, generate_len=1)
    graph = step(tiny_model(**MINI), "graph", context_len=16, generate_len=1)
    kernels = KERNELS_PER_LAYER + 3
    assert eager.kernels == graph.kernels == kernels
    # issue of 35 us per kernel hides everything else of so small a model; 30 us of sync at the end
    assert eager.elapsed_ps >= kernels * 35_000_000 + 30_000_000
    # one launch of 50 us, 2 us per node, 30 us of sync
    assert graph.elapsed_ps >= 50_000_000 + kernels * 2_000_000 + 30_000_000
    assert eager.elapsed_ps > graph.elapsed_ps
    assert launch_ps(eager) * 2 > eager.elapsed_ps
    check_stages_wait_for_launches(eager, graph)


def test_a_queue_of_one_makes_the_host_wait_for_every_kernel():
    lengths = {"context_len": 16, "generate_len": 1}
    deep = step(tiny_model(**MINI), "eager", **lengths)
    shallow = step(tiny_model(**MINI), "eager", "system.host.queue_depth=1", **lengths)
    assert shallow.elapsed_ps > deep.elapsed_ps
    host = shallow.engines[0]
    assert host.engine == "host"
    assert sum(host.stalls_ps.values()) > sum(deep.engines[0].stalls_ps.values())


def test_launches_in_flight_never_exceed_the_queue():
    # depth 2: launch i is issued once kernel i - 2 was dispatched, so with launches ten times
    # cheaper than dispatches, dispatches alone set the pace: 18 x 50 us
    sets = (
        "system.host.queue_depth=2",
        "system.host.host_issue_ps=5 us",
        "system.host.device_start_ps=50 us",
    )
    phase = step(tiny_model(**MINI), "eager", *sets, context_len=16, generate_len=1)
    assert phase.elapsed_ps >= 18 * 50_000_000
    assert phase.engines[0].busy_ps == 18 * 5_000_000 + 30_000_000


def test_the_launch_path_of_the_system_is_the_default():
    spec = run_spec("ascend-910b", tiny_model(**MINI), context_len=16, generate_len=1)
    assert spec.system.host.launch.value == "eager"
    default = simulated("ascend-910b", tiny_model(**MINI), context_len=16, generate_len=1)
    eager = step(tiny_model(**MINI), "eager", context_len=16, generate_len=1)
    assert default.phase("decode").elapsed_ps == eager.elapsed_ps
