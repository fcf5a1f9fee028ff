"""What a memory system is built from: ports, buses, DRAM and SRAM, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from npusim.errors import ConfigError
from npusim.memory.dram.address_map import segments

if TYPE_CHECKING:
    from npusim.memory.dram.address_map import BitField
    from npusim.memory.dram.timing import DramDevice

AXI_BOUNDARY_BYTES = 4096
AXI_MAX_BEATS = 256
AXI_MAX_QOS = 15
AXI_MAX_IDS = 1024
ARBITRATIONS = ("round_robin", "fixed", "qos")


def require(holds: bool, where: str, rule: str, value: object) -> None:
    """Raise `ConfigError` unless the rule holds."""
    if not holds:
        raise ConfigError(where, rule, value)


def is_power_of_two(value: int) -> bool:
    """Whether `value` is 1, 2, 4, ..."""
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True)
class PortConfig:
    """One bus master: a DMA engine or the host.

    `bytes_per_cycle` is the engine's own limit in its clock, per direction; `outstanding` counts
    AXI bursts in flight per direction. With `ids` above 0 the bursts of a direction take that many
    AXI IDs in turn and those of one ID return in order, at most `outstanding_per_id` of them in
    flight (0: no limit of its own); with `ids` 0 every burst has an ID of its own. `qos` (0..15,
    higher first) matters on a bus with `qos` arbitration.
    """

    name: str
    bus: int
    clock_period_ps: Fraction
    bytes_per_cycle: int
    outstanding: int
    ids: int = 0
    outstanding_per_id: int = 0
    qos: int = 0

    def __post_init__(self) -> None:
        where = f"port {self.name!r}"
        require(
            self.clock_period_ps > 0, f"{where}.clock_period_ps", "is above 0", self.clock_period_ps
        )
        require(
            self.bytes_per_cycle > 0, f"{where}.bytes_per_cycle", "is above 0", self.bytes_per_cycle
        )
        require(self.outstanding > 0, f"{where}.outstanding", "is above 0", self.outstanding)
        require(0 <= self.ids <= AXI_MAX_IDS, f"{where}.ids", f"lies in 0..{AXI_MAX_IDS}", self.ids)
        require(
            self.outstanding_per_id >= 0,
            f"{where}.outstanding_per_id", "is at least 0", self.outstanding_per_id,
        )  # fmt: skip
        require(
            self.ids > 0 or self.outstanding_per_id == 0,
            f"{where}.outstanding_per_id", "needs ids above 0", self.outstanding_per_id,
        )  # fmt: skip
        require(0 <= self.qos <= AXI_MAX_QOS, f"{where}.qos", f"lies in 0..{AXI_MAX_QOS}", self.qos)


@dataclass(frozen=True)
class BusConfig:
    """A bus with separate read and write address and data channels.

    `latency_ps` is the unloaded traversal of request and response together; the request gets the
    larger half. Bursts are cut at multiples of `cut_bytes`. `crossing_cycles` is what a
    synchroniser takes, in cycles of the clock entered, wherever two clocks of different period
    meet: port and bus, bus and memory, each way.
    """

    name: str
    clock_period_ps: Fraction
    data_bytes: int
    latency_ps: int
    max_burst_beats: int
    arbitration: str = "round_robin"
    crossing_cycles: int = 0

    def __post_init__(self) -> None:
        where = f"bus {self.name!r}"
        require(
            self.clock_period_ps > 0, f"{where}.clock_period_ps", "is above 0", self.clock_period_ps
        )
        require(
            is_power_of_two(self.data_bytes),
            f"{where}.data_bytes",
            "is a power of two",
            self.data_bytes,
        )
        require(self.latency_ps >= 0, f"{where}.latency_ps", "is at least 0", self.latency_ps)
        require(
            1 <= self.max_burst_beats <= AXI_MAX_BEATS,
            f"{where}.max_burst_beats", f"lies in 1..{AXI_MAX_BEATS}", self.max_burst_beats,
        )  # fmt: skip
        require(
            self.arbitration in ARBITRATIONS,
            f"{where}.arbitration", f"is one of {', '.join(ARBITRATIONS)}", self.arbitration,
        )  # fmt: skip
        require(
            self.crossing_cycles >= 0,
            f"{where}.crossing_cycles", "is at least 0", self.crossing_cycles,
        )  # fmt: skip

    @property
    def cut_bytes(self) -> int:
        """Largest power of two that is at most a full burst and at most 4 KiB."""
        full = min(AXI_BOUNDARY_BYTES, self.max_burst_beats * self.data_bytes)
        return 1 << (full.bit_length() - 1)

    def crossing_to(self, period_ps: Fraction) -> int:
        """Cycles to pass between this bus and a clock: those of the same period are synchronous."""
        return 0 if period_ps == self.clock_period_ps else self.crossing_cycles


@dataclass(frozen=True)
class DramConfig:
    """A DRAM behind the buses: `channels` equal channels with a controller each.

    `write_high_frac` and `write_low_frac` are the drain watermarks of the write queue. `latency_ps`
    is added to every read's return (controller pipeline, PHY). `page_cap` is the number of column
    accesses after which `closed_cap` closes a row. `controller: bank_round_robin` keeps one queue
    of `read_queue_depth` transactions and `bank_queue_depth` commands per bank; after
    `row_hit_limit` column commands a conflict may close a row that is still wanted, and at most
    `merged_reads` reads share the command of another read.
    """

    name: str
    device: DramDevice
    channels: int
    capacity_bytes: int
    address_map: str | tuple[BitField, ...]
    channel_interleave_bytes: int
    ranks: int = 1
    read_queue_depth: int = 32
    write_queue_depth: int = 32
    write_high_frac: Fraction | float = Fraction(4, 5)
    write_low_frac: Fraction | float = Fraction(1, 5)
    page_policy: str = "open"
    refresh: str = "all_bank"
    posted_writes: bool = True
    partial_write: str = "masked"
    latency_ps: int = 0
    scheduler: str = "frfcfs_row_hit"
    controller: str = "frfcfs"
    page_cap: int = 1
    bank_queue_depth: int = 8
    row_hit_limit: int = 4
    merged_reads: int = 32

    def __post_init__(self) -> None:
        where = f"memory {self.name!r}"
        positive = (
            "channels", "ranks", "capacity_bytes", "read_queue_depth", "write_queue_depth",
            "page_cap", "bank_queue_depth", "row_hit_limit",
        )  # fmt: skip
        for key in positive:
            require(getattr(self, key) > 0, f"{where}.{key}", "is above 0", getattr(self, key))
        choices = {
            "page_policy": ("open", "closed", "closed_cap"),
            "controller": ("frfcfs", "bank_round_robin"),
            "refresh": ("all_bank", "per_bank", "none"),
            "partial_write": ("masked", "read_modify_write"),
            "scheduler": ("frfcfs", "frfcfs_row_hit"),
        }
        for key, allowed in choices.items():
            value = getattr(self, key)
            require(value in allowed, f"{where}.{key}", f"is one of {', '.join(allowed)}", value)
        most = self.device.channel_bytes * self.ranks * self.channels
        require(
            self.capacity_bytes <= most,
            f"{where}.capacity_bytes", f"is at most channels x ranks x device = {most}",
            self.capacity_bytes,
        )  # fmt: skip
        require(
            self.channel_interleave_bytes > 0
            and self.channel_interleave_bytes % self.device.burst_bytes == 0,
            f"{where}.channel_interleave_bytes",
            f"is a multiple of the burst of {self.device.burst_bytes} bytes",
            self.channel_interleave_bytes,
        )
        require(
            0 <= self.write_low_frac < self.write_high_frac <= 1,
            f"{where}.write_low_frac", "0 <= low < high <= 1",
            (self.write_low_frac, self.write_high_frac),
        )  # fmt: skip
        require(self.latency_ps >= 0, f"{where}.latency_ps", "is at least 0", self.latency_ps)
        self._check_refresh(where)
        if self.is_round_robin:
            self._check_round_robin(where)
        segments(self.address_map, self.device, self.ranks)

    def _check_refresh(self, where: str) -> None:
        """Per-bank refresh needs its timings, and must keep up."""
        if self.refresh != "per_bank":
            return
        timing = self.device.timing
        require(
            min(timing.get(key, 0) for key in ("nRFCpb", "nREFIpb")) > 0,
            f"{where}.refresh", "per_bank needs nRFCpb and nREFIpb", self.device.name,
        )  # fmt: skip
        row_cycle = timing.get("nRC", timing["nRAS"] + timing["nRP"])
        require(
            timing.get("nPBR2PBR", 0) + row_cycle < timing["nREFIpb"],
            f"{where}.refresh", "per_bank needs nPBR2PBR + nRC below nREFIpb", self.device.name,
        )  # fmt: skip

    def _check_round_robin(self, where: str) -> None:
        """The round-robin controller has open pages, rank refresh and plain activates only."""
        allowed = {"page_policy": ("open",), "refresh": ("all_bank", "none")}
        for key, values in allowed.items():
            value = getattr(self, key)
            rule = f"with controller bank_round_robin is {' or '.join(values)}"
            require(value in values, f"{where}.{key}", rule, value)
        device = self.device
        is_plain = not (device.two_step_activate or device.wck_sync or device.rising_edge_only)
        rule = "bank_round_robin does not know two-step activates, WCK or half-cycle commands"
        require(is_plain, f"{where}.controller", rule, device.name)

    @property
    def is_round_robin(self) -> bool:
        """Whether banks have queues of their own."""
        return self.controller == "bank_round_robin"

    @property
    def peak_bytes_per_s(self) -> Fraction:
        """Peak over all channels."""
        return self.device.channel_peak_bytes_per_s * self.channels

    @property
    def data_buses(self) -> int:
        """Data buses that attribution sums over: channels x pseudo-channels."""
        return self.channels * self.device.pseudo_channels


@dataclass(frozen=True)
class SramConfig:
    """Shared on-chip SRAM reached over a bus; each bank serves one word per cycle."""

    name: str
    clock_period_ps: Fraction
    banks: int
    port_bytes: int
    interleave_bytes: int
    latency_cycles: int
    capacity_bytes: int

    def __post_init__(self) -> None:
        where = f"memory {self.name!r}"
        require(
            self.clock_period_ps > 0, f"{where}.clock_period_ps", "is above 0", self.clock_period_ps
        )
        for key in ("banks", "port_bytes", "interleave_bytes", "capacity_bytes"):
            require(getattr(self, key) > 0, f"{where}.{key}", "is above 0", getattr(self, key))
        require(
            self.latency_cycles >= 0,
            f"{where}.latency_cycles",
            "is at least 0",
            self.latency_cycles,
        )
        require(
            self.interleave_bytes % self.port_bytes == 0,
            f"{where}.interleave_bytes", f"is a multiple of port_bytes={self.port_bytes}",
            self.interleave_bytes,
        )  # fmt: skip

    @property
    def peak_bytes_per_s(self) -> Fraction:
        """Peak over all banks."""
        return Fraction(self.banks * self.port_bytes * 10**12) / self.clock_period_ps

    @property
    def data_buses(self) -> int:
        """Data buses that attribution sums over: the banks."""
        return self.banks
