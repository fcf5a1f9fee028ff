"""Descriptors: what issuing one costs, by its shape, and who waits for it. Clock 1 ns."""

from __future__ import annotations

from fractions import Fraction

import pytest

from npusim.engine import FixedLatencyMemory
from npusim.errors import ProtocolError
from npusim.machine import Machine
from npusim.memory.specs import BusConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem
from npusim.program import Command, EngineKind, MemorySpace, Opcode, Program, TransferSpec
from npusim.program.check import check_program
from tests.component.test_machine_stalls import stalls
from tests.component.test_machine_support import (
    DRAM,
    SHARED,
    SPACES,
    ScriptedMemory,
    compute,
    dma,
    load,
    matmul,
    run,
    wait_for,
)

NS = Fraction(1000)


def gather(engine, pieces, space=DRAM):
    """A load of so many 64-byte pieces."""
    spec = TransferSpec.gather(space, [(4096 * i, 64) for i in range(pieces)])
    return Command(engine, Opcode.LOAD, 0, (), spec)


def strided(engine, rows):
    return Command(engine, Opcode.LOAD, 0, (), TransferSpec(DRAM, False, ((0, 64, 256, rows),)))


@pytest.mark.parametrize(
    ("pieces", "issue_ns"),
    # 3 for the descriptor; a list of n > 1 pieces: 5 for every two of them begun
    [(1, 3), (2, 8), (3, 13), (4, 13), (5, 18)],
)
def test_a_gather_list_costs_its_fetches(pieces, issue_ns):
    engine = dma(issue_ticks=3, gather_ticks=5, gather_runs=2)
    execution = run([gather(0, pieces), load(0)], [engine])
    assert execution.start_ps.tolist() == [0, 1000 * issue_ns]
    assert execution.end_ps.tolist() == [1000 * (issue_ns + 100), 1000 * (issue_ns + 3 + 100)]


def test_a_2d_descriptor_costs_no_more_than_a_row():
    engine = dma(issue_ticks=3, gather_ticks=5)
    execution = run([strided(0, 50), load(0)], [engine])
    assert execution.start_ps.tolist() == [0, 3000]


def test_without_a_cost_of_its_own_a_list_issues_like_a_row():
    execution = run([gather(0, 50), load(0)], [dma(issue_ticks=3)])
    assert execution.start_ps.tolist() == [0, 3000]


def test_issue_serialises_and_the_queue_blocks():
    # depth 2, issue 3 + 2 x 5: [0, 113) [13, 126), the third waits for 113, the fourth for 126
    engine = dma(queue_depth=2, issue_ticks=3, gather_ticks=5)
    execution = run([gather(0, 2) for _ in range(4)], [engine])
    assert execution.start_ps.tolist() == [0, 13_000, 113_000, 126_000]
    assert execution.engines[0].busy_ps == execution.elapsed_ps == 239_000


@pytest.mark.parametrize(
    ("issue_ticks", "expected"),
    [(0, {"dram_data": 100_000}), (13, {"dma_issue": 13_000, "dram_data": 100_000})],
)
def test_a_wait_for_a_descriptor_that_is_being_issued(issue_ticks, expected):
    # load [0, 13) issued, data until 113; the matrix unit waits for all of it
    memory = ScriptedMemory(100_000, Fraction(1), data_read=1)
    engines = [dma(issue_ticks=issue_ticks), compute()]
    execution = run([load(0), matmul(1, 10, wait_for(0))], engines, memory)
    assert stalls(execution, 1) == expected


def test_a_wait_that_begins_within_the_issue_counts_only_the_rest_of_it():
    # the matrix unit is busy until 10 of the 13: 3 of issue, 100 of the shared SRAM
    commands = [load(0, space=SHARED), matmul(1, 10), matmul(1, 10, wait_for(0))]
    execution = run(commands, [dma(issue_ticks=13), compute()])
    assert stalls(execution, 1) == {"dma_issue": 3000, "sram": 100_000}


def test_issue_that_outlasts_the_wait_for_an_earlier_queue_entry_is_no_memory_time():
    # depth 1: the second load starts when the first ends at 113, is issued at 126, over at 226; the
    # matrix unit waits 113 for the entry, 13 for the issue, 100 for the memory
    memory = ScriptedMemory(100_000, Fraction(1), data_read=1)
    commands = [load(0), load(0), matmul(1, 10, wait_for(1))]
    execution = run(commands, [dma(queue_depth=1, issue_ticks=13), compute()], memory)
    assert stalls(execution, 1) == {
        "buffer_full": 113_000,
        "dma_issue": 13_000,
        "dram_data": 100_000,
    }


