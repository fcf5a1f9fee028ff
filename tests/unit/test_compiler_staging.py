"""Staged matmuls, and products of one row on the vector unit."""

from __future__ import annotations

import numpy as np
import pytest

from npusim.config.compiler import CompilerConfig, Gemv, Staging
from npusim.errors import ConfigError
from npusim.program import Opcode
from npusim.program.check import check_program
from npusim.simulation import simulate_operator
from npusim.workload.primitives import primitive_graph
from tests.unit.compiler_samples import DEVICE, bytes_moved, compiled, consumers, system_with

SMALL_TILES = system_with("tpu-v6e", f"{DEVICE}.staging_tile_bytes=512 KiB")


def first_product_awaits(program):
    """LOADs the first product has an edge from, and all LOADs."""
    first = np.flatnonzero(program.opcode == Opcode.MATMUL)[0]
    awaited = set(program.edge_producer[consumers(program) == first].tolist())
    loads = set(np.flatnonzero(program.opcode == Opcode.LOAD).tolist())
    return awaited & loads, loads


def test_the_first_product_waits_for_whole_operands():
    graph = primitive_graph("matmul", "1024x512x1024")
    program = compiled(graph, SMALL_TILES).program
    check_program(program)
    # 1024 rows of 2 KiB in tiles of 512 KiB: four products of 256 rows
    assert np.count_nonzero(program.opcode == Opcode.MATMUL) == 4
    awaited, loads = first_product_awaits(program)
    assert awaited == loads
    tiled = compiled(graph, SMALL_TILES, staging=Staging.TILES).program
    awaited, loads = first_product_awaits(tiled)
    assert awaited < loads


def test_staging_reads_every_operand_once_in_rows_of_outputs():
    graph = primitive_graph("matmul", "1024x512x1024")
    program = compiled(graph, SMALL_TILES).program
    assert bytes_moved(program, "weight", is_write=False) == 2 * 512 * 1024
    stores = np.flatnonzero(program.opcode == Opcode.STORE)
    sizes = program.transfers.nbytes()[program.transfer[stores]]
    assert sizes.max() <= 512 * 1024
    assert sizes.sum() == 2 * 1024 * 1024


def test_operands_that_do_not_fit_are_streamed():
    graph = primitive_graph("matmul", "64x4096x20000")  # 164 MB of weights, 128 MiB of scratchpad
    program = compiled(graph, system_with("tpu-v6e")).program
    check_program(program)
    awaited, loads = first_product_awaits(program)
    assert awaited < loads


def test_staged_batches_wait_for_their_own_operands_only():
    graph = primitive_graph("matmul", "64x128x300", batch=5)
    program = compiled(graph, system_with("tpu-v6e")).program
    check_program(program)
    awaited, loads = first_product_awaits(program)
    assert len(awaited) == 2
    assert len(loads) == 10


def test_whole_operands_need_a_tile_size():
    with pytest.raises(ConfigError, match="staging_tile_bytes"):
        compiled(primitive_graph("matmul", "8x8x8"), system_with("rk3588"), staging=Staging.WHOLE)


def test_staging_costs_the_overlap():
    def elapsed(staging):
        config = CompilerConfig(staging=staging)
        system = system_with("tpu-v6e")
        return simulate_operator(
            system, "matmul", "1024x2048x2048", ideal_memory=False, compiler=config
        )

    whole = elapsed(Staging.WHOLE)
    # 4 MiB + 8 MiB in at 1638 GB/s = 7.7 us, then 8.6 GFLOP at 918 TFLOP/s = 9.4 us
    assert whole.elapsed_ps > 17_100_000 + system_with("tpu-v6e").host.sync_ps


def test_products_of_one_row_run_where_the_device_says():
    graph = primitive_graph("matmul", "1x4096x4096")
    vector = compiled(graph, system_with("tpu-v6e")).program
    matrix = compiled(graph, system_with("tpu-v6e"), gemv=Gemv.MATRIX).program
    for program, opcode in ((vector, Opcode.VECTOR), (matrix, Opcode.MATMUL)):
        check_program(program)
        assert int(program.macs[program.opcode == opcode].sum()) == 4096 * 4096
    # 32 MiB in tiles of at most 8 MiB; a tile's MACs, a multiply and an add each, in 4096 lanes
    products = np.flatnonzero(vector.macs > 0)
    macs = vector.macs[products]
    assert len(products) >= 4
    assert vector.duration_ticks[products].tolist() == [int(2 * m // 4096 + 16) for m in macs]
    two_rows = compiled(primitive_graph("matmul", "2x4096x4096"), system_with("tpu-v6e")).program
    assert not (two_rows.opcode == Opcode.VECTOR).any()


def test_a_small_matrix_stays_on_the_matrix_unit():
    program = compiled(primitive_graph("matmul", "1x1024x1024"), system_with("tpu-v6e")).program
    assert (program.opcode == Opcode.MATMUL).any()
