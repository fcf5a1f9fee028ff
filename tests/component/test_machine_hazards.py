"""Hazards found in the times of a run, with every edge gone and at the exact picosecond."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from npusim.config.run_spec import HazardCheck
from npusim.engine import FixedLatencyMemory
from npusim.errors import HazardError
from npusim.machine import Machine, check_run_hazards, find_hazards
from npusim.program import Command, EdgeKind, Opcode, Program, Region
from npusim.simulation import execute, phase, simulate_operator
from npusim.simulation.execute import is_hazard_check_due
from tests.component.test_machine_support import (
    PAD,
    SPACES,
    compute,
    dma,
    load,
    matmul,
    wait_for,
)

A, B, BOTH = Region(PAD, 0, 64), Region(PAD, 64, 64), Region(PAD, 0, 128)
FREE = EdgeKind.BUFFER_FREE
ENGINES = (compute("first"), compute("second"), dma())


def executed(*commands, latency_ps=100_000):
    program = Program.from_commands(commands, ENGINES, SPACES)
    return program, Machine(program, FixedLatencyMemory(latency_ps)).run()


def idle(engine, cycles):
    return matmul(engine, cycles)


@pytest.mark.parametrize(("late_by", "hazards"), [(-1, 1), (0, 0), (1, 0)])
def test_a_read_may_start_in_the_picosecond_in_which_its_write_ends(late_by, hazards):
    # writer ends at 10 ns; the reader, without any edge, starts at 10 + late_by ns
    program, run = executed(
        matmul(0, 10, writes=(A,)), idle(1, 10 + late_by), matmul(1, 5, reads=(A,))
    )
    assert len(find_hazards(program, run)) == hazards


def test_a_hazard_names_both_commands_the_region_and_the_times():
    program, run = executed(matmul(0, 10, writes=(A,)), idle(1, 4), matmul(1, 5, reads=(A,)))
    message = (
        r"second #2 MATMUL: a read starts when the write it needs has ended \(got 'reads pad"
        r" \[0, 64\) from 4000 ps'\); first #0 MATMUL ends at 10000 ps; a wait or a barrier"
    )
    with pytest.raises(HazardError, match=message):
        check_run_hazards(program, run)


def test_an_overwrite_before_the_last_read_is_found():
    # written until 2, read by both until 12 and 7; overwritten from 9: only one reader was done
    commands = (
        matmul(0, 2, writes=(A,)),
        matmul(1, 10, wait_for(0), reads=(A,)),
        matmul(0, 5, reads=(A,)),
        idle(0, 2),
        matmul(0, 3, writes=(A,)),
    )
    (hazard,) = find_hazards(*executed(*commands))
    assert (hazard.late, hazard.late_end_ps) == (1, 12_000)
    assert (hazard.early, hazard.early_start_ps, hazard.is_read) == (4, 9_000, False)


def test_two_writes_without_a_reader_must_not_overlap():
    program, run = executed(matmul(0, 10, writes=(A,)), matmul(1, 3, writes=(A,)))
    assert [(h.late, h.early) for h in find_hazards(program, run)] == [(0, 1)]


def test_other_bytes_are_no_hazard_and_bytes_in_part_are_one():
    program, run = executed(matmul(0, 10, writes=(A,)), matmul(1, 3, writes=(B,)))
    assert find_hazards(program, run) == ()
    commands = (matmul(0, 10, writes=(A,)), matmul(1, 3, writes=(B,)), matmul(1, 3, reads=(BOTH,)))
    assert [(h.late, h.early) for h in find_hazards(*executed(*commands))] == [(0, 2)]


def test_a_load_writes_until_its_transfer_completes():
    # the descriptor is issued at 0, the data arrives at 100 ns
    program, run = executed(load(2, writes=(A,)), idle(1, 99), matmul(1, 5, reads=(A,)))
    assert [h.late_end_ps for h in find_hazards(program, run)] == [100_000]
    program, run = executed(load(2, writes=(A,)), idle(1, 100), matmul(1, 5, reads=(A,)))
    assert find_hazards(program, run) == ()


def test_a_signal_of_the_wrong_command_orders_nothing():
    # the edge is there, but from the command before the write
    commands = (matmul(0, 3), matmul(0, 10, writes=(A,)), matmul(1, 5, wait_for(0), reads=(A,)))
    program, run = executed(*commands)
    assert [(h.late, h.early) for h in find_hazards(program, run)] == [(1, 2)]


def test_accumulating_into_ones_own_region_is_no_hazard():
    both = {"reads": (A,), "writes": (A,)}
    program, run = executed(*(matmul(0, 5, **both) for _ in range(3)))
    assert find_hazards(program, run) == ()


def test_kernels_are_compared_with_each_other():
    commands = (matmul(0, 10, writes=(A,)), matmul(1, 3, reads=(A,), kernel=1))
    kernels = tuple(
        dataclasses.replace(kernel, name=f"k{i}")
        for i, kernel in enumerate(executed(matmul(0))[0].kernels * 2)
    )
    program = Program.from_commands(commands, ENGINES, SPACES, kernels)
    run = Machine(program, FixedLatencyMemory(0)).run()
    assert [(h.late, h.early) for h in find_hazards(program, run)] == [(0, 1)]


def test_moving_any_command_of_a_run_before_what_it_needs_is_found():
    # a pipeline without hazards; pull each dependent command to time 0
    commands = (
        load(2, writes=(A,)),
        matmul(0, 10, wait_for(0), reads=(A,), writes=(B,)),
        matmul(1, 5, wait_for(1), reads=(B,)),
        load(2, wait_for(1, FREE), writes=(A,)),
    )
    program, run = executed(*commands)
    assert find_hazards(program, run) == ()
    for command in (1, 2, 3):
        start_ps = run.times.start_ps.copy()
        start_ps[command] = 0
        moved = dataclasses.replace(run, times=dataclasses.replace(run.times, start_ps=start_ps))
        assert {h.early for h in find_hazards(program, moved)} == {command}


def test_a_removed_barrier_is_found():
    commands = (
        matmul(0, 10, writes=(A,)),
        Command(0, Opcode.SIGNAL, register=0, bit=1),
        Command(1, Opcode.WAIT, register=0, bit=1),
        matmul(1, 5, reads=(A,)),
    )
    assert find_hazards(*executed(*commands)) == ()
    without = tuple(c for c in commands if c.opcode is Opcode.MATMUL)
    assert len(find_hazards(*executed(*without))) == 1


@pytest.mark.parametrize(
    ("setting", "commands", "is_due"),
    [("auto", 100_000, True), ("auto", 100_001, False), ("on", 10**6, True), ("off", 1, False)],
)
def test_the_setting_decides(setting, commands, is_due):
    assert is_hazard_check_due(HazardCheck(setting), commands) is is_due


def test_a_compiled_operator_whose_run_has_a_hazard_is_refused(monkeypatch):
    # every wait for a transfer's data is forgotten, and so is the static check
    def forgetful(program):
        keep = np.ones(len(program.edge_producer), dtype=np.bool_)
        keep[
            (program.edge_kind == EdgeKind.DATA) & (program.transfer[program.edge_producer] >= 0)
        ] = False
        owner = np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))
        counts = np.bincount(owner[keep], minlength=len(program))
        return dataclasses.replace(
            program,
            edge_ptr=np.concatenate(([0], np.cumsum(counts))),
            edge_producer=program.edge_producer[keep],
            edge_offset=program.edge_offset[keep],
            edge_kind=program.edge_kind[keep],
        )

    compile_graph = phase.compile_graph

    def broken(*args, **keys):
        compiled = compile_graph(*args, **keys)
        return dataclasses.replace(compiled, program=forgetful(compiled.program))

    monkeypatch.setattr(phase, "compile_graph", broken)
    monkeypatch.setattr(execute, "check_program", lambda _: None)
    simulate_operator("edge-npu", "matmul", "64x256x256", simulation={"check_hazards": "off"})
    with pytest.raises(HazardError, match=r"MATMUL: a read starts when .*LOAD ends at"):
        simulate_operator("edge-npu", "matmul", "64x256x256")