def on_sram(engine_keys, rate, commands):
    """Engines with a port each on one bus of 64 bytes; bursts of 64 bytes, 4 cycles each."""
    spec = SramConfig("sram", NS, 4, 64, 64, 2, 1 << 20)
    ports = [PortConfig(f"p{i}", 0, NS, rate, 8) for i in range(len(engine_keys))]
    memory = MemorySystem(ports, [BusConfig("bus", NS, 64, 0, 256)], [spec])
    engines = [dma(f"load{i}", port=i, **keys) for i, keys in enumerate(engine_keys)]
    program = Program.from_commands(commands, engines, [MemorySpace("s", "dram", 1 << 20, 0)])
    check_program(program)
    return Machine(program, memory).run()


@pytest.mark.parametrize(("rate", "end_ns"), [(64, 10), (16, 22), (8, 38)])
def test_an_engine_takes_no_more_than_its_rate(rate, end_ns):
    # issued at 3: granted 3, first beat from 6; then four bursts of 64 / rate cycles each
    execution = on_sram([{"issue_ticks": 3}], rate, [gather(0, 4, space=0)])
    assert execution.end_ps.tolist() == [1000 * end_ns]


def test_issue_of_one_engine_does_not_hold_up_another():
    # both begin to issue at 0, 3 and 13 long; the shared bus sees bursts at 3 and at 13
    engines = [{"issue_ticks": 3}, {"issue_ticks": 3, "gather_ticks": 5}]
    execution = on_sram(engines, 64, [load(0), gather(1, 2, space=0)])
    assert execution.end_ps.tolist() == [7000, 18_000]


# --- static checks -------------------------------------------------------------------------------

STORE = dma("store", EngineKind.DMA_STORE)


def check(engine, is_write, runs):
    opcode = Opcode.STORE if is_write else Opcode.LOAD
    spec = TransferSpec(DRAM, is_write, runs)
    check_program(Program.from_commands([Command(0, opcode, 0, (), spec)], [engine], SPACES))


@pytest.mark.parametrize(
    "runs",
    [
        ((0, 64, 32, 2),),  # rows of one run
        ((1000, 64, -63, 2),),
        ((0, 64, 64, 1), (63, 1, 1, 1)),  # pieces of a list
        ((4096, 64, 64, 1), (0, 64, 64, 1), (4000, 32, 32, 4)),
    ],
)
def test_a_store_that_writes_a_byte_twice_is_refused(runs):
    with pytest.raises(ProtocolError, match="a STORE writes no byte twice"):
        check(STORE, True, runs)
    check(dma(), False, runs)  # reading one twice is fine: a block kept for two heads


@pytest.mark.parametrize(
    "runs",
    [
        ((0, 64, 64, 2),),
        ((1000, 64, -64, 2),),
        ((64, 64, 64, 1), (0, 64, 64, 1)),
        ((0, 64, 128, 4), (64, 64, 128, 4)),  # rows between rows
    ],
)
def test_a_store_whose_pieces_touch_is_fine(runs):
    check(STORE, True, runs)


def test_a_gather_piece_outside_the_memory_is_refused():
    capacity = SPACES[DRAM].capacity_bytes
    with pytest.raises(ProtocolError, match="within the space's capacity"):
        check(dma(), False, ((0, 64, 64, 1), (capacity - 63, 64, 64, 1)))


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"gather_ticks": -1}, "issue takes no negative time"),
        ({"issue_ticks": -1}, "issue takes no negative time"),
        ({"gather_runs": 0}, "at least one piece"),
        ({"queue_depth": 0}, "at least one entry"),
    ],
)
def test_impossible_engines_are_refused(keys, rule):
    program = Program.from_commands([load(0)], [dma(**keys)], SPACES)
    with pytest.raises(ProtocolError, match=rule):
        check_program(program)


def test_the_ideal_memory_still_pays_for_issue():
    execution = run([gather(0, 2)], [dma(issue_ticks=3, gather_ticks=5)], FixedLatencyMemory(0))
    assert execution.elapsed_ps == 13_000
