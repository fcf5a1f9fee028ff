"""Rooflines: roofs and points by hand, what limits a stage, the figure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import npusim as ns
from npusim.cli import main
from npusim.insight.explain import explain
from npusim.insight.roofline import roofline
from npusim.report.roofline_figure import roofline_figure
from npusim.results.records import StageRecord, TierRecord
from tests.unit.insight_samples import real_run
from tests.unit.results_samples import tiny_phase, tiny_run


def phase():
    """The tiny phase with a scratchpad of 200 GB/s and bytes read from it."""
    stages = (
        StageRecord("attention", 700, 800, 40, 64, "dram", 10, 1, scratchpad_bytes=160),
        StageRecord("lm_head", 301, 301, 20, 32, "compute", 0, 1, scratchpad_bytes=4),
    )
    tier = TierRecord("npu.scratchpad", "scratchpad", 10, 200 * 10**9, 164, 100)
    dram = TierRecord("dram", "dram", 10, 100 * 10**9, 64, 64)
    return replace(tiny_phase(), stages=stages, tiers=(tier, dram))


def test_points_and_roofs_by_hand():
    found = roofline(phase())
    # 100 MACs per cycle at 2 GHz; DRAM and scratchpads at their peak rates
    assert found.peak.flops_per_s == 400 * 10**9
    assert [(r.level, r.bytes_per_s) for r in found.memory_roofs] == [
        ("dram", 100 * 10**9),
        ("scratchpad", 200 * 10**9),
    ]
    first, second, third, _ = found.points
    # attention: 80 FLOPs, 64 bytes of DRAM in 800 ps: 1.25 FLOP/byte, 100 of 125 GFLOP/s
    assert (first.stage, first.level) == ("attention", "dram")
    assert first.intensity_flops_per_byte == 1.25
    assert first.achieved_flops_per_s == 100 * 10**9
    assert found.attainable_flops_per_s(first) == 125 * 10**9
    assert found.reached_frac(first) == 0.8
    assert found.limit(first) == "dram"
    # 80 FLOPs over 160 bytes of scratchpads: 0.5 x 200 GB/s, all of which is reached
    assert found.attainable_flops_per_s(second) == 100 * 10**9
    assert found.reached_frac(second) == 1.0
    assert third.achieved_flops_per_s == 40 * 10**12 // 301
    # lm_head: 10 FLOP/byte of scratchpads x 200 GB/s is above the compute roof
    assert found.limit(found.points[3]) == "compute"
    assert found.attainable_flops_per_s(found.points[3]) == 400 * 10**9


def test_the_tightest_roof_of_a_stage_is_shown():
    found = roofline(phase())
    assert [(p.stage, p.level) for p in found.tightest()] == [
        ("attention", "scratchpad"),
        ("lm_head", "dram"),
    ]


def test_at_the_ridge_compute_is_the_limit():
    stage = StageRecord("attention", 1001, 1001, 60, 30, "dram", 0, 1)  # 4 FLOP/byte
    memory = replace(tiny_phase().memories[0], read_bytes=30, write_bytes=0)
    memory = replace(memory, bytes_by_role={"weight": 30})
    found = roofline(replace(tiny_phase(), stages=(stage,), memories=(memory,)))
    assert found.limit(found.points[0]) == "compute"
    stage = replace(stage, dram_bytes=31)
    found = roofline(replace(tiny_phase(), stages=(stage,)))
    assert found.limit(found.points[0]) == "dram"


def test_stages_without_macs_or_bytes_have_no_point():
    stages = tuple(replace(stage, macs=0) for stage in tiny_phase().stages)
    assert roofline(replace(tiny_phase(), stages=stages, macs=0)).points == ()
    assert roofline(replace(tiny_phase(), peak_macs_per_cycle=0)).points == ()


def test_a_real_run_stays_below_its_roofs_and_its_bytes_sum():
    workload = ns.transformer("smollm2-135m", phase="decode", context_len=16)
    result = ns.simulate("tpu-v6e", workload, simulation={"fidelity": "transfer"})
    record = result.phase("decode")
    found = roofline(record, result.spec)
    assert len(found.points) >= 10
    assert all(0 < found.reached_frac(point) <= 1 for point in found.points)
    read = sum(stage.scratchpad_bytes for stage in record.stages)
    assert read == sum(sram.requested_bytes for sram in record.sram)
    # a 256 x 256 array, two of them, at 940 MHz, twice as many MACs in int8
    rates = {roof.name: roof.flops_per_s for roof in found.compute_roofs}
    matrix = result.spec.system.devices["npu"].core.matrix
    clock_hz = result.spec.system.devices["npu"].clock_hz
    assert rates["bf16"] == 2 * matrix.units * matrix.rows * matrix.cols * clock_hz
    assert rates["int8"] == 2 * rates["bf16"]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["rk3588", "jetson-agx-orin", "edge-npu"])
def test_bytes_read_on_chip_sum_over_the_stages(system):
    workload = ns.transformer("smollm2-135m", phase="prefill", prompt_len=16)
    record = ns.simulate(system, workload, simulation={"fidelity": "transfer"}).phase("prefill")
    tiers = {tier.kind: tier.read_bytes for tier in record.tiers}
    requested = sum(s.requested_bytes for s in record.sram if s.name.endswith(".scratchpad"))
    assert sum(stage.scratchpad_bytes for stage in record.stages) == requested > 0
    shared = sum(stage.shared_sram_bytes for stage in record.stages)
    assert shared == tiers.get("shared_sram", 0)


def test_the_figure_shows_every_point_and_roof():
    found = roofline(phase())
    figure = roofline_figure(found)
    markers = [trace for trace in figure.data if trace.mode == "markers"]
    assert {trace.name: len(trace.x) for trace in markers} == {"attention": 2, "lm_head": 2}
    assert markers[0].y[0] == 100.0
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    assert set(lines) == {"dram 100 GB/s", "scratchpad 200 GB/s", "peak"}
    # the slope of the DRAM ends where it meets the compute roof: 4 FLOP/byte, 400 GFLOP/s
    assert (lines["dram 100 GB/s"].x[1], lines["dram 100 GB/s"].y[1]) == (4.0, 400.0)
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_the_figure_of_an_empty_roofline_is_drawn():
    empty = replace(tiny_phase(), peak_macs_per_cycle=0, tiers=())
    assert not [t for t in roofline_figure(roofline(empty)).data if t.mode == "markers"]


@pytest.mark.slow
def test_formats_of_the_same_rate_share_a_line():
    result = real_run()
    found = roofline(result.phase("decode"), result.spec)
    names = [t.name for t in roofline_figure(found).data if t.mode == "lines"]
    assert any(name.endswith(", used") for name in names)
    assert len(names) == len(set(names))


def test_the_command_shows_the_roofline(capsys, tmp_path):
    run = tiny_run(phases={"decode": phase()})
    assert explain(run)[0].roofline.phase == "decode"
    run.save(tmp_path)
    assert main(["explain", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["phases"][0]["roofline"]
    assert shown["peak"] == {"name": "peak", "flops_per_s": 400 * 10**9}
    assert len(shown["points"]) == 4
    assert main(["explain", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert ["attention", "scratchpad", "0.5", "100", "100", "100.0", "%", "scratchpad"] in rows
