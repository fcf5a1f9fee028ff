"""Commands of kernels that only move data: embedding gathers and cache appends, on one core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.emit import STEP, Emission
from npusim.compiler.emit_core import CoreEmission
from npusim.compiler.emit_vector import LOAD, LOAD_FIXED, STORE
from npusim.compiler.kernel_costs import TILES_PER_CORE
from npusim.errors import MappingError
from npusim.program import Opcode
from npusim.workload.tensor import packed_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]

_ROW_HASH = 2654435761  # Knuth's multiplicative hash spreads token ids over the table


def emit_gather(emission: Emission, operator: Operator) -> None:
    """Load the row ids, then one table row per token, and store the rows as one tensor.

    Token values are unknown before a run: rows are spread over the table by a multiplicative hash.
    """
    core = CoreEmission(emission, 0)
    ids, table = operator.inputs
    out = operator.outputs[0]
    row_bytes = table.nbytes // table.shape[0]
    id_load, id_slot = core.load_once(ids, core.engines.loads[0], LOAD_FIXED, 0, ids.nbytes)
    tile = _tile(emission, operator, operator.rows, row_bytes, "row", ids.nbytes)
    starts = np.arange(0, operator.rows, tile, dtype=np.int64)
    stops = np.minimum(starts + tile, operator.rows)
    loads = _add_loads(core, len(starts))
    _attach_rows(core, loads, table, row_bytes, stops - starts)
    core.read_loaded(loads, id_load, id_slot, loads)
    if emission.is_in_scratchpad(out):
        emission.arrive(loads)
        return
    ring = core.pad.slots(tile * row_bytes, min(emission.config.buffers, len(starts)))
    core.pad.fill(loads, ring)
    stores = core.add_stores(np.arange(len(starts)) * STEP + STORE)
    core.attach_range(stores, out, starts * row_bytes, stops * row_bytes, is_write=True)
    core.drain(stores, ring, loads, loads)


def _attach_rows(
    core: CoreEmission, loads: Ints, table: Tensor, row_bytes: int, rows_per_load: Ints
) -> None:
    """One run per row of the table."""
    home = core.emission.home(table)
    rows = np.arange(int(rows_per_load.sum()), dtype=np.int64) * _ROW_HASH % table.shape[0]
    core.builder.transfers(
        loads,
        space=home.space,
        is_write=False,
        role=table.role.value,
        runs=_runs(home.offset + rows * row_bytes, np.full_like(rows, row_bytes)),
        run_owner=np.repeat(np.arange(len(loads)), rows_per_load),
    )


def emit_kv_append(emission: Emission, operator: Operator) -> None:
    """Move new K or V rows from their activation tensor into the cache, one run per head."""
    core = CoreEmission(emission, 0)
    source, cache = operator.inputs[0], operator.outputs[0]
    sequences, heads, new_tokens, width = cache.shape
    token_bytes = heads * packed_bytes(width, cache.dtype)
    tile = _tile(emission, operator, new_tokens, token_bytes, "token")
    starts = np.arange(0, new_tokens, tile, dtype=np.int64)
    sequence = np.repeat(np.arange(sequences), len(starts))
    starts = np.tile(starts, sequences)
    stops = np.minimum(starts + tile, new_tokens)
    stores = core.add_stores(np.arange(len(starts)) * STEP + STORE)
    if emission.is_in_scratchpad(source):
        emission.wait_for_tensor(stores, source)
    else:
        ring = core.pad.slots(tile * token_bytes, min(emission.config.buffers, len(starts)))
        loads = _add_loads(core, len(starts))
        emission.wait_for_tensor(loads, source)
        first = sequence * new_tokens
        span = ((first + starts) * token_bytes, (first + stops) * token_bytes)
        core.attach_range(loads, source, *span, is_write=False)
        core.pad.fill(loads, ring)
        core.drain(stores, ring, loads, loads)
    cached = core.emission.cached_tokens if operator.kv_slot is None else operator.kv_slot[0]
    _attach_cache_rows(core, stores, cache, sequence, cached + starts, cached + stops)


def _attach_cache_rows(
    core: CoreEmission, stores: Ints, cache: Tensor, sequence: Ints, starts: Ints, stops: Ints
) -> None:
    """One run per head of every tile; tokens count from the start of the cache."""
    home = core.emission.home(cache)
    sequences, heads, _, width = cache.shape
    row_bytes = packed_bytes(width, cache.dtype)
    matrix_bytes = home.nbytes // (sequences * heads)
    tile = np.repeat(np.arange(len(stores)), heads)
    head = np.tile(np.arange(heads), len(stores))
    base = home.offset + (sequence[tile] * heads + head) * matrix_bytes + starts[tile] * row_bytes
    core.builder.transfers(
        stores,
        space=home.space,
        is_write=True,
        role=cache.role.value,
        runs=_runs(base, (stops - starts)[tile] * row_bytes),
        run_owner=tile,
    )


def _tile(
    emission: Emission, operator: Operator, rows: int, row_bytes: int, row: str, taken: int = 0
) -> int:
    """Rows moved at a time: a few tiles per core, as far as the buffers hold them."""
    need, budget = emission.config.buffers * row_bytes, emission.budget_bytes() - taken
    if need > budget:
        raise MappingError(
            operator.name,
            f"one {row} needs {need} bytes of scratchpad for {emission.config.buffers} buffers, "
            f"{budget} bytes are free",
            hint="use a larger scratchpad or compiler.buffers=1",
        )
    return min(max(-(-rows // TILES_PER_CORE), 1), budget // need)


def _add_loads(core: CoreEmission, count: int) -> Ints:
    buffers = min(core.emission.config.buffers, count)
    ahead = np.maximum(np.arange(count) - (buffers - 1), 0) * STEP
    return core.emission.add(core.engines.loads[0], Opcode.LOAD, ahead + LOAD)


def _runs(base: Ints, nbytes: Ints) -> Ints:
    return np.stack((base, nbytes, np.zeros_like(base), np.ones_like(base)), axis=1)
