"""The machine: builds every engine of a program and runs them; the only builder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from npusim.engine import Clock, CoSimEnvironment, run_until_done
from npusim.machine.attribution import Attribution, engine_use
from npusim.machine.bank_use import bank_uses
from npusim.machine.conflicts import conflict_table
from npusim.machine.dma import Descriptor, DmaEngine
from npusim.machine.execution import CACHE_TRAFFIC, COUNTERS, ConflictTable, Execution, RunTimes
from npusim.machine.invariants import check_execution
from npusim.machine.multicast import Multicasts
from npusim.machine.sequencer import Sequencer
from npusim.machine.signals import SignalBoard
from npusim.machine.snapshots import MemorySnapshots
from npusim.machine.waits import DMA_KINDS, commands_by_engine, find_waits
from npusim.program import ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from npusim.engine import MemoryKernel
    from npusim.program import Program

_BYTES = COUNTERS.index("bytes")


class CachedKernel(Protocol):
    """A memory kernel with a cache in front of a DRAM."""

    def cache_traffic(self, tid: int) -> tuple[int, ...]:
        """`CACHE_TRAFFIC` of a finished transfer."""


def _hits(traffic: NDArray[np.int64] | None) -> NDArray[np.bool_] | None:
    """Transfers that moved bytes of a cache and read none of the DRAM."""
    if traffic is None:
        return None
    requested = traffic[:, CACHE_TRAFFIC.index("requested_bytes")]
    read = traffic[:, CACHE_TRAFFIC.index("dram_read_bytes")]
    hits: NDArray[np.bool_] = (requested > 0) & (read == 0)
    return hits


class Machine:
    """All engines of a program over one memory system; runs once.

    Parameters
    ----------
    program : Program
        A program that `check_program` accepts; the machine itself finds only deadlocks.
    memory : MemoryKernel
        A fresh memory system whose ports and memories are those the program names: a DMA engine
        reaches DRAM by its `port` and the shared SRAM by `port + 1`.
    start_order : sequence of int, optional
        Order in which the engines' processes are created; it changes no result, as tests show.

    Attributes
    ----------
    env : CoSimEnvironment
        The environment; the tests add events that must change nothing.
    """

    def __init__(
        self, program: Program, memory: MemoryKernel, *, start_order: Sequence[int] | None = None
    ) -> None:
        self._program = program
        self._memory = memory
        self.env = CoSimEnvironment(memory)
        self._board = SignalBoard(self.env, program)
        self._snapshots = MemorySnapshots(self.env, memory, program, self._board)
        self._issue_ticks = program.issue_ticks()
        self._bank_uses = bank_uses(self.env, program)
        self._multicasts = Multicasts(program) if (program.transfers.leader >= 0).any() else None
        commands = commands_by_engine(program)
        order = range(len(program.engines)) if start_order is None else start_order
        self._engines = [self._build(index, commands[index]) for index in order]

    def run(self) -> Execution:
        """Run the program to its end and check the invariants of the run.

        Raises
        ------
        DeadlockError
            If nothing can move any more.
        SimulationError
            If the run broke an invariant.
        """
        done = self.env.all_of([engine.run() for engine in self._engines])
        run_until_done(self.env, done, self._engines)
        execution = self._execution()
        check_execution(self._program, execution)
        return execution

    def _execution(self) -> Execution:
        board = self._board
        times = RunTimes(
            start_ps=np.array(board.start_ps, dtype=np.int64),
            end_ps=np.array(board.end_ps, dtype=np.int64),
            free_ps=np.array(board.free_ps, dtype=np.int64),
            signal_ps=board.signal_ps(),
            memory_split=self._snapshots.split,
            conflict_ticks=self._conflict_ticks(),
        )
        drain_ps = int(self._memory.drain())
        elapsed_ps = max(drain_ps, int(times.end_ps.max()))
        waits = find_waits(self._program, times)
        traffic = self._cache_traffic()
        stalls = Attribution(self._program, times, waits, _hits(traffic)).stalls()
        return Execution(
            elapsed_ps=elapsed_ps,
            drain_ps=drain_ps,
            times=times,
            queue_slot=waits.slot,
            engines=engine_use(self._program, times, stalls, elapsed_ps),
            stalls=stalls,
            counters=self._transfer_counters(),
            conflicts=self._conflicts(times),
            cache_traffic=traffic,
        )

    def _cache_traffic(self) -> NDArray[np.int64] | None:
        """What each transfer did at a cache in front of the DRAM; None without one."""
        if not any(space.cache >= 0 for space in self._program.spaces):
            return None
        traffic_of = cast("CachedKernel", self._memory).cache_traffic
        traffic = np.zeros((len(self._program.transfers), len(CACHE_TRAFFIC)), dtype=np.int64)
        for engine in self._engines:
            if isinstance(engine, DmaEngine) and engine.tid_of:
                transfers = self._program.transfer[list(engine.tid_of)]
                traffic[transfers] = [traffic_of(tid) for tid in engine.tid_of.values()]
        return traffic

    def _conflict_ticks(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        ticks = np.zeros(len(self._program), dtype=np.int64)
        for use in self._bank_uses.values():
            for command, found in use.conflicts.items():
                ticks[command] = found.ticks
        return ticks

    def _conflicts(self, times: RunTimes) -> ConflictTable:
        blames = {
            command: found.blame
            for use in self._bank_uses.values()
            for command, found in use.conflicts.items()
        }
        return conflict_table(self._program, times, blames)

    def _transfer_counters(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        counters = np.zeros((len(self._program.transfers), len(COUNTERS)), dtype=np.int64)
        for engine in self._engines:
            if isinstance(engine, DmaEngine) and engine.tid_of:
                transfers = self._program.transfer[list(engine.tid_of)]
                rows = [self._memory.transfer_counters(tid) for tid in engine.tid_of.values()]
                counters[transfers] = rows
        followers = np.flatnonzero(self._program.transfers.leader >= 0)
        leaders = self._program.transfers.leader[followers]
        counters[followers, _BYTES] = counters[leaders, _BYTES]  # what was read for them
        return counters

    def _build(self, index: int, commands: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Sequencer:
        program = self._program
        engine = program.engines[index]
        clock = Clock(engine.period_ps, program.ticks_per_cycle)
        durations = self._issue_ticks[commands].tolist()
        ids: list[int] = commands.tolist()
        if engine.kind not in DMA_KINDS:
            return Sequencer(
                self.env,
                engine.name,
                clock,
                ids,
                durations,
                self._board,
                self._snapshots,
                self._bank_uses.get(index),
            )
        return DmaEngine(
            self.env,
            engine.name,
            clock,
            ids,
            durations,
            self._board,
            self._snapshots,
            queue_depth=engine.queue_depth,
            descriptors={command: d for command in ids if (d := self._descriptor(command))},
            banks=self._bank_uses.get(index),
            multicasts=self._multicasts,
        )

    def _descriptor(self, command: int) -> Descriptor | None:
        program, transfers = self._program, self._program.transfers
        transfer = int(program.transfer[command])
        if transfer < 0:
            return None
        space = program.spaces[transfers.space[transfer]]
        path = space.kind == "shared_sram"
        is_cached = space.cache >= 0 and ROLES[transfers.role[transfer]] in space.cached_roles
        port = program.engines[program.engine[command]].port + path
        followers = (
            () if self._multicasts is None else self._multicasts.followers_of.get(command, ())
        )
        receivers = tuple(program.engines[program.engine[f]].port + path for f in followers)
        return Descriptor(
            port,
            space.cache if is_cached else space.memory,
            bool(transfers.is_write[transfer]),
            transfers.of(transfer),
            receivers,
        )
