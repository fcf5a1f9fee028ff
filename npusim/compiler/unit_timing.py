"""Closed-form cycles of the units of a core, as the compiler emits them.

Sources: systolic folds after Samajdar et al., ISPASS 2020 (first operand in to last result out, no
minus one); cube units after the block-per-cycle description of their makers. Left out: operand
stalls inside a command, which appear as waits between commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.config.compute import ComputeDtype, Dataflow, MatrixKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.config.compute import ConvertSpec, CoreSpec, MatrixSpec, VectorSpec

    Ints = NDArray[np.int64]


def ceil_div(a: Ints | int, b: Ints | int) -> Ints:
    """Ceiling division of non-negative integers, element by element."""
    result: Ints = -(-np.asarray(a, dtype=np.int64) // np.asarray(b, dtype=np.int64))
    return result


def matrix_folds(
    spec: MatrixSpec, dtype: ComputeDtype, m: Ints | int, k: Ints | int, n: Ints | int
) -> Ints:
    """Passes over the array (systolic) or blocks (cube) for an m x k by k x n product."""
    if spec.kind is MatrixKind.CUBE:
        assert spec.cube is not None
        cube = spec.cube[dtype]
        return ceil_div(m, cube.m) * ceil_div(k, cube.k) * ceil_div(n, cube.n)
    assert spec.rows is not None and spec.cols is not None
    first, second = {
        Dataflow.WEIGHT_STATIONARY: (k, n),
        Dataflow.INPUT_STATIONARY: (k, m),
        Dataflow.OUTPUT_STATIONARY: (m, n),
    }[_dataflow(spec)]
    return ceil_div(first, spec.rows) * ceil_div(second, spec.cols)


def matrix_array_cycles(
    spec: MatrixSpec, dtype: ComputeDtype, m: Ints | int, k: Ints | int, n: Ints | int
) -> Ints:
    """Cycles of the array alone.

    Weight-stationary: T = m, input-stationary: T = n, each ``2R + C + T - 2`` per fold; output-
    stationary: T = k, ``2R + C + T - 2`` with drain and ``R + C + T - 2`` without. A processing
    element that does p MACs per cycle streams T in ``ceil(T / p)``. With overlapped preload only
    the first fold pays fill and drain, the others ``max(T, R)``. Several units share the folds.
    Cube: ``startup + blocks / units``.
    """
    folds = ceil_div(matrix_folds(spec, dtype, m, k, n), spec.units)
    if spec.kind is MatrixKind.CUBE:
        assert spec.startup_cycles is not None
        return folds + spec.startup_cycles
    assert spec.rows is not None and spec.cols is not None and spec.macs_per_pe is not None
    dataflow = _dataflow(spec)
    length = {
        Dataflow.WEIGHT_STATIONARY: m,
        Dataflow.INPUT_STATIONARY: n,
        Dataflow.OUTPUT_STATIONARY: k,
    }[dataflow]
    stream = ceil_div(length, spec.macs_per_pe[dtype])
    skew = 2 * spec.rows + spec.cols - 2
    if dataflow is Dataflow.OUTPUT_STATIONARY and not spec.drain:
        skew -= spec.rows
    if spec.preload_overlapped:
        return skew + stream + (folds - 1) * np.maximum(stream, spec.rows)
    return folds * (skew + stream)


def matrix_cycles(
    core: CoreSpec,
    dtype: ComputeDtype,
    m: Ints | int,
    k: Ints | int,
    n: Ints | int,
    operand_bits: int,
) -> Ints:
    """Cycles of one MATMUL command: the array, or its operand path, whichever is longer.

    Path bytes: the k x n operand once, the m x k operand once per block of columns that the operand
    buffer holds; results leave at ``accumulator_bytes_per_cycle``, 32 bits each.
    """
    spec = core.matrix
    array = matrix_array_cycles(spec, dtype, m, k, n)
    m, k, n = (np.asarray(x, dtype=np.int64) for x in (m, k, n))
    half_buffer_bits = spec.operand_buffer_bytes * 8 // 2
    columns = np.maximum(half_buffer_bits // np.maximum(k * operand_bits, 1), 1)
    moving_reads = ceil_div(n, np.minimum(np.maximum(columns, _min_columns(spec, dtype)), n))
    path_bits = (k * n + m * k * moving_reads) * operand_bits
    rate_bits = 8 * min(spec.operand_bytes_per_cycle, core.scratchpad.bytes_per_cycle)
    drain = ceil_div(m * n * 4, spec.accumulator_bytes_per_cycle)
    return np.maximum(np.maximum(array, ceil_div(path_bits, rate_bits)), drain)


def vector_cycles(
    spec: VectorSpec,
    ops: tuple[tuple[str, Ints | int], ...],
    dtype: ComputeDtype,
    moved_bytes: Ints | int,
) -> Ints:
    """Cycles of VECTOR commands: lanes times cost per operation, or bytes moved, plus latency."""
    lanes = spec.lanes[dtype]
    work = np.zeros(np.shape(moved_bytes), dtype=np.int64)
    for name, elems in ops:
        work = work + ceil_div(np.asarray(elems, np.int64) * spec.op_cycles[name], lanes)
    return np.maximum(work, ceil_div(moved_bytes, spec.bytes_per_cycle)) + spec.latency_cycles


def convert_ticks(spec: ConvertSpec, elems: Ints | int, ticks_per_cycle: int) -> Ints:
    """Ticks of CONVERT commands: the fixed part plus ``ceil(elems / elems_per_cycle)`` cycles.

    Raises
    ------
    ValueError
        If the fixed part is no whole number of ticks.
    """
    fixed = spec.fixed_cycles * ticks_per_cycle
    if fixed.denominator != 1:
        raise ValueError(f"{spec.fixed_cycles} cycles are no whole number of ticks")
    return fixed.numerator + ceil_div(elems, spec.elems_per_cycle) * ticks_per_cycle


def _dataflow(spec: MatrixSpec) -> Dataflow:
    assert spec.dataflow is not None
    return spec.dataflow


def _min_columns(spec: MatrixSpec, dtype: ComputeDtype) -> int:
    """Columns one pass handles at least, whatever the operand buffer holds."""
    if spec.cube is not None:
        return spec.cube[dtype].n
    assert spec.cols is not None
    return spec.cols
