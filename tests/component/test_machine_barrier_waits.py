"""Who waits at a barrier is said to wait at a barrier, whatever the barrier waits for."""

from __future__ import annotations

from fractions import Fraction

from npusim.engine import FixedLatencyMemory, StallCause
from npusim.machine.system import Machine
from npusim.program import Command, Edge, EdgeKind, Engine, EngineKind, Opcode, Program

PERIOD = Fraction(1000)


def test_the_wait_for_a_slower_core_is_a_barrier_wait():
    engines = [
        Engine("core0.matrix", EngineKind.MATRIX, "npu", 0, PERIOD),
        Engine("core1.matrix", EngineKind.MATRIX, "npu", 1, PERIOD),
        Engine("barrier", EngineKind.BARRIER, "npu", None, PERIOD),
    ]
    commands = [
        Command(0, Opcode.MATMUL, 10),
        Command(1, Opcode.MATMUL, 100),
        Command(2, Opcode.SIGNAL, 2, (Edge(0), Edge(1)), register=0, bit=0),
        Command(0, Opcode.MATMUL, 5, (Edge(2, EdgeKind.BARRIER),)),
    ]
    execution = Machine(Program.from_commands(commands, engines), FixedLatencyMemory()).run()
    # core 0 is done at 10 cycles, the barrier opens at 102
    assert execution.engines[0].stalls_ps == {StallCause.BARRIER: 92_000}
    # the barrier registers wait for data of core 1
    assert execution.engines[2].stalls_ps == {StallCause.DEPENDENCY: 100_000}
