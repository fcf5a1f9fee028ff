"""Consequences that the mechanisms behind reproduced figures force, away from those figures."""

from __future__ import annotations

import pytest

import npusim as ns
from npusim.errors import ProtocolError

ALIGN = "a8-mixed-precision"
FUSION = "a4-fusion"


def figures(name, *changes):
    result = ns.reproduce(name, [f"config.{change}" for change in changes])
    return {figure.name: figure.ours for figure in result.figures}


def test_the_pipeline_starts_where_its_barriers_let_it():
    result = ns.reproduce(ALIGN)
    waits = {b["name"]: (b["waits"], b["wait_cycles"]) for b in result.details["barriers"]}
    # INT4 waits 0..6; BF16 waits 0..8 for QKV, 8..18 for the write-back
    assert waits == {"int4_ready": (1, 6.0), "fp16_done": (1, 8.0), "bf16_align": (1, 10.0)}
    assert result.details["barrier_stall_cycles"] == {
        "io": 0.0,
        "fp16": 0.0,
        "int4": 6.0,
        "bf16": 18.0,
        "arbiter": 0.0,
    }


def test_each_removed_barrier_is_refused_and_two_of_three_would_have_run_into_a_hazard():
    removed = {found["barrier"]: found for found in ns.reproduce(ALIGN).details["removed"]}
    assert all(found["refused"] for found in removed.values())
    assert "ends at 18000 ps" in removed["bf16_align"]["hazard"]
    assert removed["bf16_align"]["residual_start_cycles"] == 8
    # the projection would start at 0, before the first tile of QKV
    assert removed["int4_ready"]["o_projection_start_cycles"] == 0
    assert "int4" in removed["int4_ready"]["hazard"]
    # luck: at 15 and at 18 the QKV of this configuration is long done
    assert removed["fp16_done"]["hazard"] == ""


def test_leaving_a_barrier_out_is_an_error_not_a_faster_run():
    for name in ("bf16_align", "int4_ready", "fp16_done"):
        with pytest.raises(ProtocolError, match="waits for"):
            ns.reproduce(ALIGN, [f"config.without=[{name}]"])


@pytest.mark.parametrize(
    ("period", "start"), [(1, 18), (2, 18), (5, 20), (6, 18), (7, 21), (18, 18), (19, 19)]
)
def test_the_residual_starts_at_the_arbiters_next_period(period, start):
    found = figures(ALIGN, f"arbiter_period_cycles={period} cycles")
    assert (found["residual_start_cycles"], found["end_cycles"]) == (start, start + 3)


def test_a_slower_int4_unit_delays_what_waits_for_it_only():
    # two blocks of k instead of one: six cycles a tile, 6 + 24 = 30, a multiple of the period 6
    found = figures(ALIGN, "int4_block={m: 16, k: 8, n: 64}")
    assert found["qkv_cycles"] == 8
    assert (found["o_projection_start_cycles"], found["o_projection_cycles"]) == (6, 24)
    assert found["end_cycles"] == 33


def test_a_small_output_buffer_is_a_circle_that_is_refused_by_name():
    # the fourth tile needs the slot of the second, whose projection waits for fp16_done
    with pytest.raises(ProtocolError, match=r"acyclic.*WAIT fp16_done.*SIGNAL fp16_done"):
        ns.reproduce(ALIGN, ["config.output_buffer_tiles=1"])


def test_a_buffer_of_two_starts_the_projection_after_two_tiles():
    # ready at 4; the fourth tile takes the slot of the first, which the projection reads until 7
    found = figures(ALIGN, "output_buffer_tiles=2")
    assert found["qkv_cycles"] == 9
    assert (found["o_projection_start_cycles"], found["o_projection_cycles"]) == (4, 12)
    assert found["residual_start_cycles"] == 18


def cycles(*changes):
    found = figures(FUSION, *changes)
    return [found[f"{name}_cycles"] for name in ("separate", "gemm_softmax", "all")]


def test_instructions_and_cycles_of_the_chain_by_hand():
    # a tile has 16 registers of values and of operand: gemm 16 + 32, convert 16, softmax 64,
    # reshape 16, one store; every border between kernels a store and a load more: 160 + 32 each
    found = figures(FUSION)
    borders = {"separate": 3, "gemm_softmax": 1, "all": 0}
    for name, count in borders.items():
        assert found[f"{name}_instructions"] == 4 * (160 + 32 * count)
    # fused: issue alone, 25 a cycle; all: 80 registers live, 16 of 64 too many, 2 x 16 / 16 a tile
    assert found["gemm_softmax_cycles"] == 768 / 25
    assert found["all_cycles"] == 640 / 25 + 4 * 2


def test_a_doubled_register_file_makes_full_fusion_fastest():
    separate, two, all_fused = cycles("register_file_bytes=64 KiB")
    assert all_fused < two < separate
    assert [separate, two] == cycles()[:2]


def test_spills_without_cost_remove_the_inversion():
    separate, two, all_fused = cycles("spill_cycles=0 cycles")
    assert all_fused < two < separate


def test_a_smaller_register_file_spills_in_the_partly_fused_kernel_too():
    # 48 registers: gemm to softmax holds 64, all 80
    assert cycles("register_file_bytes=24 KiB")[1] == 768 / 25 + 4 * 2
    assert cycles("register_file_bytes=24 KiB")[2] == 640 / 25 + 4 * 4


@pytest.mark.parametrize(
    "shape", ["{m: 1, k: 1, n: 1}", "{m: 100, k: 300, n: 77}", "{m: 512, k: 64, n: 1024}"]
)
def test_other_shapes_run_and_apart_is_never_fewer_instructions(shape):
    found = figures(FUSION, f"shape={shape}")
    counts = [found[f"{name}_instructions"] for name in ("separate", "gemm_softmax", "all")]
    assert counts == sorted(counts, reverse=True)
    issue = [count / 25 for count in counts]
    assert all(
        took >= least - 1e-5 for took, least in zip(cycles(f"shape={shape}"), issue, strict=True)
    )


def test_a_slow_convert_shows_first_where_nothing_hides_it():
    separate, two, _ = cycles()
    slow_separate, slow_two, _ = cycles("convert_cycles=3.6 cycles")
    assert slow_separate - separate > slow_two - two >= 0
