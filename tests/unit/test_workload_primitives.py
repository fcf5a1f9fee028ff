"""Graphs of single operators."""

from __future__ import annotations

import pytest

from npusim.errors import WorkloadError
from npusim.workload import Role, primitive_graph


@pytest.mark.parametrize(
    ("kind", "shape", "batch", "macs"),
    [
        ("matmul", "37x100x53", 1, 37 * 100 * 53),
        ("matmul", "3x5x7", 4, 4 * 3 * 5 * 7),
        ("matmul", "16384x16384x16384", 1, 2**42),
        ("attention", "2x8x2x3x9x64", 1, 2 * (2 * 8 * 3 * 9 * 64)),
        ("softmax", "12x512", 1, 0),
        ("ffn_gated", "4x8x16", 1, 3 * 4 * 8 * 16),
    ],
)
def test_macs_equal_the_closed_form(kind, shape, batch, macs):
    assert primitive_graph(kind, shape, batch).macs == macs


# 4-bit weights 128 x 3: 192 bytes, 3 scales, 3 zero points of 4 bits (2 bytes).
def test_a_matmul_reads_its_quantised_weight_and_narrow_input():
    graph = primitive_graph("matmul", "2x128x3", quant="w4a8")
    assert graph.compulsory_read_bytes(Role.WEIGHT) == 194 + 6
    assert graph.compulsory_read_bytes(Role.ACTIVATION) == 2 * 128
    assert graph.compulsory_write_bytes(Role.ACTIVATION) == 2 * 3 * 2


def test_every_product_of_a_batch_has_its_own_weight():
    graph = primitive_graph("matmul", "2x8x3", batch=5, quant="w8a8")
    assert graph.compulsory_read_bytes(Role.WEIGHT) == 5 * (8 * 3 + 3 * 2)


# Keys and values: 2 sequences x 2 KV heads x 9 tokens x 64, read once each, never written.
def test_attention_reads_cached_kv_heads_only():
    graph = primitive_graph("attention", "2x8x2x3x9x64", kv_dtype="int8")
    assert graph.compulsory_read_bytes(Role.KV) == 2 * (2 * 2 * 9 * 64)
    assert graph.compulsory_write_bytes(Role.KV) == 0
    assert graph.compulsory_write_bytes(Role.ACTIVATION) == 2 * 3 * 8 * 64 * 2


# Row of 9: 8 maxima; 9 subtractions and 8 sums; 9 exponentials; one reciprocal and 9 products.
def test_softmax_counts_are_the_documented_closed_forms():
    (operator,) = primitive_graph("softmax", "3x9")
    assert dict(operator.vector_ops) == {"max": 24, "add": 51, "exp": 27, "div": 3, "mul": 27}
    assert operator.rows == 3


@pytest.mark.parametrize(
    ("kind", "shape", "batch", "message"),
    [
        ("matmull", "1x1x1", 1, "did you mean 'matmul'?"),
        ("matmul", "1x1", 1, "matmul needs MxKxN"),
        ("matmul", "1x0x1", 1, "matmul needs MxKxN: integers from 1 to 2147483647"),
        ("matmul", "1x-1x1", 1, "(got '1x-1x1')"),
        ("matmul", "1x²x1", 1, "matmul needs MxKxN"),
        ("matmul", "1x99999999999999999999x1", 1, "matmul needs MxKxN"),
        ("matmul", "", 1, "matmul needs MxKxN"),
        ("attention", "1x2x3x4x5", 1, "attention needs BxHxKVHxLqxLkxD"),
        ("attention", "1x3x2x1x1x4", 1, "must be a multiple of num_key_value_heads"),
        ("softmax", "2x2", 2, "does not apply to softmax (got 2)"),
        ("matmul", "1x1x1", 0, "batch: must be at least 1 (got 0)"),
    ],
)
def test_wrong_shapes_are_refused(kind, shape, batch, message):
    with pytest.raises(WorkloadError) as error:
        primitive_graph(kind, shape, batch)
    assert message in str(error.value)


def test_sizes_of_one_and_primes_are_legal():
    assert primitive_graph("matmul", "1x1x1").macs == 1
    assert primitive_graph("attention", "1x1x1x1x1x1").macs == 2
    assert primitive_graph("attention", "3x7x7x5x11x13").macs == 2 * 3 * 7 * 5 * 11 * 13
