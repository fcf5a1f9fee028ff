"""Static checks of multicasts: who may deliver to whom, and that nobody waits in a circle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProtocolError
from npusim.program.labels import name_of
from npusim.program.tables import EdgeKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program.arrays import Program

    Ints = NDArray[np.int64]


def check_multicasts(program: Program) -> None:
    """Refuse a multicast that cannot be delivered.

    A leader reads the same bytes itself and is no follower; leader and followers run on different
    engines, each engine once. A follower's slot is free when its leader starts: the leader awaits
    all that the follower awaits but launches.

    Raises
    ------
    ProtocolError
        Naming the first follower that breaks a rule.
    """
    transfers = program.transfers
    followers = np.flatnonzero(transfers.leader >= 0)
    if not len(followers):
        return
    owner = np.empty(len(transfers), dtype=np.int64)
    has = np.flatnonzero(program.transfer >= 0)
    owner[program.transfer[has]] = has
    leaders = transfers.leader[followers].astype(np.int64)
    engine = program.engine[owner]
    for follower, leader in zip(followers.tolist(), leaders.tolist(), strict=True):
        where = name_of(program, int(owner[follower]))
        if leader >= len(transfers) or transfers.leader[leader] >= 0:
            raise ProtocolError(where, "a multicast has one leader that reads", leader)
        same = np.array_equal(transfers.of(follower), transfers.of(leader))
        if not same or transfers.space[follower] != transfers.space[leader]:
            raise ProtocolError(where, "a multicast delivers the bytes its leader reads")
        if transfers.is_write[leader] or transfers.is_write[follower]:
            raise ProtocolError(where, "a multicast reads")
    pairs = np.stack((leaders, engine[followers]), axis=1)
    pairs = np.concatenate((pairs, np.stack((leaders, engine[leaders]), axis=1)[_first(leaders)]))
    if len(np.unique(pairs, axis=0)) != len(pairs):
        raise ProtocolError("program", "a multicast delivers to each engine once")
    _check_awaits(program, owner, followers, leaders)


def _first(values: Ints) -> Ints:
    """Position of the first of each value."""
    return np.unique(values, return_index=True)[1]


def _check_awaits(program: Program, owner: Ints, followers: Ints, leaders: Ints) -> None:
    """The leader awaits what frees the followers' slots and makes their bytes valid."""
    for follower, leader in zip(owner[followers].tolist(), owner[leaders].tolist(), strict=True):
        missing = _awaited(program, follower) - _awaited(program, leader)
        if missing:
            rule = f"its multicast starts at {name_of(program, leader)}, which awaits the same"
            raise ProtocolError(name_of(program, follower), rule, sorted(missing))


def _awaited(program: Program, command: int) -> set[int]:
    """Commands whose signals must have come, without launches and orders."""
    edges = program.edges_of(command)
    kinds = program.edge_kind[edges]
    wanted = np.isin(kinds, (EdgeKind.DATA, EdgeKind.BUFFER_FREE, EdgeKind.BARRIER))
    return set(program.edge_producer[edges][wanted].tolist())
