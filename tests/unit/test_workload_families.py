"""Families beyond the plain gated decoder: what their layers hold and compute, by hand."""

from __future__ import annotations

import json

import pytest

from npusim.errors import WorkloadError
from npusim.workload.counts import parameters
from npusim.workload.kv_cache import kv_bytes_per_token
from npusim.workload.loading import load_model
from npusim.workload.operator import OperatorKind
from npusim.workload.tensor import Role
from npusim.workload.transformer import build_graph


@pytest.fixture
def write(tmp_path):
    """A config.json of 4 layers, hidden 64, 4 heads, changed as asked; null removes a key."""

    def write_config(**changes: object):
        values: dict[str, object] = {
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 128,
            "max_position_embeddings": 256,
            "torch_dtype": "bfloat16",
            "tie_word_embeddings": False,
        }
        values.update(changes)
        path = tmp_path / "toy.json"
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
        return load_model(path)

    return write_config


def stages(graph, layer=0):
    return [op.stage for op in graph if op.layer == layer]


def test_gemma2_norms_after_attention_and_mlp_and_caps_scores_and_logits():
    model = load_model("gemma-2-2b")
    assert model.windows[:3] == (4096, None, 4096)
    graph = build_graph(model, "decode", context_len=8)
    assert stages(graph) == [
        *("attn_norm", "qkv", "rope", "kv_append", "kv_append", "scores", "softmax", "context"),
        *("o_proj", "post_attn_norm", "residual"),
        *("mlp_norm", "gate_up", "activation", "down", "post_mlp_norm", "residual"),
    ]
    # tanh of the cap: 8 heads x 9 keys, and one per logit
    assert dict(graph["layers.0.softmax"].vector_ops)["tanh"] == 8 * 9
    assert dict(graph["lm_head"].vector_ops)["tanh"] == 256000


def test_gpt2_adds_positions_and_has_biases_everywhere():
    graph = build_graph(load_model("gpt2"), "prefill", new_tokens=4)
    assert [op.name for op in graph][:3] == ["embedding", "positions", "position_add"]
    assert graph["positions"].read_bytes(Role.WEIGHT) == 4 * 768 * 2
    assert stages(graph) == [
        *("attn_norm", "qkv", "kv_append", "kv_append", "scores", "softmax", "context", "o_proj"),
        *("residual", "mlp_norm", "up", "activation", "down", "residual"),
    ]
    # layer norm: 4 rows of 768 move through mean, centre, variance, scale, weight and bias
    assert dict(graph["layers.0.attn_norm"].vector_ops)["add"] == 4 * 4 * 768


def test_phi_reads_one_norm_for_attention_and_mlp_and_adds_both():
    model = load_model("phi-2")
    graph = build_graph(model, "decode", context_len=8)
    assert stages(graph) == [
        *("attn_norm", "qkv", "rope", "kv_append", "kv_append", "scores", "softmax", "context"),
        *("o_proj", "up", "activation", "down", "residual"),
    ]
    assert len(graph["layers.0.residual"].inputs) == 3
    # 0.4 x 80 = 32 of 80 elements of 32 query and 32 key heads rotate: 2 mul each
    assert dict(graph["layers.0.rope"].vector_ops)["mul"] == 2 * 64 * 32


def test_opt_positions_start_two_rows_late(write):
    model = write(
        model_type="opt", ffn_dim=96, intermediate_size=None, num_key_value_heads=None,
        tie_word_embeddings=None,
    )  # fmt: skip
    assert model.position_rows == 258
    # per layer: norms 4 x 64, q k v o 4 x (64^2 + 64), up 64 x 96 + 96, down 96 x 64 + 64
    layer = 4 * 64 + 4 * (64**2 + 64) + 64 * 96 + 96 + 96 * 64 + 64
    assert parameters(model) == 4 * layer + (128 + 258) * 64 + 2 * 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"word_embed_proj_dim": 32}, "word_embed_proj_dim must equal hidden_size=64 (got 32)"),
        ({"do_layer_norm_before": False}, "do_layer_norm_before must be true"),
    ],
)
def test_opt_variants_that_compute_something_else_are_refused(write, changes, message):
    with pytest.raises(WorkloadError, match=message.replace("(", r"\(").replace(")", r"\)")):
        write(model_type="opt", ffn_dim=96, **changes)


