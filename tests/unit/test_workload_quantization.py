"""`wXaY[_gN]` and the KV format."""

from __future__ import annotations

import pytest

from npusim.errors import WorkloadError
from npusim.workload.quantization import parse_quantization, resolve_kv_dtype


@pytest.mark.parametrize(
    ("text", "weight", "activation", "group"),
    [
        ("w16a16", "bf16", "bf16", 0),
        ("w8a8", "int8", "int8", -1),
        ("w8a16", "int8", "bf16", -1),
        ("w4a16", "int4", "bf16", 128),
        ("w4a8", "int4", "int8", 128),
        ("w4a16_g32", "int4", "bf16", 32),
        ("w8a8_g64", "int8", "int8", 64),
    ],
)
def test_a_precision_sets_formats_and_group(text, weight, activation, group):
    quant = parse_quantization(text)
    assert quant.name == text
    assert quant.weight_dtype("bf16") == weight
    assert quant.activation_dtype("bf16") == activation
    assert quant.group == group


def test_sixteen_bit_follows_the_model():
    assert parse_quantization("w16a16").weight_dtype("fp16") == "fp16"


def test_four_bit_weights_have_zero_points_and_eight_bit_ones_none():
    four = parse_quantization("w4a16").weight("w", 256, 3, "bf16")
    eight = parse_quantization("w8a16").weight("w", 256, 3, "bf16")
    assert (four.scale_dtype, four.zero_point_dtype, four.num_groups) == ("fp16", "int4", 6)
    assert (eight.scale_dtype, eight.zero_point_dtype, eight.num_groups) == ("fp16", None, 3)


# 256 x 3 weights of 4 bits are 384 bytes, 6 scales 12, 6 zero points 3.
def test_a_quantised_tensor_counts_scales_and_zero_points():
    four = parse_quantization("w4a16").weight("w", 256, 3, "bf16")
    assert four.bytes_by_dtype == {"int4": 387, "fp16": 12}


def test_parsing_what_is_parsed_changes_nothing():
    quant = parse_quantization("w4a8_g16")
    assert parse_quantization(quant) is quant


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("w4a4", "did you mean 'w4a8'?"),
        ("W8A8", "did you mean 'w8a8'?"),
        ("w8a8_g", "did you mean 'w8a8'?"),
        ("w8a8_g0", "use 'w8a8'"),
        ("w16a16_g64", "use 'w16a16'"),
        ("", "valid: w16a16"),
        ("w99999999999999999999a8", "valid: w16a16"),
    ],
)
def test_unknown_precisions_are_refused_with_a_hint(text, hint):
    with pytest.raises(WorkloadError) as error:
        parse_quantization(text)
    assert str(error.value).startswith("quant: ")
    assert error.value.hint is not None
    assert error.value.hint.startswith(hint)


def test_the_cache_has_the_models_format_unless_told_otherwise():
    assert resolve_kv_dtype(None, "fp16") == "fp16"
    assert resolve_kv_dtype("int4", "fp16") == "int4"
    with pytest.raises(WorkloadError, match="did you mean 'int8'"):
        resolve_kv_dtype("int88", "fp16")
