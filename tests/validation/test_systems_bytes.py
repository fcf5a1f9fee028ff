"""Issue 2, must hold 3 and 4: every weight and KV byte of a run, by hand."""

from __future__ import annotations

import pytest

from npusim.workload.tensor import Role
from tests.validation.test_systems_support import (
    MINI,
    SYSTEMS,
    check_accounts,
    dram_of,
    run_spec,
    simulated,
    some_slow,
    tiny_model,
    workload_of,
)

CONTEXT = 100


def kv_row_bytes(layers, kv_heads, head_dim, bytes_per_elem=2):
    """K and V of one token."""
    return 2 * layers * kv_heads * head_dim * bytes_per_elem


@pytest.mark.parametrize("system", SYSTEMS)
def test_decode_reads_the_cache_and_appends_one_row(system):
    # mini model: 1 layer, 1 of 2 heads has KV, head_dim = 128 / 2
    row = kv_row_bytes(layers=1, kv_heads=1, head_dim=64)
    result = simulated(
        system, tiny_model(**MINI), context_len=CONTEXT, generate_len=1, quant="w4a16"
    )
    # the new token attends to itself, so its row is read as well as written
    assert dram_of(result, "decode").bytes_by_role["kv"] == (CONTEXT + 1) * row + row
    append = [o for o in result.phase("decode").operators if o.stage == "kv_append"]
    assert sum(o.dram_bytes for o in append) >= row
    assert result.workload["kv_bytes_per_token"] == row


def test_decode_of_smollm2_moves_the_kv_of_its_three_heads():
    # 30 layers, num_key_value_heads = 3 of 9, head_dim = 576 / 9
    row = kv_row_bytes(layers=30, kv_heads=3, head_dim=64)
    assert row == 23_040
    result = simulated("tpu-v6e", "smollm2-135m", context_len=64, generate_len=1, quant="w4a16")
    assert dram_of(result, "decode").bytes_by_role["kv"] == 65 * row + row


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_kv_bytes_follow_key_value_heads_and_not_query_heads(kv_heads):
    model = tiny_model(num_key_value_heads=kv_heads)
    result = simulated("tpu-v6e", model, context_len=CONTEXT, generate_len=1)
    row = kv_row_bytes(layers=2, kv_heads=kv_heads, head_dim=64)
    assert dram_of(result, "decode").bytes_by_role["kv"] == (CONTEXT + 2) * row


@pytest.mark.parametrize(("kv_dtype", "bits"), [("bf16", 16), ("int8", 8), ("int4", 4)])
def test_a_narrow_cache_moves_fewer_bytes(kv_dtype, bits):
    result = simulated(
        "rk3588", tiny_model(), context_len=CONTEXT, generate_len=1, quant="w8a8", kv_dtype=kv_dtype
    )
    row = kv_row_bytes(layers=2, kv_heads=2, head_dim=64) * bits // 16
    assert dram_of(result, "decode").bytes_by_role["kv"] == (CONTEXT + 2) * row


def test_prefill_writes_the_kv_of_its_prompt():
    prompt = 24
    row = kv_row_bytes(layers=2, kv_heads=2, head_dim=64)
    result = simulated("tpu-v6e", tiny_model(), prompt_len=prompt)
    # written once by the appends, read once by attention
    assert dram_of(result, "prefill").bytes_by_role["kv"] == 2 * prompt * row


def test_decode_after_a_prefill_appends_one_row_per_step():
    prompt, steps = 8, 4
    row = kv_row_bytes(layers=2, kv_heads=2, head_dim=64)
    result = simulated("tpu-v6e", tiny_model(), prompt_len=prompt, generate_len=steps + 1)
    reads = sum(prompt + step + 1 for step in range(steps)) * row
    assert dram_of(result, "decode").bytes_by_role["kv"] == reads + steps * row


def test_every_sequence_of_a_batch_has_its_own_cache():
    row = kv_row_bytes(layers=2, kv_heads=2, head_dim=64)
    result = simulated("tpu-v6e", tiny_model(), context_len=CONTEXT, generate_len=1, batch=3)
    assert dram_of(result, "decode").bytes_by_role["kv"] == 3 * (CONTEXT + 2) * row


def smollm2_weight_bytes(weight_bits, bits_per_column=lambda k: 0 * k):
    """(linears of all layers and the lm_head, norms) of smollm2-135m, in bytes.

    `bits_per_column` maps rows of K to the bits of scales and zero points of one column.
    """
    linears = [(576, 960), (576, 576), (576, 3072), (1536, 576)]
    shapes = linears * 30 + [(576, 49_152)]
    bits = sum(n * (k * weight_bits + bits_per_column(k)) for k, n in shapes)
    return bits // 8, (2 * 30 + 1) * 576 * 2


@pytest.mark.parametrize("system", some_slow(SYSTEMS))
def test_smollm2_decode_reads_every_stored_weight_once_but_the_embedding_table(system):
    # w4a16: a 16-bit scale and a 4-bit zero point per column and group of 128 rows of K
    linear, norms = smollm2_weight_bytes(4, lambda k: -(-k // 128) * 20)
    table, row = 49_152 * 576 * 2, 576 * 2
    result = simulated(system, "smollm2-135m", context_len=64, generate_len=1, quant="w4a16")
    check_accounts(result)
    assert result.executor == "simpy"
    # every weight but the norms' 61 x 576 and the embedding's takes part in one MAC; attention is
    # 65 keys x 9 heads x 64 x 2 matmuls x 30 layers
    assert result.phase("decode").macs == 106_168_320 + 28_311_552 + 65 * 9 * 64 * 2 * 30
    assert result.workload["weight_bytes"] == linear + norms + table
    assert dram_of(result, "decode").bytes_by_role["weight"] == linear + norms + row


def test_a_tied_16_bit_head_is_read_as_the_embedding_table_itself():
    linear, norms = smollm2_weight_bytes(16)
    assert linear + norms == 2 * 134_515_008  # every parameter, the table being the lm_head
    result = simulated("tpu-v6e", "smollm2-135m", context_len=64, generate_len=1)
    assert result.workload["weight_bytes"] == linear + norms
    assert dram_of(result, "decode").bytes_by_role["weight"] == linear + norms + 576 * 2


def test_an_8_bit_head_is_a_copy_of_its_own_with_a_scale_per_column():
    linear, norms = smollm2_weight_bytes(8, lambda k: 16 + 0 * k)
    result = simulated("tpu-v6e", "smollm2-135m", context_len=64, generate_len=1, quant="w8a8")
    assert result.workload["weight_bytes"] == linear + norms + 49_152 * 576 * 2
    assert dram_of(result, "decode").bytes_by_role["weight"] == linear + norms + 576 * 2


@pytest.mark.parametrize("system", some_slow(SYSTEMS))
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_dram_moves_at_least_the_compulsory_bytes(system, phase):
    lengths = {"prompt_len": 24} if phase == "prefill" else {"context_len": 24, "generate_len": 1}
    spec = run_spec(system, tiny_model(**MINI), quant="w4a16", **lengths)
    workload = workload_of(spec)
    graph = workload.prefill_graph() if phase == "prefill" else workload.decode_graph(24)
    result = simulated(system, tiny_model(**MINI), quant="w4a16", **lengths)
    dram = dram_of(result, phase)
    for role in Role:
        assert dram.bytes_by_role[role.value] >= graph.compulsory_bytes(role), role
    assert dram.read_bytes >= sum(graph.compulsory_read_bytes(role) for role in Role)
    assert dram.write_bytes >= sum(graph.compulsory_write_bytes(role) for role in Role)
