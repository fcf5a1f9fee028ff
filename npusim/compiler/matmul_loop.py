"""The tile loop of one core: its steps, and the loads its operands need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.emit import STEP
from npusim.compiler.tiling import LoopOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.tiling import MatmulPlan
    from npusim.workload.operator import MatmulShape

    Ints = NDArray[np.int64]


class Rank(IntEnum):
    """Order of commands inside a step: producers before consumers."""

    LOAD_W = 0
    LOAD_BIAS = 1
    LOAD_A = 2
    DEQUANT = 3
    MATMUL = 4
    CONVERT = 5
    EPILOGUE = 6
    STORE = 7


@dataclass(frozen=True)
class Steps:
    """Half-open extents of every step, in execution order.

    `a_key` and `w_key` number the operand tiles; equal tiles of different cores have equal keys.
    """

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
    def finishing(self) -> Ints:
        """Steps that finish an output tile."""
        return np.arange(self.num_k - 1, len(self), self.num_k, dtype=np.int64)


def steps_of(plan: MatmulPlan, shape: MatmulShape, position: tuple[int, int, int]) -> Steps | None:
    """Steps of the core at a position (batch, m, n) of the grid; None if nothing is left for it."""
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
    rows = np.full(len(b), high[1])
    if shape.group_rows:
        rows = np.minimum(np.array(shape.group_rows, dtype=np.int64)[b], high[1])
        some = np.flatnonzero(m0 < rows)  # an entry of few rows ends early
        if not len(some):
            return None
        b, m0, k0, n0, k, rows = (x[some] for x in (b, m0, k0, n0, k, rows))
    return Steps(
        b,
        m0,
        np.minimum(m0 + tm, rows),
        k0,
        np.minimum(k0 + tk, shape.k),
        n0,
        np.minimum(n0 + tn, high[2]),
        a_key=(b * shape.m + m0) * count[1] + k,
        w_key=(b * shape.n + n0) * count[1] + k,
        num_k=count[1],
    )


@dataclass(frozen=True)
class Loads:
    """Loads of one operand: each step's load, and the steps that first and last use each."""

    of_step: Ints
    first: Ints
    last: Ints
    slots: int  # of the ring they fill

    def __len__(self) -> int:
        return len(self.first)

    def order(self, buffers: int) -> Ints:
        """Order key of each load: `buffers` - 1 steps ahead, once its slot is free."""
        freed = np.full(len(self), -1, dtype=np.int64)
        freed[self.slots :] = self.last[: max(len(self) - self.slots, 0)]
        step: Ints = np.maximum(np.maximum(self.first - (buffers - 1), 0), freed + 1)
        return step * STEP


def resident_loads(keys: Ints, entries: Ints) -> Loads:
    """Loads of an operand whose tiles all stay while their batch entry is worked on."""
    _, first, of_step = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return _loads(rank[of_step], first[order], int(np.bincount(entries[first]).max()))


def streamed_loads(keys: Ints, buffers: int) -> Loads:
    """Loads of an operand that is read again whenever its tile changes."""
    changes = np.concatenate(([True], keys[1:] != keys[:-1]))
    first = np.flatnonzero(changes)
    return _loads(np.cumsum(changes) - 1, first, min(len(first), buffers))


def _loads(of_step: Ints, first: Ints, slots: int) -> Loads:
    last = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last, of_step, np.arange(len(of_step)))
    return Loads(of_step.astype(np.int64), first.astype(np.int64), last, slots)
