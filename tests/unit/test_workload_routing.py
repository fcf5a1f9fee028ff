"""Which experts tokens visit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npusim.errors import WorkloadError
from npusim.workload.loading import load_model
from npusim.workload.routing import ExpertRouting, expected_distinct, expected_distinct_experts
from npusim.workload.tensor import Role
from npusim.workload.transformer import build_graph


@pytest.mark.parametrize("text", ["uniform", "zipf:1.2", "balanced"])
def test_loads_sum_to_tokens_times_experts_per_token(text):
    loads = ExpertRouting(text, seed=3).loads(64, 6, 1000)
    assert sum(loads) == 6000
    assert max(loads) <= 1000


def test_one_token_visits_distinct_experts():
    assert sorted(ExpertRouting("zipf").loads(16, 4, 1)) == [0] * 12 + [1] * 4


def test_balanced_loads_differ_by_at_most_one():
    # 10 tokens x 2 over 8 experts: four get 3, four get 2
    assert ExpertRouting("balanced").loads(8, 2, 10) == (3, 3, 3, 3, 2, 2, 2, 2)


# Three standard errors of 400 draws; the variance of the count is below E / 4.
@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(128, 8, 1), (128, 8, 16), (8, 2, 3)])
def test_distinct_experts_agree_with_the_closed_form(experts, top_k, tokens):
    draws = [
        np.count_nonzero(ExpertRouting("uniform", seed).loads(experts, top_k, tokens))
        for seed in range(400)
    ]
    tolerance = 3 * (experts / 4 / 400) ** 0.5
    expected = expected_distinct_experts(experts, top_k, tokens)
    assert abs(np.mean(draws) - expected) <= tolerance


def test_zipf_prefers_the_first_expert_by_its_weight():
    # top-1 of 4 experts at S = 1: 1 / (1 + 1/2 + 1/3 + 1/4) = 0.48
    loads = ExpertRouting("zipf:1").loads(4, 1, 20000)
    assert loads[0] / 20000 == pytest.approx(12 / 25, abs=0.011)


def test_the_seed_decides():
    first, again, other = (ExpertRouting("uniform", s).loads(32, 4, 100) for s in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.fixture
def trace(tmp_path):
    """Two layers of four experts; layer 1 always takes experts 2 and 3."""
    rows = [{"layer": 0, "experts": [i % 4, (i + 1) % 4]} for i in range(8)]
    rows += [{"layer": 1, "experts": [2, 3]}] * 8
    path = tmp_path / "routing.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_a_trace_gives_each_layer_its_own_loads(trace):
    routing = ExpertRouting(str(trace))
    assert routing.loads(4, 2, 10, layer=1) == (0, 0, 10, 10)
    assert sum(routing.loads(4, 2, 10, layer=0)) == 20


def test_draws_from_a_trace_visit_as_many_experts_as_its_shares_say(tmp_path):
    # of eight tokens: experts 0 and 1 by 7/8 each, 2 and 3 by 1/8 each, 4 by none
    rows = [{"layer": 0, "experts": [0, 1]}] * 7 + [{"layer": 0, "experts": [2, 3]}]
    path = tmp_path / "skewed.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    for tokens in (1, 4, 16):
        # 2 (1 - (1/8)^T) + 2 (1 - (7/8)^T): 2 for one token
        expected = 2 * (1 - (1 / 8) ** tokens) + 2 * (1 - (7 / 8) ** tokens)
        shares = [7 / 8, 7 / 8, 1 / 8, 1 / 8, 0.0]
        assert expected_distinct(shares, tokens) == pytest.approx(expected)
        draws = [
            np.count_nonzero(ExpertRouting(str(path), seed).loads(5, 2, tokens))
            for seed in range(400)
        ]
        # a draw visits 2 or 4: a standard deviation of at most 1
        assert abs(np.mean(draws) - expected) <= 3 / 400**0.5


def test_a_skew_leaves_experts_unread():
    # the same 64 tokens visit fewer of 128 experts the more they prefer some
    counts = [
        np.count_nonzero(ExpertRouting(text).loads(128, 8, 64))
        for text in ("balanced", "uniform", "zipf:1", "zipf:2")
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 128
    assert counts[-1] < counts[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", 'line 17: must be {"layer": int'),
        ('{"layer": 0, "experts": [1, 1]}', "a token names each expert once"),
        ('{"layer": 0, "experts": [1]}', "every token of a layer names 2 experts"),
        ('{"layer": -1, "experts": [1, 2]}', "integers of at least 0"),
        ('{"layer": 0, "experts": "ab"}', "integers of at least 0"),
    ],
)
def test_a_bad_row_of_a_trace_is_named_by_line(trace, line, message):
    trace.write_text(trace.read_text() + line + "\n")
    with pytest.raises(WorkloadError) as error:
        ExpertRouting(str(trace)).loads(4, 2, 1)
    assert message in str(error.value)


@pytest.mark.parametrize(("layer", "experts"), [(7, 4), (1, 3)])
def test_a_trace_that_does_not_suit_the_model_is_refused(trace, layer, experts):
    with pytest.raises(WorkloadError):
        ExpertRouting(str(trace)).loads(experts, 2, 1, layer)


@pytest.mark.parametrize("text", ["unifrom", "zipf:x", "zipf:-1", "zipf:0", "nowhere.jsonl"])
def test_an_unknown_routing_is_refused(text):
    with pytest.raises(WorkloadError, match="expert_routing"):
        ExpertRouting(text)


def test_only_visited_experts_are_read():
    model = load_model("qwen3-30b-a3b")
    graph = build_graph(model, "decode", context_len=8, num_layers=1)
    gate_up = graph["layers.0.experts.gate_up_proj"]
    assert gate_up.matmul.batch == 8
    assert gate_up.read_bytes(Role.WEIGHT) == 8 * 2048 * 2 * 768 * 2


def test_macs_of_uneven_loads_are_those_of_the_visits():
    model = load_model("qwen3-30b-a3b")
    graph = build_graph(model, "prefill", new_tokens=32, num_layers=1)
    assert graph["layers.0.experts.down_proj"].matmul.group_rows
    assert graph["layers.0.experts.down_proj"].macs == 32 * 8 * 768 * 2048
