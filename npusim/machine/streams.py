"""What commands do to the banks of a scratchpad, as streams of accesses.

A command streams every region it declares from end to end while it runs: ``bytes / duration`` per
cycle, at most what the engine's path carries. An access is as many whole words as that takes in a
cycle, from the word of the region's first byte on: each word is read once. Regions are those the
compiler declares: a tile at the edge of an operator counts with its whole slot, up to the path.

A DMA engine fills or drains the region of its oldest transfer in flight at its `path_bytes`: what
is left of its own rate when the DMA engines of all cores share the memory. Its pace is the
memory's; what it waits for banks, its buffers take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.machine.waits import DMA_KINDS
from npusim.memory.sram import RATE_UNIT
from npusim.program import EngineKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program import Program

    Ints = NDArray[np.int64]

#: streams of one command: base, stride, width, count, rate of `memory.sram.Stream`
Shape = tuple[tuple[int, int, int, int, int], ...]


class Shapes:
    """Shapes of all commands over scratchpads with banks.

    Attributes
    ----------
    shapes : list of Shape
        Shapes by number, each once; number 0 is no stream.
    of_command : list of int
        Shape number of each command.
    """

    def __init__(self, program: Program) -> None:
        self.shapes: list[Shape] = [()]
        self.of_command = [0] * len(program)
        has_banks = np.array([space.banks is not None for space in program.spaces], dtype=np.bool_)
        has_path = np.array([e.path_bytes is not None for e in program.engines], dtype=np.bool_)
        owner = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))
        mine = np.flatnonzero(has_banks[program.region_space] & has_path[program.engine[owner]])
        ticks = _ticks(program, owner[mine], mine)
        mine, ticks = mine[ticks > 0], ticks[ticks > 0]
        rows = _streams(program, mine, ticks)
        if len(mine):
            self._number(owner[mine], rows)

    def _number(self, owner: Ints, rows: Ints) -> None:
        """Number the distinct shapes in order of first use."""
        numbers: dict[Shape, int] = {(): 0}
        bounds = np.flatnonzero(np.diff(owner, prepend=-1)).tolist()
        streams = [tuple(row) for row in rows.tolist()]
        for first, last in zip(bounds, [*bounds[1:], len(streams)], strict=True):
            shape = tuple(streams[first:last])
            number = numbers.setdefault(shape, len(numbers))
            if number == len(self.shapes):
                self.shapes.append(shape)
            self.of_command[int(owner[first])] = number


def _ticks(program: Program, owner: Ints, mine: Ints) -> Ints:
    """Ticks in which each region is streamed: the command's, or longer if its path is narrower."""
    is_write = program.region_is_write[mine].astype(np.int64)
    nbytes = program.region_bytes[mine]
    engine = program.engine[owner]
    kinds = np.array([e.kind in DMA_KINDS for e in program.engines], dtype=np.bool_)
    paths = np.array([e.path_bytes or (1, 1) for e in program.engines], dtype=np.int64)
    together = np.zeros((len(program), 2), dtype=np.int64)  # bytes read and written by a command
    np.add.at(together, (owner, is_write), nbytes)
    shares = np.array([e.kind is EngineKind.VECTOR for e in program.engines], dtype=np.bool_)
    one_path = shares[program.engine]
    together[one_path] = together[one_path].sum(axis=1, keepdims=True)
    ticks = program.duration_ticks[owner]
    shortest = -(-together[owner, is_write] * program.ticks_per_cycle // paths[engine, is_write])
    compute = np.where(ticks > 0, np.maximum(ticks, shortest), 0)
    transfer = program.transfer[owner]
    on_dram = np.array([space.kind == "dram" for space in program.spaces], dtype=np.bool_)
    to_sram = (
        (transfer >= 0) & ~on_dram[program.transfers.space[transfer]]
        if len(program.transfers)
        else np.zeros(len(mine), dtype=np.bool_)
    )
    rate = paths[engine, to_sram.astype(np.int64)]
    moving = np.where(transfer >= 0, -(-nbytes * program.ticks_per_cycle // rate), 0)
    return np.where(kinds[engine], moving, compute)


def _streams(program: Program, mine: Ints, ticks: Ints) -> Ints:
    """Base, stride, width, count and rate of each region's stream, shape (regions, 5)."""
    words = np.array(
        [space.banks.port_bytes if space.banks else 1 for space in program.spaces], dtype=np.int64
    )[program.region_space[mine]]
    nbytes = program.region_bytes[mine]
    per_cycle = nbytes * program.ticks_per_cycle
    width = -(-per_cycle // (ticks * words)) * words
    count = -(-nbytes // width)
    rate = np.clip(per_cycle * RATE_UNIT // (ticks * width), 1, RATE_UNIT)
    base = program.region_offset[mine] // words * words
    return np.stack((base, width, width, count, rate), axis=1)
