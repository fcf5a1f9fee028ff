"""Cycles of matrix, vector and convert units, from hand-derived numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.compiler.unit_timing import (
    convert_ticks,
    matrix_array_cycles,
    matrix_folds,
    vector_cycles,
)
from npusim.config.compute import (
    VECTOR_OPS,
    AccumulatorConvert,
    ComputeDtype,
    ConvertSpec,
    CubeShape,
    Dataflow,
    MatrixKind,
    MatrixSpec,
    VectorSpec,
)

INT8 = ComputeDtype.INT8


def _spec(**geometry: object) -> MatrixSpec:
    buffers = {
        "operand_buffer_bytes": 65536,
        "accumulator_buffer_bytes": 65536,
        "operand_bytes_per_cycle": 256,
        "accumulator_bytes_per_cycle": 256,
        "accumulator_convert": AccumulatorConvert.INLINE,
    }
    return MatrixSpec.model_validate(buffers | geometry)


def _array(
    size: int, dataflow: Dataflow, *, drain: bool = False, overlapped: bool = False, units: int = 1
) -> MatrixSpec:
    return _spec(
        kind=MatrixKind.SYSTOLIC,
        units=units,
        rows=size,
        cols=size,
        dataflow=dataflow,
        preload_overlapped=overlapped,
        drain=drain,
        macs_per_pe={INT8: 1},
    )


WS, IS, OS = (
    Dataflow.WEIGHT_STATIONARY,
    Dataflow.INPUT_STATIONARY,
    Dataflow.OUTPUT_STATIONARY,
)


@pytest.mark.parametrize(
    ("size", "dataflow", "mnk", "folds", "cycles_per_fold"),
    [
        # K/32 * N/32 = 8 * 4 folds of 2 * 32 + 32 + M - 2 = 94 + 256
        (32, WS, (256, 128, 256), 32, 350),
        # K/32 * M/32 = 8 * 8 folds of 94 + N
        (32, IS, (256, 128, 256), 64, 222),
        # M/32 * N/32 = 8 * 4 folds of 32 + 32 + K - 2 = 62 + 256
        (32, OS, (256, 128, 256), 32, 318),
        # one fold of 128 + 128 + K - 2 = 254 + 4096
        (128, OS, (64, 16, 4096), 1, 4350),
        (128, OS, (1, 1, 1), 1, 255),
        # 2 * 8 folds of 254 + 256 = 510
        (128, OS, (256, 1024, 256), 16, 510),
    ],
)
def test_folds_of_a_systolic_array_cost_the_closed_form(
    size: int, dataflow: Dataflow, mnk: tuple[int, int, int], folds: int, cycles_per_fold: int
) -> None:
    m, n, k = mnk
    spec = _array(size, dataflow)
    assert int(matrix_folds(spec, INT8, m, k, n)) == folds
    assert int(matrix_array_cycles(spec, INT8, m, k, n)) == folds * cycles_per_fold


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from([WS, IS, OS]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
)
def test_array_cycles_equal_a_walk_over_the_folds(
    m: int, n: int, k: int, dataflow: Dataflow, drain: bool, overlapped: bool, units: int
) -> None:
    size = 16
    spec = _array(size, dataflow, drain=drain, overlapped=overlapped, units=units)
    held, stream = {WS: ((k, n), m), IS: ((k, m), n), OS: ((m, n), k)}[dataflow]
    fill = 2 * size + size - 2 - (size if dataflow is OS and not drain else 0)
    folds = sum(1 for _ in range(0, held[0], size) for _ in range(0, held[1], size))
    cycles = 0
    for number in range(0, folds, units):  # `units` folds at a time
        is_hidden = overlapped and number > 0
        cycles += max(stream, size) if is_hidden else fill + stream
    assert int(matrix_array_cycles(spec, INT8, m, k, n)) == cycles


def test_a_cube_unit_costs_its_blocks_and_the_start() -> None:
    spec = _spec(
        kind=MatrixKind.CUBE,
        units=2,
        cube={INT8: CubeShape(m=16, k=32, n=16)},
        startup_cycles=32,
    )
    # ceil(17/16) * ceil(64/32) * ceil(48/16) = 12 blocks on 2 units
    assert int(matrix_array_cycles(spec, INT8, 17, 64, 48)) == 32 + 6
    assert int(matrix_array_cycles(spec, INT8, 1, 1, 1)) == 32 + 1


def test_a_vector_command_costs_its_lanes_or_its_path() -> None:
    spec = VectorSpec(
        lanes={ComputeDtype.FP16: 64},
        op_cycles=dict.fromkeys(VECTOR_OPS, 1) | {"exp": 4},
        latency_cycles=8,
        bytes_per_cycle=256,
    )
    ops = (("exp", 100), ("add", 65))
    # ceil(400/64) + ceil(65/64) = 7 + 2, path ceil(1000/256) = 4
    assert int(vector_cycles(spec, ops, ComputeDtype.FP16, 1000)) == 8 + 9
    # path ceil(10000/256) = 40
    assert int(vector_cycles(spec, ops, ComputeDtype.FP16, 10000)) == 8 + 40
    many = vector_cycles(spec, (("exp", np.array([100, 1])),), ComputeDtype.FP16, np.array([0, 0]))
    assert many.tolist() == [8 + 7, 8 + 1]


def test_a_fractional_conversion_stays_exact() -> None:
    spec = ConvertSpec(elems_per_cycle=64, fixed_cycles=Fraction(9, 5))
    # 1.8 + ceil(100/64) = 3.8 cycles of 5 ticks
    assert convert_ticks(spec, np.array([100, 1]), 5).tolist() == [19, 14]
    with pytest.raises(ValueError, match="9/5 cycles are no whole number of ticks"):
        convert_ticks(spec, 100, 1)
