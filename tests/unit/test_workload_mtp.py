"""Multi-token-prediction layers: counted and built when asked for, and as a draft."""

from __future__ import annotations

import json

import pytest

from npusim.errors import WorkloadError
from npusim.simulation import simulate
from npusim.workload import OperatorKind, Role, load_model, transformer
from npusim.workload.trace import OperatorTrace

# Own parameters of DeepSeek-V3's module: attention 7168 x 1536 + 1536 + 1536 x 24576 +
# 7168 x 576 + 512 + 512 x 32768 + 16384 x 7168; 257 experts of 3 x 7168 x 2048 and a router of
# 7168 x 256 with a bias per expert; projection 2 x 7168 x 7168; five norms of 7168 (two at the
# entry, two of the layer, one before the head).
ATTENTION = 11_010_048 + 1536 + 37_748_736 + 4_128_768 + 512 + 16_777_216 + 117_440_512
EXPERTS = 257 * 44_040_192 + 1_835_008 + 256
OWN = ATTENTION + EXPERTS + 102_760_448 + 5 * 7168


def deepseek(**settings: object):
    return transformer("deepseek-v3", context_len=100, **settings)


def test_parameters_of_the_module_match_what_is_published():
    plain, more = deepseek(), deepseek(mtp_layers=1)
    assert more.parameters - plain.parameters == OWN == 11_610_068_224
    # README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: 11.5B parameters of its own
    assert pytest.approx(11.5e9, rel=0.01) == OWN
    # its README: 685B on disk, where embedding and head of the module are stored again
    assert more.parameters + 2 * 129_280 * 7168 == pytest.approx(685e9, rel=0.001)
    assert more.weight_bytes - plain.weight_bytes == 2 * OWN


def test_the_module_has_a_cache_of_its_own():
    # one latent row of 512 + 64 elements per layer, 61 layers and the module
    assert deepseek().kv_bytes_per_token == 61 * 576 * 2
    assert deepseek(mtp_layers=1).kv_bytes_per_token == 62 * 576 * 2


def test_the_module_follows_the_pass_and_shares_embedding_and_head():
    plain, graph = deepseek().decode_graph(100, 4), deepseek(mtp_layers=1).decode_graph(100, 4)
    own = [op for op in graph if op.name.startswith("mtp.0.")]
    assert len(graph) == len(plain) + len(own)
    assert graph["mtp.0.embedding"].inputs[1].name == "embedding.weight"
    assert graph["mtp.0.lm_head"].inputs[1].name == "lm_head.weight"
    assert graph["mtp.0.mtp_norm"].inputs[1].name == graph["final_norm"].inputs[0].name
    assert {op.layer for op in own} == {None}
    # matmuls of one token: attention absorbed on 101 rows, 8 + 1 experts, router, projection, head
    attention = (
        *(7168 * 1536, 1536 * 24576, 7168 * 576, 128 * 128 * 512, 128 * 512 * 128, 16384 * 7168),
        *(128 * 101 * 576, 128 * 101 * 512),
    )
    experts = 9 * 3 * 7168 * 2048 + 7168 * 256
    macs = sum(attention) + experts + 2 * 7168 * 7168 + 7168 * 129_280
    assert graph.macs - plain.macs == sum(op.macs for op in own) == macs


def test_without_the_setting_nothing_changes():
    assert deepseek().parameters == 671_026_419_200
    assert not [op for op in deepseek().decode_graph(100, 4) if "mtp" in op.name]
    left_out = "multi-token-prediction layers are left out unless asked for"
    assert left_out in deepseek().notes
    assert left_out not in deepseek(mtp_layers=1).notes


