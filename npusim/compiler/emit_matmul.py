"""Commands of a matmul kernel: loads, dequantisation, products, conversion, epilogue, stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.emit import STEP, Emission, Slots
from npusim.compiler.matmul_traits import matmul_traits
from npusim.compiler.operands import moving_view, stationary_operand
from npusim.compiler.tiling import ACCUMULATOR_BITS, LoopOrder, MatmulPlan, bits_to_bytes
from npusim.compiler.unit_timing import (
    convert_cycles,
    matrix_array_cycles,
    matrix_cycles,
    vector_cycles,
)
from npusim.config.compute import AccumulatorConvert, WeightDequant
from npusim.config.system import SharedTiles
from npusim.program import EdgeKind, Opcode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.target import CoreEngines
    from npusim.compiler.tiling import MatmulTraits
    from npusim.workload.operator import MatmulShape, Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]

# ranks inside a step
_LOAD_W, _LOAD_BIAS, _LOAD_A, _DEQUANT, _MATMUL, _CONVERT, _VECTOR, _STORE = range(8)


@dataclass(frozen=True)
class Steps:
    """The tile loop of one core: half-open extents of every step, in execution order."""

    b: Ints
    m0: Ints
    m1: Ints
    k0: Ints
    k1: Ints
    n0: Ints
    n1: Ints
    a_key: Ints
    w_key: Ints
    num_k: int

    def __len__(self) -> int:
        return len(self.b)

    @property
    def is_last_k(self) -> NDArray[np.bool_]:
        """Steps that finish an output tile."""
        is_last: NDArray[np.bool_] = np.arange(len(self)) % self.num_k == self.num_k - 1
        return is_last


@dataclass(frozen=True)
class Loads:
    """Loads of one operand: which step first and last uses each, and each step's load."""

    of_step: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.first)


