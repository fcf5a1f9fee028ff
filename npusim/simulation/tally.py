"""Additive integers of a simulated piece, so that pieces can be repeated, weighted and summed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Key = tuple[str, ...]


@dataclass(frozen=True)
class Tally:
    """Counts by key, the first part of a key naming the table it belongs to.

    Sums stay exact: what balances in every piece balances in every integer combination of pieces.
    """

    counts: dict[Key, int] = field(default_factory=dict)

    def __getitem__(self, key: Key) -> int:
        return self.counts.get(key, 0)

    def plus(self, other: Tally, times: int = 1) -> Tally:
        """Sum of this tally and `times` the other one."""
        total = defaultdict(int, self.counts)
        for key, count in other.counts.items():
            total[key] += count * times
        return Tally(dict(total))

    def rows(self, table: str) -> Iterator[tuple[Key, int]]:
        """Keys of one table, without its name, in order of first appearance."""
        for key, count in self.counts.items():
            if key[0] == table:
                yield key[1:], count

    def names(self, table: str) -> list[str]:
        """First key part of every row of a table, each once."""
        return list(dict.fromkeys(key[0] for key, _ in self.rows(table)))


def weighted_sum(pieces: list[tuple[Tally, int]]) -> Tally:
    """Sum of tallies times integer weights."""
    total = Tally()
    for tally, weight in pieces:
        total = total.plus(tally, weight)
    return total
