"""Bytes between transfers and the memories behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.machine.execution import CACHE_TRAFFIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import Execution
    from npusim.program import Program

    Ints = NDArray[np.int64]


def memory_bytes(program: Program, execution: Execution) -> tuple[Ints, Ints]:
    """Bytes each transfer read from and wrote to its memory.

    Behind a cache: what it fetched, and what it wrote or made the cache write back.
    """
    transfers, traffic = program.transfers, execution.cache_traffic
    nbytes = transfers.memory_bytes()
    read = np.where(transfers.is_write, 0, nbytes)
    written = np.where(transfers.is_write, nbytes, 0)
    if traffic is not None:
        behind = np.array([s.cache >= 0 for s in program.spaces], dtype=np.bool_)[transfers.space]
        read = np.where(behind, traffic[:, CACHE_TRAFFIC.index("dram_read_bytes")], read)
        written = np.where(behind, traffic[:, CACHE_TRAFFIC.index("dram_write_bytes")], written)
    return read, written
