"""What the memory did while an engine waited for a transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.engine import ATTRIBUTION_CATEGORIES, StallCause
from npusim.machine.multicast import with_leaders
from npusim.program import END, EdgeKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.engine import CoSimEnvironment, MemoryKernel
    from npusim.machine.signals import SignalBoard
    from npusim.program import Program

#: causes a wait on DRAM is split into; own and other data first, then the kernel's other categories
MEMORY_CAUSES = (
    StallCause.DRAM_DATA,
    StallCause.DRAM_OTHER,
    StallCause.DRAM_REFRESH,
    StallCause.DRAM_TURNAROUND,
    StallCause.DRAM_ROW,
    StallCause.DRAM_BANK_CONFLICT,
    StallCause.DRAM_COMMAND,
    StallCause.DRAM_ARBITRATION,
    StallCause.DRAM_LATENCY,
)
assert len(MEMORY_CAUSES) == len(ATTRIBUTION_CATEGORIES)

#: counters at one time (own data, then the kernel's categories), or differences of them by cause
Counters = tuple[int, ...]


class MemorySnapshots:
    """Looks at what the memory has done when an engine blocks on a transfer and when it wakes.

    A snapshot costs two calls into the kernel; none is taken for engines that do not block. If the
    transfer has not been submitted when the engine blocks, the first snapshot is taken when it is.
    """

    def __init__(
        self, env: CoSimEnvironment, memory: MemoryKernel, program: Program, board: SignalBoard
    ) -> None:
        self._env = env
        self._memory = memory
        self._board = board
        memory_of = _dram_of(program)
        awaits_data = (program.edge_kind == EdgeKind.DATA) & (program.edge_offset == END)
        awaits_data &= memory_of[program.edge_producer] >= 0
        before = np.concatenate(([0], np.cumsum(awaits_data)))
        self._transfer_ptr: list[int] = before[program.edge_ptr].tolist()
        self._transfers: list[int] = program.edge_producer[awaits_data].tolist()
        self._memory_of: list[int] = memory_of.tolist()
        port_of = np.array([engine.port for engine in program.engines], dtype=np.int64)
        self._port_of: list[int] = with_leaders(program, port_of[program.engine]).tolist()
        self._at_block: dict[int, list[tuple[int, Counters | None]]] = {}
        self._at_submission: dict[int, Counters] = {}
        self._watchers: dict[int, int] = {}
        self.split: dict[int, Counters] = {}

    def block(self, command: int) -> None:
        """`command` is about to wait for its signals."""
        first, last = self._transfer_ptr[command], self._transfer_ptr[command + 1]
        if first == last:
            return
        board, now_ps = self._board, self._env.now_ps
        watched: list[tuple[int, Counters | None]] = []
        for transfer in self._transfers[first:last]:
            if board.end_ps[transfer] >= 0:
                continue
            if 0 <= board.free_ps[transfer] <= now_ps:  # its issue is over
                watched.append((transfer, self._take(transfer)))
            else:
                self._watchers[transfer] = self._watchers.get(transfer, 0) + 1
                watched.append((transfer, None))
        if watched:
            self._at_block[command] = watched

    def submitted(self, transfer: int) -> None:
        """A transfer has just been handed to the memory."""
        if transfer in self._watchers:
            self._at_submission[transfer] = self._take(transfer)

    def wake(self, command: int) -> None:
        """The last signal `command` awaits has just been published."""
        now_ps, end_ps = self._env.now_ps, self._board.end_ps
        if command not in self._at_block:
            return
        for transfer, before in self._at_block.pop(command):
            if before is None:
                before = self._release(transfer)
            if end_ps[transfer] == now_ps and command not in self.split:
                self.split[command] = _split(before, self._take(transfer))

    def _release(self, transfer: int) -> Counters:
        before = self._at_submission[transfer]
        self._watchers[transfer] -= 1
        if not self._watchers[transfer]:
            del self._watchers[transfer], self._at_submission[transfer]
        return before

    def _take(self, transfer: int) -> Counters:
        self._env.catch_up()
        vector = self._memory.attribution(self._env.now_ps, self._memory_of[transfer])
        own_ps = int(self._memory.own_data_ps(self._port_of[transfer]))
        return (own_ps, *vector.tolist())


def _split(before: Counters, after: Counters) -> Counters:
    """Channel time between two snapshots, in the order of `MEMORY_CAUSES`."""
    own, reads, writes, *others = (b - a for a, b in zip(before, after, strict=True))
    data = reads + writes
    own = min(max(own, 0), data)
    return (own, data - own, *others)


def _dram_of(program: Program) -> NDArray[np.int64]:
    """Memory index of each command's DRAM transfer, -1 without one."""
    memory_of_space = np.array(
        [space.memory if space.kind == "dram" else -1 for space in program.spaces], dtype=np.int64
    )
    result = np.full(len(program), -1, dtype=np.int64)
    commands = np.flatnonzero(program.transfer >= 0)
    result[commands] = memory_of_space[program.transfers.space[program.transfer[commands]]]
    return result
