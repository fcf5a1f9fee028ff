"""Closed-form bounds and roofline against hand-derived numbers."""

from __future__ import annotations

import numpy as np
import pytest

from npusim.analytic.bounds import operator_bound, operator_bound_ps, phase_bound_ps
from npusim.analytic.peaks import peaks_of
from npusim.analytic.roofline import attainable_flops_per_s, operator_points, stage_points
from npusim.config.compiler import CompilerConfig, WeightResidency
from npusim.config.compute import (
    AccumulatorConvert,
    ComputeDtype,
    CoreSpec,
    CubeShape,
    MatrixKind,
    MatrixSpec,
)
from npusim.config.interconnect import BusSpec
from npusim.config.system import DeviceSpec, SystemConfig
from npusim.errors import ConfigError
from npusim.workload import build_graph, load_model, primitive_graph

PEAK = {"dram": 10**10}


def toy_system() -> SystemConfig:
    """Two cores of 8x8x8 fp16 or 8x16x8 int8 at 1 GHz, 10 GB/s of DRAM, 4 GB/s each way of bus.

    Peaks: fp16 2 x 512 x 1e9 = 1.024e12 MACs/s, int8 twice that. What a bound never reads
    is left out.
    """
    matrix = MatrixSpec(
        kind=MatrixKind.CUBE,
        units=1,
        cube={
            ComputeDtype.FP16: CubeShape(m=8, k=8, n=8),
            ComputeDtype.INT8: CubeShape(m=8, k=16, n=8),
        },
        startup_cycles=0,
        operand_buffer_bytes=1024,
        accumulator_buffer_bytes=1024,
        operand_bytes_per_cycle=256,
        accumulator_bytes_per_cycle=256,
        accumulator_convert=AccumulatorConvert.INLINE,
    )
    device = DeviceSpec.model_construct(
        clock_hz=10**9, bus="axi", cores=2, core=CoreSpec.model_construct(matrix=matrix)
    )
    bus = BusSpec.model_construct(memory="dram", clock_hz=5 * 10**8, data_bits=64)
    return SystemConfig.model_construct(buses={"axi": bus}, devices={"npu": device})


SYSTEM = toy_system()


def test_peaks_sum_cores_and_let_formats_stand_in():
    peaks = peaks_of(SYSTEM, CompilerConfig(), PEAK)
    assert peaks.macs_per_s["fp16"] == 1_024_000_000_000
    assert peaks.macs_per_s["bf16"] == peaks.macs_per_s["fp16"]  # twin
    assert peaks.macs_per_s["int8"] == 2_048_000_000_000
    assert peaks.macs_per_s["int4"] == peaks.macs_per_s["int8"]  # fastest: still a bound
    assert (peaks.dram_bytes_per_s, peaks.bus_bytes_per_s) == (10**10, 4 * 10**9)


def test_peaks_count_only_cores_the_compiler_may_use():
    peaks = peaks_of(SYSTEM, CompilerConfig(max_cores=1), PEAK)
    assert peaks.macs_per_s["fp16"] == 512_000_000_000


# 1024^3 MACs at 1.024e12 / s: 1,048,576,000 ps. Bytes: input and weight 2 x 2 MiB read, 2 MiB
# written: 6,291,456 B at 10 GB/s = 629,145,600 ps; bus: 4,194,304 B at 4 GB/s = 1,048,576,000 ps.
def test_a_matmul_bound_is_the_largest_of_compute_dram_and_bus():
    graph = primitive_graph("matmul", "1024x1024x1024")
    bound = phase_bound_ps(graph, SYSTEM, CompilerConfig(), PEAK)
    assert (bound.compute_ps, bound.dram_ps, bound.bus_ps) == (
        1_048_576_000,
        629_145_600,
        1_048_576_000,
    )
    assert bound.elapsed_ps == 1_048_576_000
    assert bound.limited_by == "compute"
    assert (bound.dram_read_bytes, bound.dram_write_bytes) == (4_194_304, 2_097_152)


