"""Buses between the DMA engines of a device and a memory."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from npusim.config.spec import ClockRate, NonNegativeInt, Spec, require_power_of_two


class Arbitration(StrEnum):
    """How a bus chooses among masters that ask at the same time.

    With fixed priority and QoS a master that always asks starves those below it: nothing ages.
    """

    ROUND_ROBIN = "round_robin"
    FIXED = "fixed"  # the lower port first
    QOS = "qos"  # the higher AXI QoS first, equal ones in turn


class BusSpec(Spec):
    """An AXI bus: separate read and write data channels of `data_bits` each."""

    memory: str
    """Name of the DRAM behind it."""
    clock_hz: ClockRate
    """Clock of the bus; one beat per cycle and data channel."""
    data_bits: Annotated[int, Field(ge=8, le=32768, multiple_of=8)]
    """Width of each data channel; a power of two, a beat at most 4 KiB."""
    latency_ps: NonNegativeInt
    """Request plus response traversal, unloaded."""
    max_burst_beats: Annotated[int, Field(gt=0, le=256)]
    """Longest INCR burst; none crosses a 4 KiB boundary."""
    arbitration: Arbitration
    """How the bus chooses among masters that ask at the same time."""
    crossing_cycles: NonNegativeInt | None = None
    """Synchroniser latency wherever two clocks of different rate meet (DMA and bus, bus and memory,
    each way), in cycles of the clock entered; None: alignment to its edges only."""

    @model_validator(mode="after")
    def _beats_align(self) -> Self:
        require_power_of_two("data_bits", self.data_bits)
        return self

    @property
    def bytes_per_s(self) -> int:
        """Peak rate of one direction."""
        return self.clock_hz * self.data_bits // 8
