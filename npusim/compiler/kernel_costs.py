"""Predicted cycles of kernels without a product: vector work, gathers, cache appends.

Vector kernels on n cores, for the busiest core::

    max(vector unit, DMA, DRAM, shared SRAM) + first tile in + last tile out

The fewest cores within `NEAR_BEST_FRAC` of the cheapest count are taken; more cores only add
counts, so the cost is monotone. Left out: contention between cores, launch and barriers, which are
the same for every choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.compiler.unit_timing import ceil_div, vector_cycles
from npusim.workload.operator import OperatorKind
from npusim.workload.tensor import Role

if TYPE_CHECKING:
    from npusim.compiler.emit import Emission
    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

#: of all choices predicted to be this near to the cheapest, the one with the least work is taken
NEAR_BEST_FRAC = 0.02

#: enough tiles per core to overlap load, compute and store
TILES_PER_CORE = 4


@dataclass(frozen=True)
class VectorPlan:
    """Cores of a vector kernel, and the predicted cycles of the cheapest number of cores."""

    cores: int
    predicted_cycles: float


def plan_vector(emission: Emission, operator: Operator) -> VectorPlan:
    """Fewest cores among the near cheapest; none gets less than one pass of its lanes."""
    target = emission.target
    dtype = target.vector_dtype(operator.compute_dtype, operator.name)
    elems = max((t.elems for t in (*operator.inputs, *operator.outputs)), default=1)
    useful = max(elems // target.core.vector.lanes[dtype], 1)
    most = min(target.active_cores, operator.rows, useful)
    costs = [vector_kernel_cycles(emission, operator, cores) for cores in range(1, most + 1)]
    least = min(costs)
    fewest = next(n for n, cost in enumerate(costs, 1) if cost <= least * (1 + NEAR_BEST_FRAC))
    return VectorPlan(fewest, least)


def vector_kernel_cycles(emission: Emission, operator: Operator, cores: int) -> float:
    """Predicted cycles of a vector kernel on some cores."""
    target = emission.target
    vector, share = target.core.vector, -(-operator.rows // cores)
    streamed = [t for t in operator.inputs if t.role is not Role.WEIGHT]
    tiles = min(TILES_PER_CORE, share)
    ops = tuple((name, ceil_div(n * share, operator.rows)) for name, n in operator.vector_ops)
    touched = sum(t.nbytes for t in (*streamed, *operator.outputs)) * share // operator.rows
    dtype = target.vector_dtype(operator.compute_dtype, operator.name)
    compute = int(vector_cycles(vector, ops, dtype, touched))
    compute += (tiles - 1) * vector.latency_cycles
    fixed = [t for t in operator.inputs if t.role is Role.WEIGHT]
    moves = _Moves(emission)
    part = share / operator.rows
    engine = max(
        moves.engine_cycles(streamed, part) + moves.engine_cycles(fixed, 1.0),
        moves.engine_cycles(operator.outputs, part),
    )
    memory = moves.memory_cycles((*streamed, *operator.outputs), 1)
    memory += moves.memory_cycles(fixed, cores)
    first = moves.latency(streamed) + moves.engine_cycles(streamed, part / tiles)
    last = moves.accept(operator.outputs) + moves.engine_cycles(operator.outputs, part / tiles)
    return max(compute, engine, memory) + first + last


def move_kernel_cycles(emission: Emission, operator: Operator) -> float:
    """Predicted cycles of a gather or cache append on one core: in, then out."""
    moves = _Moves(emission)
    sources = operator.inputs if operator.kind is OperatorKind.KV_APPEND else operator.inputs[:1]
    total = moves.latency(sources) + moves.accept(operator.outputs)
    if operator.kind is OperatorKind.GATHER:
        table = operator.inputs[1]
        total += moves.latency((table,))
        total += moves.rate_cycles(table, operator.bytes_of(table))
    into = moves.engine_cycles(sources, 1.0)
    appended = operator.kv_runs[0] * operator.kv_runs[1] if operator.kv_runs else 0
    out = sum(
        moves.rate_cycles(t, appended if operator.kv_runs else t.nbytes) for t in operator.outputs
    )
    return total + max(into, out)


class _Moves:
    """Closed forms of moving tensors, wherever they live."""

    def __init__(self, emission: Emission) -> None:
        self._emission, self._target = emission, emission.target

    def rate_cycles(self, tensor: Tensor, nbytes: float) -> float:
        """Cycles of one DMA engine for some bytes of a tensor."""
        if self._emission.is_in_scratchpad(tensor):
            return 0.0
        space = self._emission.home(tensor).space
        return nbytes / self._target.path_bytes_per_cycle(space)

    def engine_cycles(self, tensors: tuple[Tensor, ...] | list[Tensor], part: float) -> float:
        """Cycles of one DMA engine for a part of several tensors."""
        return sum(self.rate_cycles(t, t.nbytes * part) for t in tensors)

    def memory_cycles(self, tensors: tuple[Tensor, ...] | list[Tensor], copies: int) -> float:
        """Cycles of DRAM and shared SRAM for all cores."""
        target, shared = self._target, self._target.device.shared_sram
        total = 0.0
        for tensor in tensors:
            space = self._emission.home(tensor).space
            if space == target.dram_space:
                total += tensor.nbytes * copies / float(target.dram_bytes_per_cycle)
            elif space == target.shared_space and shared is not None:
                total += tensor.nbytes * copies / (shared.banks * shared.port_bytes)
        return total

    def latency(self, tensors: tuple[Tensor, ...] | list[Tensor]) -> float:
        """Cycles until the first bytes of the farthest tensor arrive."""
        return max(
            (self._of(t, float(self._target.dram_latency_cycles)) for t in tensors), default=0
        )

    def accept(self, tensors: tuple[Tensor, ...] | list[Tensor]) -> float:
        """Cycles until the farthest tensor's last bytes are accepted."""
        return max(
            (self._of(t, float(self._target.dram_accept_cycles)) for t in tensors), default=0
        )

    def _of(self, tensor: Tensor, dram_cycles: float) -> float:
        if self._emission.is_in_scratchpad(tensor):
            return 0.0
        if self._emission.home(tensor).space == self._target.dram_space:
            return dram_cycles
        shared = self._target.device.shared_sram
        return float(shared.latency_cycles) if shared is not None else 0.0
