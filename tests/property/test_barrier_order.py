"""The check for lost barriers against plain reachability, and against what runs do."""

from __future__ import annotations

import contextlib
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.engine import FixedLatencyMemory
from npusim.errors import ProtocolError
from npusim.machine import Machine
from npusim.program import END, Command, Edge, EdgeKind, Engine, EngineKind, Opcode, Program
from npusim.program.barriers import check_barriers, check_lost

ENGINES = tuple(
    Engine(f"e{i}", EngineKind.VECTOR, "npu", 0, Fraction(period))
    for i, period in enumerate((1000, 700, 1300))
)


@st.composite
def programs(draw):
    """Generations of one bit, each set once and awaited once or twice, among other commands."""
    commands = []

    def add(opcode, generation=-1):
        earlier = st.integers(0, len(commands) - 1) if commands else st.nothing()
        producers = draw(st.lists(earlier, max_size=2, unique=True)) if commands else []
        edges = []
        for producer in producers:
            at = draw(st.sampled_from((END, 0, int(commands[producer].cycles))))
            edges.append(Edge(producer, EdgeKind.ORDER, at))
        bit = {} if generation < 0 else {"register": 0, "bit": 0, "generation": generation}
        engine, cycles = draw(st.integers(0, 2)), draw(st.integers(0, 9))
        commands.append(Command(engine, opcode, cycles, tuple(edges), **bit))

    for generation in range(draw(st.integers(2, 3))):
        add(Opcode.SIGNAL, generation)
        for opcode in draw(st.permutations((Opcode.WAIT, *(Opcode.VECTOR,) * 2))):
            add(opcode, generation if opcode is Opcode.WAIT else -1)
        if draw(st.booleans()):
            add(Opcode.WAIT, generation)
    return Program.from_commands(commands, ENGINES)


def ends_before(program):
    """Pairs (a, b): a has ended when b starts, by plain search over starts and ends of commands."""
    count, after = len(program), {}
    start, end = range(count), range(count, 2 * count)
    for command in range(count):
        after.setdefault(start[command], set()).add(end[command])
        later = [
            c for c in range(command + 1, count) if program.engine[c] == program.engine[command]
        ]
        after.setdefault(end[command], set()).update(start[c] for c in later[:1])
        for edge in range(program.edge_ptr[command], program.edge_ptr[command + 1]):
            producer = int(program.edge_producer[edge])
            node = end[producer] if program.edge_offset[edge] == END else start[producer]
            after.setdefault(node, set()).add(start[command])
    found = set()
    for command in range(count):
        seen, left = set(), [end[command]]
        while left:
            node = left.pop()
            if node not in seen:
                seen.add(node)
                left.extend(after.get(node, ()))
        found |= {(command, c) for c in range(count) if start[c] in seen}
    return found


def lost_pairs(program):
    """WAITs and later SIGNALs of their bit that nothing orders."""
    order = ends_before(program)
    waits = [c for c in range(len(program)) if program.opcode[c] == Opcode.WAIT]
    signals = [c for c in range(len(program)) if program.opcode[c] == Opcode.SIGNAL]
    return {
        (w, s)
        for w in waits
        for s in signals
        if program.generation[s] > program.generation[w] and (w, s) not in order
    }


@settings(max_examples=80, deadline=None)
@given(programs())
def test_a_barrier_is_refused_exactly_where_no_path_orders_it(program):
    check_barriers(program)
    expected = lost_pairs(program)
    refused = True
    with contextlib.suppress(ProtocolError):
        check_lost(program)
        refused = False
    assert refused == bool(expected)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_in_a_run_of_an_accepted_program_no_bit_is_set_before_its_waits_have_passed(program):
    try:
        check_lost(program)
    except ProtocolError:
        return
    run = Machine(program, FixedLatencyMemory(0)).run()
    for wait in range(len(program)):
        for signal in range(len(program)):
            if (
                program.opcode[wait] == Opcode.WAIT
                and program.opcode[signal] == Opcode.SIGNAL
                and program.generation[signal] > program.generation[wait]
            ):
                assert run.start_ps[signal] >= run.end_ps[wait]
