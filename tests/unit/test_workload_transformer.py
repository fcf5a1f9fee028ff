"""Graphs of a decoder: MACs, shapes, traffic and edges against hand-derived numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npusim.errors import WorkloadError
from npusim.workload import (
    STAGES,
    OperatorGraph,
    OperatorKind,
    Phase,
    Role,
    build_graph,
    load_model,
)


@pytest.fixture(scope="module")
def qwen2():
    return load_model("qwen2-1.5b")


@pytest.fixture(scope="module")
def smollm2_two_layers():
    return replace(load_model("smollm2-135m"), num_layers=2, windows=(None, None))


# Per layer and token 576 x 960 + 576 x 576 + 3 x 576 x 1536 = 3,538,944; attention 2 x 576 x keys
# per query; lm_head 576 x 49152 = 28,311,552. Decode at 512: 2 x 3,538,944 + 2 x 2 x 576 x 513 +
# 28,311,552. Prefill of 128: 2 x 128 x 3,538,944 + 2 x 128 x 2 x 576 x 128, and lm_head once or,
# as frameworks trace it, at all 128 positions.
@pytest.mark.parametrize(
    ("lengths", "all_logits", "macs"),
    [
        ({"phase": "decode", "context_len": 512}, False, 36_571_392),
        ({"phase": "prefill", "new_tokens": 128}, True, 4_567_597_056),
        ({"phase": "prefill", "new_tokens": 128}, False, 972_029_952),
    ],
)
def test_macs_of_a_two_layer_decoder_equal_the_traced_ones(
    smollm2_two_layers, lengths, all_logits, macs
):
    assert build_graph(smollm2_two_layers, **lengths, all_logits=all_logits).macs == macs


# Qwen2-1.5B decode at 512: linears 28 x 46,792,704 (46,797,824 parameters of a layer less its
# 2,048 biases and 3,072 norms), attention 28 x 2 x 12 x 128 x 513, lm_head 1536 x 151936.
def test_macs_of_a_qwen2_decode_step(qwen2):
    expected = 28 * 46_792_704 + 28 * 2 * 1536 * 513 + 233_373_696
    assert build_graph(qwen2, "decode", context_len=512).macs == expected


def test_grouped_queries_share_one_matmul_per_kv_head(qwen2):
    graph = build_graph(qwen2, "decode", batch=3, context_len=99)
    scores, context = graph["layers.0.scores"], graph["layers.0.context"]
    assert scores.matmul is not None
    assert context.matmul is not None
    assert (scores.matmul.batch, scores.matmul.m, scores.matmul.k, scores.matmul.n) == (
        3 * 2,
        6,
        128,
        100,
    )
    assert (context.matmul.batch, context.matmul.m, context.matmul.k, context.matmul.n) == (
        3 * 2,
        6,
        100,
        128,
    )
    assert scores.read_bytes(Role.KV) == 3 * 2 * 100 * 128 * 2


def test_head_dim_sets_the_width_of_the_projections():
    graph = build_graph(load_model("qwen3-0.6b"), "decode", context_len=1)
    assert graph["layers.0.qkv_proj"].inputs[1].shape == (1024, 2048 + 2 * 1024)
    assert graph["layers.0.o_proj"].inputs[1].shape == (2048, 1024)


def test_stages_of_a_layer_come_in_the_documented_order():
    graph = build_graph(load_model("qwen3-0.6b"), "decode", context_len=1, num_layers=1)
    assert set(graph.stages) <= set(STAGES)
    assert sorted(graph.stages, key=STAGES.index) == list(graph.stages)
    assert [op.stage for op in graph if op.layer == 0] == [
        *("attn_norm", "qkv", "qk_norm", "rope", "kv_append", "kv_append"),
        *("scores", "softmax", "context", "o_proj", "residual"),
        *("mlp_norm", "gate_up", "silu_mul", "down", "residual"),
    ]


def test_append_writes_exactly_the_new_keys_and_values(qwen2):
    graph = build_graph(qwen2, "prefill", batch=2, new_tokens=5)
    append = graph["layers.3.k_append"]
    assert append.kind is OperatorKind.KV_APPEND
    assert append.outputs[0].shape == (2, 2, 5, 128)
    assert append.kv_runs == (5 * 128 * 2, 2 * 2)
    # 28,672 bytes per token, 10 new tokens
    assert graph.compulsory_write_bytes(Role.KV) == 10 * 28_672
    assert graph.compulsory_read_bytes(Role.KV) == 0


def test_decode_reads_the_cached_tokens_once_and_writes_one(qwen2):
    graph = build_graph(qwen2, "decode", batch=4, context_len=512)
    assert graph.compulsory_read_bytes(Role.KV) == 4 * 512 * 28_672
    assert graph.compulsory_write_bytes(Role.KV) == 4 * 28_672


def test_scores_wait_for_the_append_of_their_layer(qwen2):
    graph = build_graph(qwen2, "decode", context_len=7, num_layers=2)
    names = [op.name for op in graph.producers("layers.1.scores")]
    assert names == ["layers.1.rope", "layers.1.k_append"]
    assert [op.name for op in graph.consumers("layers.1.v_append")] == ["layers.1.context"]


# Only the rows of the embedding that are looked up are read: 1 of 151,936 x 1,536 x 2 bytes. Tied
# and 16 bit, lm_head reads the whole table, and the row counts once within it.
def test_compulsory_weight_bytes_count_a_tied_table_once(qwen2):
    graph = build_graph(qwen2, "decode", context_len=1)
    assert graph.compulsory_read_bytes(Role.WEIGHT) == 2 * 1_543_714_304
    quantised = build_graph(qwen2, "decode", context_len=1, quant="w8a8")
    linears = 28 * 46_792_704 + 233_373_696
    columns = 28 * (2048 + 1536 + 2 * 8960 + 1536) + 151_936
    vectors = 28 * (2048 + 3072) + 1536
    expected = linears + 2 * columns + 2 * vectors + 2 * 1536
    assert quantised.compulsory_read_bytes(Role.WEIGHT) == expected


def test_graph_inputs_and_outputs_are_token_ids_and_last_logits(qwen2):
    graph = build_graph(qwen2, "prefill", batch=2, new_tokens=9)
    assert [(t.name, t.nbytes) for t in graph.inputs] == [("token_ids", 2 * 9 * 4)]
    assert [(t.name, t.shape) for t in graph.outputs] == [("logits", (2, 151_936))]


def test_only_the_last_position_of_a_prefill_reaches_the_head(qwen2):
    graph = build_graph(qwen2, "prefill", batch=2, new_tokens=9)
    assert graph["lm_head"].matmul is not None
    assert graph["lm_head"].matmul.m == 2
    assert graph["final_norm"].inputs[0].shape == (2, 1536)


def test_eight_bit_activations_enter_matmuls_with_weights_only(qwen2):
    graph = build_graph(qwen2, "decode", context_len=3, quant="w8a8", num_layers=1)
    for operator in graph:
        if operator.kind is OperatorKind.MATMUL:
            expected = "bf16" if operator.stage in ("scores", "context") else "int8"
            assert operator.compute_dtype == expected, operator.name
            assert operator.inputs[0].dtype == expected, operator.name
        elif operator.stage in ("residual", "rope", "softmax"):
            assert {t.dtype for t in operator.outputs} == {"bf16"}, operator.name


def test_quantising_counts_one_multiplication_and_one_conversion_per_element(qwen2):
    plain = build_graph(qwen2, "decode", context_len=3)["layers.0.attn_norm"]
    narrow = build_graph(qwen2, "decode", context_len=3, quant="w8a8")["layers.0.attn_norm"]
    before, after = dict(plain.vector_ops), dict(narrow.vector_ops)
    assert after.pop("convert") == 1536
    assert after.pop("mul") - before.pop("mul") == 1536
    assert after == before


@pytest.mark.parametrize(
    ("quant", "kv_dtype", "attention", "operators"),
    [
        ("w16a16", None, "bf16", 0),
        ("w16a16", "int8", "bf16", 1),
        ("w8a8", "int8", "int8", 1),
        ("w8a8", "int4", "bf16", 1),
        ("w8a8", "fp8", "bf16", 1),
        ("w4a8", None, "bf16", 0),
    ],
)
def test_attention_is_eight_bit_only_if_activations_and_cache_are(
    qwen2, quant, kv_dtype, attention, operators
):
    graph = build_graph(
        qwen2, "decode", context_len=3, quant=quant, kv_dtype=kv_dtype, num_layers=1
    )
    assert graph["layers.0.scores"].compute_dtype == attention
    assert graph["layers.0.scores"].inputs[0].dtype == attention
    assert sum(op.name == "layers.0.kv_quantize" for op in graph) == operators


def test_biases_are_third_inputs_and_add_once_per_output(qwen2):
    qkv = build_graph(qwen2, "prefill", new_tokens=4)["layers.0.qkv_proj"]
    assert [t.shape for t in qkv.inputs[2:]] == [(2048,)]
    assert qkv.vector_ops == (("add", 4 * 2048),)
    assert [t.shape for t in qkv.outputs] == [(4, 1536), (4, 256), (4, 256)]


# A query sees 4,096 tokens including itself, so a step at 10,000 reads 4,095 cached ones.
def test_a_sliding_window_limits_what_decode_reads():
    graph = build_graph(load_model("mistral-7b-v0.1"), "decode", context_len=10_000)
    assert graph["layers.0.scores"].matmul is not None
    assert graph["layers.0.scores"].matmul.n == 4096
    assert graph.compulsory_read_bytes(Role.KV) == 4095 * 131_072


def test_an_inert_sliding_window_limits_nothing():
    graph = build_graph(load_model("qwen2-1.5b"), "decode", context_len=32_767)
    assert graph["layers.27.context"].matmul is not None
    assert graph["layers.27.context"].matmul.k == 32_768


def test_scaled_models_multiply_embedding_residual_and_logits():
    graph = build_graph(load_model("minicpm-2b"), "decode", context_len=3, num_layers=1)
    assert graph["embedding_scale"].vector_ops == (("mul", 2304),)
    assert graph["layers.0.attn_residual"].vector_ops == (("add", 2304), ("mul", 2304))
    assert dict(graph["final_norm"].vector_ops)["mul"] == 3 * 2304 + 1 + 2304


def test_fewer_layers_give_a_prefix_of_the_graph(qwen2):
    whole = build_graph(qwen2, "decode", context_len=5)
    two = build_graph(qwen2, "decode", context_len=5, num_layers=2)
    assert two.layers == (0, 1)
    assert [op.name for op in two][:-2] == [op.name for op in whole][: len(two) - 2]


def test_phase_labels_every_operator(qwen2):
    graph = build_graph(qwen2, "prefill", new_tokens=3, num_layers=1)
    assert {op.phase for op in graph} == {Phase.PREFILL}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"new_tokens": 0}, "new_tokens: must be an integer of at least 1 (got 0)"),
        ({"batch": -1}, "batch: must be an integer of at least 1 (got -1)"),
        ({"batch": True}, "batch: must be an integer of at least 1 (got True)"),
        ({"context_len": -1}, "context_len: must be an integer of at least 0 (got -1)"),
        ({"phase": "decod"}, "did you mean 'decode'?"),
        ({"phase": "decode", "new_tokens": 2}, "a decode step computes 1 token (got 2)"),
        ({"context_len": 32_768}, "qwen2-1.5b has at most 32768 positions (got 32769)"),
        ({"quant": "w8a9"}, "did you mean 'w8a8'?"),
        ({"kv_dtype": "int44"}, "did you mean 'int4'?"),
        ({"num_layers": 29}, "num_layers: must be 1 to 28 (got 29)"),
    ],
)
def test_wrong_lengths_and_formats_are_refused(qwen2, arguments, message):
    with pytest.raises(WorkloadError) as error:
        build_graph(qwen2, **{"phase": "prefill", **arguments})
    assert message in str(error.value)


def test_a_cached_head_of_half_a_byte_is_refused():
    odd = replace(load_model("smollm2-135m"), head_dim=3)
    assert build_graph(odd, "decode", context_len=1, kv_dtype="int8").macs > 0
    with pytest.raises(WorkloadError, match="a cached head must fill whole bytes"):
        build_graph(odd, "decode", context_len=1, kv_dtype="int4")


def test_names_are_unique_and_tensors_have_one_producer(qwen2):
    graph = build_graph(qwen2, "decode", context_len=2, num_layers=1)
    with pytest.raises(WorkloadError, match="names must be unique"):
        graph.add(graph["lm_head"])
    with pytest.raises(WorkloadError, match="produces a tensor that exists"):
        graph.add(replace(graph["lm_head"], name="again"))


def test_a_graph_is_a_networkx_graph_in_program_order(qwen2):
    graph = build_graph(qwen2, "decode", context_len=2, num_layers=1)
    assert isinstance(graph, OperatorGraph)
    assert list(graph.digraph) == [op.name for op in graph.operators]
    position = {op.name: i for i, op in enumerate(graph)}
    assert all(position[a] < position[b] for a, b in graph.digraph.edges)
    assert graph.digraph.nodes["lm_head"]["operator"] is graph["lm_head"]
