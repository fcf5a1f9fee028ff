"""Hazards on scratchpads: reads before the write they need, overwrites before the last read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProtocolError
from npusim.program.accesses import dependent_pairs
from npusim.program.labels import name_of, place_of
from npusim.program.ordering import Ordering

if TYPE_CHECKING:
    from npusim.program.accesses import DependentPairs
    from npusim.program.arrays import Program

_READ_RULE = "a read waits for the last write of what it reads"
_WRITE_RULE = "an overwrite waits for the last readers, or without one for the last writer"


def check_hazards(program: Program) -> None:
    """Refuse unordered accesses to the same bytes of a scratchpad.

    A read needs a DATA edge from the last writer in program order. An overwrite needs an edge from
    each reader since the last write (of one in-order compute engine: from the last), and without
    readers from the last writer. What `Ordering` knows without a direct edge serves as well.

    Raises
    ------
    ProtocolError
        Naming the later command, the region and the earlier command.
    """
    order = Ordering(program)
    for pairs in dependent_pairs(program):
        unwritten = np.flatnonzero(pairs.before < 0)
        if len(unwritten):
            raise _hazard(program, pairs, int(unwritten[0]))
        bad = order.missing(pairs.before, pairs.after, needs_data=pairs.is_read)
        if len(bad):
            raise _hazard(program, pairs, int(bad[np.argmin(pairs.after[bad])]))


def _hazard(program: Program, pairs: DependentPairs, pair: int) -> ProtocolError:
    earlier = int(pairs.before[pair])
    where = name_of(program, int(pairs.after[pair]))
    rule = _READ_RULE if pairs.is_read else _WRITE_RULE
    who = "nothing wrote it" if earlier < 0 else f"no edge from {name_of(program, earlier)}"
    return ProtocolError(where, rule, place_of(program, int(pairs.region[pair])), who)
