"""Off-chip memories and the on-chip SRAM tier shared by cores."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from npusim.config.rules import RuleError
from npusim.config.spec import (
    NonNegativeInt,
    PositiveInt,
    ShareFrac,
    Spec,
    require_power_of_two,
)


class PagePolicy(StrEnum):
    """Whether a row stays open after an access."""

    OPEN = "open"
    CLOSED = "closed"
    CLOSED_CAP = "closed_cap"


class DramController(StrEnum):
    """How a channel's controller queues and picks commands."""

    FRFCFS = "frfcfs"
    BANK_ROUND_ROBIN = "bank_round_robin"


class DramScheduler(StrEnum):
    """Whether a queued row hit keeps a row open against a conflict that came no earlier."""

    FRFCFS = "frfcfs"
    FRFCFS_ROW_HIT = "frfcfs_row_hit"


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
    data_rate_hz: PositiveInt | None = None
    """Transfers per second and pin; None: those of the standard."""
    channels: PositiveInt
    """Independent channels of the width the standard gives; a power of two."""
    ranks: PositiveInt
    """Ranks per channel; a power of two."""
    capacity_bytes: PositiveInt
    """Size, all channels and ranks together."""
    address_map: str
    """Named order of address fields (BGlow, RowLinear, BankLow, BGlowXOR), or every field with its
    bits above the channel: ``BankGroup:5-6,Column:7-12,Bank:13-14,Row:15-29;Bank^=Row[1:0]``."""
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
    controller: DramController | None = None
    """First ready first come, with a read and a write queue; or a queue per bank, served round
    robin, behind one queue of `read_queue_depth` entries. Absent: frfcfs."""
    scheduler: DramScheduler | None = None
    """Order inside a queue of the frfcfs controller. Absent: frfcfs_row_hit."""
    page_cap: PositiveInt | None = None
    """Column accesses after which closed_cap closes a row; required with it."""
    bank_queue_depth: PositiveInt | None = None
    """Commands queued per bank; required with controller bank_round_robin."""
    row_hit_limit: PositiveInt | None = None
    """Column accesses after which a conflict may close a row that is still wanted; required with
    controller bank_round_robin."""

    @model_validator(mode="after")
    def _policies_have_their_keys(self) -> Self:
        is_round_robin = self.controller is DramController.BANK_ROUND_ROBIN
        self._with("page_policy: closed_cap", self.page_policy is PagePolicy.CLOSED_CAP, "page_cap")
        for key in ("bank_queue_depth", "row_hit_limit"):
            self._with("controller: bank_round_robin", is_round_robin, key)
        if not is_round_robin:
            return self
        if self.page_policy is not PagePolicy.OPEN:
            rule = "must be open with controller bank_round_robin"
            raise RuleError("page_policy", rule, self.page_policy.value)
        if self.refresh is RefreshMode.PER_BANK:
            rule = "must be all_bank or none with controller bank_round_robin"
            raise RuleError("refresh", rule, self.refresh.value)
        if self.scheduler is not None:
            rule = "belongs to controller frfcfs"
            raise RuleError("scheduler", rule, self.scheduler.value)
        return self

    def _with(self, setting: str, is_set: bool, key: str) -> None:
        """A key that comes with a setting and only with it."""
        value = getattr(self, key)
        if is_set and value is None:
            raise RuleError(key, f"is required with {setting}")
        if not is_set and value is not None:
            raise RuleError(key, f"belongs to {setting}", value)

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


#: sectors of a cache line
MAX_SECTORS = 62


class SharedSramKind(StrEnum):
    """Who decides what a shared SRAM tier holds."""

    CACHE = "cache"
    SCRATCHPAD = "scratchpad"


class WritePolicy(StrEnum):
    """When the memory behind a cache gets what is written."""

    WRITE_BACK = "write_back"  # when the line loses its place
    WRITE_THROUGH = "write_through"  # at once


class CacheSpec(Spec):
    """A set-associative cache with sectors and least recently used replacement."""

    line_bytes: PositiveInt
    """Bytes of a line, which has one tag; a power of two."""
    sector_bytes: PositiveInt
    """Bytes fetched and written back at a time; a power of two."""
    ways: PositiveInt
    """Lines of a set."""
    write_policy: WritePolicy
    """Whether the memory behind gets what is written at once or on eviction."""
    write_allocate: bool
    """Whether a write to an absent line brings the line in, or goes around the cache."""
    bypass_weights: bool
    """Weights go around the cache."""
    bypass_kv: bool
    """The KV cache goes around the cache."""
    bypass_activations: bool
    """Activations go around the cache."""

    @model_validator(mode="after")
    def _sectors_are_address_bits(self) -> Self:
        for name in ("line_bytes", "sector_bytes"):
            require_power_of_two(name, getattr(self, name))
        if not 1 <= self.line_bytes // self.sector_bytes <= MAX_SECTORS:
            rule = f"must have 1 to {MAX_SECTORS} sectors of sector_bytes={self.sector_bytes}"
            raise RuleError("line_bytes", rule, self.line_bytes)
        return self

    @property
    def cached_roles(self) -> tuple[str, ...]:
        """Roles of tensors that go through the cache."""
        passes = (
            ("weight", self.bypass_weights),
            ("kv", self.bypass_kv),
            ("activation", self.bypass_activations),
        )
        return tuple(role for role, is_bypass in passes if not is_bypass)


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
    cache: CacheSpec | None = None
    """Lines, sectors and policy; None: what a program keeps in a cache always hits."""

    @model_validator(mode="after")
    def _cache_fits(self) -> Self:
        if self.cache is None:
            return self
        if self.kind is not SharedSramKind.CACHE:
            raise RuleError("cache", f"does not apply to kind={self.kind.value}")
        set_bytes = self.cache.line_bytes * self.cache.ways
        if self.capacity_bytes % set_bytes:
            rule = f"must be a multiple of line_bytes x ways = {set_bytes}"
            raise RuleError("capacity_bytes", rule, self.capacity_bytes)
        return self

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
