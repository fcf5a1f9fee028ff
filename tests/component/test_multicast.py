"""Tiles read once and delivered to several cores: kernel, machine, program checks, compiler."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from npusim.config.compiler import ActivationResidency
from npusim.engine import FixedLatencyMemory
from npusim.errors import ProtocolError, SimulationError
from npusim.machine import Machine, check_execution
from npusim.memory.sharing import SharingMemory
from npusim.memory.specs import BusConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem
from npusim.program import Edge, EdgeKind, Program, TransferSpec
from npusim.program.check import check_program
from npusim.workload.primitives import primitive_graph
from tests.component.test_machine_support import DRAM, SPACES, compute, dma, load, matmul, wait_for
from tests.unit.compiler_samples import CORE, DEVICE, compiled, system_with

NS = Fraction(1000)
# one word of 64 bytes per cycle, two cycles more until it leaves
SRAM = SramConfig("sram", NS, 1, 64, 64, 2, 1 << 20)


def memory(*rates, kind=MemorySystem, outstanding=4):
    ports = [PortConfig(f"p{i}", 0, NS, rate, outstanding) for i, rate in enumerate(rates)]
    return kind(ports, [BusConfig("bus", NS, 16, 0, 256)], [SRAM])


def finish(system):
    done = {}
    while found := system.advance(None):
        done.update({tid: at for at, tid in found})
    return [done[i] for i in sorted(done)]


def read(system, *receivers, size=64, port=0, base=0, now=0):
    runs = np.array([[base, size, 0, 1]])
    return system.submit(now, port, 0, False, runs, receivers)


# --- kernel --------------------------------------------------------------------------------------


@pytest.mark.parametrize("receivers", [(), (1,), (1, 2, 3)])
def test_receivers_of_equal_rate_cost_no_time_and_no_bytes(receivers):
    # as for one port: grant 0, word leaves at 3, four beats until 7
    system = memory(64, 64, 64, 64)
    read(system, *receivers)
    assert finish(system) == [7000]
    counts = system.memory_counters(0)
    assert (counts["read_bytes"], counts["accesses"]) == (64, 1)


def test_reads_of_each_port_cost_bytes_and_beats_once_per_port():
    # beats of four reads follow each other on the bus: 3 + 4 x 4
    system = memory(64, 64, 64, 64)
    for port in range(4):
        read(system, port=port)
    assert finish(system) == [7000, 11_000, 15_000, 19_000]
    assert system.memory_counters(0)["read_bytes"] == 256


@pytest.mark.parametrize(("rate", "done"), [(16, 7000), (15, 8000), (8, 11_000), (1, 67_000)])
def test_the_slowest_receiver_decides(rate, done):
    # from the first beat at 3: 64 / rate cycles, at least the four beats; tight between 16 and 15
    system = memory(64, 64, rate)
    read(system, 1, 2)
    assert finish(system) == [done]


def test_a_busy_receiver_holds_the_burst_until_its_path_is_free():
    # port 1 (8 bytes a cycle) takes its own burst from 3 to 11; the beats of the multicast, granted
    # a cycle later, flow from 7, and its path takes them from 11 to 19
    system = memory(64, 8)
    read(system, port=1)
    read(system, 1, base=64, now=1000)
    assert finish(system) == [11_000, 19_000]


def test_a_slow_receiver_throttles_the_leader_by_its_credits():
    # one credit: the second burst is granted when the receiver has the first, at 11: 11 + 11
    system = memory(64, 8, outstanding=1)
    read(system, 1)
    read(system, 1, base=64)
    assert finish(system) == [11_000, 22_000]


@pytest.mark.parametrize("kind", [MemorySystem, SharingMemory])
@pytest.mark.parametrize(
    ("receivers", "message"),
    [((0,), "other ports"), ((1, 1), "each once"), ((9,), "other ports"), ((2,), "leader's bus")],
)
def test_impossible_receivers_are_refused(kind, receivers, message):
    ports = [PortConfig(f"p{i}", i // 2, NS, 64, 4) for i in range(3)]
    system = kind(ports, [BusConfig(f"b{i}", NS, 16, 0, 256) for i in range(2)], [SRAM])
    with pytest.raises(SimulationError, match=message):
        read(system, *receivers)


def test_writes_have_no_receivers():
    with pytest.raises(SimulationError, match="a multicast is a read"):
        memory(64, 64).submit(0, 0, 0, True, np.array([[0, 64, 0, 1]]), (1,))


def test_shared_bandwidth_flows_at_the_slowest_receivers_rate():
    times = []
    for rate in (64, 8):
        system = memory(64, rate, kind=SharingMemory)
        read(system, 1, size=4096)
        times += finish(system)
    assert times[1] - times[0] == 4096 // 8 * 1000 - 4096 // 16 * 1000  # bus: 16 bytes a cycle


# --- machine and program -------------------------------------------------------------------------


def engines():
    second = replace(dma("load1", port=1), core=1)
    return [dma("load0"), compute("matrix0"), second, compute("matrix1")]


def follow(leader, *waits, nbytes=64):
    spec = TransferSpec(DRAM, is_write=False, runs=((0, nbytes, 0, 1),), leader=leader)
    return replace(load(2, *waits, nbytes=nbytes), transfer=spec)


def run(commands):
    program = Program.from_commands(commands, engines(), SPACES)
    check_program(program)
    return program, Machine(program, FixedLatencyMemory(100_000)).run()


def test_a_follower_ends_with_its_leader_and_moves_no_bytes_of_its_own():
    program, execution = run([load(0), follow(0), matmul(3, 10, wait_for(1))])
    assert execution.end_ps.tolist() == [100_000, 100_000, 110_000]
    assert program.transfers.nbytes().tolist() == [64, 64]
    assert program.transfers.memory_bytes().tolist() == [64, 0]
    assert execution.counters[:, 4].tolist() == [64, 64]


def test_a_follower_behind_in_its_queue_ends_when_it_is_issued():
    # its engine works 300 cycles on a barrier command first: the bytes are there when it is issued
    late = [load(0), matmul(3, 300), follow(0), matmul(3, 10, wait_for(2))]
    late[2] = replace(late[2], waits=(Edge(1, EdgeKind.ORDER),))
    _, execution = run(late)
    assert execution.end_ps.tolist() == [100_000, 300_000, 300_000, 310_000]


def test_followers_hold_a_queue_entry_and_their_engine_issues_on():
    # the leader starts at 50; engine 2 has an own load behind the follower: both are in flight
    own = replace(load(2), transfer=TransferSpec(DRAM, is_write=False, runs=((64, 64, 0, 1),)))
    _, execution = run([matmul(1, 50), load(0, wait_for(0)), follow(1, wait_for(0)), own])
    assert execution.end_ps.tolist() == [50_000, 150_000, 150_000, 150_000]
    assert execution.queue_slot.tolist()[2:] == [0, 1]


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ([load(0), follow(0, nbytes=32)], "delivers the bytes its leader reads"),
        ([load(0), follow(2), follow(0)], "one leader that reads"),
        ([load(0), follow(0), follow(0)], "to each engine once"),
        ([load(0), matmul(3), follow(0, wait_for(1))], "its multicast starts at"),
    ],
)
def test_broken_multicasts_are_refused_before_time_starts(commands, message):
    program = Program.from_commands(commands, engines(), SPACES)
    with pytest.raises(ProtocolError, match=message):
        check_program(program)


def test_a_follower_that_ends_at_another_time_is_caught():
    program, execution = run([load(0), follow(0)])
    end_ps = execution.end_ps.copy()
    end_ps[1] -= 1
    with pytest.raises(SimulationError, match="reaches its receivers when it completes"):
        check_execution(program, replace(execution, times=replace(execution.times, end_ps=end_ps)))


# --- compiler ------------------------------------------------------------------------------------


def matmul_program(shape, shared_tiles, overrides=()):
    system = system_with("edge-npu", f"{DEVICE}.shared_tiles={shared_tiles}", *overrides)
    graph = primitive_graph("matmul", shape)
    return compiled(graph, system, activation_residency=ActivationResidency.DRAM)


def traffic(found):
    """Bytes that reach cores and bytes read from DRAM, by role."""
    transfers = found.program.transfers
    roles = {}
    for code, role in ((0, "weight"), (2, "activation")):
        mine = (transfers.role == code) & ~transfers.is_write
        moved = int(transfers.nbytes()[mine].sum())
        roles[role] = (moved, int(transfers.memory_bytes()[mine].sum()))
    return roles


@pytest.mark.parametrize("shape", ["512x256x256", "256x512x1024"])
def test_a_multicast_reads_once_what_n_cores_would_read_n_times(shape):
    # w is read by every core along m, a by every core along n; both stay resident, one pass
    m, k, n = (int(x) for x in shape.split("x"))
    found = matmul_program(shape, "multicast")
    check_program(found.program)
    (plan,) = found.plans.values()
    _, along_m, along_n = plan.grid
    assert plan.a_resident
    assert plan.w_resident
    read, sent = traffic(found), {"activation": 2 * m * k, "weight": 2 * k * n}
    copies = {"activation": along_n, "weight": along_m}
    assert max(copies.values()) > 1
    for role, nbytes in sent.items():
        assert read[role] == (copies[role] * nbytes, nbytes)


@pytest.mark.parametrize("shape", ["512x256x256", "64x512x2048", "1024x1024x1024"])
def test_read_per_core_has_no_followers(shape):
    found = matmul_program(shape, "read_per_core")
    for moved, read in traffic(found).values():
        assert moved == read


@pytest.mark.parametrize("depth", [1, 8])
@pytest.mark.parametrize("shape", ["64x512x2048", "96x1000x400"])
def test_multicasts_run_to_their_end_whatever_the_queues(shape, depth):
    found = matmul_program(shape, "multicast", overrides=(f"{CORE}.dma.queue_depth={depth}",))
    check_program(found.program)
    assert (found.program.transfers.leader >= 0).any()
    Machine(found.program, FixedLatencyMemory(300_000)).run()
