"""Waits at named barrier bits: who waits, for which bit, until which edge of which clock."""

from __future__ import annotations

from fractions import Fraction

import pytest

from npusim.engine import StallCause
from npusim.errors import ProtocolError
from npusim.program import (
    BarrierBit,
    Command,
    Edge,
    Engine,
    EngineKind,
    Opcode,
    Program,
    Trigger,
)
from npusim.simulation.program import simulate_program

NS = Fraction(1000)
DONE, ALIGN = BarrierBit(0, 0, "done", Trigger.LEVEL), BarrierBit(0, 1, "align")


def engine(name, period_ps=NS, kind=EngineKind.VECTOR):
    return Engine(name, kind, "npu", 0, Fraction(period_ps))


def sets(engine, barrier, *waits):
    return Command(engine, Opcode.SIGNAL, 0, waits, register=barrier.register, bit=barrier.bit)


def awaits(engine, barrier):
    return Command(engine, Opcode.WAIT, 0, register=barrier.register, bit=barrier.bit)


def work(engine, cycles):
    return Command(engine, Opcode.VECTOR, cycles)


def run(commands, engines):
    return simulate_program(Program.from_commands(commands, engines, barriers=(DONE, ALIGN)))


def barriers(piece):
    tally = piece.tally(0, piece.num_kernels)
    return {
        name: (tally["barrier", name, "waits"], tally["barrier", name, "wait_ps"])
        for name in tally.names("barrier")
    }


def test_a_wait_is_charged_to_the_waiter_and_to_the_bit_by_name():
    engines = [engine("a"), engine("b"), engine("c")]
    commands = [work(0, 10), sets(0, DONE), work(1, 4), awaits(1, DONE), awaits(2, DONE)]
    piece = run(commands, engines)
    # the bit is up at 10 ns: b waited from 4, c from 0
    assert barriers(piece) == {"done": (2, 6_000 + 10_000)}
    stalls = [use.stalls_ps for use in piece.execution.engines]
    assert stalls == [{}, {StallCause.BARRIER: 6_000}, {StallCause.BARRIER: 10_000}]


def test_a_bit_that_is_up_already_holds_nobody():
    piece = run(
        [work(0, 3), sets(0, DONE), work(1, 4), awaits(1, DONE)], [engine("a"), engine("b")]
    )
    assert barriers(piece) == {}


@pytest.mark.parametrize(
    ("period", "work_cycles", "set_at"),
    [(6, 18, 18), (6, 17, 18), (6, 19, 24), (9, 18, 18), (5, 18, 20), (18, 1, 18), (1, 17, 17)],
)
def test_a_periodic_arbiter_sets_its_bit_at_multiples_of_its_period_only(
    period, work_cycles, set_at
):
    engines = [engine("a"), engine("arbiter", period * NS, EngineKind.BARRIER), engine("b")]
    commands = [work(0, work_cycles), sets(1, ALIGN, Edge(0)), awaits(2, ALIGN), work(2, 3)]
    piece = run(commands, engines)
    assert piece.execution.start_ps[3] == set_at * 1000
    assert barriers(piece) == {"align": (1, set_at * 1000)}


@pytest.mark.parametrize(
    ("setter_ps", "waiter_ps", "start_ps"),
    [
        (1000, 1500, 4500),  # up at 4000; edges of the waiter at 3000, 4500
        (1000, Fraction(1250, 3), 4166),  # edges at 416.67 ps: the tenth, 4166.67, seen at 4166
        (Fraction(3125, 10), 1000, 2000),  # up at 1250
    ],
)
def test_a_waiter_of_another_clock_starts_at_its_own_next_edge(setter_ps, waiter_ps, start_ps):
    engines = [engine("a", setter_ps), engine("b", waiter_ps)]
    piece = run([work(0, 4), sets(0, DONE), awaits(1, DONE), work(1, 1)], engines)
    assert piece.execution.start_ps[3] == start_ps
    assert piece.execution.engines[1].stalls_ps == {StallCause.BARRIER: start_ps}


def test_a_program_with_an_unmatched_wait_does_not_run():
    with pytest.raises(ProtocolError, match="a #0 WAIT align: a WAIT has a SIGNAL"):
        run([awaits(0, ALIGN)], [engine("a")])
