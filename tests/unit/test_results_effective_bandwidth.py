"""Effective bandwidth: hand-made tiers, and a run whose bytes are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

import npusim as ns
from npusim.analytic.golden_formula import blended_bandwidth
from npusim.errors import SimulationError
from npusim.results.derived import effective_bandwidth
from npusim.results.invariants import check_phase
from npusim.results.records import TierRecord
from tests.unit.results_samples import tiny_phase, tiny_run

GB = 10**9


def tiered(supplied=36, read_dram=64):
    """100 bytes asked for in 1001 ps; DRAM read 64 of them."""
    return replace(
        tiny_phase(),
        tiers=(
            TierRecord("npu.scratchpad", "scratchpad", 500, 400 * GB, 100, supplied),
            TierRecord("dram", "dram", 50_000, 100 * GB, read_dram, 64),
        ),
    )


def test_blends_and_simulated_rate_of_hand_made_tiers():
    # 0.36 x 400 + 0.64 x 100 = 208; 100 / (36 / 400 + 64 / 100) = 136.986...; 100 B / 1001 ps
    found = effective_bandwidth(tiered())
    assert found.requested_bytes == 100
    assert found.hit_share_frac == pytest.approx(0.36)
    assert found.arithmetic_bytes_per_s == 208 * GB
    assert found.harmonic_bytes_per_s == 136_986_301_369
    assert found.simulated_bytes_per_s == 99_900_099_900


def test_two_tiers_blend_as_the_published_formula():
    found = effective_bandwidth(tiered())
    for mean, value in (
        ("arithmetic", found.arithmetic_bytes_per_s),
        ("harmonic", found.harmonic_bytes_per_s),
    ):
        expected = blended_bandwidth(400 * GB, 100 * GB, found.hit_share_frac, mean)
        assert value == pytest.approx(expected)


def test_a_phase_without_tiers_has_no_effective_bandwidth():
    assert effective_bandwidth(tiny_phase()) is None
    assert tiny_run().summary()["phases"]["decode"]["effective_bandwidth"] is None


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        (tiered(read_dram=65), "bytes read must equal DRAM reads"),
        (tiered(supplied=101), "supplied_bytes must not exceed read_bytes"),
        (tiered(supplied=-1), "zero must not exceed supplied_bytes"),
    ],
)
def test_tiers_that_do_not_add_up_are_refused(record, rule):
    with pytest.raises(SimulationError, match=rule):
        check_phase(record)


def test_tiers_come_back_from_a_saved_run(tmp_path):
    run = tiny_run()
    run = replace(run, phases={name: replace(tiered(), phase=name) for name in run.phases})
    again = ns.load_result(run.save(tmp_path / "run"))
    assert again.tiers.rows() == run.tiers.rows()
    assert again.effective_bandwidth.rows() == run.effective_bandwidth.rows()
    assert list(again.effective_bandwidth.to_frame()["phase"]) == list(run.phases)


def test_an_operator_counts_what_came_from_where():
    # weights of 64 x 64 bytes and inputs of 8 x 64 come from DRAM once; all asked for sums up
    phase = ns.simulate_operator("rk3588", "matmul", "8x64x64", quant="w8a8").phase
    pads, dram = phase.tiers
    assert dram.read_bytes == dram.supplied_bytes == phase.memories[0].read_bytes >= 72 * 64
    assert pads.supplied_bytes + dram.supplied_bytes == pads.read_bytes
    # 3 cores x 12 banks x 64 B x 1 GHz; 4 cycles of 1 ns
    assert (pads.peak_bytes_per_s, pads.latency_ps) == (2304 * GB, 4000)


def test_an_ideal_memory_has_no_tiers():
    ideal = ns.simulate_operator("rk3588", "matmul", "8x64x64", quant="w8a8", ideal_memory=True)
    assert ideal.phase.tiers == ()
