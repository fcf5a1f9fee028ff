"""Consequences that the mechanisms behind reproduced figures force, away from those figures."""

from __future__ import annotations

import pytest

import npusim as ns
from npusim.errors import ProtocolError

ALIGN = "a8-mixed-precision"
FUSION = "a4-fusion"
DISPATCH = "a8-qk-dispatch"


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


@pytest.fixture(scope="module")
def dispatch():
    return figures(DISPATCH)


def test_halving_the_bandwidth_doubles_the_direct_time_and_the_byte_part_of_the_staged_one(
    dispatch,
):
    halved = figures(DISPATCH, "channels=16")
    # direct is bytes over bandwidth; staged is its bytes at the same rate, and fixed time per tile
    bytes_us = dispatch["direct_us"] * dispatch["bytes_ratio"]
    fixed_us = dispatch["staged_us"] - bytes_us
    assert fixed_us > 0
    assert halved["direct_us"] == pytest.approx(2 * dispatch["direct_us"], rel=0.05)
    assert halved["staged_us"] == pytest.approx(2 * bytes_us + fixed_us, rel=0.05)
    # so the ratio falls towards that of the bytes, and staging uses more of the bandwidth there is
    assert dispatch["bytes_ratio"] < halved["time_ratio"] < dispatch["time_ratio"]
    assert halved["staged_bandwidth_frac"] > dispatch["staged_bandwidth_frac"]
    assert halved["bytes_ratio"] == dispatch["bytes_ratio"]


def test_bytes_of_both_ways_by_hand(dispatch):
    # 2048 keys in tiles of 48: 43; direct reads 16 + 2048 rows a head, staged 43 x 16 + 2048
    assert dispatch["bytes_ratio"] == pytest.approx((43 * 16 + 2048) / (16 + 2048), abs=1e-6)


@pytest.mark.slow
def test_free_synchronisation_narrows_the_gap_but_leaves_the_bytes(dispatch):
    free = figures(DISPATCH, "sync_cycles=0 cycles")
    assert free["direct_us"] == dispatch["direct_us"]
    assert free["bytes_ratio"] < free["time_ratio"] < dispatch["time_ratio"]


@pytest.mark.slow
def test_a_larger_staging_buffer_reads_the_queries_less_often(dispatch):
    large = figures(DISPATCH, "staging_bytes=32 KiB")
    assert large["bytes_ratio"] == pytest.approx((19 * 16 + 2048) / (16 + 2048), abs=1e-6)
    assert large["time_ratio"] < dispatch["time_ratio"]


def test_every_tile_waits_for_its_barriers_by_name():
    details = ns.reproduce(DISPATCH, ["config.keys=480", "config.heads=2"]).details
    assert details["direct"] == {}
    assert set(details["staged"]) == {"staged_wait_us", "drained_wait_us"}
    assert all(wait > 0 for wait in details["staged"].values())


@pytest.mark.parametrize(
    "changes", [("heads=1", "keys=1", "queries=1"), ("heads=3", "keys=100", "head_width=96")]
)
def test_other_sizes_run(changes):
    found = figures(DISPATCH, *changes)
    assert found["bytes_ratio"] >= 1
    assert 0 < found["direct_bandwidth_frac"] < 1


@pytest.mark.parametrize("hit", [pytest.param(0.25, marks=pytest.mark.slow), 0.82])
def test_two_tiers_take_the_harmonic_blend_in_turn_and_more_at_once(hit):
    found = figures("a2-bandwidth", f"hit_frac={hit}", "total_bytes=8 MiB")
    assert found["hit_frac"] == pytest.approx(hit, abs=1 / 256)  # whole pieces of 128 a core
    sram, dram, share = (
        found["sram_stream_gb_per_s"],
        found["dram_stream_gb_per_s"],
        found["hit_frac"],
    )
    in_turn = 1 / (share / sram + (1 - share) / dram)
    assert found["in_turn_gb_per_s"] == pytest.approx(in_turn, rel=0.03)
    at_once = min(sram / share, dram / (1 - share))
    assert found["at_once_gb_per_s"] == pytest.approx(at_once, rel=0.03)


@pytest.mark.slow
def test_a_single_tier_streams_whatever_the_order():
    found = figures("a2-bandwidth", "hit_frac=0", "total_bytes=2 MiB")
    assert found["hit_frac"] == 0
    assert found["in_turn_gb_per_s"] == found["at_once_gb_per_s"] == found["dram_stream_gb_per_s"]


@pytest.mark.slow
def test_slow_descriptors_show_in_the_sram_stream_first():
    # 4 KiB take 32 cycles of a port, the descriptor 8: four fifths of the peak
    found = figures("a2-bandwidth", "piece_bytes=4 KiB", "total_bytes=4 MiB")
    assert found["sram_stream_gb_per_s"] == pytest.approx(
        0.8 * found["sram_peak_gb_per_s"], rel=0.02
    )
