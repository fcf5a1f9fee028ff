"""Critical paths: by hand, tight slacks on random programs, real runs, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim as ns
from npusim.cli import main
from npusim.engine import FixedLatencyMemory
from npusim.errors import ResultError, SimulationError
from npusim.insight.critical_path import critical_path
from npusim.machine import Machine
from npusim.program import EdgeKind, EngineKind, Kernel, Program
from npusim.simulation import repeat_phase
from npusim.simulation.shorten import commands_to_shorten, simulate_shorter
from tests.component.test_machine_support import SPACES, compute, dma, load, matmul, wait_for
from tests.unit.insight_samples import real_run
from tests.unit.results_samples import tiny_run

NS_PS = 1000
LATENCY_PS = 100 * NS_PS
ENGINES = (compute(), compute("vector", EngineKind.VECTOR), dma(), compute("slow", period=3000))
MATRIX, VECTOR, LOAD, SLOW = range(4)


def path_of(commands, kernels=None):
    """Critical path of a small program on a memory of 100 ns, and the program."""
    program = Program.from_commands(commands, ENGINES, SPACES, kernels)
    return critical_path(program, Machine(program, FixedLatencyMemory(LATENCY_PS)).run()), program


def test_a_path_by_hand():
    # loads 0 and 1 fill the queue until 100 ns, so load 2 runs from 100 to 200;
    # matmul 3: 100-110, vector 4: 110-115, matmul 5 after load 2: 200-230
    path, _ = path_of(
        [
            load(LOAD),
            load(LOAD),
            load(LOAD),
            matmul(MATRIX, 10, wait_for(1)),
            matmul(VECTOR, 5, wait_for(3)),
            matmul(MATRIX, 30, wait_for(2)),
        ]
    )
    assert path.elapsed_ps == 230 * NS_PS
    assert [(s.to_ps // NS_PS, s.engine, s.reason) for s in path.steps] == [
        (100, "load", "queue"),
        (200, "load", "data"),
        (230, "matrix", "end"),
    ]
    # vector 4 may end 115 ns later; matmul 3 may start 90 ns later, then the engine is due
    assert (path.slack_ps[3:] // NS_PS).tolist() == [90, 115, 0]
    assert path.share_by("kind") == {"dma_load": 200 * NS_PS, "matrix": 30 * NS_PS}


def test_an_offset_releases_before_the_end_and_the_clock_delays():
    # the slow engine is released 10 ns after the start of a matmul of 40 ns and starts on its
    # edge at 12 ns, for 10 cycles of 3 ns: 12-42; the matmul could last 2 ns longer
    path, _ = path_of([matmul(MATRIX, 40), matmul(SLOW, 10, wait_for(0, at=10))])
    assert path.elapsed_ps == 42 * NS_PS
    assert [(s.from_ps, s.to_ps) for s in path.steps] == [(0, 12_000), (12_000, 42_000)]
    assert path.slack_ps.tolist() == [0, 0]
    assert path.length_slack_ps.tolist() == [2 * NS_PS, 0]


def test_operators_share_the_path_and_have_the_least_slack_of_their_commands():
    kernels = [Kernel(name, name, "stage", None) for name in ("a", "b")]
    path, _ = path_of(
        [
            matmul(MATRIX, 10),
            matmul(VECTOR, 3, kernel=1),
            matmul(VECTOR, 4, wait_for(0), kernel=1),
        ],
        kernels,
    )
    assert [(o.operator, o.path_ps // NS_PS, o.slack_ps) for o in path.operators] == [
        ("a", 10, 0),
        ("b", 4, 0),
    ]
    assert path.slack_ps[1] == 7 * NS_PS
    assert path.to_frame()["path_ps"].sum() == path.elapsed_ps


def test_posted_writes_that_outlast_the_commands_end_the_path():
    program = Program.from_commands([matmul(MATRIX, 10)], ENGINES, SPACES)
    execution = Machine(program, FixedLatencyMemory(0)).run()
    late = replace(execution, elapsed_ps=15_000, drain_ps=15_000)
    (step,) = critical_path(program, late).steps
    assert (step.to_ps, step.reason) == (15_000, "drain")


def test_a_start_before_its_release_is_refused():
    program = Program.from_commands(
        [matmul(MATRIX, 10), matmul(VECTOR, 5, wait_for(0))], ENGINES, SPACES
    )
    execution = Machine(program, FixedLatencyMemory(0)).run()
    times = replace(execution.times, start_ps=execution.start_ps - np.array([0, 1]))
    with pytest.raises(SimulationError, match="starts after all that released it"):
        critical_path(program, replace(execution, times=times))


@st.composite
def programs(draw):
    """Commands on three engines of 1 ns and a DMA engine, each awaiting up to three earlier."""
    commands = []
    for index in range(draw(st.integers(1, 25))):
        engine = draw(st.sampled_from((MATRIX, VECTOR, LOAD)))
        producers = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        kind = st.sampled_from((EdgeKind.DATA, EdgeKind.ORDER, EdgeKind.BUFFER_FREE))
        waits = [wait_for(p, draw(kind)) for p in sorted(producers)]
        is_load = engine == LOAD
        cycles = draw(st.integers(1, 60))
        commands.append(load(engine, *waits) if is_load else matmul(engine, cycles, *waits))
    return commands


@given(programs())
@settings(max_examples=60, deadline=None)
def test_slacks_are_tight_and_the_path_is_whole(commands):
    path, program = path_of(commands)
    graph = path.graph
    assert np.array_equal(graph.starts_ps(graph.length_ps), graph.start_ps)
    assert sum(step.time_ps for step in path.steps) == path.elapsed_ps
    assert all(a.to_ps == b.from_ps for a, b in pairwise(path.steps))
    assert not path.slack_ps[[step.command for step in path.steps]].any()
    for command in range(len(program)):
        for extra_ps, later_ps in ((0, 0), (1, 1)):
            length_ps = graph.length_ps.copy()
            length_ps[command] += path.length_slack_ps[command] + extra_ps
            assert graph.finish_ps(length_ps) == path.elapsed_ps + later_ps
    # what is not critical may take no time at all
    length_ps = np.where(path.length_slack_ps > 0, 0, graph.length_ps)
    assert graph.finish_ps(length_ps) == path.elapsed_ps


@given(programs(), st.data())
@settings(max_examples=40, deadline=None)
def test_without_contention_the_machine_does_what_held_durations_say(commands, data):
    # a queue as deep as the program: no entry is ever awaited, and the memory has no contention
    engines = (*ENGINES[:LOAD], replace(ENGINES[LOAD], queue_depth=32), ENGINES[SLOW])
    program = Program.from_commands(commands, engines, SPACES)
    path = critical_path(program, Machine(program, FixedLatencyMemory(LATENCY_PS)).run())
    command = data.draw(st.integers(0, len(program) - 1))
    if program.transfer[command] >= 0:
        return
    ticks = program.duration_ticks.copy()
    ticks[command] = data.draw(st.integers(0, 80))
    changed = replace(program, duration_ticks=ticks)
    simulated = Machine(changed, FixedLatencyMemory(LATENCY_PS)).run().elapsed_ps
    length_ps = path.graph.length_ps.copy()
    length_ps[command] = int(ticks[command]) * NS_PS
    assert path.graph.finish_ps(length_ps) == simulated


def check_real(result, phase):
    """Path of a phase of a real run: its length, connection and slacks."""
    piece = repeat_phase(result, phase)
    path = critical_path(piece.program, piece.execution, phase)
    assert path.elapsed_ps == sum(o.elapsed_ps for o in result.phase(phase).operators)
    assert sum(step.time_ps for step in path.steps) == path.elapsed_ps
    chain = path.chain()
    assert networkx.is_path(chain, [step.command for step in path.steps])
    assert chain.number_of_edges() == len(path.steps) - 1
    graph = path.graph
    assert np.array_equal(graph.starts_ps(graph.length_ps), graph.start_ps)
    assert path.slack_ps.min() == 0
    halved = np.where(path.length_slack_ps > 0, graph.length_ps // 2, graph.length_ps)
    assert graph.finish_ps(halved) == path.elapsed_ps
    shorter = graph.length_ps.copy()
    shorter[[step.command for step in path.steps]] //= 2
    assert graph.finish_ps(shorter) < path.elapsed_ps
    return path, piece


@cache
def small_run():
    """A decode step of SmolLM2-135M."""
    workload = ns.transformer("smollm2-135m", phase="decode", context_len=16)
    return ns.simulate("tpu-v6e", workload, simulation={"fidelity": "transfer"})


def test_the_path_of_a_real_decode_step():
    result = small_run()
    path, piece = check_real(result, "decode")
    commands = commands_to_shorten(piece.program, "lm_head")
    simulated = simulate_shorter(piece.program, result.spec, commands, 2)
    assert 0 < simulated.elapsed_ps <= path.elapsed_ps


@pytest.mark.slow
@pytest.mark.parametrize("system", ["rk3588", "jetson-agx-orin", "edge-npu"])
def test_paths_of_other_systems(system):
    workload = ns.transformer("smollm2-135m", phase="prefill", prompt_len=16)
    check_real(ns.simulate(system, workload, simulation={"fidelity": "transfer"}), "prefill")


@pytest.mark.slow
def test_paths_of_a_run_of_many_phases():
    for phase in ("prefill", "decode"):
        check_real(real_run(), phase)


def test_the_command_shows_path_and_change(capsys, tmp_path):
    result = small_run()
    result.save(tmp_path)
    words = ["explain", str(tmp_path), "--critical-path", "--shorten", "lm_head"]
    assert main([*words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["phases"]
    assert sum(found["by_kind_ps"].values()) == found["elapsed_ps"]
    assert sum(s["to_ps"] - s["from_ps"] for s in found["stretches"]) == found["elapsed_ps"]
    changed = found["shortened"]
    assert changed["elapsed_ps"] == found["elapsed_ps"] >= changed["held_ps"] > 0
    assert changed["simulated_ps"] > 0
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "decode: critical path of" in out
    assert "with all else held" in out


def test_the_program_must_take_its_time_again():
    result = small_run()
    record = result.phase("decode")
    first = record.operators[0]
    operators = (replace(first, elapsed_ps=first.elapsed_ps + 1), *record.operators[1:])
    other = replace(result, phases={"decode": replace(record, operators=operators)})
    with pytest.raises(SimulationError, match="takes the time of the run of version"):
        repeat_phase(other, "decode")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--critical-path",), "was saved without its specification"),
        (("--critical-path", "--phase", "prefil"), "mean 'prefill'?"),
        (("--critical-path", "--stage", "lm_head"), "has no critical path of its own"),
        (("--shorten", "lm_head"), "needs --critical-path"),
    ],
)
def test_what_has_no_path_is_bad_input(capsys, tmp_path, words, message):
    tiny_run().save(tmp_path)
    assert main(["explain", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err


def test_operators_without_compute_commands_cannot_be_shortened():
    kernels = [Kernel("a", "a", "s", None), Kernel("b", "b", "s", None)]
    _, program = path_of([matmul(MATRIX, 10), load(LOAD, kernel=1)], kernels)
    assert commands_to_shorten(program, "a").tolist() == [0]
    with pytest.raises(ResultError, match="has no command on a compute engine"):
        commands_to_shorten(program, "b")
    with pytest.raises(ResultError, match="is not in the program"):
        commands_to_shorten(program, "c")