def test_gpt2_names_without_a_model_type_are_read_as_gpt2_and_noted():
    model = load_model("gpt3-175b")
    assert model.model_type == "gpt2"
    assert "model_type is absent" in model.notes[0]


def test_gpt_oss_alternates_windows_and_has_sinks_and_biased_experts(write):
    model = write(
        model_type="gpt_oss", head_dim=16, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=8,
    )  # fmt: skip
    assert model.windows == (8, None, 8, None)
    # q, k, v: (4 + 2 x 2) x 16 columns; o; one sink per head; two norms
    attention = 64 * 128 + 128 + 64 * 64 + 64 + 4 + 2 * 64
    # router with bias; per expert gate and up, down, biases
    experts = 64 * 4 + 4 + 4 * (64 * 192 + 192 + 96 * 64 + 64)
    assert parameters(model) == 4 * (attention + experts) + 2 * 128 * 64 + 64
    graph = build_graph(model, "decode", context_len=8)
    # 4 heads x 9 keys and one sink per head
    assert dict(graph["layers.1.softmax"].vector_ops)["exp"] == 4 * 9 + 4


def test_qwen2_moe_shares_a_gated_expert_and_keeps_listed_layers_dense(write):
    model = write(
        model_type="qwen2_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=48, mlp_only_layers=[1], decoder_sparse_step=1,
    )  # fmt: skip
    assert model.experts.layers == (True, False, True, True)
    graph = build_graph(model, "decode", context_len=8)
    assert "shared_gate_up" in stages(graph, 0)
    assert "gate_up" in stages(graph, 1)
    # router, 8 experts, shared expert, its gate
    experts = 64 * 8 + 8 * 3 * 64 * 32 + 3 * 64 * 48 + 64
    attention = 64 * 128 + 128 + 64 * 64 + 2 * 64
    dense = 3 * 64 * 96
    assert parameters(model) == 4 * attention + 3 * experts + dense + 2 * 128 * 64 + 64


def test_deepseek_caches_one_latent_row_per_token():
    model = load_model("deepseek-v3")
    # 61 layers x (512 + 64) elements x 2 bytes
    assert kv_bytes_per_token(model) == 61 * 576 * 2
    assert model.experts.layers[:4] == (False, False, False, True)
    graph = build_graph(model, "decode", context_len=99, num_layers=1)
    scores, context = graph["layers.0.scores"].matmul, graph["layers.0.context"].matmul
    # absorbed: 128 heads share the cached rows
    assert (scores.batch, scores.m, scores.k, scores.n) == (1, 128, 576, 100)
    assert (context.batch, context.m, context.k, context.n) == (1, 128, 100, 512)
    assert graph["layers.0.w_uk"].macs == 128 * 128 * 512


def test_deepseek_prefill_expands_keys_and_values():
    graph = build_graph(load_model("deepseek-v3"), "prefill", new_tokens=16, num_layers=1)
    scores = graph["layers.0.scores"].matmul
    assert (scores.batch, scores.m, scores.k, scores.n) == (128, 16, 192, 16)
    assert graph["layers.0.w_uk"].macs == 16 * 512 * 128 * 128
    appends = [op for op in graph if op.kind is OperatorKind.KV_APPEND]
    assert [op.write_bytes(Role.KV) for op in appends] == [16 * 576 * 2]


def test_without_a_query_rank_latent_attention_projects_queries_at_once(write):
    model = write(
        model_type="deepseek_v2", q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16,
        qk_rope_head_dim=8, v_head_dim=16, num_key_value_heads=4,
    )  # fmt: skip
    assert model.experts is None
    graph = build_graph(model, "decode", context_len=3)
    assert graph["layers.0.q_proj"].matmul.n == 4 * 24
    # q, kv_a, its norm, kv_b, o, two norms, MLP
    layer = 64 * 96 + 64 * 40 + 32 + 32 * 4 * 32 + 64 * 64 + 2 * 64 + 3 * 64 * 96
    assert parameters(model) == 4 * layer + 2 * 128 * 64 + 64


def test_gemma3_has_one_full_layer_in_six(write):
    model = write(model_type="gemma3_text", num_hidden_layers=12, sliding_window=32)
    assert [i for i, w in enumerate(model.windows) if w is None] == [5, 11]
