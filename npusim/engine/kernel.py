"""What the machine asks of a memory system, and the simplest one that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: categories of `MemoryKernel.attribution`, in order
ATTRIBUTION_CATEGORIES = (
    "data_read",
    "data_write",
    "refresh",
    "turnaround",
    "row",
    "bank_conflict",
    "command",
    "arbitration",
    "starved",
)


class MemoryKernel(Protocol):
    """Buses and memories behind numbered ports, advanced lazily between SimPy steps."""

    @property
    def pending(self) -> int:
        """Work that has not completed."""

    def submit(
        self,
        now_ps: int,
        port: int,
        memory: int,
        is_write: bool,
        runs: NDArray[np.int64],
        receivers: Sequence[int] = (),
    ) -> int:
        """Hand over a transfer (runs: base, bytes, stride, count); returns its id.

        A read is delivered to the ports in `receivers` as well, and complete when all have it.
        """

    def advance(self, horizon_ps: int | None) -> list[tuple[int, int]]:
        """Decide what happens before the horizon; newly committed (completion_ps, id)."""

    def drain(self) -> int:
        """Finish everything accepted; returns the time of the last burst."""

    def transfer_counters(self, tid: int) -> tuple[int, int, int, int, int]:
        """Accesses, row hits, misses, conflicts and bytes of a finished transfer."""

    def attribution(self, now_ps: int, memory: int) -> NDArray[np.int64]:
        """Channel time by category since the start, summed over the memory's channels."""

    def own_data_ps(self, port: int) -> int:
        """Channel time that moved data of this port since the start."""

    def memory_counters(self, memory: int) -> dict[str, int]:
        """Totals of one memory."""


class FixedLatencyMemory:
    """A memory that completes every transfer a fixed time after it is submitted.

    Latency 0 is the ideal memory of `--ideal-memory`. Not modelled: bandwidth, rows, contention;
    all of its time is attributed to `starved`.

    Parameters
    ----------
    latency_ps : int
        Time from submission to completion, at least 0.
    """

    def __init__(self, latency_ps: int = 0) -> None:
        if latency_ps < 0:
            raise ValueError(f"latency_ps={latency_ps} is negative")
        self._latency_ps = latency_ps
        self._uncommitted: list[tuple[int, int]] = []
        self._transfers: list[tuple[int, bool, NDArray[np.int64]]] = []
        self._end_ps = 0

    @property
    def pending(self) -> int:
        """Transfers whose completion has not been reported yet."""
        return len(self._uncommitted)

    def submit(
        self,
        now_ps: int,
        port: int,
        memory: int,
        is_write: bool,
        runs: NDArray[np.int64],
        receivers: Sequence[int] = (),
    ) -> int:
        """Note the transfer; it completes `latency_ps` later, for all receivers."""
        tid = len(self._transfers)
        self._transfers.append((memory, is_write, runs))
        completion_ps = now_ps + self._latency_ps
        self._end_ps = max(self._end_ps, completion_ps)
        self._uncommitted.append((completion_ps, tid))
        return tid

    def advance(self, horizon_ps: int | None) -> list[tuple[int, int]]:
        """Every completion is known on submission."""
        committed, self._uncommitted = self._uncommitted, []
        return committed

    def drain(self) -> int:
        """Time of the last completion."""
        return self._end_ps

    def transfer_counters(self, tid: int) -> tuple[int, int, int, int, int]:
        """One access per transfer, always a hit."""
        return 1, 1, 0, 0, _nbytes(self._transfers[tid][2])

    def attribution(self, now_ps: int, memory: int) -> NDArray[np.int64]:
        """All time is `starved`."""
        vector = np.zeros(len(ATTRIBUTION_CATEGORIES), dtype=np.int64)
        vector[-1] = now_ps
        return vector

    def own_data_ps(self, port: int) -> int:
        """No data time: transfers take latency only."""
        return 0

    def memory_counters(self, memory: int) -> dict[str, int]:
        """Bytes by direction and accesses."""
        mine = [
            (_nbytes(runs), is_write)
            for index, is_write, runs in self._transfers
            if index == memory
        ]
        return {
            "read_bytes": sum(nbytes for nbytes, is_write in mine if not is_write),
            "write_bytes": sum(nbytes for nbytes, is_write in mine if is_write),
            "accesses": len(mine),
            "row_hits": len(mine),
            "row_misses": 0,
            "row_conflicts": 0,
            "refreshes": 0,
        }


def _nbytes(runs: NDArray[np.int64]) -> int:
    return int((runs[:, 1] * runs[:, 3]).sum())
