"""Fused attention and fused activations: times by hand, bytes and MACs unchanged, legality."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npusim.config.compiler import ActivationResidency, CompilerConfig, Fusion
from npusim.program import EngineKind, Opcode
from npusim.program.check import check_program
from npusim.simulation import simulate_operator
from npusim.workload.primitives import primitive_graph
from npusim.workload.tensor import Role
from tests.unit.compiler_samples import CORE, bytes_moved, compiled, system_with

TPU = system_with("tpu-v6e")
ON = CompilerConfig(fusion=Fusion.ON)
OFF = CompilerConfig(fusion=Fusion.OFF)


def program_of(shape, system=TPU, **settings):
    settings = {"fusion": Fusion.ON, **settings}
    return compiled(primitive_graph("attention", shape), system, **settings).program


def durations(program, opcode):
    return program.duration_ticks[program.opcode == opcode].tolist()


def test_one_query_and_one_tile_of_keys_take_the_chain_by_hand():
    # 256 x 256 arrays: one fold of 2 * 256 + 256 + 1 - 2 = 767 cycles for the scores (1 x 128 by
    # 128 x 128) and for the context. Softmax of 128 scores on 4096 lanes: mul, add, max, exp and
    # convert take one cycle each, plus 16 of latency. Final: div, mul, convert, plus 16.
    result = simulate_operator(TPU, "attention", "1x1x1x1x128x128", ideal_memory=True, compiler=ON)
    assert result.compute_cycles == 2 * 767
    engines = {e.engine.rsplit(".", 1)[-1]: e for e in result.phase.engines}
    period_ps = 10**12 / 1.75e9
    assert engines["vector"].busy_ps == pytest.approx((5 + 16 + 3 + 16) * period_ps, abs=4)
    # nothing of the chain overlaps: launch, node and the sum of its commands, then the host's sync
    host = TPU.host
    fixed_ps = host.graph_launch_ps + host.graph_node_ps + host.sync_ps
    chain_ps = (2 * 767 + 40) * period_ps
    assert result.elapsed_ps == pytest.approx(fixed_ps + chain_ps, abs=3 * period_ps)


def test_a_second_tile_of_keys_rescales_the_sums():
    # accumulators for 64 x 256 scores: 512 keys need two tiles
    system = system_with("tpu-v6e", f"{CORE}.matrix.accumulator_buffer_bytes=64 KiB")
    program = program_of("1x1x1x64x512x128", system)
    softmax = durations(program, Opcode.VECTOR)
    # per tile 64 x 256 = 16384 scores in 4096 lanes: mul (16384 + 64) -> 5, add (49152 + 128) ->
    # 13, max 5, exp (4 cycles) 17, convert 4, latency 16; the second one also multiplies and adds
    # 64 x 128 = 8192 sums: mul (24640) -> 7, add (57472) -> 15
    assert softmax[:2] == [5 + 13 + 5 + 17 + 4 + 16, 7 + 15 + 5 + 17 + 4 + 16]
    assert len(durations(program, Opcode.MATMUL)) == 4


def test_scores_beyond_the_register_file_pay_for_the_way_to_the_scratchpad():
    narrow = f"{CORE}.vector.bytes_per_cycle=1 KiB/cycle"
    small = program_of("1x1x1x64x256x128", system_with("tpu-v6e", narrow))
    spilled = program_of(
        "1x1x1x64x256x128", system_with("tpu-v6e", narrow, f"{CORE}.register_file_bytes=32 KiB")
    )
    # 64 x 256 scores are 64 KiB; spilling writes and reads 4 bytes each more, at 1024 B/cycle
    first, again = durations(small, Opcode.VECTOR)[0], durations(spilled, Opcode.VECTOR)[0]
    assert first == 64 * 256 * 6 // 1024 + 16
    assert again == 64 * 256 * 14 // 1024 + 16


@pytest.mark.parametrize(
    "shape", ["1x24x8x1x300x64", "3x6x2x5x37x48", "1x4x4x300x700x64", "2x8x1x256x256x128"]
)
@pytest.mark.parametrize("name", ["tpu-v6e", "ascend-910b", "edge-npu"])
def test_fusing_changes_no_macs_and_moves_no_scores(shape, name):
    system = system_with(name)
    graph = primitive_graph("attention", shape)
    program = compiled(graph, system, fusion=Fusion.ON).program
    check_program(program)
    assert [k.stage for k in program.kernels] == ["attention"]
    assert int(program.macs.sum()) == graph.macs
    read = bytes_moved(program, "kv", is_write=False)
    assert read >= graph.compulsory_read_bytes(Role.KV)
    written = bytes_moved(program, "activation", is_write=True)
    assert written == graph.compulsory_write_bytes(Role.ACTIVATION)
    if int(shape.split("x")[3]) * 3 <= 16:  # one block of rows: keys and values are read once
        assert read == graph.compulsory_read_bytes(Role.KV)


def test_a_chain_never_overlaps_with_itself():
    program = program_of("1x2x2x256x512x64")
    vector = [i for i, e in enumerate(program.engines) if e.kind is EngineKind.VECTOR]
    consumers = np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))
    for command in np.flatnonzero(program.opcode == Opcode.MATMUL):
        awaited = program.edge_producer[consumers == command]
        follows_vector = np.isin(program.engine[awaited], vector).any()
        is_first = command == np.flatnonzero(program.opcode == Opcode.MATMUL)[0]
        assert follows_vector or is_first


def test_switches_and_legality_are_logged():
    graph = primitive_graph("attention", "1x4x2x8x64x64")
    for settings in ({"fusion": Fusion.OFF}, {"fusion": Fusion.ON, "fuse_attention": False}):
        program = compiled(graph, TPU, **settings).program
        assert [k.stage for k in program.kernels] == ["scores", "softmax", "context"]
    narrow = primitive_graph("attention", "1x4x2x8x64x64", quant="w8a8", kv_dtype="int8")
    program = compiled(narrow, TPU, fusion=Fusion.ON).program
    assert len(program.kernels) == 3
    assert any("attention stays in three kernels" in line for line in program.log)
    tight = system_with("tpu-v6e", f"{CORE}.matrix.accumulator_buffer_bytes=1 KiB")
    program = compiled(graph, tight, fusion=Fusion.ON).program
    assert any("bytes of accumulators" in line for line in program.log)


def test_the_automatic_choice_is_the_lower_prediction():
    graph = primitive_graph("attention", "1x24x8x1x2048x128")
    program = compiled(graph, TPU, fusion=Fusion.AUTO).program
    (line,) = [line for line in program.log if line.startswith("fusion: attention")]
    found = re.search(r"predicted (\d+) cycles fused, (\d+) apart", line)
    fused, apart = (int(word) for word in found.groups())
    assert (len(program.kernels) == 1) == (fused <= apart)


def test_a_gated_activation_moves_into_the_epilogue():
    graph = primitive_graph("ffn_gated", "300x512x1000")
    fused, apart = (compiled(graph, TPU, fusion=mode).program for mode in (Fusion.ON, Fusion.OFF))
    assert [k.stage for k in fused.kernels] == ["gate_up", "down"]
    assert [k.stage for k in apart.kernels] == ["gate_up", "silu_mul", "down"]
    assert int(fused.macs.sum()) == int(apart.macs.sum()) == graph.macs
    dram = {"fusion": Fusion.ON, "activation_residency": ActivationResidency.DRAM}
    program = compiled(graph, TPU, **dram).program
    written = bytes_moved(program, "activation", is_write=True)
    assert written == 2 * 300 * (1000 + 512)  # the activation once, and the output
    off = compiled(graph, TPU, **dram, fuse_activation=False).program
    assert len(off.kernels) == 3