@pytest.fixture
def small(tmp_path):
    """A DeepSeek-V3 of four small layers that states two such layers."""
    config = {
        "model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 512,
        "moe_intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 512,
        "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
        "v_head_dim": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 2,
        "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "small.json"
    path.write_text(json.dumps(config))
    return load_model(path)


FIDELITIES = ["analytic", pytest.param("transfer", marks=pytest.mark.slow)]


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_run_with_modules_counts_them_also_when_layers_fold(small, fidelity):
    work = transformer(small, context_len=64, mtp_layers=2)
    found = simulate("edge-npu", work, simulation={"fidelity": fidelity})
    assert found.phase("decode").macs == work.decode_graph(64).macs
    assert found.workload["mtp_layers"] == 2
    names = {stage.stage for stage in found.phase("decode").stages}
    assert {"mtp_norm", "mtp_proj"} <= names


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_modules_draft(small, fidelity):
    settings = {"speculate_tokens": 3, "accept_frac": 0.5, "draft_model": "mtp", "mtp_layers": 2}
    work = transformer(small, prompt_len=16, generate_len=5, **settings)
    found = simulate("edge-npu", work, simulation={"fidelity": fidelity})
    assert list(found.phases) == ["prefill", "draft_prefill", "decode", "draft"]
    # 15/8 tokens a step: three steps, three passes of the module each
    assert found.phase("draft").steps == 9
    macs = sum(work.draft_graph(c + i).macs for c in work.decode_contexts for i in range(3))
    # contexts advance unevenly, so that a mean over simulated ones is exact to a token
    exact = 0 if fidelity == "analytic" else 1e-3
    assert found.phase("draft").macs == pytest.approx(macs, rel=exact)
    assert not [op for op in work.decode_graph(16) if op.name.startswith("mtp.")]
    assert found.workload["speculation"]["method"] == "mtp"
    # its weights are the model's own: counted once
    dram = found.phase("draft").memories[0]
    assert dram.footprint_bytes < found.workload["weight_bytes"] + 2**20


def test_each_module_reads_the_hidden_state_of_the_one_before(small):
    graph = transformer(small, context_len=8, mtp_layers=2).decode_graph(8)
    read = [graph[f"mtp.{d}.mtp_norm"].inputs[1].name for d in (0, 1)]
    assert read == ["layers.3.mlp_residual.out", "mtp.0.layers.0.mlp_residual.out"]


def test_in_a_routing_trace_the_module_is_the_layer_after_the_last(small, tmp_path):
    # two experts a token: layers 1 to 3 take experts 0 and 1, the module (layer 4) 5 and 6
    rows = [{"layer": i, "experts": [0, 1]} for i in (1, 2, 3)]
    rows += [{"layer": 4, "experts": [5, 6]}, {"layer": 4, "experts": [5, 7]}]
    path = tmp_path / "routing.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    work = transformer(small, prompt_len=64, mtp_layers=1, expert_routing=str(path))
    graph = work.prefill_graph()
    # 64 tokens: all visit both experts of a layer; of the module's three, one is in every token
    assert graph["layers.3.experts.gate_up_proj"].matmul.rows == 128
    assert graph["layers.3.experts.gate_up_proj"].matmul.batch == 2
    shape = graph["mtp.0.layers.0.experts.gate_up_proj"].matmul
    assert (shape.batch, shape.rows, shape.m) == (3, 128, 64)


def test_modules_are_traced_and_replayed(small):
    work = transformer(small, context_len=64, mtp_layers=1)
    trace = OperatorTrace.of(work)
    lines = list(trace.lines())
    assert OperatorTrace.from_lines(lines, "t") == trace
    appends = [op for op in trace.steps[0] if op.kind is OperatorKind.KV_APPEND]
    assert len(appends) == 5
    assert sum(op.write_bytes(Role.KV) for op in appends) == work.kv_bytes_per_token
    assert work.kv_bytes_per_token == 5 * (64 + 16) * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mtp_layers": 3}, "mtp_layers: small states 2 multi-token-prediction layers"),
        ({"mtp_layers": -1}, "mtp_layers: must be an integer of at least 0"),
        (
            {"draft_model": "mtp", "speculate_tokens": 1, "accept_frac": 0.5},
            "draft_model: needs mtp_layers",
        ),
    ],
)
def test_layers_that_do_not_exist_are_refused(small, settings, message):
    with pytest.raises(WorkloadError, match=message):
        transformer(small, context_len=8, **settings)
