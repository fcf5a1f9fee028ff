"""SimPy environment that shares time with a memory kernel, and run-until-done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import simpy
from simpy.core import EmptySchedule

from npusim.errors import DeadlockError, SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from npusim.engine.component import Component
    from npusim.engine.kernel import MemoryKernel


class CoSimEnvironment(simpy.Environment):
    """An environment whose `step` lets the memory kernel catch up first.

    The kernel decides only what happens before the next SimPy event. Completions it commits become
    SimPy events, which lowers that horizon; it is asked again until it has nothing to add. Between
    two events at the same picosecond it is left alone: submissions at one time arrive together.

    Parameters
    ----------
    memory : MemoryKernel
        The kernel; its clock starts at 0 like that of the environment.
    """

    _now: int

    def __init__(self, memory: MemoryKernel) -> None:
        super().__init__(0)
        self._memory = memory
        self._uncommitted: dict[int, Callable[[simpy.Event], None]] = {}
        self._caught_up_ps = 0

    @property
    def now_ps(self) -> int:
        """The current time, an integer."""
        return self._now

    @property
    def num_uncommitted(self) -> int:
        """Transfers whose completion the memory has not committed."""
        return len(self._uncommitted)

    def submit(
        self,
        port: int,
        memory: int,
        is_write: bool,
        runs: NDArray[np.int64],
        on_complete: Callable[[simpy.Event], None],
        receivers: Sequence[int] = (),
    ) -> int:
        """Hand a transfer to the memory now; `on_complete` is called at its completion.

        A read with `receivers` is delivered to those ports as well.

        Returns
        -------
        int
            The transfer's id in the kernel, which is also the value of the completion event.
        """
        if self._caught_up_ps < self._now:
            self.catch_up()
        if receivers:
            tid = int(self._memory.submit(self._now, port, memory, is_write, runs, receivers))
        else:
            tid = int(self._memory.submit(self._now, port, memory, is_write, runs))
        self._uncommitted[tid] = on_complete
        return tid

    def catch_up(self) -> None:
        """Bring the memory's clock to now, for a submission or a look at its counters."""
        if self._caught_up_ps < self._now:
            self._caught_up_ps = self._now
            self._commit(self._memory.advance(self._now))

    def step(self) -> None:
        """Let the memory catch up with the next event, then process that event."""
        if self._uncommitted:
            self._advance_memory()
        super().step()

    def _advance_memory(self) -> None:
        queue = self._queue
        while self._uncommitted:
            horizon_ps = int(queue[0][0]) if queue else None
            if horizon_ps is not None and horizon_ps <= self._caught_up_ps:
                return
            committed = self._memory.advance(horizon_ps)
            if not committed:
                self._caught_up_ps = self._caught_up_ps if horizon_ps is None else horizon_ps
                return
            self._commit(committed)

    def _commit(self, committed: list[tuple[int, int]]) -> None:
        for completion_ps, tid in committed:
            delay_ps = int(completion_ps) - self._now
            if delay_ps < 0:
                raise SimulationError("memory", "completions are not in the past", delay_ps)
            event = self.timeout(delay_ps, tid)
            event.callbacks.append(self._uncommitted.pop(tid))


def run_until_done(
    env: CoSimEnvironment, done: simpy.Event, components: Iterable[Component]
) -> None:
    """Step until `done` has been processed.

    Raises
    ------
    DeadlockError
        If nothing is scheduled any more; its value lists what each component waits for.
    """
    try:
        while done.callbacks is not None:
            env.step()
    except EmptySchedule:
        waiting = tuple(text for c in components if (text := c.waiting_for()) is not None)
        if env.num_uncommitted:
            waiting += (f"memory: {env.num_uncommitted} transfers never complete",)
        raise DeadlockError(
            "machine", f"nothing can move any more at {env.now_ps} ps", waiting
        ) from None
