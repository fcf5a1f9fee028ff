"""Run lengths: which phases run, over which contexts."""

from __future__ import annotations

import pytest

from npusim.config.run_spec import WorkloadConfig
from npusim.errors import WorkloadError
from npusim.workload import Phase, Workload, load_model, transformer


def test_the_first_token_comes_from_the_prefill():
    work = transformer("qwen2-1.5b", prompt_len=512, generate_len=64)
    assert work.phases == (Phase.PREFILL, Phase.DECODE)
    assert work.decode_contexts == range(512, 575)
    assert work.capacity_tokens == 575


def test_a_context_without_prefill_decodes_every_token():
    work = transformer("qwen2-1.5b", context_len=512, generate_len=3)
    assert work.phases == (Phase.DECODE,)
    assert list(work.decode_contexts) == [512, 513, 514]
    assert work.capacity_tokens == 515


@pytest.mark.parametrize("generate_len", [0, 1])
def test_a_prompt_with_at_most_one_token_has_no_decode(generate_len):
    work = transformer("qwen2-1.5b", prompt_len=8, generate_len=generate_len)
    assert work.phases == (Phase.PREFILL,)
    assert work.capacity_tokens == 8


def test_the_phase_argument_picks_defaults():
    assert transformer("qwen2-1.5b", phase="decode", context_len=9).decode_contexts == range(9, 10)
    assert transformer("qwen2-1.5b", phase="prefill", prompt_len=9).phases == (Phase.PREFILL,)


def test_graphs_have_the_lengths_of_the_run():
    work = transformer("qwen2-1.5b", prompt_len=6, generate_len=2, batch=3, quant="w8a8")
    assert work.prefill_graph(num_layers=1)["embedding"].rows == 18
    scores = work.decode_graph(6, num_layers=1)["layers.0.scores"]
    assert scores.matmul is not None
    assert scores.matmul.n == 7
    assert scores.phase is Phase.DECODE


def test_totals_are_those_of_the_model():
    work = transformer("qwen2-1.5b", context_len=1, kv_dtype="int8")
    assert work.parameters == 1_543_714_304
    assert work.weight_bytes == 2 * 1_543_714_304
    assert work.weight_bytes_by_dtype == {"bf16": 2 * 1_543_714_304}
    assert work.kv_bytes_per_token == 14_336
    assert work.kv_layout().capacity_tokens == 2


def test_a_workload_config_makes_the_same_workload():
    settings = WorkloadConfig(model="qwen2-1.5b", prompt_len=5, generate_len=2, quant="w4a16")
    direct = transformer("qwen2-1.5b", prompt_len=5, generate_len=2, quant="w4a16")
    assert Workload.of(load_model("qwen2-1.5b"), settings) == direct


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of prompt_len and context_len"),
        ({"prompt_len": 1, "context_len": 1}, "exactly one of prompt_len and context_len"),
        ({"prompt_len": 0}, "prompt_len: must be an integer of at least 1 (got 0)"),
        ({"context_len": -5}, "context_len: must be an integer of at least 1 (got -5)"),
        ({"context_len": 5, "generate_len": 0}, "generate_len: must be an integer of at least 1"),
        ({"prompt_len": 5, "batch": 0}, "batch: must be an integer of at least 1 (got 0)"),
        ({"prompt_len": 5, "batch": 1.5}, "batch: must be an integer of at least 1 (got 1.5)"),
        ({"phase": "decode", "prompt_len": 5}, "context_len: is required for phase='decode'"),
        ({"phase": "prefil", "prompt_len": 5}, "did you mean 'prefill'?"),
        ({"prompt_len": 32_769}, "must fit qwen2-1.5b's 32768 (got 32769)"),
        ({"prompt_len": 32_768, "generate_len": 2}, "(got 32769)"),
        ({"context_len": 32_768}, "(got 32769)"),
        ({"prompt_len": 5, "quant": "w2a2"}, "quant: must be one of"),
        ({"prompt_len": 5, "kv_dtype": "fp4"}, "kv_dtype: must be one of"),
    ],
)
def test_lengths_that_make_no_run_are_refused(arguments, message):
    with pytest.raises(WorkloadError) as error:
        transformer("qwen2-1.5b", **arguments)
    assert message in str(error.value)


def test_a_run_without_prefill_has_no_prefill_graph():
    with pytest.raises(WorkloadError, match="has no prefill"):
        transformer("qwen2-1.5b", context_len=5).prefill_graph()


def test_pruning_is_refused_rather_than_ignored():
    settings = WorkloadConfig(model="qwen2-1.5b", prompt_len=5, kv_prune="window")
    with pytest.raises(WorkloadError, match="KV pruning is not modelled yet"):
        Workload.of(load_model("qwen2-1.5b"), settings)
