"""Named barrier bits: what the static check refuses, by name."""

from __future__ import annotations

from fractions import Fraction

import pytest

from npusim.errors import ProtocolError
from npusim.program import (
    BarrierBit,
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    Opcode,
    Program,
    Trigger,
)
from npusim.program.check import check_program

NS = Fraction(1000)
A, B, C = range(3)
ENGINES = tuple(Engine(name, EngineKind.VECTOR, "npu", 0, NS) for name in "abc")
DONE = BarrierBit(0, 0, "done")
UP = BarrierBit(0, 0, "up", Trigger.LEVEL)


def sets(engine, generation=0, *waits, bit=0):
    return Command(engine, Opcode.SIGNAL, 0, waits, register=0, bit=bit, generation=generation)


def awaits(engine, generation=0, *waits, bit=0):
    return Command(engine, Opcode.WAIT, 0, waits, register=0, bit=bit, generation=generation)


def work(engine, *waits):
    return Command(engine, Opcode.VECTOR, 5, waits)


def build(*commands, barriers=(DONE,)):
    return Program.from_commands(commands, ENGINES, barriers=barriers)


def refuse(program, message):
    with pytest.raises(ProtocolError, match=message):
        check_program(program)


def test_a_wait_without_its_signal_is_refused_by_name():
    refuse(build(work(A), awaits(B)), r"b #1 WAIT done: a WAIT has a SIGNAL.*'done generation 0'")


def test_a_bit_set_again_before_its_wait_has_passed_is_lost():
    # b may come to its WAIT after a has set the bit twice: one edge, not two
    lost = build(sets(A), work(B), awaits(B), work(A), sets(A, 1), awaits(B, 1))
    refuse(lost, r"a #4 SIGNAL done: .*lost .*nothing orders b #2 WAIT done of generation 0")


@pytest.mark.parametrize(
    "handshake",
    [
        pytest.param((sets(A), awaits(B), sets(A, 1, Edge(1)), awaits(B, 1)), id="an edge"),
        pytest.param(
            (sets(A), awaits(B), work(B), work(A, Edge(2)), work(A), sets(A, 1), awaits(B, 1)),
            id="an edge to an earlier command of the setter",
        ),
        pytest.param(
            (sets(A), awaits(B), work(B), work(C, Edge(2)), sets(A, 1, Edge(3)), awaits(B, 1)),
            id="a third engine",
        ),
        pytest.param(
            (sets(A), awaits(B), sets(B, bit=1), awaits(A, bit=1), sets(A, 1), awaits(B, 1)),
            id="another bit",
        ),
        pytest.param((sets(A), awaits(B), sets(B, 1), awaits(C, 1)), id="the waiter sets it"),
        pytest.param(
            (sets(A), awaits(B), work(B), sets(A, 1, Edge(2, EdgeKind.ORDER, 0)), awaits(B, 1)),
            id="the start of what follows the wait",
        ),
    ],
)
def test_whatever_orders_the_wait_before_the_next_signal_keeps_the_barrier(handshake):
    check_program(build(*handshake))


def test_every_waiter_must_have_passed():
    commands = (sets(A), awaits(B), awaits(C), sets(A, 1, Edge(1)), awaits(B, 1))
    refuse(build(*commands), "nothing orders c #2 WAIT done of generation 0 before it")


def test_waits_of_all_earlier_generations_count():
    commands = (
        *(sets(A), awaits(B), awaits(C)),
        *(sets(A, 1, Edge(1), Edge(2)), awaits(B, 1)),
        sets(A, 2, Edge(4)),
    )
    check_program(build(*commands))


def test_the_start_of_a_wait_is_not_its_end():
    waits = Command(B, Opcode.WAIT, 4, register=0, bit=0)
    refuse(build(sets(A), waits, sets(A, 1, Edge(1, EdgeKind.ORDER, 2)), awaits(B, 1)), "lost")


def test_the_order_is_found_also_where_edges_point_forward():
    # command 0 awaits the later command 3
    commands = (work(C, Edge(3)), sets(A), awaits(B), sets(A, 1, Edge(2)), awaits(B, 1))
    check_program(build(*commands))


def test_a_level_has_one_generation_that_anybody_may_await_any_number_of_times():
    check_program(build(sets(A), awaits(B), work(B), awaits(B), awaits(C), barriers=(UP,)))
    twice = build(sets(A), awaits(B), sets(A, 1, Edge(1)), awaits(B, 1), barriers=(UP,))
    refuse(twice, r"a #2 SIGNAL up: a level stays up.*'up generation 1'")


def test_a_circle_of_barriers_names_them():
    bits = (DONE, BarrierBit(0, 1, "ready"))
    circle = (awaits(A), sets(A, bit=1), awaits(B, bit=1), sets(B))
    refuse(build(*circle, barriers=bits), r"acyclic.*a #0 WAIT done.*b #2 WAIT ready")


@pytest.mark.parametrize(
    ("barriers", "message"),
    [
        ((BarrierBit(0, 64, "far"),), r"far: registers count from 0 and have bits 0 to 63"),
        ((BarrierBit(-1, 0, "none"),), "none: registers count from 0"),
        ((DONE, BarrierBit(0, 0, "ready")), "ready: a register bit has one name"),
        ((DONE, BarrierBit(0, 1, "done")), "done: a name means one register bit"),
    ],
)
def test_declared_bits_exist_and_have_one_name(barriers, message):
    refuse(build(work(A), barriers=barriers), message)
