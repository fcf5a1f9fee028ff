"""Commands of vector kernels: rows dealt to cores, then tiled; a tile is load, compute, store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.emit import STEP, Emission
from npusim.compiler.emit_core import CoreEmission
from npusim.compiler.kernel_costs import TILES_PER_CORE
from npusim.compiler.unit_timing import ceil_div, vector_cycles
from npusim.errors import MappingError
from npusim.program import EdgeKind, Opcode
from npusim.workload.tensor import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]

LOAD_FIXED, LOAD, COMPUTE, STORE = range(4)  # ranks inside a step
_MIN_TILE_BYTES = 4096


def emit_vector(emission: Emission, operator: Operator, cores: int) -> None:
    """Rows dealt evenly to the first `cores` cores."""
    bounds = [operator.rows * i // cores for i in range(cores + 1)]
    for core in range(cores):
        _CoreVector(emission, operator, core).emit(bounds[core], bounds[core + 1])


class _CoreVector(CoreEmission):
    """One core's rows of a vector operator."""

    def __init__(self, emission: Emission, operator: Operator, core: int) -> None:
        super().__init__(emission, core)
        self.operator, self.target = operator, emission.target
        self.fixed = [t for t in operator.inputs if t.role is Role.WEIGHT]
        self.streamed = [t for t in operator.inputs if t.role is not Role.WEIGHT]

    def emit(self, low: int, high: int) -> None:
        """Rows ``[low, high)``."""
        tile_rows = self._tile_rows(high - low)
        starts = np.arange(low, high, tile_rows, dtype=np.int64)
        stops = np.minimum(starts + tile_rows, high)
        compute = self.emission.add(
            self.engines.vector,
            Opcode.VECTOR,
            np.arange(len(starts)) * STEP + COMPUTE,
            duration_ticks=self._ticks(stops - starts),
        )
        for tensor in self.fixed:
            load, slot = self.load_once(
                tensor, self.engines.loads[-1], LOAD_FIXED, 0, tensor.nbytes
            )
            self.read_loaded(compute, load, slot, compute[-1:])
        for position, tensor in enumerate(self.streamed):
            if self.emission.is_in_scratchpad(tensor):
                self.emission.wait_for_tensor(compute, tensor)
            else:
                self._emit_input(tensor, position, starts, stops, compute)
        for tensor in self.operator.outputs:
            if self.emission.is_in_scratchpad(tensor):
                self.emission.arrive(compute)
            else:
                self._emit_output(tensor, starts, stops, compute)

    def _tile_rows(self, rows: int) -> int:
        buffers = self.emission.config.buffers
        moved = [
            t
            for t in (*self.streamed, *self.operator.outputs)
            if not self.emission.is_in_scratchpad(t)
        ]
        budget = self.emission.budget_bytes() - sum(t.nbytes for t in self.fixed)
        row_bytes = sum(t.nbytes for t in moved) / self.operator.rows
        slack = buffers * 2 * len(moved)
        if buffers * (row_bytes + 2 * len(moved)) > budget:
            raise MappingError(
                self.operator.name,
                f"one row needs {int(buffers * row_bytes) + slack} bytes of scratchpad "
                f"for {buffers} buffers, {budget} bytes are free",
                hint="use a larger scratchpad or compiler.buffers=1",
            )
        fit = rows if not row_bytes else int((budget - slack) // (buffers * row_bytes))
        wanted = max(-(-rows // TILES_PER_CORE), int(_MIN_TILE_BYTES // max(row_bytes, 1)), 1)
        return max(min(fit, wanted, rows), 1)

    def _ticks(self, rows: Ints) -> Ints:
        operator, target = self.operator, self.target
        dtype = target.vector_dtype(operator.compute_dtype, operator.name)
        moved = sum(t.nbytes for t in (*self.streamed, *operator.outputs)) * rows // operator.rows
        ops = tuple((name, ceil_div(n * rows, operator.rows)) for name, n in operator.vector_ops)
        cycles = vector_cycles(target.core.vector, ops, dtype, moved)
        return cycles * target.ticks_per_cycle

    def _ring_bytes(self, tensor: Tensor, starts: Ints, stops: Ints) -> int:
        rows = int((stops - starts).max())
        return -(-tensor.nbytes * rows // self.operator.rows) + 1

    def _range(self, tensor: Tensor, rows: Ints) -> Ints:
        result: Ints = rows * tensor.nbytes // self.operator.rows
        return result

    def _emit_input(
        self, tensor: Tensor, position: int, starts: Ints, stops: Ints, compute: Ints
    ) -> None:
        buffers = min(self.emission.config.buffers, len(starts))
        ring = self.pad.slots(self._ring_bytes(tensor, starts, stops), buffers)
        ahead = np.maximum(np.arange(len(starts)) - (buffers - 1), 0) * STEP
        engine = self.engines.loads[position % len(self.engines.loads)]
        loads = self.emission.add(engine, Opcode.LOAD, ahead + LOAD)
        self.emission.wait_for_tensor(loads, tensor)
        span = (self._range(tensor, starts), self._range(tensor, stops))
        self.attach_range(loads, tensor, *span, is_write=False)
        self.pad.fill(loads, ring)
        self.builder.edges(compute, loads, EdgeKind.DATA)
        self.pad.read(compute, ring)
        self.pad.recycle(ring, loads, compute)

    def _emit_output(self, tensor: Tensor, starts: Ints, stops: Ints, compute: Ints) -> None:
        buffers = min(self.emission.config.buffers, len(starts))
        ring = self.pad.slots(self._ring_bytes(tensor, starts, stops), buffers)
        stores = self.add_stores(np.arange(len(starts)) * STEP + STORE)
        self.pad.fill(compute, ring)
        span = (self._range(tensor, starts), self._range(tensor, stops))
        self.attach_range(stores, tensor, *span, is_write=True)
        self.drain(stores, ring, compute, compute)
