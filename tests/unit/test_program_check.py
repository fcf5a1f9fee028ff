"""Programs that the static check must refuse, and the message it gives."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from npusim.errors import ProtocolError
from npusim.program import (
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    MemorySpace,
    Opcode,
    Program,
    Region,
    TransferSpec,
)
from npusim.program.check import check_program, peak_occupancy

NS = Fraction(1000)
HOST, LOAD, STORE, MATRIX, VECTOR = range(5)
ENGINES = (
    Engine("host", EngineKind.HOST, "host", None, NS, queue_depth=2),
    Engine("load", EngineKind.DMA_LOAD, "npu", 0, NS, queue_depth=4, port=0),
    Engine("store", EngineKind.DMA_STORE, "npu", 0, NS, queue_depth=4, port=1),
    Engine("matrix", EngineKind.MATRIX, "npu", 0, NS),
    Engine("vector", EngineKind.VECTOR, "npu", 0, NS),
    Engine("dispatch", EngineKind.DISPATCH, "npu", None, NS),
)
DISPATCH = 5
SPACES = (MemorySpace("dram", "dram", 4096, 0), MemorySpace("pad", "scratchpad", 1024))
SLOT_A, SLOT_B, BOTH = Region(1, 0, 256), Region(1, 256, 256), Region(1, 0, 512)
FREE = EdgeKind.BUFFER_FREE


def moves(is_write, runs=((0, 64, 0, 1),), space=0):
    return TransferSpec(space, is_write, runs)


def load(slot=SLOT_A, *waits, **keys):
    spec = keys.pop("transfer", moves(False))
    return Command(LOAD, Opcode.LOAD, 0, waits, spec, writes=(slot,), **keys)


def store(slot, *waits):
    return Command(STORE, Opcode.STORE, 0, waits, moves(True), reads=(slot,))


def work(engine, *waits, reads=(), writes=()):
    return Command(engine, Opcode.MATMUL, 5, waits, reads=reads, writes=writes)


def build(*commands):
    return Program.from_commands(commands, ENGINES, SPACES)


def refuse(program, message):
    with pytest.raises(ProtocolError, match=message):
        check_program(program)


PIPELINE = (
    load(SLOT_A),
    work(MATRIX, Edge(0), reads=(SLOT_A,), writes=(SLOT_B,)),
    load(SLOT_A, Edge(1, FREE)),
    work(VECTOR, Edge(1), reads=(SLOT_B,)),
    work(MATRIX, Edge(2), Edge(3, FREE), reads=(SLOT_A,), writes=(SLOT_B,)),
    store(SLOT_B, Edge(4)),
)


def without_edge(commands, index, producer):
    kept = tuple(e for e in commands[index].waits if e.producer != producer)
    changed = dataclasses.replace(commands[index], waits=kept)
    return build(*commands[:index], changed, *commands[index + 1 :])


def test_a_double_buffered_pipeline_is_accepted():
    check_program(build(*PIPELINE))
    assert peak_occupancy(build(*PIPELINE)) == {1: 512}


@pytest.mark.parametrize(
    ("consumer", "producer", "rule"),
    [
        (1, 0, "matrix #1 MATMUL: a read waits for the last write .*no edge from load #0 LOAD"),
        (2, 1, "load #2 LOAD: an overwrite waits for the last readers.*from matrix #1 MATMUL"),
        (3, 1, "vector #3 MATMUL: a read waits"),
        (4, 2, "matrix #4 MATMUL: a read waits"),
        (4, 3, "matrix #4 MATMUL: an overwrite waits.*no edge from vector #3 MATMUL"),
        (5, 4, "store #5 STORE: a read waits"),
    ],
)
def test_every_edge_of_the_pipeline_is_needed(consumer, producer, rule):
    refuse(without_edge(PIPELINE, consumer, producer), rule)


def test_a_read_needs_a_data_edge_not_any_edge():
    refuse(build(load(), work(MATRIX, Edge(0, EdgeKind.ORDER), reads=(SLOT_A,))), "a read waits")


def test_a_read_of_bytes_that_nothing_wrote_is_refused():
    refuse(build(work(MATRIX, reads=(SLOT_A,))), "pad \\[0, 256\\)'\\); nothing wrote it")


def test_an_overwrite_without_readers_waits_for_the_last_writer():
    refuse(build(load(), load()), "load #1 LOAD: an overwrite .*no edge from load #0")
    check_program(build(load(), load(SLOT_A, Edge(0, EdgeKind.ORDER))))


def test_an_in_order_compute_engine_orders_its_own_commands():
    accumulate = work(MATRIX, reads=(SLOT_B,), writes=(SLOT_B,))
    check_program(build(work(MATRIX, writes=(SLOT_B,)), accumulate, accumulate))


def test_overlapping_regions_are_compared_byte_by_byte():
    two_loads = (load(SLOT_A), load(SLOT_B))
    check_program(build(*two_loads, work(MATRIX, Edge(0), Edge(1), reads=(BOTH,))))
    refuse(build(*two_loads, work(MATRIX, Edge(0), reads=(BOTH,))), "no edge from load #1")


def test_the_last_reader_of_each_in_order_engine_is_enough():
    reads = [work(MATRIX, Edge(0), reads=(SLOT_A,)) for _ in range(2)]
    check_program(build(load(), *reads, load(SLOT_A, Edge(2, FREE))))
    refuse(build(load(), *reads, load(SLOT_A, Edge(1, FREE))), "no edge from matrix #2")


def test_every_dma_reader_needs_its_own_edge():
    commands = [work(MATRIX, writes=(SLOT_B,)), store(SLOT_B, Edge(0)), store(SLOT_B, Edge(0))]
    refuse(build(*commands, work(MATRIX, Edge(2, FREE), writes=(SLOT_B,))), "from store #1 STORE")
    check_program(build(*commands, work(MATRIX, Edge(1, FREE), Edge(2, FREE), writes=(SLOT_B,))))


def test_a_barrier_orders_what_it_waits_for():
    def commands(generation):
        return (
            work(MATRIX, writes=(SLOT_B,)),
            Command(MATRIX, Opcode.SIGNAL, register=0, bit=5, generation=0),
            Command(VECTOR, Opcode.WAIT, register=0, bit=5, generation=generation),
            work(VECTOR, reads=(SLOT_B,)),
        )

    check_program(build(*commands(0)))
    without = tuple(c for c in commands(0) if c.opcode is Opcode.MATMUL)
    refuse(build(*without), "vector #1 MATMUL: a read waits")
    refuse(build(*commands(1)), "vector #2 WAIT: a WAIT has a SIGNAL")


def test_a_signal_orders_later_kernels_through_their_dispatch():
    commands = (
        load(),
        work(MATRIX, Edge(0), reads=(SLOT_A,), writes=(SLOT_B,)),
        store(SLOT_B, Edge(1)),
        Command(VECTOR, Opcode.SIGNAL, 1, (Edge(2),), register=0, bit=0),
        Command(DISPATCH, Opcode.DISPATCH, 1, (Edge(3, EdgeKind.ORDER),)),
        load(SLOT_A, Edge(4, EdgeKind.LAUNCH)),
        load(SLOT_B),  # issued after the load before it, so after the dispatch
    )
    check_program(build(*commands))
    refuse(without_edge(commands, 3, 2), "load #5 LOAD: an overwrite")


def signal(engine, bit=0, generation=0):
    return Command(engine, Opcode.SIGNAL, register=0, bit=bit, generation=generation)


def wait(engine, bit=0, generation=0, *waits):
    return Command(engine, Opcode.WAIT, 0, waits, register=0, bit=bit, generation=generation)


def test_a_bit_is_set_once_per_generation():
    refuse(build(signal(MATRIX), signal(VECTOR), wait(MATRIX)), "one SIGNAL sets a register bit")


def test_a_lost_barrier_is_refused_but_the_last_generation_may_go_unseen():
    lost = (signal(MATRIX), signal(MATRIX, 0, 1), wait(VECTOR, 0, 1))
    refuse(build(*lost), "matrix #0 SIGNAL: nobody waits for this SIGNAL.*generation 0")
    again = Command(MATRIX, Opcode.SIGNAL, 0, (Edge(1),), register=0, bit=0, generation=1)
    check_program(build(signal(MATRIX), wait(VECTOR), again))


def test_a_wait_resolves_to_its_own_generation_only():
    program = build(signal(MATRIX), signal(MATRIX, 0, 1), wait(VECTOR, 0, 1))
    wrong = dataclasses.replace(program, edge_producer=np.array([0], dtype=np.int32))
    refuse(wrong, "resolves to the one SIGNAL")


def test_a_circular_wait_names_the_circle():
    commands = (work(MATRIX, Edge(1)), work(VECTOR, Edge(0)))
    refuse(build(*commands), "acyclic.*vector #1 MATMUL.*")


def test_a_wait_for_a_later_command_of_the_same_engine_is_a_circle():
    refuse(build(work(MATRIX, Edge(1)), work(MATRIX)), "waits are acyclic")
    check_program(build(work(MATRIX, Edge(1)), work(VECTOR)))


def test_transfers_belong_to_loads_and_stores_and_move_bytes():
    refuse(build(dataclasses.replace(load(), transfer=None)), "a LOAD or STORE has a transfer")
    refuse(build(dataclasses.replace(work(MATRIX), transfer=moves(False))), "only LOAD and STORE")
    refuse(build(load(transfer=moves(False, ()))), "load #0 LOAD: a transfer moves bytes")
    refuse(build(load(transfer=moves(False, ((0, 0, 0, 1),)))), "a transfer moves bytes")
    refuse(build(load(transfer=moves(True))), "LOADs read and STOREs write")
    refuse(build(load(transfer=moves(False, space=1))), "is with a DRAM or shared SRAM")
    refuse(build(dataclasses.replace(load(), engine=MATRIX)), "runs on a DMA engine with a port")
    refuse(build(dataclasses.replace(load(), cycles=3)), "no duration of its own")


@pytest.mark.parametrize("runs", [(4090, 64, 0, 1), (0, 64, 2048, 3), (64, 64, -128, 2)])
def test_runs_stay_within_the_memory(runs):
    refuse(build(load(transfer=moves(False, (runs,)))), "within the space's capacity")


@pytest.mark.parametrize("region", [Region(1, 1000, 64), Region(1, -1, 4), Region(7, 0, 4)])
def test_regions_stay_within_their_space(region):
    refuse(build(work(MATRIX, writes=(region,))), "regions .* within the space's capacity")


def test_indices_and_durations_are_in_range():
    refuse(build(work(9)), "engine 9 #0 MATMUL: the engine exists")
    refuse(build(dataclasses.replace(work(MATRIX), cycles=-1)), "durations are not negative")
    program = build(work(MATRIX), work(VECTOR, Edge(0)))
    refuse(
        dataclasses.replace(program, edge_producer=np.array([7], dtype=np.int32)),
        "vector #1 MATMUL: an awaited command exists",
    )
    refuse(build(work(MATRIX), work(VECTOR, Edge(0, at=6))), "between its producer's start and end")
    check_program(build(work(MATRIX), work(VECTOR, Edge(0, at=5))))


def launches(count, depth):
    commands = []
    for index in range(count):
        freed = (Edge(2 * (index - depth) + 1, FREE),) if index >= depth else ()
        commands.append(Command(HOST, Opcode.LAUNCH, 2, freed))
        waits = (Edge(2 * index, EdgeKind.LAUNCH),)
        commands.append(Command(DISPATCH, Opcode.DISPATCH, 3, waits))
    return commands


def test_the_host_never_has_more_launches_outstanding_than_its_queue():
    check_program(build(*launches(6, depth=2)))
    check_program(build(*launches(6, depth=1)))
    refuse(build(*launches(6, depth=3)), "host #4 LAUNCH: a LAUNCH waits .* at most 2 launches")


def test_queues_have_entries():
    engines = (dataclasses.replace(ENGINES[LOAD], queue_depth=0),)
    program = Program.from_commands([dataclasses.replace(load(), engine=0)], engines, SPACES)
    refuse(program, "load: queues have at least one entry")
