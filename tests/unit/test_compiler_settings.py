"""What each compiler setting and core key does to a program, and what is refused."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from npusim.config.compiler import (
    ActivationResidency,
    Launch,
    SplitPolicy,
    WeightLayout,
    WeightResidency,
)
from npusim.errors import MappingError
from npusim.program import EdgeKind, Opcode
from npusim.program.check import check_program
from npusim.workload import Role, transformer
from npusim.workload.primitives import primitive_graph
from tests.unit.compiler_samples import (
    CORE,
    DEVICE,
    bytes_moved,
    compiled,
    consumers,
    system_with,
)


@pytest.mark.parametrize("split", list(SplitPolicy))
@pytest.mark.parametrize("shape", ["1x1x1", "7x13x11", "37x100x53", "127x257x509"])
@pytest.mark.parametrize("name", ["rk3588", "tpu-v6e", "edge-npu"])
def test_odd_shapes_compile(name: str, shape: str, split: SplitPolicy) -> None:
    graph = primitive_graph("matmul", shape)
    program = compiled(graph, system_with(name), split=split).program
    check_program(program)
    assert int(program.macs.sum()) == graph.macs


def test_cold_weights_are_read_once_in_a_single_pass() -> None:
    graph = primitive_graph("matmul", "1x1536x2048", quant="w8a8")
    program = compiled(graph, system_with("rk3588")).program
    assert bytes_moved(program, "weight", is_write=False) == graph.compulsory_read_bytes(
        Role.WEIGHT
    )


@pytest.mark.slow
def test_a_huge_product_compiles_in_bounded_time() -> None:
    start = time.process_time()
    program = compiled(
        primitive_graph("matmul", "16384x16384x16384"), system_with("tpu-v6e")
    ).program
    assert len(program) < 1_000_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize("launch", [Launch.EAGER, Launch.GRAPH])
def test_every_kernel_is_launched(launch: Launch) -> None:
    graph = primitive_graph("ffn_gated", "4x64x64")
    system = system_with("rk3588", "system.host.queue_depth=2")
    program = compiled(graph, system, launch=launch).program
    assert len(program.kernels) == len(graph)
    launches = int((program.opcode == Opcode.LAUNCH).sum())
    assert launches == (len(graph) if launch is Launch.EAGER else 1)
    frees = program.edge_kind == EdgeKind.BUFFER_FREE
    into_launch = program.opcode[consumers(program)] == Opcode.LAUNCH
    waits = int((frees & into_launch).sum())
    # a launch waits for the dispatch two before it: all but the first two
    assert waits == (len(graph) - 2 if launch is Launch.EAGER else 0)


@pytest.mark.parametrize("where", ["matrix_native", "dma_inline", "convert_unit", "vector_unit"])
def test_weights_are_dequantised_where_the_core_says(where: str) -> None:
    graph = primitive_graph("matmul", "8x256x256", quant="w4a16")
    system = system_with("edge-npu", f"{CORE}.weight_dequant={where}")
    program = compiled(graph, system).program
    check_program(program)
    # integers are not multiplied here, so every such command dequantises
    opcodes = {"convert_unit": Opcode.CONVERT, "vector_unit": Opcode.VECTOR}
    for opcode in (Opcode.CONVERT, Opcode.VECTOR):
        assert bool((program.opcode == opcode).any()) == (opcodes.get(where) == opcode)


@pytest.mark.parametrize("where", ["inline", "convert_unit", "vector_unit"])
def test_integer_sums_are_converted_where_the_core_says(where: str) -> None:
    block = f"{CORE}.convert={{elems_per_cycle: 64, fixed_cycles: 1.8 cycles}}"
    system = system_with("rk3588", block, f"{CORE}.matrix.accumulator_convert={where}")
    program = compiled(primitive_graph("matmul", "8x64x64", quant="w8a8"), system).program
    check_program(program)
    opcodes = {"convert_unit": Opcode.CONVERT, "vector_unit": Opcode.VECTOR}
    for opcode in (Opcode.CONVERT, Opcode.VECTOR):
        assert bool((program.opcode == opcode).any()) == (opcodes.get(where) == opcode)


@pytest.mark.parametrize("layout", list(WeightLayout))
@pytest.mark.parametrize("quant", ["w8a8", "w16a16", "w4a16_g32"])
def test_a_layout_changes_addresses_not_bytes(layout: WeightLayout, quant: str) -> None:
    graph = primitive_graph("matmul", "1x96x130", quant=quant)
    program = compiled(graph, system_with("rk3588"), weight_layout=layout).program
    check_program(program)
    assert bytes_moved(program, "weight", is_write=False) == graph.compulsory_read_bytes(
        Role.WEIGHT
    )


def test_resident_weights_come_from_the_shared_sram_or_are_refused() -> None:
    graph = primitive_graph("matmul", "1x256x256")
    resident = WeightResidency.RESIDENT
    program = compiled(graph, system_with("ascend-910b"), weight_residency=resident).program
    assert bytes_moved(program, "weight", is_write=False) == 0
    assert bytes_moved(program, "weight", is_write=False, space="shared_sram") > 0
    with pytest.raises(MappingError, match=r"131072 bytes of weights do not stay in no shared"):
        compiled(graph, system_with("rk3588"), weight_residency=resident)


def test_activations_stay_where_residency_says() -> None:
    graph = primitive_graph("ffn_gated", "4x64x64")
    system = system_with("ascend-910b")
    spaces = {
        residency: compiled(graph, system, activation_residency=residency).activation_space
        for residency in ActivationResidency
    }
    assert spaces[ActivationResidency.DRAM] == "dram"
    assert spaces[ActivationResidency.ON_CHIP] == "npu.shared_sram"
    assert spaces[ActivationResidency.AUTO] == "npu.shared_sram"
    with pytest.raises(MappingError, match=r"activations of \d+ bytes do not fit on the chip"):
        compiled(graph, system_with("rk3588"), activation_residency=ActivationResidency.ON_CHIP)


def test_a_tile_that_cannot_fit_is_refused_with_need_and_budget() -> None:
    system = system_with("rk3588", f"{CORE}.scratchpad.capacity_bytes=768 B")
    with pytest.raises(MappingError, match=r"matmul: the smallest tile needs \d+ bytes .* 768"):
        compiled(primitive_graph("matmul", "64x512x512"), system)


def test_layout_is_aligned_disjoint_and_agrees_with_the_cache_layout() -> None:
    workload = transformer("qwen2-1.5b", "decode", context_len=64, quant="w8a8")
    graph = workload.decode_graph(64, num_layers=2)
    cache = workload.kv_layout()
    program = compiled(
        graph,
        system_with("rk3588"),
        kv_capacity_tokens=cache.capacity_tokens,
        cached_tokens=64,
    ).program
    dram = sorted((a.offset, a.nbytes) for a in program.allocations if a.space == 0 and a.nbytes)
    assert all(offset % 4096 == 0 for offset, _ in dram)
    assert all(low + size <= high for (low, size), (high, _) in pairwise(dram))
    kv = [a for a in program.allocations if a.role == "kv"]
    for index, allocation in enumerate(kv):
        layer, part = divmod(index, 2)
        assert allocation.name == f"layers.{layer}.{'kv'[part]}_cache"
        assert allocation.offset - kv[0].offset == cache.region_base(layer, "kv"[part])


def test_memories_that_are_too_small_are_named() -> None:
    graph = primitive_graph("matmul", "1x4096x4096")
    small = system_with("rk3588", "system.memories.dram.capacity_bytes=16 MiB")
    with pytest.raises(MappingError, match=r"memories\.dram\.capacity_bytes: .*holds 16777216"):
        compiled(graph, small)
    limited = system_with("rk3588", f"{DEVICE}.address_limit_bytes=16 MiB")
    with pytest.raises(MappingError, match=r"address_limit_bytes: .*can address 16777216"):
        compiled(graph, limited)


def test_shared_tiles_read_the_dram_once() -> None:
    graph = primitive_graph("matmul", "512x512x512")
    program = compiled(graph, system_with("ascend-910b")).program
    follows = np.flatnonzero(
        (program.opcode[consumers(program)] == Opcode.LOAD)
        & (program.opcode[program.edge_producer] == Opcode.LOAD)
    )
    assert len(follows)
    for role in ("weight", "activation"):
        assert bytes_moved(program, role, is_write=False) == 2 * 512 * 512
