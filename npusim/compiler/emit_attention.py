"""Commands of a fused attention kernel, core by core; `attention_plan` describes the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.attention_plan import AttentionCosts
from npusim.compiler.emit import STEP, Emission
from npusim.compiler.emit_core import CoreEmission
from npusim.compiler.matmul_loop import Loads, streamed_loads
from npusim.compiler.operands import moving_view, stationary_operand
from npusim.program import EdgeKind, Opcode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from npusim.compiler.fusion import FusedAttention
    from npusim.compiler.slots import Slots
    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]
    TileRuns = Callable[[Ints, Ints, Ints], tuple[Ints, Ints]]  # of (entry, row from, row to)

LOAD_Q, LOAD_K, LOAD_V, SCORES, SOFTMAX, CONTEXT, FINAL, STORE = range(8)  # ranks inside a step


def emit_attention(emission: Emission, operator: Operator, fused: FusedAttention) -> None:
    """Blocks of (batch entries, query rows) dealt to cores in order; keys stay together."""
    shape = fused.scores.matmul
    assert shape is not None
    tile = fused.plan.tile
    items = -(-shape.batch // tile[0]) * -(-shape.m // tile[1])
    cores = min(emission.target.active_cores, items)
    for core in range(cores):
        low, high = items * core // cores, items * (core + 1) // cores
        _CoreAttention(emission, operator, fused, core, _steps(fused, low, high)).emit()


@dataclass(frozen=True)
class _Steps:
    """Half-open extents of every step, in execution order."""

    b0: Ints
    b1: Ints
    m0: Ints
    m1: Ints
    n0: Ints
    n1: Ints
    item: Ints
    kv_key: Ints
    num_keys: int  # key tiles

    @property
    def starts(self) -> Ints:
        """Steps that start an item."""
        return np.arange(0, len(self.b0), self.num_keys)

    @property
    def finishes(self) -> Ints:
        """Steps that finish one."""
        return self.starts + self.num_keys - 1


def _steps(fused: FusedAttention, low: int, high: int) -> _Steps:
    """Steps of items ``[low, high)``."""
    shape = fused.scores.matmul
    assert shape is not None
    tb, tm, tn = fused.plan.tile
    row_tiles, key_tiles = -(-shape.m // tm), -(-shape.n // tn)
    item = np.repeat(np.arange(low, high), key_tiles)
    key = np.tile(np.arange(key_tiles), high - low)
    b0, m0, n0 = item // row_tiles * tb, item % row_tiles * tm, key * tn
    return _Steps(
        b0,
        np.minimum(b0 + tb, shape.batch),
        m0,
        np.minimum(m0 + tm, shape.m),
        n0,
        np.minimum(n0 + tn, shape.n),
        item,
        item // row_tiles * key_tiles + key,
        key_tiles,
    )


class _CoreAttention(CoreEmission):
    """One core's items."""

    def __init__(
        self,
        emission: Emission,
        operator: Operator,
        fused: FusedAttention,
        core: int,
        steps: _Steps,
    ) -> None:
        super().__init__(emission, core)
        self.operator, self.fused, self.steps = operator, fused, steps
        self.costs = AttentionCosts.of(fused.scores, fused.softmax, emission.target)
        self.buffers = emission.config.buffers
        self.order = np.arange(len(steps.b0)) * STEP
        self.b, self.m = steps.b1 - steps.b0, steps.m1 - steps.m0
        self.n = steps.n1 - steps.n0

    def emit(self) -> None:
        """Loads, then the chain of every step, then outputs."""
        tb, tm, tn = self.fused.plan.tile
        costs, wide = self.costs, self.costs.bits // 8
        ideal = self.emission.ideal
        scores = self._products(SCORES, costs.scores_cycles(self.b, self.m, self.n, ideal=ideal))
        later = np.ones(len(self.order), dtype=np.bool_)
        later[self.steps.starts] = False
        softmax = self._vector(
            SOFTMAX,
            self.order,
            costs.softmax_cycles(self.b, self.m, self.n, rescales=later.astype(np.int64)),
        )
        context = self._products(CONTEXT, costs.context_cycles(self.b, self.m, self.n, ideal=ideal))
        self._load_operands(scores, context)
        score_slot = self.pad.slots(tb * tm * tn * 4, 1)
        weight_slot = self.pad.slots(tb * tm * tn * wide, 1)
        self._pass_on(scores, softmax, score_slot)
        self._pass_on(softmax, context, weight_slot)
        sums = self.pad.slots(tb * tm * costs.head_dim * 4, 1)
        self._accumulate(softmax[later], context, np.flatnonzero(later), sums)
        self._finish(context, sums)

    def _products(self, rank: int, cycles: Ints) -> Ints:
        return self.emission.add(
            self.engines.matrix,
            Opcode.MATMUL,
            self.order + rank,
            duration_ticks=cycles * self.emission.target.ticks_per_cycle,
            macs=self.b * self.m * self.n * self.costs.head_dim,
        )

    def _vector(self, rank: int, order: Ints, cycles: Ints) -> Ints:
        ticks = cycles * self.emission.target.ticks_per_cycle
        return self.emission.add(
            self.engines.vector, Opcode.VECTOR, order + rank, duration_ticks=ticks
        )

    def _load_operands(self, scores: Ints, context: Ints) -> None:
        """Q once per item; K and V whenever their tile changes."""
        fused, emission, depth = self.fused, self.emission, self.costs.head_dim
        tb, tm, tn = fused.plan.tile
        query, keys, values = self.operator.inputs
        layout = emission.config.weight_layout
        kept = [emission.layout.capacity_tokens(tensor) for tensor in (keys, values)]
        k_view = stationary_operand(fused.scores, emission.home(keys), layout, kept[0])
        v_view = stationary_operand(fused.context, emission.home(values), layout, kept[1])
        row = tb * depth * self.costs.bits // 8
        if emission.is_in_scratchpad(query):
            emission.wait_for_tensor(scores, query)
        else:
            view = moving_view(fused.scores, query, emission.home(query), depth)
            self._load(
                (query, LOAD_Q, row * tm),
                self.steps.item,
                (self.steps.m0, self.steps.m1),
                lambda b, r0, r1: view.tile_runs(b, r0, r1, 0 * r0, 0 * r0 + depth),
                scores,
            )
        extents = (self.steps.n0, self.steps.n1)
        self._load(
            (keys, LOAD_K, row * tn),
            self.steps.kv_key,
            extents,
            lambda b, r0, r1: k_view.tile_runs(b, 0 * r0, 0 * r0 + depth, r0, r1),
            scores,
        )
        self._load(
            (values, LOAD_V, row * tn),
            self.steps.kv_key,
            extents,
            lambda b, r0, r1: v_view.tile_runs(b, r0, r1, 0 * r0, 0 * r0 + depth),
            context,
        )

    def _load(
        self,
        what: tuple[Tensor, int, int],
        keys: Ints,
        extents: tuple[Ints, Ints],
        tile_runs: TileRuns,
        readers: Ints,
    ) -> None:
        """Loads of one operand: a ring, its transfers, and the products that read it."""
        tensor, rank, nbytes = what
        loads = streamed_loads(keys, self.buffers)
        ring = self.pad.slots(nbytes, loads.slots)
        engines = self.engines.loads
        engine = engines[-1] if rank == LOAD_V else engines[0]
        ids = self.emission.add(engine, Opcode.LOAD, loads.order(self.buffers) + rank)
        self.emission.wait_for_tensor(ids, tensor)
        runs, owner = self._runs(loads, extents, tile_runs)
        self.builder.transfers(
            ids,
            space=self.emission.home(tensor).space,
            is_write=False,
            role=tensor.role.value,
            runs=runs,
            run_owner=owner,
        )
        self.pad.fill(ids, ring)
        self.builder.edges(readers, ids[loads.of_step], EdgeKind.DATA)
        self.pad.read(readers, ring, loads.of_step)
        self.pad.recycle(ring, ids, readers[loads.last])

    def _runs(
        self, loads: Loads, extents: tuple[Ints, Ints], tile_runs: TileRuns
    ) -> tuple[Ints, Ints]:
        """Runs of every load: one tile per batch entry of its step."""
        return self._tiles(loads.first, extents, tile_runs)

    def _tiles(
        self, steps: Ints, extents: tuple[Ints, Ints], tile_runs: TileRuns
    ) -> tuple[Ints, Ints]:
        count = self.b[steps]
        which = np.repeat(np.arange(len(steps)), count)
        entry = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        step = steps[which]
        runs, owner = tile_runs(self.steps.b0[step] + entry, extents[0][step], extents[1][step])
        return runs, which[owner]

    def _pass_on(self, writers: Ints, readers: Ints, slot: Slots) -> None:
        """One slot between two commands of the chain."""
        self.pad.fill(writers, slot)
        self.builder.edges(readers, writers, EdgeKind.DATA)
        self.pad.read(readers, slot)
        self.pad.recycle(slot, writers, readers)

    def _accumulate(self, rescales: Ints, context: Ints, steps: Ints, sums: Slots) -> None:
        """Sums of an item: every product adds to them once the softmax before has rescaled them."""
        self.pad.fill(context, sums)
        self.pad.read(rescales, sums)
        self.pad.overwrite(rescales, sums)
        self.builder.edges(rescales, context[steps - 1], EdgeKind.DATA)

    def _finish(self, context: Ints, sums: Slots) -> None:
        """Divide, round and store the sums of every item."""
        ends, starts = self.steps.finishes, self.steps.starts
        cycles = self.costs.final_cycles(self.b[ends], self.m[ends])
        final = self._vector(FINAL, self.order[ends], cycles)
        self.builder.edges(final, context[ends], EdgeKind.DATA)
        self.pad.read(final, sums)
        self.builder.edges(context[starts[1:]], final[:-1], EdgeKind.BUFFER_FREE)
        self.pad.release(sums.offset, sums.nbytes, final[-1:])
        output = self.operator.outputs[0]
        if self.emission.is_in_scratchpad(output):
            self.emission.arrive(final)
            return
        tb, tm, _ = self.fused.plan.tile
        nbytes = tb * tm * self.costs.head_dim * self.costs.bits // 8
        ring = self.pad.slots(nbytes, min(self.buffers, len(final)))
        self.pad.fill(final, ring)
        stores = self.add_stores(self.order[ends] + STORE)
        depth = self.costs.head_dim
        view = moving_view(self.fused.context, output, self.emission.home(output), depth)
        runs, owner = self._tiles(
            ends,
            (self.steps.m0, self.steps.m1),
            lambda b, r0, r1: view.tile_runs(b, r0, r1, 0 * r0, 0 * r0 + depth),
        )
        self.builder.transfers(
            stores,
            space=self.emission.home(output).space,
            is_write=True,
            role=output.role.value,
            runs=runs,
            run_owner=owner,
        )
        self.drain(stores, ring, final, final)
