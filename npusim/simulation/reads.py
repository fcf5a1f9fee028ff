"""Bytes read on chip, by stage: from scratchpads by compute engines, from the shared SRAM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.machine.execution import CACHE_TRAFFIC
from npusim.program import EngineKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import Execution
    from npusim.program import Program
    from npusim.simulation.tally import Key

    Ints = NDArray[np.int64]

_COMPUTE = (EngineKind.MATRIX, EngineKind.VECTOR, EngineKind.CONVERT)


def count_stage_reads(
    counts: dict[Key, int], program: Program, execution: Execution, first: int, last: int
) -> None:
    """Add what kernels ``[first, last)`` read to keys ``stage, name, scratchpad_bytes``.

    And to those ending in ``shared_sram_bytes``. Only counts above zero are added.
    """
    columns = {
        "scratchpad_bytes": _scratchpad_bytes(program),
        "shared_sram_bytes": _shared_sram_bytes(program, execution),
    }
    for name, by_command in columns.items():
        by_kernel = np.zeros(len(program.kernels), dtype=np.int64)
        np.add.at(by_kernel, program.kernel, by_command)
        for kernel in range(first, last):
            if by_kernel[kernel]:
                key = ("stage", program.kernels[kernel].stage, name)
                counts[key] = counts.get(key, 0) + int(by_kernel[kernel])


def _scratchpad_bytes(program: Program) -> Ints:
    """Bytes that each command of a compute engine reads from scratchpads."""
    is_pad = np.array([space.kind == "scratchpad" for space in program.spaces], dtype=np.bool_)
    is_compute = np.array([engine.kind in _COMPUTE for engine in program.engines], dtype=np.bool_)
    owner = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))
    reads = is_pad[program.region_space] & ~program.region_is_write
    reads &= is_compute[program.engine[owner]]
    result = np.zeros(len(program), dtype=np.int64)
    np.add.at(result, owner[reads], program.region_bytes[reads])
    return result


def _shared_sram_bytes(program: Program, execution: Execution) -> Ints:
    """Bytes that each command reads from the shared SRAM; of a cache, those that hit."""
    transfers, traffic = program.transfers, execution.cache_traffic
    on_sram = np.array([s.kind == "shared_sram" for s in program.spaces], dtype=np.bool_)
    served = np.where(on_sram[transfers.space] & ~transfers.is_write, transfers.memory_bytes(), 0)
    if traffic is not None:
        served = served + traffic[:, CACHE_TRAFFIC.index("hit_bytes")]
    result = np.zeros(len(program), dtype=np.int64)
    moves = program.transfer >= 0
    result[moves] = served[program.transfer[moves]]
    return result
