"""A DRAM device with its pins at another rate than its standard names."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from npusim.config.dram_table import dram_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.config.memory import DramSpec

#: parameters that standards state in clocks or that follow from the burst; all others are times
_CLOCKS = frozenset(
    {"nBL", "nBL_max", "nCCDS", "nCCDS_WR", "nCCDR", "nCS", "nPPD", "nAAD", "nWCKPST"}
)
#: column to column within a bank group: a time in these standards, clocks in all others
_TIMED_COLUMNS = ("DDR4", "DDR5")
_FLOORED = frozenset({"nREFI", "nREFIpb"})  # a refresh never comes late
_PS_PER_S = 10**12


def dram_entry(dram: DramSpec) -> dict[str, Any]:
    """Entry of the table of standards that a memory means, at its data rate.

    At a rate r instead of the standard's R a clock takes R / r of its time. What a standard states
    in clocks keeps its clocks; a time keeps its picoseconds, rounded up to whole clocks (refresh
    intervals down). Source: speed bins of one JEDEC standard differ like this. Left out: lower
    bounds in clocks that only slow pins meet, and bins whose times differ.

    Raises
    ------
    KeyError
        If the standard is unknown; `check_system` refuses it with the nearest name.
    """
    table = dram_table()
    entry: dict[str, Any] = table["devices"][dram.standard]
    if dram.data_rate_hz is None:
        return entry
    scale = Fraction(dram.data_rate_hz) / standard_rate_hz(entry, table["commands"])
    cycle_ps = Fraction(str(entry["cycle_ps"])) / scale
    clocks = _CLOCKS
    if entry["standard"] not in _TIMED_COLUMNS:
        clocks = _CLOCKS | {"nCCDL", "nCCDL_WR"}
    timing = {
        name: count if name in clocks else _scaled(name, count, scale)
        for name, count in entry["timing_nCK"].items()
    }
    timing["nCCDL"] = max(timing["nCCDL"], timing["nCCDS"])
    timing["nFAW"] = max(timing["nFAW"], 3 * timing["nRRDS"])
    return {**entry, "cycle_ps": str(cycle_ps), "timing_nCK": timing}


def standard_rate_hz(entry: Mapping[str, Any], commands: Mapping[str, Any]) -> Fraction:
    """Transfers per second and pin of an entry: a burst takes nBL clocks."""
    ticks = int(commands[entry["standard"]]["ticks_per_clock"])
    burst_ps = int(entry["timing_nCK"]["nBL"]) * ticks * Fraction(str(entry["cycle_ps"]))
    return Fraction(int(entry["organisation"]["burst_length"]) * _PS_PER_S) / burst_ps


def _scaled(name: str, clocks: int, scale: Fraction) -> int:
    """Clocks of a time when clocks come `scale` times as often."""
    exact = clocks * scale
    return int(exact) if name in _FLOORED else -int(-exact // 1)
