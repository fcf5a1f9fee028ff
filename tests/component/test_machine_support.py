"""Engines, commands and memories that the machine tests share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from npusim.engine import ATTRIBUTION_CATEGORIES, FixedLatencyMemory
from npusim.machine import Execution, Machine
from npusim.program import (
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    MemorySpace,
    Opcode,
    Program,
    TransferSpec,
)

NS = Fraction(1000)  # a 1 GHz clock
SPACES = (
    MemorySpace("dram", "dram", 1 << 30, 0),
    MemorySpace("shared", "shared_sram", 1 << 20, 1),
    MemorySpace("pad", "scratchpad", 1 << 16),
)
DRAM, SHARED, PAD = 0, 1, 2


def compute(name: str = "matrix", kind: EngineKind = EngineKind.MATRIX, period=NS) -> Engine:
    return Engine(name, kind, "npu", 0, Fraction(period))


def dma(name: str = "load", kind: EngineKind = EngineKind.DMA_LOAD, **keys) -> Engine:
    keys = {"queue_depth": 2, "issue_ticks": 0, "port": 0, **keys}
    return Engine(name, kind, "npu", 0, keys.pop("period_ps", NS), **keys)


def matmul(engine: int, cycles=10, *waits: Edge, **keys) -> Command:
    return Command(engine, Opcode.MATMUL, cycles, waits, **keys)


def load(engine: int, *waits: Edge, nbytes: int = 64, space: int = DRAM, **keys) -> Command:
    spec = TransferSpec(space, is_write=False, runs=((0, nbytes, 0, 1),))
    return Command(engine, Opcode.LOAD, 0, waits, spec, **keys)


def store(engine: int, *waits: Edge, nbytes: int = 64, space: int = DRAM, **keys) -> Command:
    spec = TransferSpec(space, is_write=True, runs=((0, nbytes, 0, 1),))
    return Command(engine, Opcode.STORE, 0, waits, spec, **keys)


def wait_for(producer: int, kind: EdgeKind = EdgeKind.DATA, **keys) -> Edge:
    return Edge(producer, kind, **keys)


def run(commands, engines, memory=None) -> Execution:
    program = Program.from_commands(commands, engines, SPACES)
    return Machine(program, memory or FixedLatencyMemory(100_000)).run()


class ScriptedMemory(FixedLatencyMemory):
    """Fixed latency; channel time goes to the given categories in the given proportion."""

    def __init__(self, latency_ps: int, own_frac: Fraction = Fraction(0), **weights: int) -> None:
        super().__init__(latency_ps)
        self._weights = [weights.get(name, 0) for name in ATTRIBUTION_CATEGORIES]
        self._own_frac = own_frac
        self._now_ps = 0

    def attribution(self, now_ps, memory):
        self._now_ps = now_ps
        return np.array([now_ps * weight for weight in self._weights], dtype=np.int64)

    def own_data_ps(self, port):
        return int(self._now_ps * (self._weights[0] + self._weights[1]) * self._own_frac)
