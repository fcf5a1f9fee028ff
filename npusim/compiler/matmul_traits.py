"""What tiling and emission must know of a matmul beside its shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.operands import (
    PlainOperand,
    RaggedView,
    RowMajorWeight,
    moving_view,
    stationary_operand,
)
from npusim.compiler.unit_timing import matrix_cycles, vector_cycles
from npusim.config.compiler import Gemv, GemvUnit
from npusim.config.compute import AccumulatorConvert, ComputeDtype, WeightDequant
from npusim.workload.tensor import DTYPE_BITS, Role

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from npusim.compiler.emit import Emission
    from npusim.compiler.views import View
    from npusim.config.compute import CoreSpec
    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]

ACCUMULATOR_BITS = 32

#: rate towards a tensor that no DMA engine moves
NOT_MOVED = 1 << 60


@dataclass(frozen=True, slots=True)
class Rows:
    """How a matrix lies in memory: bytes from row to row, 0 where each tile is contiguous.

    `transposed`: rows hold a column of the operand. `interleaved`: so many row groups (heads) lie
    side by side in a row.
    """

    pitch_bytes: int = 0
    transposed: bool = False
    interleaved: int = 1


CONTIGUOUS = Rows()


@dataclass(frozen=True, slots=True)
class MatmulTraits:
    """What the tiler must know of a matmul beside its shape, in bits per element.

    `a_on_chip` / `c_on_chip`: the operand lives in the scratchpad already, no slots and no DMA.
    `expanded_bits` > 0: the stationary operand is also held in that format after dequantisation.
    `converted`: accumulators are converted by a command; a 32-bit tile is held beside the output.
    """

    a_bits: int
    w_bits: float  # as held in the scratchpad slot that DMA fills
    w_dram_bits: float  # as stored in DRAM, scales included
    out_bits: int
    compute_dtype: ComputeDtype
    expanded_bits: int = 0
    converted: bool = False
    a_on_chip: bool = False
    c_on_chip: bool = False
    a_in_dram: bool = True  # else: in the shared SRAM, or on chip
    w_in_dram: bool = True
    c_in_dram: bool = True
    a_bytes_per_cycle: int = 1  # rate of one DMA engine towards the operand's home
    w_bytes_per_cycle: int = 1
    c_bytes_per_cycle: int = 1
    vector_dtype: ComputeDtype | None = None  # products of one row on the vector unit
    k_group: int = 1  # tiles along k hold whole scale groups
    epilogue_cycles: float = 0.0  # of the vector unit, per output element
    w_ahead: bool = False  # weights arrive while the kernel before still runs
    a_rows: Rows = CONTIGUOUS
    w_rows: Rows = CONTIGUOUS
    c_rows: Rows = CONTIGUOUS

    @property
    def operand_bits(self) -> int:
        """Bits per element on the path to the matrix unit."""
        return self.expanded_bits or self.a_bits


def bits_to_bytes(bits: ArrayLike) -> NDArray[np.int64]:
    """Whole bytes that hold `bits`."""
    result: NDArray[np.int64] = np.ceil(np.asarray(bits) / 8).astype(np.int64)
    return result


def product_cycles(
    core: CoreSpec, traits: MatmulTraits, m: Ints | int, k: Ints | int, n: Ints | int
) -> Ints:
    """Cycles of one product command, on whichever unit computes it.

    On the vector unit every MAC is a multiply and an add in 32 bits, and operands stream past once.
    """
    if traits.vector_dtype is None:
        return matrix_cycles(core, traits.compute_dtype, m, k, n, traits.operand_bits)
    m, k, n = (np.asarray(x, dtype=np.int64) for x in (m, k, n))
    macs = m * k * n
    moved = (m * k + k * n) * traits.operand_bits // 8
    ops = (("mul", macs), ("add", macs))
    return vector_cycles(core.vector, ops, traits.vector_dtype, moved)


def _vector_dtype(
    emission: Emission, operator: Operator, dtype: ComputeDtype
) -> ComputeDtype | None:
    """Format of a product of one row on the vector unit; None on the matrix unit.

    Where operands are staged, only a matrix larger than one tile is streamed so.
    """
    setting, target = emission.config.gemv, emission.target
    unit = target.device.gemv if setting is Gemv.SYSTEM else GemvUnit(setting.value)
    assert operator.matmul is not None
    is_float = not dtype.value.startswith("int")
    if unit is not GemvUnit.VECTOR or operator.matmul.m > 1 or not is_float or emission.ideal:
        return None
    if operator.inputs[1].nbytes < (target.device.staging_tile_bytes or 0):
        return None
    return target.vector_dtype("fp32", operator.name)


def columns_per_output(operator: Operator) -> int:
    """Columns of the product that become one output column: two for a fused gated activation."""
    shape = operator.matmul
    assert shape is not None
    return shape.rows * shape.n // sum(t.elems for t in operator.outputs)


def matmul_traits(emission: Emission, operator: Operator) -> MatmulTraits:
    """Formats and homes of a matmul's operands on this device.

    Integer products leave 32-bit sums that must be scaled: `accumulator_convert` says where.
    Floating-point products are rounded in the drain path at no cost.
    """
    core = emission.target.core
    moving, stationary = operator.inputs[:2]
    assert operator.matmul is not None and operator.compute_dtype is not None
    dtype = emission.target.compute_dtype(operator.compute_dtype, operator.name)
    is_narrow = DTYPE_BITS[stationary.dtype] < DTYPE_BITS[dtype]
    dequant = core.weight_dequant
    packed_bits = stationary.nbytes * 8 / stationary.elems
    expands_by_command = is_narrow and dequant in (
        WeightDequant.CONVERT_UNIT,
        WeightDequant.VECTOR_UNIT,
    )
    held_bits = packed_bits
    if is_narrow and dequant is WeightDequant.DMA_INLINE:
        held_bits = DTYPE_BITS[dtype]

    def in_dram(tensor: Tensor) -> bool:
        return emission.home(tensor).space == emission.target.dram_space

    is_integer = dtype.value.startswith("int")
    return MatmulTraits(
        a_bits=DTYPE_BITS[moving.dtype],
        w_bits=held_bits,
        w_dram_bits=packed_bits,
        out_bits=DTYPE_BITS[operator.outputs[0].dtype] // columns_per_output(operator),
        compute_dtype=dtype,
        expanded_bits=DTYPE_BITS[dtype] if expands_by_command else 0,
        converted=is_integer and core.matrix.accumulator_convert is not AccumulatorConvert.INLINE,
        a_on_chip=emission.is_in_scratchpad(moving),
        c_on_chip=all(emission.is_in_scratchpad(t) for t in operator.outputs),
        a_in_dram=in_dram(moving),
        w_in_dram=in_dram(stationary),
        c_in_dram=in_dram(operator.outputs[0]),
        a_bytes_per_cycle=_rate(emission, moving),
        w_bytes_per_cycle=_rate(emission, stationary),
        c_bytes_per_cycle=_rate(emission, operator.outputs[0]),
        vector_dtype=_vector_dtype(emission, operator, dtype),
        k_group=max(stationary.scale_group, 1) if stationary.role is Role.WEIGHT else 1,
        epilogue_cycles=_epilogue_cycles(emission, operator),
        w_ahead=stationary.role is Role.WEIGHT and emission.runs_ahead,
        a_rows=_rows(moving_view(operator, moving, emission.home(moving), operator.matmul.k)),
        w_rows=_stationary_rows(emission, operator),
        c_rows=_output_rows(emission, operator),
    )


def _epilogue_cycles(emission: Emission, operator: Operator) -> float:
    """Vector cycles per output element of bias and activation."""
    if not operator.vector_ops:
        return 0.0
    assert operator.matmul is not None
    vector, shape = emission.target.core.vector, operator.matmul
    lanes = vector.lanes[emission.target.vector_dtype(operator.compute_dtype, operator.name)]
    work = sum(elems * vector.op_cycles[name] for name, elems in operator.vector_ops)
    return work / lanes / (shape.batch * shape.m * shape.n)


def _rate(emission: Emission, tensor: Tensor) -> int:
    """Rate of one DMA engine towards a tensor; a tensor in the scratchpad is not moved."""
    if emission.is_in_scratchpad(tensor):
        return NOT_MOVED
    return emission.target.path_bytes_per_cycle(emission.home(tensor).space)


def _rows(view: View | RaggedView) -> Rows:
    if isinstance(view, RaggedView):
        return Rows(view.row_bytes)
    interleaved = 1 if view.row_inner == view.row_bytes else view.row_inner // view.row_bytes
    return Rows(view.row_inner, interleaved=interleaved)


def _stationary_rows(emission: Emission, operator: Operator) -> Rows:
    stationary = operator.inputs[1]
    operand = stationary_operand(
        operator,
        emission.home(stationary),
        emission.config.weight_layout,
        emission.layout.capacity_tokens(stationary),
    )
    if isinstance(operand, PlainOperand):
        return Rows(operand.view.row_inner, operand.transposed)
    if isinstance(operand, RowMajorWeight):
        return Rows(max(stationary.nbytes // (operand.batch * operand.k), 1))
    return CONTIGUOUS


def _output_rows(emission: Emission, operator: Operator) -> Rows:
    """Rows of the first output; the others of a fused product lie alike."""
    assert operator.matmul is not None
    output = operator.outputs[0]
    width = output.shape[-1]
    if len(operator.outputs) == 1:
        width = operator.matmul.n // columns_per_output(operator)
    return _rows(moving_view(operator, output, emission.home(output), width))
