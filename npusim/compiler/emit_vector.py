"""Commands of kernels without products: vector operators, embedding gathers, cache appends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.emit import STEP, Emission, Slots
from npusim.compiler.unit_timing import vector_cycles
from npusim.compiler.views import LinearView
from npusim.errors import MappingError
from npusim.program import EdgeKind, Opcode
from npusim.workload.tensor import Role, packed_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]

_LOAD_FIXED, _LOAD, _COMPUTE, _STORE = range(4)
_TILES_PER_CORE = 4  # enough to overlap load, compute and store
_MIN_TILE_BYTES = 4096
_ROW_HASH = 2654435761  # Knuth's multiplicative hash spreads token ids over the table


def emit_vector(emission: Emission, operator: Operator) -> None:
    """Rows dealt to cores, then tiled; every tile is load, compute, store."""
    for core, low, high in _row_shares(emission, operator):
        _CoreVector(emission, operator, core).emit(low, high)


def _row_shares(emission: Emission, operator: Operator) -> list[tuple[int, int, int]]:
    """(core, first row, end row): no core gets less than one pass of its lanes."""
    target = emission.target
    dtype = target.vector_dtype(operator.compute_dtype, operator.name)
    elems = max((t.elems for t in (*operator.inputs, *operator.outputs)), default=1)
    useful = max(elems // target.core.vector.lanes[dtype], 1)
    cores = min(target.cores, operator.rows, useful)
    bounds = [operator.rows * i // cores for i in range(cores + 1)]
    return [(core, bounds[core], bounds[core + 1]) for core in range(cores)]


class _CoreVector:
    """One core's rows of a vector operator."""

    def __init__(self, emission: Emission, operator: Operator, core: int) -> None:
        self.emission, self.operator = emission, operator
        self.target, self.builder = emission.target, emission.builder
        self.engines = self.target.core_engines[core]
        self.pad = emission.scratchpads[core]
        self.fixed = [t for t in operator.inputs if t.role is Role.WEIGHT]
        self.streamed = [t for t in operator.inputs if t.role is not Role.WEIGHT]

    def emit(self, low: int, high: int) -> None:
        """Rows ``[low, high)``."""
        tile_rows = self._tile_rows(high - low)
        starts = np.arange(low, high, tile_rows, dtype=np.int64)
        stops = np.minimum(starts + tile_rows, high)
        buffers = min(self.emission.config.buffers, len(starts))
        order = np.arange(len(starts)) * STEP
        compute = self.emission.add(
            self.engines.vector,
            Opcode.VECTOR,
            order + _COMPUTE,
            duration_ticks=[self._ticks(int(b - a)) for a, b in zip(starts, stops, strict=True)],
        )
        for tensor in self.fixed:
            self._emit_fixed(tensor, compute)
        for position, tensor in enumerate(self.streamed):
            if self.emission.is_in_scratchpad(tensor):
                self.emission.wait_for_tensor(compute, tensor)
            else:
                self._emit_input(tensor, position, starts, stops, compute, buffers)
        for tensor in self.operator.outputs:
            if self.emission.is_in_scratchpad(tensor):
                self.emission.arrive(compute)
            else:
                self._emit_output(tensor, starts, stops, compute, buffers)

    def _slot_bytes(self, tensor: Tensor, rows: int) -> int:
        return -(-tensor.nbytes * rows // self.operator.rows) + 1

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
        wanted = max(-(-rows // _TILES_PER_CORE), int(_MIN_TILE_BYTES // max(row_bytes, 1)), 1)
        return max(min(fit, wanted, rows), 1)

    def _ticks(self, rows: int) -> int:
        operator, target = self.operator, self.target
        dtype = target.vector_dtype(operator.compute_dtype, operator.name)
        moved = sum(t.nbytes for t in (*self.streamed, *operator.outputs)) * rows // operator.rows
        ops = tuple((name, -(-n * rows // operator.rows)) for name, n in operator.vector_ops)
        return target.ticks(vector_cycles(target.core.vector, ops, dtype, moved))

    def _emit_fixed(self, tensor: Tensor, readers: Ints) -> None:
        home = self.emission.home(tensor)
        slot = self.pad.slots(tensor.nbytes, 1)
        load = self.emission.add(self.engines.loads[-1], Opcode.LOAD, _LOAD_FIXED)
        self.builder.transfers(
            load,
            space=home.space,
            is_write=False,
            role=tensor.role.value,
            runs=LinearView(home.space, home.offset, tensor.nbytes).runs(0, tensor.nbytes),
        )
        _fill_slots(self, load, slot)
        self.builder.edges(readers, load[0], EdgeKind.DATA)
        self.builder.regions(readers, self.pad.space, slot.offset, slot.nbytes, is_write=False)
        self.pad.release(np.array([slot.offset]), slot.nbytes, readers[-1:])

    def _emit_input(
        self,
        tensor: Tensor,
        position: int,
        starts: Ints,
        stops: Ints,
        compute: Ints,
        buffers: int,
    ) -> None:
        home = self.emission.home(tensor)
        ring = self.pad.slots(self._slot_bytes(tensor, int((stops - starts).max())), buffers)
        tiles = np.arange(len(starts))
        engine = self.engines.loads[position % len(self.engines.loads)]
        ahead = np.maximum(tiles - (buffers - 1), 0) * STEP
        loads = self.emission.add(engine, Opcode.LOAD, ahead + _LOAD)
        self.emission.wait_for_tensor(loads, tensor)
        view = LinearView(home.space, home.offset, tensor.nbytes)
        rows = self.operator.rows
        runs = view.runs(starts * tensor.nbytes // rows, stops * tensor.nbytes // rows)
        self.builder.transfers(
            loads, space=home.space, is_write=False, role=tensor.role.value, runs=runs
        )
        _fill_slots(self, loads, ring)
        self.builder.edges(compute, loads, EdgeKind.DATA)
        self.builder.regions(compute, self.pad.space, ring.at(tiles), ring.nbytes, is_write=False)
        self.builder.edges(loads[buffers:], compute[: len(compute) - buffers], EdgeKind.BUFFER_FREE)
        self.pad.release(ring.at(tiles[-buffers:]), ring.nbytes, compute[-buffers:])

    def _emit_output(
        self, tensor: Tensor, starts: Ints, stops: Ints, compute: Ints, buffers: int
    ) -> None:
        home = self.emission.home(tensor)
        ring = self.pad.slots(self._slot_bytes(tensor, int((stops - starts).max())), buffers)
        tiles = np.arange(len(starts))
        stores = _emit_stores(self, tiles * STEP + _STORE)
        _fill_slots(self, compute, ring)
        view = LinearView(home.space, home.offset, tensor.nbytes)
        rows = self.operator.rows
        runs = view.runs(starts * tensor.nbytes // rows, stops * tensor.nbytes // rows)
        self.builder.transfers(
            stores, space=home.space, is_write=True, role=tensor.role.value, runs=runs
        )
        self.builder.edges(stores, compute, EdgeKind.DATA)
        _drain_slots(self, stores, ring, compute)


def emit_gather(emission: Emission, operator: Operator) -> None:
    """Load the row ids, then one table row per token, and store the rows as one tensor.

    Token values are unknown before a run: rows are spread over the table by a multiplicative hash.
    """
    core = _CoreVector(emission, operator, 0)
    ids, table = operator.inputs
    out = operator.outputs[0]
    id_slot = core.pad.slots(ids.nbytes, 1)
    id_load = emission.add(core.engines.loads[0], Opcode.LOAD, _LOAD_FIXED)
    home = emission.home(ids)
    core.builder.transfers(
        id_load,
        space=home.space,
        is_write=False,
        role=ids.role.value,
        runs=LinearView(home.space, home.offset, ids.nbytes).runs(0, ids.nbytes),
    )
    _fill_slots(core, id_load, id_slot)
    row_bytes = table.nbytes // table.shape[0]
    buffers = emission.config.buffers
    fit = max((emission.budget_bytes() - ids.nbytes) // (buffers * row_bytes), 0)
    if fit == 0:
        raise MappingError(
            operator.name, f"one row needs {buffers * row_bytes} bytes of scratchpad", row_bytes
        )
    tile = min(max(-(-operator.rows // _TILES_PER_CORE), 1), fit)
    starts = np.arange(0, operator.rows, tile, dtype=np.int64)
    stops = np.minimum(starts + tile, operator.rows)
    buffers = min(buffers, len(starts))
    ring = core.pad.slots(tile * row_bytes, buffers)
    order = np.maximum(np.arange(len(starts)) - (buffers - 1), 0) * STEP
    loads = emission.add(core.engines.loads[0], Opcode.LOAD, order + _LOAD)
    rows = (np.arange(operator.rows, dtype=np.int64) * _ROW_HASH) % table.shape[0]
    bases = emission.home(table).offset + rows * row_bytes
    runs = np.stack(
        (bases, np.full_like(bases, row_bytes), np.zeros_like(bases), np.ones_like(bases)), axis=1
    )
    core.builder.transfers(
        loads,
        space=emission.home(table).space,
        is_write=False,
        role=table.role.value,
        runs=runs,
        run_owner=np.repeat(np.arange(len(starts)), stops - starts),
    )
    core.builder.edges(loads, id_load[0], EdgeKind.DATA)
    core.builder.regions(loads, core.pad.space, id_slot.offset, id_slot.nbytes, is_write=False)
    for reader in loads:
        core.pad.release(np.array([id_slot.offset]), id_slot.nbytes, np.array([reader]))
    out_home = emission.home(out)
    if emission.is_in_scratchpad(out):
        emission.arrive(loads)
        return
    _fill_slots(core, loads, ring)
    stores = _emit_stores(core, np.arange(len(starts)) * STEP + _STORE)
    view = LinearView(out_home.space, out_home.offset, out.nbytes)
    core.builder.transfers(
        stores,
        space=out_home.space,
        is_write=True,
        role=out.role.value,
        runs=view.runs(starts * row_bytes, stops * row_bytes),
    )
    core.builder.edges(stores, loads, EdgeKind.DATA)
    _drain_slots(core, stores, ring, loads)


def emit_kv_append(emission: Emission, operator: Operator) -> None:
    """Move new K or V rows from their activation tensor into the cache, one run per head."""
    core = _CoreVector(emission, operator, 0)
    source, cache = operator.inputs[0], operator.outputs[0]
    sequences, heads, new_tokens, width = cache.shape
    row_bytes = packed_bytes(width, cache.dtype)
    token_bytes = heads * row_bytes
    buffers = emission.config.buffers
    fit = emission.budget_bytes() // (buffers * token_bytes)
    if fit == 0:
        raise MappingError(
            operator.name, f"one token needs {buffers * token_bytes} bytes of scratchpad"
        )
    tile = int(min(max(-(-new_tokens // _TILES_PER_CORE), 1), fit))
    starts = np.arange(0, new_tokens, tile, dtype=np.int64)
    sequence = np.repeat(np.arange(sequences), len(starts))
    starts = np.tile(starts, sequences)
    stops = np.minimum(starts + tile, new_tokens)
    buffers = min(buffers, len(starts))
    ring = core.pad.slots(tile * token_bytes, buffers)
    tiles = np.arange(len(starts))
    stores = _emit_stores(core, tiles * STEP + _STORE)
    if emission.is_in_scratchpad(source):
        emission.wait_for_tensor(stores, source)
    else:
        order = np.maximum(tiles - (buffers - 1), 0) * STEP
        loads = emission.add(core.engines.loads[0], Opcode.LOAD, order + _LOAD)
        emission.wait_for_tensor(loads, source)
        home = emission.home(source)
        view = LinearView(home.space, home.offset, source.nbytes)
        first = sequence * new_tokens
        core.builder.transfers(
            loads,
            space=home.space,
            is_write=False,
            role=source.role.value,
            runs=view.runs((first + starts) * token_bytes, (first + stops) * token_bytes),
        )
        _fill_slots(core, loads, ring)
        core.builder.edges(stores, loads, EdgeKind.DATA)
        _drain_slots(core, stores, ring, loads)
    home = emission.home(cache)
    matrix_bytes = home.nbytes // (sequences * heads)
    tile_of_run = np.repeat(tiles, heads)
    head = np.tile(np.arange(heads), len(tiles))
    base = (
        home.offset
        + (sequence[tile_of_run] * heads + head) * matrix_bytes
        + (emission.cached_tokens + starts[tile_of_run]) * row_bytes
    )
    nbytes = (stops - starts)[tile_of_run] * row_bytes
    core.builder.transfers(
        stores,
        space=home.space,
        is_write=True,
        role=cache.role.value,
        runs=np.stack((base, nbytes, np.zeros_like(base), np.ones_like(base)), axis=1),
        run_owner=tile_of_run,
    )
    emission.arrive(stores)


def _emit_stores(core: _CoreVector, order: Ints) -> Ints:
    engines = np.array(core.engines.stores, dtype=np.int64)
    return core.emission.add(engines[np.arange(len(order)) % len(engines)], Opcode.STORE, order)


def _fill_slots(core: _CoreVector, writers: Ints, ring: Slots) -> None:
    """Writers take the slots in turn, after whoever used them in earlier kernels."""
    ordinals = np.arange(len(writers))
    core.builder.regions(writers, core.pad.space, ring.at(ordinals), ring.nbytes, is_write=True)
    for ordinal in range(min(ring.count, len(writers))):
        offset = int(ring.at(ordinal))
        for user in core.pad.earlier_users(offset, ring.nbytes):
            core.builder.edges(writers[ordinal], user, EdgeKind.BUFFER_FREE)


def _drain_slots(core: _CoreVector, stores: Ints, ring: Slots, writers: Ints) -> None:
    """Stores read the slots; a slot is free again when its store has ended."""
    ordinals, count = np.arange(len(stores)), ring.count
    core.builder.regions(stores, core.pad.space, ring.at(ordinals), ring.nbytes, is_write=False)
    core.builder.edges(writers[count:], stores[: len(stores) - count], EdgeKind.BUFFER_FREE)
    core.pad.release(ring.at(ordinals[-count:]), ring.nbytes, stores[-count:])
    core.emission.arrive(stores)
