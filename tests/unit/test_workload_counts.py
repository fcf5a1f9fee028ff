"""Parameters, weight bytes and KV bytes against hand-derived numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npusim.workload import (
    ModelConfig,
    kv_bytes_per_token,
    load_model,
    model_names,
    parameters,
    weight_bytes,
    weight_bytes_by_dtype,
)

# Qwen2-1.5B, per layer: qkv 1536 x (1536 + 2 x 256) = 3,145,728, its bias 2,048, o 1536 x 1536 =
# 2,359,296, gate and up 2 x 1536 x 8960 = 27,525,120, down 13,762,560, two norms 3,072: together
# 46,797,824. 28 layers 1,310,339,072 + embedding 151936 x 1536 = 233,373,696 + final norm 1,536.
#
# Llama-3.1-8B, per layer: qkv 4096 x 6144 = 25,165,824, o 16,777,216, gate and up 117,440,512, down
# 58,720,256, norms 8,192: 218,112,000. 32 layers 6,979,584,000 + embedding and lm_head 2 x 128256 x
# 4096 = 1,050,673,152 + final norm 4,096.
#
# openPangu-Embedded-1B, per layer: qkv 1536 x (1536 + 2 x 768) = 4,718,592 with bias 3,072, o
# 2,359,296 with bias 1,536, MLP 3 x 1536 x 6144 = 28,311,552, norms 3,072: 35,397,120. 26 layers
# 920,325,120 + embedding 153376 x 1536 = 235,585,536 + 1,536.
#
# openPangu-Embedded-7B, per layer: qkv 25,165,824 + 6,144, o 16,777,216 + 4,096, MLP 3 x 4096 x
# 12800 = 157,286,400, norms 8,192: 199,247,872. 34 layers 6,774,427,648 + 2 x 153376 x 4096 =
# 1,256,456,192 + 4,096.
#
# The others: known totals of the released checkpoints.
PARAMETERS = {
    # 671 B (DeepSeek-V3 report, arXiv 2412.19437, without the multi-token-prediction layer)
    "deepseek-v3": 671_026_419_200,
    # 2,614 M (Gemma-2 model card, safetensors index)
    "gemma-2-2b": 2_614_341_888,
    # 124 M (GPT-2 model card: 124,439,808)
    "gpt2": 124_439_808,
    # 175 B (Brown et al. 2020): 96 (12 h^2 + 13 h) + (50257 + 2048) h + 2 h with h = 12288
    "gpt3-175b": 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048) * 12288 + 2 * 12288,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "minicpm-2b": 2_724_880_896,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    # 46.7 B (Mixtral report, arXiv 2401.04088)
    "mixtral-8x7b": 46_702_792_704,
    "openpangu-embedded-1b": 1_155_912_192,
    "openpangu-embedded-7b": 8_030_887_936,
    # 2.78 B (Phi-2 model card, safetensors index)
    "phi-2": 2_779_683_840,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2.5-0.5b-instruct": 494_032_768,
    "qwen2.5-1.5b-instruct": 1_543_714_304,
    "qwen2.5-7b-instruct": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    # 30.5 B (Qwen3 report, arXiv 2505.09388)
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-8b": 8_190_735_360,
    "smollm2-135m": 134_515_008,
    "tinyllama-1.1b": 1_100_048_384,
}


def tiny(**changes: object) -> ModelConfig:
    """Two layers, hidden 8, two heads of 4 over one KV head, MLP 16, vocabulary 32."""
    model = ModelConfig(
        name="tiny",
        model_type="llama",
        hidden_size=8,
        intermediate_size=16,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        vocab_size=32,
        max_positions=64,
        dtype="bf16",
        tie_word_embeddings=True,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        windows=(None, None),
    )
    return replace(model, **changes)


def test_every_shipped_model_has_a_known_parameter_count():
    assert set(model_names()) == set(PARAMETERS)


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_parameters_equal_the_hand_derived_or_published_total(name, expected):
    assert parameters(load_model(name)) == expected


def test_tying_removes_exactly_one_vocabulary_matrix():
    untied = tiny(tie_word_embeddings=False)
    assert parameters(untied) - parameters(tiny()) == 32 * 8


# Per layer: qkv 16 columns, o 8, gate and up 32, down 8.
@pytest.mark.parametrize(
    ("key", "per_layer"), [("qkv_bias", 16), ("o_bias", 8), ("mlp_bias", 32 + 8)]
)
def test_biases_add_one_parameter_per_column(key, per_layer):
    assert parameters(tiny(**{key: True})) - parameters(tiny()) == 2 * per_layer


def test_q_and_k_norms_add_two_head_vectors_per_layer():
    assert parameters(tiny(qk_norm=True)) - parameters(tiny()) == 2 * 2 * 4


# Linears of a layer: qkv 8 x 16 = 128, o 8 x 8 = 64, gate_up 8 x 32 = 256, down 16 x 8 = 128: 576
# elements, 64 columns. lm_head: 8 x 32 = 256 elements, 32 columns. 16-bit rest: embedding 32 x 8 =
# 256, norms 5 x 8 = 40: 296 elements, 592 bytes. Two layers and a tied head:
#   w16: 592 + 2 x 2 x 576 = 2,896, the head being the embedding.
#   w8: 592, int8 1152 + 256 = 1,408, a scale per column 2 x (2 x 64 + 32) = 320.
#   w4 with groups of 128: K is 8 or 16, so one group per column: scales 320 again; int4 704 bytes
#       of weights + 160 zero points of half a byte = 784.
#   w4 with groups of 8: down (K 16) has two groups: 2 x (56 + 16) + 32 = 176 groups; 352 bytes of
#       scales, 704 + 88 = 792 of int4.
#   w8 with groups of 5: K 8 has 2 groups, K 16 has 4: 2 x (2 x 56 + 4 x 8) + 2 x 32 = 352 groups.
@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        ("w16a16", {"bf16": 2896}),
        ("w8a8", {"bf16": 592, "fp16": 320, "int8": 1408}),
        ("w8a16", {"bf16": 592, "fp16": 320, "int8": 1408}),
        ("w4a16", {"bf16": 592, "fp16": 320, "int4": 784}),
        ("w4a8", {"bf16": 592, "fp16": 320, "int4": 784}),
        ("w4a16_g8", {"bf16": 592, "fp16": 352, "int4": 792}),
        ("w8a8_g5", {"bf16": 592, "fp16": 704, "int8": 1408}),
    ],
)
def test_weight_bytes_split_by_format_equal_the_hand_count(quant, expected):
    assert weight_bytes_by_dtype(tiny(), quant) == expected
    assert weight_bytes(tiny(), quant) == sum(expected.values())


def test_a_tied_head_is_a_copy_of_its_own_only_when_quantised():
    untied = tiny(tie_word_embeddings=False)
    assert weight_bytes(untied, "w8a8") == weight_bytes(tiny(), "w8a8")
    assert weight_bytes(untied, "w16a16") - weight_bytes(tiny(), "w16a16") == 2 * 256


def test_fp16_models_join_scales_and_weights_of_the_same_format():
    assert weight_bytes_by_dtype(tiny(dtype="fp16"), "w8a8") == {"fp16": 912, "int8": 1408}


# 2 x layers x num_key_value_heads x head_dim x bytes. Qwen2-1.5B: 2 x 28 x 2 x 128 x 2.
@pytest.mark.parametrize(
    ("name", "kv_dtype", "expected"),
    [
        ("qwen2-1.5b", None, 28_672),
        ("qwen2-1.5b", "int8", 14_336),
        ("qwen2-1.5b", "fp8", 14_336),
        ("qwen2-1.5b", "int4", 7_168),
        ("llama-3.1-8b", None, 131_072),  # 2 x 32 x 8 x 128 x 2
        ("llama-2-7b", None, 524_288),  # 2 x 32 x 32 x 128 x 2, no sharing of KV heads
        ("qwen3-0.6b", None, 114_688),  # 2 x 28 x 8 x 128 x 2; hidden / heads would be 64
    ],
)
def test_kv_bytes_per_token_use_the_kv_heads(name, kv_dtype, expected):
    assert kv_bytes_per_token(load_model(name), kv_dtype) == expected