# One row: 1024^2 MACs = 1,024,000 ps; 2 KiB + 2 MiB read: 2,099,200 B over the bus 524,800,000 ps.
def test_a_matrix_vector_product_is_limited_by_bytes():
    graph = primitive_graph("matmul", "1x1024x1024")
    bound = phase_bound_ps(graph, SYSTEM, CompilerConfig(), PEAK)
    assert (bound.compute_ps, bound.bus_ps, bound.limited_by) == (1_024_000, 524_800_000, "bus")


# Qwen2-1.5B decode at 512, w16: weights 3,087,428,608 B (tied, read whole), KV 512 x 28,672 B, 4 B
# of token id; written 28,672 B of KV and 303,872 B of logits.
def test_a_decode_step_reads_weights_and_cache_once():
    graph = build_graph(load_model("qwen2-1.5b"), "decode", context_len=512)
    bound = phase_bound_ps(graph, SYSTEM, CompilerConfig(), PEAK)
    assert bound.dram_read_bytes == 3_087_428_608 + 14_680_064 + 4
    assert bound.dram_write_bytes == 28_672 + 303_872
    assert bound.dram_ps == (3_102_108_676 + 332_544) * 100
    assert bound.macs == graph.macs


def test_resident_weights_need_no_dram():
    graph = build_graph(load_model("qwen2-1.5b"), "decode", context_len=512)
    resident = CompilerConfig(weight_residency=WeightResidency.RESIDENT)
    bound = phase_bound_ps(graph, SYSTEM, resident, PEAK)
    assert bound.dram_read_bytes == 14_680_064 + 4


def test_formats_add_up_at_their_own_rates():
    graph = build_graph(load_model("qwen2-1.5b"), "decode", context_len=512, quant="w8a8")
    attention = sum(op.macs for op in graph if op.compute_dtype == "bf16")
    linear = graph.macs - attention
    bound = phase_bound_ps(graph, SYSTEM, CompilerConfig(), PEAK)
    expected = (2 * attention + linear) * 10**12 // 2_048_000_000_000
    assert bound.compute_ps == expected


def test_times_round_down():
    graph = primitive_graph("matmul", "1x1x1")
    bound = phase_bound_ps(graph, SYSTEM, CompilerConfig(), {"dram": 3})
    assert bound.compute_ps == 0
    assert bound.dram_ps == 6 * 10**12 // 3


def test_an_operator_alone_may_count_its_activations():
    peaks = peaks_of(SYSTEM, CompilerConfig(), PEAK)
    (operator,) = primitive_graph("matmul", "4x8x16")
    assert operator_bound(operator, peaks).dram_bytes == 8 * 16 * 2
    eager = operator_bound(operator, peaks, counts_activations=True)
    assert eager.dram_bytes == (8 * 16 + 4 * 8 + 4 * 16) * 2
    assert operator_bound_ps(operator, peaks) == 8 * 16 * 2 * 250  # bus, 4 GB/s


def test_roofline_points_of_stages_sum_their_operators():
    graph = build_graph(load_model("qwen2-1.5b"), "decode", context_len=512, num_layers=2)
    peaks = peaks_of(SYSTEM, CompilerConfig(), PEAK)
    stages = {point.name: point for point in stage_points(graph, peaks)}
    qkv = stages["qkv"]
    # 2 layers x 1536 x 2048 MACs; weights of 2 bytes and a bias of 2048
    assert qkv.flops == 2 * 2 * 1536 * 2048
    assert qkv.dram_bytes == 2 * 2 * (1536 * 2048 + 2048)
    assert qkv.intensity == pytest.approx(1, rel=1e-3)
    assert qkv.is_memory_bound
    assert qkv.attainable_flops_per_s == pytest.approx(4e9, rel=1e-3)
    assert stages["softmax"].intensity == 0.0
    assert stages["softmax"].attainable_flops_per_s == 0.0
    assert sum(p.flops for p in operator_points(graph, peaks)) == 2 * graph.macs


def test_attainable_rate_is_the_lower_of_roof_and_slope():
    intensity = np.array([1.0, 100.0])
    assert list(attainable_flops_per_s(intensity, 50.0, 2.0)) == [2.0, 50.0]


def test_a_memory_without_a_peak_rate_is_refused():
    with pytest.raises(ConfigError, match="has no peak rate"):
        peaks_of(SYSTEM, CompilerConfig(), {"drum": 1})
