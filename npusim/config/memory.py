"""Off-chip memories and the on-chip SRAM tier shared by cores."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from npusim.config.spec import (
    NonNegativeInt,
    PositiveInt,
    RuleError,
    ShareFrac,
    Spec,
    require_power_of_two,
)


class PagePolicy(StrEnum):
    """Whether a row stays open after an access."""

    OPEN = "open"
    CLOSED = "closed"


class RefreshMode(StrEnum):
    """How DRAM rows are refreshed."""

    ALL_BANK = "all_bank"
    PER_BANK = "per_bank"
    NONE = "none"


class PartialWrite(StrEnum):
    """What a write of less than a burst costs."""

    MASKED = "masked"
    READ_MODIFY_WRITE = "read_modify_write"


class DramSpec(Spec):
    """One DRAM system; `standard` names an entry of dram_standards.yaml."""

    standard: str
    """Timings and geometry: an entry of dram_standards.yaml."""
    channels: PositiveInt
    """Independent channels of the width the standard gives; a power of two."""
    ranks: PositiveInt
    """Ranks per channel; a power of two."""
    capacity_bytes: PositiveInt
    """Size, all channels and ranks together."""
    address_map: str
    """Named order of address fields, or a bit-by-bit map."""
    channel_interleave_bytes: PositiveInt
    """Contiguous bytes in one channel before the next; a power of two."""
    read_queue_depth: PositiveInt
    """Read entries of one channel's controller."""
    write_queue_depth: PositiveInt
    """Write entries of one channel's controller."""
    write_high_frac: ShareFrac
    """Share of write entries held at which the controller starts to drain writes."""
    write_low_frac: ShareFrac
    """Share of write entries held at which it returns to reads."""
    page_policy: PagePolicy
    """Whether a row stays open after an access."""
    refresh: RefreshMode
    """How rows are refreshed."""
    posted_writes: bool
    """A write completes when accepted (true) or when written (false)."""
    partial_write: PartialWrite
    """What a write of less than a burst costs."""
    latency_ps: NonNegativeInt
    """Static part of controller and PHY, per read."""

    @model_validator(mode="after")
    def _watermarks_ordered(self) -> Self:
        if self.write_low_frac >= self.write_high_frac:
            rule = f"must be below write_high_frac={self.write_high_frac}"
            raise RuleError("write_low_frac", rule, self.write_low_frac)
        return self

    @model_validator(mode="after")
    def _address_fields_are_bits(self) -> Self:
        for name in ("channels", "ranks", "channel_interleave_bytes"):
            require_power_of_two(name, getattr(self, name))
        stripe_bytes = self.channels * self.ranks * self.channel_interleave_bytes
        if self.capacity_bytes % stripe_bytes:
            rule = f"must be a multiple of channels x ranks x interleave = {stripe_bytes}"
            raise RuleError("capacity_bytes", rule, self.capacity_bytes)
        return self


class SharedSramKind(StrEnum):
    """Who decides what a shared SRAM tier holds."""

    CACHE = "cache"
    SCRATCHPAD = "scratchpad"


class SharedSramSpec(Spec):
    """On-chip SRAM tier reached by the DMA engines of all cores of a device."""

    kind: SharedSramKind
    """Managed by hardware (cache) or by software (scratchpad)."""
    capacity_bytes: PositiveInt
    """Size, all banks together."""
    banks: PositiveInt
    """Banks that work in the same cycle; a power of two."""
    port_bytes: PositiveInt
    """Bytes of one bank per cycle."""
    interleave_bytes: PositiveInt
    """Contiguous bytes in one bank before the next; a power of two."""
    latency_cycles: NonNegativeInt
    """Cycles of the device's clock from request to data."""

    @model_validator(mode="after")
    def _banks_are_address_bits(self) -> Self:
        for name in ("banks", "interleave_bytes"):
            require_power_of_two(name, getattr(self, name))
        if self.capacity_bytes % (self.banks * self.interleave_bytes):
            rule = (
                f"must be a multiple of banks x interleave = {self.banks * self.interleave_bytes}"
            )
            raise RuleError("capacity_bytes", rule, self.capacity_bytes)
        return self
