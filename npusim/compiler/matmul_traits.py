"""What tiling and emission must know of a matmul beside its shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.compiler.tiling import MatmulTraits
from npusim.config.compute import AccumulatorConvert, WeightDequant
from npusim.workload.tensor import DTYPE_BITS, Role

if TYPE_CHECKING:
    from npusim.compiler.emit import Emission
    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor


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

    def rate(tensor: Tensor) -> int:
        return emission.target.path_bytes_per_cycle(emission.home(tensor).space)

    is_integer = dtype.value.startswith("int")
    return MatmulTraits(
        a_bits=DTYPE_BITS[moving.dtype],
        w_bits=held_bits,
        w_dram_bits=packed_bits,
        out_bits=DTYPE_BITS[operator.outputs[0].dtype],
        compute_dtype=dtype,
        expanded_bits=DTYPE_BITS[dtype] if expands_by_command else 0,
        converted=is_integer and core.matrix.accumulator_convert is not AccumulatorConvert.INLINE,
        a_on_chip=emission.is_in_scratchpad(moving),
        c_on_chip=all(emission.is_in_scratchpad(t) for t in operator.outputs),
        a_bytes_per_cycle=rate(moving),
        w_bytes_per_cycle=rate(stationary),
        c_bytes_per_cycle=rate(operator.outputs[0]),
        k_group=max(stationary.scale_group, 1) if stationary.role is Role.WEIGHT else 1,
    )
