"""Tiles of a fused attention, and what it is predicted to cost.

A step takes `batch` KV heads, `rows` query rows (all query heads of a KV head together) and `keys`
keys through a chain that does not overlap with itself, because the next step's rescaling needs this
step's sums::

    scores = Q K^T (matrix)  ->  online softmax (vector)  ->  sums += P V (matrix)

K and V tiles are loaded `buffers` - 1 steps ahead. Vector work of a step, per score: scale, mask,
max, subtract, exp, sum, convert; per row: new maximum, correction, sum; per sum: rescale and add,
from the second key tile on. A tile of scores that outgrows `register_file_bytes` is written back
between the two passes over it (max, then exp).

Legal if a tile's 32-bit scores fit the accumulators, all slots fit the scratchpad, and scores are
floating point with K and V in the format they are multiplied in. Source: the tiled online softmax
of Dao et al., 2022. Left out: skipping of masked tiles, splitting keys over cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.core_grids import tile_extents
from npusim.compiler.unit_timing import ceil_div, matrix_array_cycles, matrix_cycles, vector_cycles
from npusim.config.compute import ComputeDtype, Dataflow, MatrixKind, WeightDequant
from npusim.config.host import LaunchMode
from npusim.errors import MappingError
from npusim.workload.tensor import DTYPE_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.target import Target
    from npusim.config.compute import MatrixSpec
    from npusim.workload.operator import MatmulShape, Operator

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_SUM_BYTES = 4  # scores, sums and statistics are 32 bit


@dataclass(frozen=True)
class AttentionPlan:
    """Tile (batch entries, query rows, keys) of every step, and the predicted cycles."""

    tile: tuple[int, int, int]
    predicted_cycles: float


@dataclass(frozen=True)
class AttentionCosts:
    """Cycles and bytes of steps, element by element over arrays of tiles."""

    target: Target
    dtype: ComputeDtype
    vector_dtype: ComputeDtype
    head_dim: int
    bits: int
    is_capped: bool  # scores pass through a soft cap: two products and a tanh each

    @classmethod
    def of(cls, scores: Operator, softmax: Operator, target: Target) -> AttentionCosts:
        """Costs on a device."""
        assert scores.matmul is not None and scores.compute_dtype is not None
        dtype = target.compute_dtype(scores.compute_dtype, scores.name)
        vector = target.vector_dtype("fp32", scores.name)
        is_capped = any(name == "tanh" for name, _ in softmax.vector_ops)
        return cls(target, dtype, vector, scores.matmul.k, DTYPE_BITS[dtype], is_capped)

    def scores_cycles(self, b: Ints, rows: Ints, keys: Ints, *, ideal: bool = False) -> Ints:
        """Q K^T of one step."""
        return self._product(b, rows, np.asarray(self.head_dim), keys, ideal=ideal)

    def context_cycles(self, b: Ints, rows: Ints, keys: Ints, *, ideal: bool = False) -> Ints:
        """P V of one step."""
        return self._product(b, rows, keys, np.asarray(self.head_dim), ideal=ideal)

    def softmax_cycles(self, b: Ints, rows: Ints, keys: Ints, *, rescales: Ints) -> Ints:
        """Online softmax of one step; `rescales` is 1 from the second key tile on."""
        lines = b * rows
        elems, sums = lines * keys, lines * self.head_dim * rescales
        ops = (
            ("mul", elems + lines + sums),
            ("add", 3 * elems + 2 * lines + sums),
            ("max", elems + lines),
            ("exp", elems + lines),
            ("convert", elems),
            *((("mul", 2 * elems), ("tanh", elems)) if self.is_capped else ()),
        )
        spilled = elems * _SUM_BYTES > self.target.core.register_file_bytes
        moved = elems * (_SUM_BYTES + self.bits // 8) + 2 * _SUM_BYTES * sums
        moved = moved + np.where(spilled, 2 * _SUM_BYTES * elems, 0)
        return vector_cycles(self.target.core.vector, ops, self.vector_dtype, moved)

    def final_cycles(self, b: Ints, rows: Ints) -> Ints:
        """Sums divided by the softmax's denominator and rounded."""
        sums = b * rows * self.head_dim
        ops = (("div", b * rows), ("mul", sums), ("convert", sums))
        moved = sums * (_SUM_BYTES + self.bits // 8)
        return vector_cycles(self.target.core.vector, ops, self.vector_dtype, moved)

    def _product(self, b: Ints, m: Ints, k: Ints, n: Ints, *, ideal: bool) -> Ints:
        """`b` independent products in one command: their folds share the units."""
        matrix = self.target.core.matrix
        m, k, n = _stacked(matrix, self.dtype, b, m, k, n)
        if ideal:
            return matrix_array_cycles(matrix, self.dtype, m, k, n)
        return matrix_cycles(self.target.core, self.dtype, m, k, n, self.bits)


def plan_attention(
    scores: Operator, softmax: Operator, context: Operator, target: Target, buffers: int
) -> AttentionPlan:
    """Cheapest legal tile; of equals, the one with fewest steps.

    Raises
    ------
    MappingError
        If fusing is not legal, or no tile fits; states need and budget.
    """
    _check_formats(scores, context, target)
    assert scores.matmul is not None
    shape, costs = scores.matmul, AttentionCosts.of(scores, softmax, target)
    b, rows, keys = _tiles(shape, queries_of(scores), target)
    need = slot_bytes(costs, b, rows, keys, buffers)
    held = b * rows * keys * _SUM_BYTES
    budget, room = (
        target.core.scratchpad.capacity_bytes,
        target.core.matrix.accumulator_buffer_bytes,
    )
    fits = (need <= budget) & (held <= room)
    if not fits.any():
        raise MappingError(
            scores.name,
            f"the smallest tile needs {int(held.min())} of {room} bytes of accumulators and "
            f"{int(need.min())} of {budget} bytes of scratchpad",
        )
    cycles, steps = _cycles(costs, shape, b, rows, keys, buffers)
    cycles = np.where(fits, cycles, np.inf)
    best = int(np.lexsort((steps.ravel(), cycles.ravel()))[0])
    tile = tuple(int(np.broadcast_to(x, cycles.shape).ravel()[best]) for x in (b, rows, keys))
    return AttentionPlan((tile[0], tile[1], tile[2]), float(cycles.ravel()[best]))


def slot_bytes(costs: AttentionCosts, b: Ints, rows: Ints, keys: Ints, buffers: int) -> Ints:
    """Scratchpad bytes of a step's slots: Q, K, V and outputs `buffers` times, the rest once."""
    wide = costs.bits // 8
    streamed = (2 * rows + 2 * keys) * costs.head_dim * wide
    once = rows * keys * (_SUM_BYTES + wide) + rows * costs.head_dim * _SUM_BYTES
    total: Ints = b * (buffers * streamed + once)
    return total


def unfused_cycles(
    scores: Operator,
    softmax: Operator,
    context: Operator,
    target: Target,
    launch: LaunchMode,
    *,
    is_staged: bool,
) -> float:
    """Predicted cycles of the three kernels apart, none of which overlaps another.

    Each takes the longer of its unit's time and its bytes, or their sum if it is staged; scores and
    probabilities travel to the DRAM and back unless both fit half of the on-chip memory. Two more
    kernels are launched.
    """
    host, period = target.host, float(target.period_ps)
    cores = target.active_cores
    between = scores.outputs[0].nbytes + softmax.outputs[0].nbytes
    is_kept = between <= _on_chip_bytes(target) // 2
    apart_ps = host.graph_node_ps if launch is LaunchMode.GRAPH else host.device_start_ps
    total = 2 * apart_ps / period
    for operator in (scores, softmax, context):
        moved = sum(
            t.nbytes
            for t in (*operator.inputs, *operator.outputs)
            if not (is_kept and t in (*scores.outputs, *softmax.outputs))
        )
        unit, bus = _unit_cycles(operator, target) / cores, moved / _bytes_per_cycle(target)
        total += unit + bus if is_staged and operator.matmul is not None else max(unit, bus)
    return total


def _unit_cycles(operator: Operator, target: Target) -> float:
    """Cycles of one operator's unit, all of it on one core."""
    shape = operator.matmul
    if shape is not None and operator.compute_dtype is not None:
        dtype = target.compute_dtype(operator.compute_dtype, operator.name)
        bits = DTYPE_BITS[dtype]
        one = matrix_cycles(target.core, dtype, shape.m, shape.k, shape.n, bits)
        return float(shape.batch * int(one))
    dtype = target.vector_dtype(operator.compute_dtype, operator.name)
    moved = sum(t.nbytes for t in (*operator.inputs, *operator.outputs))
    return float(vector_cycles(target.core.vector, operator.vector_ops, dtype, moved))


def _on_chip_bytes(target: Target) -> int:
    shared = target.device.shared_sram
    if shared is not None:
        return shared.capacity_bytes
    return target.core.scratchpad.capacity_bytes if target.device.cores == 1 else 0


def _bytes_per_cycle(target: Target) -> float:
    """Rate of all load engines together, or the DRAM's."""
    dma = target.core.dma
    engines = dma.load_engines * dma.dram_bytes_per_cycle * target.active_cores
    return min(float(target.dram_bytes_per_cycle), float(engines))


def _check_formats(scores: Operator, context: Operator, target: Target) -> None:
    assert scores.compute_dtype is not None
    dtype = target.compute_dtype(scores.compute_dtype, scores.name)
    if dtype.value.startswith("int"):
        raise MappingError(scores.name, "online softmax needs floating-point scores", dtype.value)
    keys, values = scores.inputs[1], context.inputs[1]
    if keys.shape != values.shape or len(keys.shape) != 4 or len(scores.inputs[0].shape) != 2:
        raise MappingError(scores.name, "keys and values need one shape", values.shape)
    by_command = (WeightDequant.CONVERT_UNIT, WeightDequant.VECTOR_UNIT)
    for tensor in (keys, values):
        is_narrow = DTYPE_BITS[tensor.dtype] < DTYPE_BITS[dtype]
        if is_narrow and target.core.weight_dequant in by_command:
            raise MappingError(
                scores.name, f"{tensor.name} would need commands that expand it", tensor.dtype
            )


def queries_of(scores: Operator) -> int:
    """Query tokens per sequence: rows of one query head."""
    assert scores.matmul is not None
    sequences = scores.inputs[1].shape[0]
    return scores.inputs[0].shape[0] // sequences


def _tiles(shape: MatmulShape, queries: int, target: Target) -> tuple[Ints, Ints, Ints]:
    """Candidates, shaped to broadcast.

    Query heads that share keys are stacked only while their rows do not fill the array, and then
    up to one KV head per matrix unit is taken at a time; otherwise a step takes rows of one query
    head, as published kernels do.
    """
    matrix = target.core.matrix
    granule = max(matrix.cols or 0, 16)
    rows, b = [shape.m], [1]
    if shape.m > granule:
        rows = tile_extents(queries, granule)
    else:
        most = min(-(-shape.batch // target.active_cores), matrix.units)
        b = sorted({min(1 << i, most) for i in range(most.bit_length() + 1)})
    arrays = [np.array(x, dtype=np.int64) for x in (b, rows, tile_extents(shape.n, granule))]
    first, second, third = np.meshgrid(*arrays, indexing="ij", sparse=True)
    return first, second, third


def _cycles(
    costs: AttentionCosts, shape: MatmulShape, b: Ints, rows: Ints, keys: Ints, buffers: int
) -> tuple[Floats, Ints]:
    """Predicted cycles and steps of the busiest core."""
    target = costs.target
    items = ceil_div(shape.batch, b) * ceil_div(shape.m, rows)
    along_keys = ceil_div(shape.n, keys)
    mine = ceil_div(items, target.active_cores)
    steps = mine * along_keys
    again = (along_keys > 1).astype(np.int64)
    chain = costs.scores_cycles(b, rows, keys) + costs.context_cycles(b, rows, keys)
    chain = chain + costs.softmax_cycles(b, rows, keys, rescales=again)
    wide = costs.bits / 8
    loaded = 2 * b * keys * costs.head_dim * wide
    rate = _bytes_per_cycle(target) / target.active_cores
    latency = float(target.dram_latency_cycles)
    dma = np.maximum(loaded / rate, 2 * target.core.dma.issue_cycles)
    dma = np.maximum(dma, (latency + loaded / rate) / buffers)
    first = latency + (loaded + b * rows * costs.head_dim * wide) / rate
    last = costs.final_cycles(b, rows)
    cycles = first + steps * np.maximum(chain, dma) + mine * last
    return np.asarray(cycles, dtype=np.float64), np.broadcast_to(steps, cycles.shape)


def _stacked(
    matrix: MatrixSpec, dtype: ComputeDtype, b: Ints, m: Ints, k: Ints, n: Ints
) -> tuple[Ints, Ints, Ints]:
    """A product with as many folds as `b` independent ones and the same stream.

    The dimension that the folds of one operand are counted along is padded and repeated.
    """
    if matrix.kind is MatrixKind.CUBE:
        assert matrix.cube is not None
        block = matrix.cube[dtype].m
        return b * ceil_div(m, block) * block, k, n
    assert matrix.rows is not None and matrix.cols is not None
    if matrix.dataflow is Dataflow.WEIGHT_STATIONARY:
        return m, k, np.where(b > 1, b * ceil_div(n, matrix.cols) * matrix.cols, n)
    block = matrix.cols if matrix.dataflow is Dataflow.INPUT_STATIONARY else matrix.rows
    return np.where(b > 1, b * ceil_div(m, block) * block, m), k, n
