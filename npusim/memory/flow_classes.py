"""Classes of patterns a `SharingMemory` has met, each measured when first seen."""

from __future__ import annotations

from fractions import Fraction
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from npusim.memory.checks import unloaded_read_ps
from npusim.memory.efficiency import efficiency
from npusim.memory.measure import Mix, Source
from npusim.memory.patterns import LONG, SAMPLES, channel_mask, interleave, unit_bytes
from npusim.memory.specs import DramConfig

if TYPE_CHECKING:
    from npusim.memory.efficiency import Efficiency
    from npusim.memory.patterns import Pattern
    from npusim.memory.specs import BusConfig, PortConfig, SramConfig

MOST_WEIGHT = 32.0  # a share of 1 cannot be told from this by the filling


class Found(NamedTuple):
    """A class as one port sees it: `latency_ps` is what a transfer takes beyond its flow."""

    number: int
    latency_ps: int
    is_new: bool


class FlowClasses:
    """Finds, measures and numbers classes."""

    def __init__(
        self,
        ports: tuple[PortConfig, ...],
        buses: tuple[BusConfig, ...],
        memories: tuple[DramConfig | SramConfig, ...],
    ) -> None:
        self._ports, self._buses, self._memories = ports, buses, memories
        self.units = [unit_bytes(memory) for memory in memories]
        self.access_ps = [
            float(unit * 10**12 / memory.peak_bytes_per_s)
            for unit, memory in zip(self.units, memories, strict=True)
        ]
        self.measured: list[Efficiency] = []
        self._rows: list[tuple[float, ...]] = []
        self._memory_rows: dict[int, tuple[float, float, float]] = {}
        self._numbers: dict[tuple[int, int, int, bool, Pattern], int] = {}
        self._found: dict[tuple[int, int, bool, Pattern], Found] = {}

    def of(self, port: int, memory: int, is_write: bool, pattern: Pattern) -> Found:
        """The class of a pattern for one port."""
        key = (port, memory, is_write, pattern)
        found = self._found.get(key)
        if found is None:
            found = self._look_up(port, memory, is_write, pattern)
            self._found[key] = found._replace(is_new=False)
        return found

    def row(self, number: int) -> tuple[float, ...]:
        """Columns of a class in the tables."""
        return self._rows[number]

    def memory_row(self, memory: int) -> tuple[float, float, float]:
        """Columns of a memory in the tables that depend on measurements."""
        return self._memory_rows[memory]

    def _look_up(self, port: int, memory: int, is_write: bool, pattern: Pattern) -> Found:
        spec, owner = self._memories[memory], self._ports[port]
        bus = self._buses[owner.bus]
        latency_ps = unloaded_read_ps(spec, bus, owner)
        if is_write and isinstance(spec, DramConfig) and spec.posted_writes:
            latency_ps = posted_ps(spec, bus, owner)
        key = (owner.bus, bursts_in_flight(owner), memory, is_write, pattern)
        number = self._numbers.get(key)
        if number is not None:
            return Found(number, latency_ps, False)
        number = self._numbers[key] = len(self.measured)
        self._measure(port, memory, is_write, pattern)
        return Found(number, latency_ps, True)

    def _measure(self, port: int, memory: int, is_write: bool, pattern: Pattern) -> None:
        spec, owner = self._memories[memory], self._ports[port]
        sharers = sum(other.bus == owner.bus for other in self._ports) // 2  # in one direction
        streams = 1 << max(1, sharers.bit_length() - 1)
        cut_bytes = self._buses[owner.bus].cut_bytes
        alone = Source(1, bursts_in_flight(owner), cut_bytes)
        many = Source(streams, bursts_in_flight(owner), cut_bytes)
        mix = Mix.WRITE if is_write else Mix.READ
        one = efficiency(spec, alone, pattern, mix)
        all_of_them = efficiency(spec, many, pattern, mix)
        self.measured.append(all_of_them)
        self._rows.append((
            one.bandwidth_frac / coverage(spec, pattern, 1),
            all_of_them.bandwidth_frac / coverage(spec, pattern, streams),
            *all_of_them.overhead_frac,
        ))  # fmt: skip
        if memory not in self._memory_rows:
            self._memory_rows[memory] = (log2(streams), *self._write_costs(spec, many))

    @staticmethod
    def _write_costs(spec: DramConfig | SramConfig, source: Source) -> tuple[float, float]:
        """Turnaround time per written time, and weight of a written byte when all contend.

        Of the throttled mix, 1 = reads / e_read + writes / e_write + writes x turnaround, with
        reads and writes as shares of the peak.
        """
        read, write, throttled, contended = (
            efficiency(spec, source, LONG, mix)
            for mix in (Mix.READ, Mix.WRITE, Mix.THROTTLED, Mix.CONTENDED)
        )
        written = throttled.bandwidth_frac * throttled.write_frac
        reading = throttled.bandwidth_frac - written
        used = reading / read.bandwidth_frac + written / write.bandwidth_frac
        turnaround = max(0.0, (1.0 - used) / written) if written else 0.0
        share = contended.write_frac
        weight = share / (1.0 - share) if share < 1.0 else MOST_WEIGHT
        return turnaround, min(max(weight, 1.0 / MOST_WEIGHT), MOST_WEIGHT)


def bursts_in_flight(port: PortConfig) -> int:
    """AXI bursts a port may have outstanding in one direction."""
    if port.outstanding_per_id:
        return min(port.outstanding, port.ids * port.outstanding_per_id)
    return port.outstanding


def posted_ps(memory: DramConfig, bus: BusConfig, port: PortConfig) -> int:
    """From the last written byte on the bus to its response: the way there and back."""
    crossings = (
        bus.crossing_to(period_ps) * (period_ps + bus.clock_period_ps)
        for period_ps in (port.clock_period_ps, Fraction(memory.device.cycle_ps))
    )
    return int(bus.latency_ps + sum(crossings))


def coverage(memory: DramConfig | SramConfig, pattern: Pattern, streams: int) -> float:
    """Share of the channels that `measure` reaches with strided streams of a class."""
    if pattern.stride_bytes == 0:
        return 1.0
    channels, block = interleave(memory)
    mask = 0
    for i in range(min(streams, channels)):
        mask |= channel_mask(i, 0, pattern.row_bytes, pattern.stride_bytes, SAMPLES, block,
                             channels)  # fmt: skip
    return mask.bit_count() / channels
