"""Issue 2, must hold 4 and 7: any number of cores, awkward and huge matmuls, GEMV against GEMM."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.validation.test_systems_support import (
    MINI,
    SYSTEMS,
    check_accounts,
    run_spec,
    simulated,
    simulated_operator,
    some_slow,
    tiny_model,
)

CORES = (1, 2, 4, 8, 16, 32, 64)
SHAPES = ("1x1x1", "2x3x5", "7x11x13", "37x100x53", "127x509x251")

#: a child process, so that its peak memory is its own
HUGE = """
import resource, sys
from npusim.config.loader import load_system
from npusim.config.run_spec import Fidelity, SimulationConfig
from npusim.simulation import simulate_operator

settings = SimulationConfig(fidelity=Fidelity.TRANSFER)
result = simulate_operator(
    load_system(sys.argv[1]), "matmul", "16384x16384x16384", quant="w8a8", simulation=settings
)
assert result.macs == 16384**3
assert result.elapsed_ps >= result.bound_ps
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("system", some_slow(["ascend-910b", "edge-npu"]))
@pytest.mark.parametrize("cores", CORES)
def test_any_number_of_cores_runs(system, cores):
    sets = (f"system.devices.npu.cores={cores}",)
    result = simulated(
        system, tiny_model(**MINI), sets=sets, context_len=8, generate_len=1, quant="w4a16"
    )
    check_accounts(result)
    engines = result.phase("decode").engines
    assert {e.core for e in engines if e.core is not None} == set(range(cores))


@pytest.mark.parametrize("cores", CORES)
def test_macs_and_compulsory_bytes_do_not_depend_on_the_number_of_cores(cores):
    sets = (f"system.devices.npu.cores={cores}",)
    result = simulated_operator("edge-npu", "16x128x256", sets=sets)
    assert result.macs == 16 * 128 * 256
    (dram,) = [m for m in result.phase.memories if m.kind == "dram"]
    assert dram.bytes_by_role["weight"] >= 2 * 128 * 256
    assert dram.write_bytes == 2 * 16 * 256


@pytest.mark.parametrize("system", some_slow(SYSTEMS))
@pytest.mark.parametrize("shape", SHAPES)
def test_awkward_matmuls_run_on_every_system(system, shape):
    m, k, n = (int(size) for size in shape.split("x"))
    result = simulated_operator(system, shape)
    assert result.macs == m * k * n
    assert result.elapsed_ps >= result.bound_ps
    (dram,) = [memory for memory in result.phase.memories if memory.kind == "dram"]
    assert dram.bytes_by_role["weight"] >= 2 * k * n
    assert dram.write_bytes == 2 * m * n


@pytest.mark.parametrize("system", some_slow(SYSTEMS))
def test_a_gemv_takes_fewer_cycles_than_a_gemm_and_shows_low_utilization(system):
    gemv = simulated_operator(system, "1x512x512")
    gemm = simulated_operator(system, "256x512x512")
    assert gemv.compute_cycles < gemm.compute_cycles
    assert gemv.elapsed_ps < gemm.elapsed_ps
    low = gemv.summary()["utilization"]["mac_frac"]
    assert low < gemm.summary()["utilization"]["mac_frac"]
    assert low < 0.05


def test_a_gemv_on_one_cube_fills_one_row_of_eight():
    # edge-npu, one core, memory ideal: blocks of 8 x 16 x 16 at one per cycle after 8 cycles;
    # 512 / 16 x 512 / 16 = 1024 blocks, of which one row in eight holds MACs
    spec = run_spec("edge-npu", "smollm2-135m", sets=("system.devices.npu.cores=1",), prompt_len=1)
    from npusim.simulation import simulate_operator

    gemv = simulate_operator(spec.system, "matmul", "1x512x512", ideal_memory=True)
    full = simulate_operator(spec.system, "matmul", "8x512x512", ideal_memory=True)
    assert gemv.compute_cycles == full.compute_cycles == 8 + 1024
    assert full.macs == 8 * gemv.macs == 8 * 512 * 512


def test_a_shared_tile_whose_rows_lie_further_apart_than_the_shared_sram_is_large_runs():
    # rows of 4096 bytes: 32 of them span twice the shared SRAM, but the tile itself has 4 KiB
    sets = ("system.devices.npu.shared_sram.capacity_bytes=64 KiB",)
    result = simulated_operator("edge-npu", "64x2048x256", sets=sets)
    assert result.macs == 64 * 2048 * 256


@pytest.mark.slow
@pytest.mark.parametrize("system", ["tpu-v6e"])
def test_a_matmul_of_16384_cubed_runs_in_bounded_memory(system):
    done = subprocess.run(
        [sys.executable, "-c", HUGE, system], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    peak_kib = int(done.stdout)
    assert peak_kib < 2 * 2**20, f"{peak_kib} KiB"
