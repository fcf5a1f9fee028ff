"""Issue 4, must hold 1: contention-free cycles are the closed forms, on the real path.

Compiler and SimPy machine run with a memory that answers at once; the forms are written out here a
second time, from the published text, and shapes are (M, N, K) as there.
"""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npusim.cli import main
from npusim.config.compiler import CompilerConfig
from npusim.simulation import simulate_operator
from tests.unit.compiler_samples import CORE, system_with

WS, IS, OS = "weight_stationary", "input_stationary", "output_stationary"
EXAMPLES = 40
sizes = st.integers(1, 300)


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def array_sets(size: int, dataflow: str, *, drain: bool, overlapped: bool = False) -> list[str]:
    values = {
        "units": "1",
        "rows": str(size),
        "cols": str(size),
        "dataflow": dataflow,
        "drain": str(drain).lower(),
        "preload_overlapped": str(overlapped).lower(),
    }
    return [f"{CORE}.matrix.{key}={value}" for key, value in values.items()]


@cache
def array(size: int, dataflow: str, *, drain: bool):
    return system_with("tpu-v6e", *array_sets(size, dataflow, drain=drain))


def closed_form(size: int, dataflow: str, mnk: tuple[int, int, int], *, drain: bool):
    """(folds, cycles) of an R x R array."""
    m, n, k = mnk
    held, stream = {WS: ((k, n), m), IS: ((k, m), n), OS: ((m, n), k)}[dataflow]
    folds = ceil(held[0], size) * ceil(held[1], size)
    edges = 2 if dataflow == OS and not drain else 3  # 2R + C, or R + C
    return folds, folds * (edges * size + stream - 2)


@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from([16, 32, 128]),
    st.sampled_from([WS, IS, OS]),
    st.booleans(),
    sizes,
    sizes,
    sizes,
)
@example(32, WS, False, 256, 128, 256)
@example(32, IS, False, 256, 128, 256)
@example(32, OS, False, 256, 128, 256)
@example(128, OS, True, 1, 1, 1)
def test_the_machine_takes_the_closed_form_of_every_dataflow(size, dataflow, drain, m, n, k):
    system = array(size, dataflow, drain=drain)
    result = simulate_operator(system, "matmul", f"{m}x{k}x{n}", ideal_memory=True)
    folds, cycles = closed_form(size, dataflow, (m, n, k), drain=drain)
    assert (result.folds, result.compute_cycles) == (folds, cycles)
    assert result.macs == m * n * k
    # one command on one engine: time is what it takes, to the picosecond, after the launch
    assert result.elapsed_ps >= cycles * 10**12 // system.devices["npu"].clock_hz


@cache
def ascend():
    return system_with("ascend-910b")


@settings(max_examples=EXAMPLES)
@given(st.sampled_from([(1, "fp16", 16), (1, "int8", 32)]), sizes, sizes, sizes)
def test_the_machine_takes_one_cycle_per_block_of_a_cube_unit(unit, m, n, k):
    # a 16 x 16 x 16 (fp16) or 16 x 32 x 16 (int8) block a cycle, after the pipeline's fill
    units, dtype, depth = unit
    system = ascend()
    matrix = system.devices["npu"].core.matrix
    quant = "w16a16" if dtype == "fp16" else "w8a8"
    result = simulate_operator(
        system, "matmul", f"{m}x{k}x{n}", quant=quant, ideal_memory=True,
        compiler=CompilerConfig(max_cores=1),
    )  # fmt: skip
    blocks = ceil(m, 16) * ceil(k, depth) * ceil(n, 16)
    assert matrix.units == units
    assert result.folds == blocks
    assert result.compute_cycles == blocks + matrix.startup_cycles


@pytest.mark.parametrize(
    ("size", "dataflow", "mnk", "folds", "cycles"),
    [
        (32, WS, (256, 128, 256), 32, 32 * 350),  # 8 x 4 folds of 94 + 256
        (32, IS, (256, 128, 256), 64, 64 * 222),  # 8 x 8 folds of 94 + 128
        (32, OS, (256, 128, 256), 32, 32 * 318),  # 8 x 4 folds of 62 + 256
        (128, OS, (64, 16, 4096), 1, 4350),  # 254 + 4096
        (128, OS, (1, 1, 1), 1, 255),
        (128, OS, (256, 1024, 256), 16, 8160),  # 2 x 8 folds of 254 + 256
    ],
)
def test_the_command_line_prints_the_vectors(capsys, size, dataflow, mnk, folds, cycles):
    m, n, k = mnk
    sets = [part for item in array_sets(size, dataflow, drain=False) for part in ("--set", item)]
    argv = ["op", "tpu-v6e", "matmul", f"{m}x{k}x{n}", "--ideal-memory", "--json", *sets]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["folds"], found["compute_cycles"], found["macs"]) == (folds, cycles, m * n * k)
    assert found["elapsed_ps"] > 0
