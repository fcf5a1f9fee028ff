"""Engine clocks: exact edges in integer picoseconds, whatever the period."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

_SAFE = 2**62  # products above this leave int64


class Clock:
    """A clock whose first edge is at 0 ps; one cycle is `ticks_per_cycle` ticks.

    Tick `t` lies at the exact time `t * period / ticks_per_cycle` and is seen at the floor of it,
    in whole picoseconds. Every conversion starts from the absolute tick, so rounding cannot
    accumulate; floor is monotone, so successive spans neither overlap nor end before they start;
    and `next_cycle(edge_ps(c)) == c`, so engines of one clock wake each other without losing a
    cycle.

    Parameters
    ----------
    period_ps : Fraction
        Length of a cycle, at least 1 ps.
    ticks_per_cycle : int
        Ticks in a cycle, at least 1.
    """

    def __init__(self, period_ps: Fraction, ticks_per_cycle: int = 1) -> None:
        if period_ps < 1 or ticks_per_cycle < 1:
            raise ValueError(f"clock of {period_ps} ps, {ticks_per_cycle} ticks per cycle")
        self.period_ps = period_ps
        self.ticks_per_cycle = ticks_per_cycle
        #: numerator and denominator of the length of a tick
        self.ps_per_tick = (period_ps / ticks_per_cycle).as_integer_ratio()
        self._cycle_num, self._cycle_den = period_ps.as_integer_ratio()

    def edge_ps(self, cycle: int) -> int:
        """Time of a cycle's edge, rounded down."""
        return cycle * self._cycle_num // self._cycle_den

    def next_cycle(self, now_ps: int) -> int:
        """First cycle whose edge is not before `now_ps`."""
        return -(-now_ps * self._cycle_den // self._cycle_num)

    def tick_ps(self, tick: int) -> int:
        """Time of a tick, rounded down."""
        num, den = self.ps_per_tick
        return tick * num // den

    def next_edge_tick(self, now_ps: int) -> int:
        """Tick of the first whole-cycle edge that is not before `now_ps`."""
        return self.next_cycle(now_ps) * self.ticks_per_cycle

    def on_edge(self, times_ps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the times are edges of whole cycles."""
        num, den = self._cycle_num, self._cycle_den
        cycles = -(_wide(-times_ps, den) // num)
        result: NDArray[np.bool_] = _wide(cycles, num) // den == times_ps
        return result

    def ticks_at(self, times_ps: NDArray[np.int64]) -> NDArray[np.int64]:
        """First tick not before each time: the tick itself for times at which ticks are seen."""
        num, den = self.ps_per_tick
        return (-(_wide(-times_ps, den) // num)).astype(np.int64)

    def ticks_floor_ps(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Length of each number of ticks, rounded down."""
        num, den = self.ps_per_tick
        return (_wide(ticks, num) // den).astype(np.int64)

    def ticks_ceil_ps(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Length of each number of ticks, rounded up."""
        num, den = self.ps_per_tick
        return (-(_wide(-ticks, num) // den)).astype(np.int64)


def _wide(values: NDArray[np.int64], factor: int) -> NDArray[np.int64]:
    """`values * factor`, as Python integers where int64 could overflow."""
    largest = int(np.abs(values).max(initial=0))
    if largest * factor < _SAFE:
        return values * factor
    return values.astype(object) * factor
