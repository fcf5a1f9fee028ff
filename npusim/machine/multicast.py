"""Followers of multicasts: transfers that complete with the one that reads for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from npusim.program import Program


class Multicasts:
    """Which command reads for which others, and who is waiting for it.

    Attributes
    ----------
    leader_of : dict of int to int
        Leader command of each follower command.
    followers_of : dict of int to list of int
        Follower commands of each leader command.
    """

    def __init__(self, program: Program) -> None:
        leader = program.transfers.leader
        has = np.flatnonzero(program.transfer >= 0)
        owner = np.empty(len(program.transfers), dtype=np.int64)
        owner[program.transfer[has]] = has
        mine = np.flatnonzero(leader >= 0)
        pairs = zip(owner[mine].tolist(), owner[leader[mine]].tolist(), strict=True)
        self.leader_of: dict[int, int] = dict(pairs)
        self.followers_of: dict[int, list[int]] = {}
        for follower, leads in self.leader_of.items():
            self.followers_of.setdefault(leads, []).append(follower)
        self._delivered: set[int] = set()
        self._waiting: dict[int, list[Callable[[], object]]] = {}

    def is_delivered(self, follower: int) -> bool:
        """Whether the bytes of a follower have arrived."""
        return self.leader_of[follower] in self._delivered

    def await_delivery(self, follower: int, arrived: Callable[[], object]) -> None:
        """Call `arrived` when the bytes of a follower arrive."""
        self._waiting.setdefault(self.leader_of[follower], []).append(arrived)

    def deliver(self, leader: int) -> None:
        """A command with a transfer has completed; tell those it has read for."""
        if leader in self.followers_of:
            self._delivered.add(leader)
            for arrived in self._waiting.pop(leader, ()):
                arrived()


def with_leaders(program: Program, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per-command values in which a follower has those of its leader."""
    result = values.copy()
    for follower, leader in Multicasts(program).leader_of.items():
        result[follower] = values[leader]
    return result