class MatmulEmitter:
    """Emits one operator; `emit` may be called once."""

    def __init__(self, emission: Emission, operator: Operator, plan: MatmulPlan) -> None:
        assert operator.matmul is not None
        self.emission, self.operator, self.plan = emission, operator, plan
        self.target, self.builder = emission.target, emission.builder
        self.shape: MatmulShape = operator.matmul
        self.traits: MatmulTraits = matmul_traits(emission, operator)
        a = operator.inputs[0]
        self.a_view = moving_view(operator, a, emission.home(a), self.shape.k)
        self.w_operand = stationary_operand(
            operator,
            emission.home(operator.inputs[1]),
            emission.config.weight_layout,
            emission.layout.kv_capacity_tokens,
        )
        self._shared_loads: dict[tuple[str, int, int], int] = {}

    def emit(self) -> None:
        """All cores of the grid."""
        grid = self.plan.grid
        cores = [
            (ib, im, i_n)
            for ib in range(grid[0])
            for im in range(grid[1])
            for i_n in range(grid[2])
        ]
        for core, position in enumerate(cores):
            steps = self._steps(position)
            if steps is not None:
                _CoreMatmul(self, core, steps).emit()

    def _steps(self, position: tuple[int, int, int]) -> Steps | None:
        shape, plan = self.shape, self.plan
        low = [i * c for i, c in zip(position, plan.chunk, strict=True)]
        extents = (shape.batch, shape.m, shape.n)
        high = [min(lo + c, e) for lo, c, e in zip(low, plan.chunk, extents, strict=True)]
        if any(lo >= hi for lo, hi in zip(low, high, strict=True)):
            return None
        tm, tk, tn = plan.tile
        count = (-(-(high[1] - low[1]) // tm), -(-shape.k // tk), -(-(high[2] - low[2]) // tn))
        outer = (count[2], count[0]) if plan.order is LoopOrder.N_OUTER else (count[0], count[2])
        axes = [np.arange(high[0] - low[0]), *(np.arange(x) for x in outer), np.arange(count[1])]
        b, first, second, k = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
        n, m = (first, second) if plan.order is LoopOrder.N_OUTER else (second, first)
        m0, k0, n0 = low[1] + m * tm, k * tk, low[2] + n * tn
        b = b + low[0]
        return Steps(
            b,
            m0,
            np.minimum(m0 + tm, high[1]),
            k0,
            np.minimum(k0 + tk, shape.k),
            n0,
            np.minimum(n0 + tn, high[2]),
            a_key=(b * shape.m + m0) * count[1] + k,
            w_key=(b * shape.n + n0) * count[1] + k,
            num_k=count[1],
        )

    def shared_source(self, operand: str, keys: Ints, ids: Ints, runs_bytes: int) -> Ints:
        """Earlier load of each tile that this one may hit in the shared SRAM; -1 for none."""
        source = np.full(len(ids), -1, dtype=np.int64)
        shared = self.target.device.shared_sram
        if self.target.device.shared_tiles is not SharedTiles.SHARED_SRAM or shared is None:
            return source
        fits = runs_bytes <= shared.capacity_bytes
        seen: dict[int, int] = {}
        for index, (key, command) in enumerate(zip(keys.tolist(), ids.tolist(), strict=True)):
            nth = 0 if fits else seen.get(key, 0)
            seen[key] = nth + 1
            found = self._shared_loads.setdefault((operand, key, nth), command)
            if found != command:
                source[index] = found
        return source


class _CoreMatmul:
    """One core's share of a matmul."""

    def __init__(self, parent: MatmulEmitter, core: int, steps: Steps) -> None:
        self.parent, self.core, self.steps = parent, core, steps
        self.emission, self.builder, self.target = parent.emission, parent.builder, parent.target
        self.traits, self.plan, self.operator = parent.traits, parent.plan, parent.operator
        self.engines: CoreEngines = self.target.core_engines[core]
        self.pad = self.emission.scratchpads[core]

    def emit(self) -> None:
        traits, plan, steps = self.traits, self.plan, self.steps
        tm, tk, tn = plan.tile
        w_loads = _loads(steps.w_key, plan.w_resident)
        w_ring = self._ring(tk * tn * traits.w_bits, w_loads, plan.w_resident)
        w_ids = self._emit_loads(self.operator.inputs[1], w_loads, w_ring, _LOAD_W)
        a_ids = None
        a_on_chip = traits.a_on_chip
        a_loads = _loads(steps.a_key, plan.a_resident)
        a_ring = Slots(0, 0, 1)
        if not a_on_chip:
            a_ring = self._ring(tm * tk * traits.a_bits, a_loads, plan.a_resident)
            a_ids = self._emit_loads(self.operator.inputs[0], a_loads, a_ring, _LOAD_A)
        ready_ids, ready_ring = w_ids, w_ring
        if traits.expanded_bits:
            ready_ring = self._ring(tk * tn * traits.expanded_bits, w_loads, plan.w_resident)
            ready_ids = self._emit_dequant(w_loads, w_ids, w_ring, ready_ring)
        matmuls = self._emit_products()
        self._wire_operand(matmuls, w_loads, ready_ids, ready_ring, w_ids, w_ring)
        if a_ids is not None:
            self._wire_operand(matmuls, a_loads, a_ids, a_ring, a_ids, a_ring)
        else:
            self.emission.wait_for_tensor(matmuls, self.operator.inputs[0])
        self._emit_outputs(matmuls)

    def _ring(self, tile_bits: float, loads: Loads, resident: bool) -> Slots:
        count = len(loads)
        if resident:
            distinct = count // len(np.unique(self.steps.b))
            count = max(distinct, 1)
        else:
            count = min(count, self.emission.config.buffers)
        nbytes = int(bits_to_bytes(tile_bits))
        return self.pad.slots(nbytes, count)

    def _emit_loads(self, tensor: Tensor, loads: Loads, ring: Slots, rank: int) -> Ints:
        steps, first = self.steps, loads.first
        engines = self.engines.loads
        if rank == _LOAD_W:
            usable = engines[1:] or engines
        else:
            usable = engines[:1]
        engine = np.array(usable, dtype=np.int64)[np.arange(len(loads)) % len(usable)]
        freed = np.full(len(loads), -1, dtype=np.int64)
        freed[ring.count :] = loads.last[: max(len(loads) - ring.count, 0)]
        ahead = self.emission.config.buffers - 1
        step = np.maximum(np.maximum(first - ahead, 0), freed + 1)
        ids = self.emission.add(engine, Opcode.LOAD, step * STEP + rank)
        self.emission.wait_for_tensor(ids, tensor)
        if rank == _LOAD_W:
            runs, owner = self.parent.w_operand.tile_runs(
                steps.b[first] if self.parent.shape.batch > 1 else 0 * first,
                steps.k0[first],
                steps.k1[first],
                steps.n0[first],
                steps.n1[first],
            )
            keys = steps.w_key[first]
        else:
            runs, owner = self.parent.a_view.tile_runs(
                steps.b[first], steps.m0[first], steps.m1[first], steps.k0[first], steps.k1[first]
            )
            keys = steps.a_key[first]
        self._attach(tensor, ids, runs, owner, keys, rank)
        self.builder.regions(
            ids, self.pad.space, ring.at(np.arange(len(ids))), ring.nbytes, is_write=True
        )
        self._wait_for_earlier_kernels(ids, ring)
        return ids

    def _attach(
        self, tensor: Tensor, ids: Ints, runs: Ints, owner: Ints, keys: Ints, rank: int
    ) -> None:
        """Give loads their transfers; tiles another core has loaded come from the shared SRAM."""
        home = self.emission.home(tensor)
        space = np.full(len(ids), home.space)
        if home.space == self.target.dram_space:
            name = "w" if rank == _LOAD_W else "a"
            source = self.parent.shared_source(name, keys, ids, tensor.nbytes)
            hits = source >= 0
            if hits.any():
                assert self.target.shared_space is not None
                assert self.target.device.shared_sram is not None
                self.builder.edges(ids[hits], source[hits], EdgeKind.DATA)
                space[hits] = self.target.shared_space
                capacity = self.target.device.shared_sram.capacity_bytes
                runs = _wrap(runs, hits[owner], capacity)
        self.builder.transfers(
            ids, space=space, is_write=False, role=tensor.role.value, runs=runs, run_owner=owner
        )

    def _wait_for_earlier_kernels(self, ids: Ints, ring: Slots) -> None:
        for ordinal in range(min(ring.count, len(ids))):
            offset = int(ring.at(ordinal))
            for user in self.pad.earlier_users(offset, ring.nbytes):
                self.builder.edges(ids[ordinal], user, EdgeKind.BUFFER_FREE)

    def _emit_dequant(self, loads: Loads, w_ids: Ints, packed: Slots, expanded: Slots) -> Ints:
        steps, first = self.steps, loads.first
        elems = (steps.k1 - steps.k0)[first] * (steps.n1 - steps.n0)[first]
        on_vector = self.target.core.weight_dequant is WeightDequant.VECTOR_UNIT
        engine = self.engines.vector if on_vector else self.engines.convert
        assert engine is not None
        freed = np.full(len(loads), -1, dtype=np.int64)
        freed[expanded.count :] = loads.last[: max(len(loads) - expanded.count, 0)]
        step = np.maximum(np.maximum(first - (self.emission.config.buffers - 1), 0), freed + 1)
        ids = self.emission.add(
            engine,
            Opcode.VECTOR if on_vector else Opcode.CONVERT,
            step * STEP + _DEQUANT,
            duration_ticks=[self._convert_ticks(int(e), on_vector) for e in elems],
        )
        ordinals = np.arange(len(ids))
        self.builder.edges(ids, w_ids, EdgeKind.DATA)
        space = self.pad.space
        self.builder.regions(ids, space, packed.at(ordinals), packed.nbytes, is_write=False)
        self.builder.regions(ids, space, expanded.at(ordinals), expanded.nbytes, is_write=True)
        self._wait_for_earlier_kernels(ids, expanded)
        return ids

    def _convert_ticks(self, elems: int, on_vector: bool) -> int:
        core = self.target.core
        if on_vector:
            dtype = self.target.vector_dtype(self.operator.compute_dtype, self.operator.name)
            return self.target.ticks(
                vector_cycles(core.vector, (("convert", elems),), dtype, elems * 3)
            )
        assert core.convert is not None
        return self.target.ticks(convert_cycles(core.convert, elems))

    def _emit_products(self) -> Ints:
        steps, core, dtype = self.steps, self.target.core, self.traits.compute_dtype
        m, k, n = steps.m1 - steps.m0, steps.k1 - steps.k0, steps.n1 - steps.n0
        if self.emission.ideal:
            cycles = matrix_array_cycles(core.matrix, dtype, m, k, n)
        else:
            bits = self.traits.expanded_bits or self.traits.a_bits
            cycles = matrix_cycles(core, dtype, m, k, n, bits)
        return self.emission.add(
            self.engines.matrix,
            Opcode.MATMUL,
            np.arange(len(steps)) * STEP + _MATMUL,
            duration_ticks=cycles * self.target.ticks_per_cycle,
            macs=m * k * n,
        )

    def _wire_operand(
        self,
        matmuls: Ints,
        loads: Loads,
        ready: Ints,
        ready_ring: Slots,
        loaded: Ints,
        loaded_ring: Slots,
    ) -> None:
        """Products wait for their operand; its slots wait for the last product that read them."""
        builder, space = self.builder, self.pad.space
        builder.edges(matmuls, ready[loads.of_step], EdgeKind.DATA)
        builder.regions(
            matmuls, space, ready_ring.at(loads.of_step), ready_ring.nbytes, is_write=False
        )
        count = ready_ring.count
        builder.edges(
            ready[count:], matmuls[loads.last[: max(len(ready) - count, 0)]], EdgeKind.BUFFER_FREE
        )
        used = min(count, len(ready))
        ordinals = np.arange(len(ready) - used, len(ready))
        self.pad.release(ready_ring.at(ordinals), ready_ring.nbytes, matmuls[loads.last[-used:]])
        if loaded is not ready:
            builder.edges(loaded[count:], ready[: len(ready) - count], EdgeKind.BUFFER_FREE)
            self.pad.release(loaded_ring.at(ordinals), loaded_ring.nbytes, ready[-used:])

    def _emit_outputs(self, matmuls: Ints) -> None:
        steps, traits = self.steps, self.traits
        tm, _, tn = self.plan.tile
        last = np.flatnonzero(steps.is_last_k)
        count = min(len(last), self.emission.config.buffers)
        final = matmuls[last]
        elems = (steps.m1 - steps.m0)[last] * (steps.n1 - steps.n0)[last]
        producers, chain = final, []
        if traits.converted:
            ring = self.pad.slots(int(bits_to_bytes(tm * tn * ACCUMULATOR_BITS)), count)
            producers = self._emit_convert(last, final, elems, ring)
            chain.append(producers)
        out_ring = Slots(0, 0, 1)
        if not traits.c_on_chip:
            out_ring = self.pad.slots(int(bits_to_bytes(tm * tn * traits.out_bits)), count)
            self._own_slots(producers, out_ring, is_write=True)
        writers = producers
        if self.operator.vector_ops:
            producers = self._emit_epilogue(last, producers, elems, out_ring)
        if traits.c_on_chip:
            self.emission.arrive(producers)
            return
        stores = self._emit_stores(last, producers, out_ring)
        self.builder.edges(writers[count:], stores[: len(stores) - count], EdgeKind.BUFFER_FREE)
        ordinals = np.arange(len(stores) - count, len(stores))
        self.pad.release(out_ring.at(ordinals), out_ring.nbytes, stores[-count:])

    def _own_slots(self, ids: Ints, ring: Slots, *, is_write: bool) -> None:
        ordinals = np.arange(len(ids))
        self.builder.regions(ids, self.pad.space, ring.at(ordinals), ring.nbytes, is_write=is_write)
        if is_write:
            self._wait_for_earlier_kernels(ids, ring)

    def _emit_convert(self, last: Ints, final: Ints, elems: Ints, ring: Slots) -> Ints:
        on_vector = self.target.core.matrix.accumulator_convert is AccumulatorConvert.VECTOR_UNIT
        engine = self.engines.vector if on_vector else self.engines.convert
        assert engine is not None
        self._own_slots(final, ring, is_write=True)
        ids = self.emission.add(
            engine,
            Opcode.VECTOR if on_vector else Opcode.CONVERT,
            last * STEP + _CONVERT,
            duration_ticks=[self._convert_ticks(int(e), on_vector) for e in elems],
        )
        self.builder.edges(ids, final, EdgeKind.DATA)
        self._own_slots(ids, ring, is_write=False)
        count = ring.count
        self.builder.edges(final[count:], ids[: len(ids) - count], EdgeKind.BUFFER_FREE)
        ordinals = np.arange(len(ids) - count, len(ids))
        self.pad.release(ring.at(ordinals), ring.nbytes, ids[-count:])
        return ids

    def _emit_epilogue(self, last: Ints, producers: Ints, elems: Ints, ring: Slots) -> Ints:
        """Bias and activation on the vector unit, in place."""
        operator, target = self.operator, self.target
        total = self.parent.shape.batch * self.parent.shape.m * self.parent.shape.n
        dtype = target.vector_dtype(operator.compute_dtype, operator.name)
        out_bytes = self.traits.out_bits / 8
        durations = [
            target.ticks(
                vector_cycles(
                    target.core.vector,
                    tuple((op, -(-n * int(e) // total)) for op, n in operator.vector_ops),
                    dtype,
                    int(2 * e * out_bytes),
                )
            )
            for e in elems
        ]
        ids = self.emission.add(
            self.engines.vector, Opcode.VECTOR, last * STEP + _VECTOR, duration_ticks=durations
        )
        self.builder.edges(ids, producers, EdgeKind.DATA)
        if ring.nbytes:
            ordinals = np.arange(len(ids))
            for is_write in (False, True):
                self.builder.regions(
                    ids, self.pad.space, ring.at(ordinals), ring.nbytes, is_write=is_write
                )
        for bias in operator.inputs[2:]:
            self._emit_bias(bias, ids)
        return ids

    def _emit_bias(self, bias: Tensor, readers: Ints) -> None:
        """This core's columns of a bias, once per kernel."""
        low, high = int(self.steps.n0.min()), int(self.steps.n1.max())
        start = low * bias.nbytes // self.parent.shape.n
        stop = high * bias.nbytes // self.parent.shape.n
        home = self.emission.home(bias)
        slot = self.pad.slots(stop - start, 1)
        load = self.emission.add(self.engines.loads[0], Opcode.LOAD, _LOAD_BIAS)
        self.emission.wait_for_tensor(load, bias)
        self.builder.transfers(
            load,
            space=home.space,
            is_write=False,
            role=bias.role.value,
            runs=np.array([[home.offset + start, stop - start, 0, 1]]),
        )
        self._own_slots(load, slot, is_write=True)
        self.builder.edges(readers, load[0], EdgeKind.DATA)
        self.builder.regions(readers, self.pad.space, slot.offset, slot.nbytes, is_write=False)
        self.pad.release(np.array([slot.offset]), slot.nbytes, readers[-1:])

    def _emit_stores(self, last: Ints, producers: Ints, ring: Slots) -> Ints:
        engines = np.array(self.engines.stores, dtype=np.int64)
        engine = engines[np.arange(len(last)) % len(engines)]
        ids = self.emission.add(engine, Opcode.STORE, last * STEP + _STORE)
        self.builder.edges(ids, producers, EdgeKind.DATA)
        self._own_slots(ids, ring, is_write=False)
        runs, owner = self._output_runs(last)
        home = self.emission.home(self.operator.outputs[0])
        self.builder.transfers(
            ids,
            space=home.space,
            is_write=True,
            role=self.operator.outputs[0].role.value,
            runs=runs,
            run_owner=owner,
        )
        self.emission.arrive(ids)
        return ids

    def _output_runs(self, last: Ints) -> tuple[Ints, Ints]:
        """Runs of every output tile; a tile may straddle the columns of several outputs."""
        steps, runs, owners = self.steps, [], []
        column = 0
        for tensor in self.operator.outputs:
            width = self.parent.shape.n
            if len(self.operator.outputs) > 1:
                width = tensor.shape[-1]
            n0 = np.clip(steps.n0[last] - column, 0, width)
            n1 = np.clip(steps.n1[last] - column, 0, width)
            inside = np.flatnonzero(n1 > n0)
            column += width
            if not len(inside):
                continue
            view = moving_view(self.operator, tensor, self.emission.home(tensor), width)
            step = last[inside]
            part, owner = view.tile_runs(
                steps.b[step], steps.m0[step], steps.m1[step], n0[inside], n1[inside]
            )
            runs.append(part)
            owners.append(inside[owner])
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        return np.concatenate(runs)[order], owner[order]


def _loads(keys: Ints, resident: bool) -> Loads:
    """Loads of an operand whose tile at each step is `keys`."""
    if resident:
        _, first, of_step = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        of_step, first = rank[of_step], first[order]
    else:
        changes = np.concatenate(([True], keys[1:] != keys[:-1]))
        of_step, first = np.cumsum(changes) - 1, np.flatnonzero(changes)
    last = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last, of_step, np.arange(len(keys)))
    return Loads(of_step.astype(np.int64), first.astype(np.int64), last)


def _wrap(runs: Ints, hits: NDArray[np.bool_], capacity: int) -> Ints:
    """Addresses of cached tiles: DRAM addresses folded into the shared SRAM."""
    folded = runs.copy()
    span = runs[:, 1] + runs[:, 2] * (runs[:, 3] - 1)
    folded[hits, 0] = runs[hits, 0] % np.maximum(capacity - span[hits], 1)
    return folded
