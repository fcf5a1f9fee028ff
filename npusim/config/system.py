"""A whole system: memories, buses, devices and a host."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from npusim.config.compiler import FusionMode, GemvUnit
from npusim.config.compute import CoreSpec
from npusim.config.host import HostSpec
from npusim.config.interconnect import BusSpec
from npusim.config.memory import DramSpec, SharedSramSpec
from npusim.config.rules import RuleError
from npusim.config.spec import (
    ClockRate,
    Name,
    NonNegativeInt,
    Ordered,
    PositiveInt,
    Spec,
)
from npusim.errors import nearest


class SharedTiles(StrEnum):
    """What a tile needed by several cores costs."""

    READ_PER_CORE = "read_per_core"  # n reads of the memory it lives in
    SHARED_SRAM = "shared_sram"  # first read from DRAM, the others from the shared SRAM
    MULTICAST = "multicast"  # one read, delivered to all cores that load it in step


class DeviceSpec(Spec):
    """Cores of one template on one clock, behind one bus."""

    clock_hz: ClockRate
    """Clock of cores, DMA engines, scratchpads and shared SRAM."""
    bus: str
    """Name of the bus to memory."""
    cores: Annotated[int, Field(gt=0, le=4096)]
    """Number of cores, all alike."""
    core: CoreSpec
    """Template of a core."""
    shared_sram: SharedSramSpec | None = None
    """SRAM tier between cores and bus; None: the device has none."""
    shared_tiles: SharedTiles
    """What a tile needed by several cores costs."""
    barrier_cycles: NonNegativeInt
    """Cycles from the last arrival at a barrier to the release, through the barrier registers."""
    fusion: FusionMode | None = None
    """What the product's compiler does unless `compiler.fusion` says otherwise; None: off."""
    gemv: GemvUnit | None = None
    """Unit of floating-point products of one row unless `compiler.gemv` says otherwise; None:
    matrix."""
    staging_tile_bytes: PositiveInt | None = None
    """Largest output tile of a matmul whose operands are staged: brought whole into the scratchpad
    before the first product, as the product's compiler does; None: it pipelines tiles instead."""
    address_limit_bytes: PositiveInt | None = None
    """Address space of the device; None: it reaches all of its memory."""

    @model_validator(mode="after")
    def _no_multicast_through_a_cache(self) -> Self:
        shared = self.shared_sram
        if self.shared_tiles is SharedTiles.MULTICAST and shared is not None and shared.cache:
            raise RuleError("shared_tiles", "a cache with lines has no multicast", "multicast")
        return self

    @model_validator(mode="after")
    def _shared_sram_exists(self) -> Self:
        if self.shared_tiles is SharedTiles.SHARED_SRAM and self.shared_sram is None:
            raise RuleError("shared_tiles", "needs a shared_sram block", "shared_sram")
        return self


class CalibratedValue(Spec):
    """A number fitted to measurements: the rows it was fitted on."""

    rows: tuple[str, ...]
    """Ids of the measured rows used in the fit."""
    note: str
    """How it was fitted, and the value it replaced."""


class SystemConfig(Spec):
    """One system. `sources` maps the dotted path of every number to where it comes from."""

    name: Name
    """Short name: lower-case letters, digits and dashes."""
    description: str
    """What the system is, for people."""
    memories: Annotated[dict[Name, DramSpec], Field(min_length=1), Ordered]
    """Off-chip memories by name."""
    buses: Annotated[dict[Name, BusSpec], Field(min_length=1), Ordered]
    """Buses by name."""
    devices: Annotated[dict[Name, DeviceSpec], Field(min_length=1), Ordered]
    """Devices by name."""
    host: HostSpec
    """Launch path."""
    sources: Annotated[dict[str, str], Ordered]
    """Dotted path of every number to the text that says where it comes from."""
    calibration: Annotated[dict[str, CalibratedValue], Ordered] = {}
    """Dotted path of every number fitted to measurements."""

    @model_validator(mode="after")
    def _references_resolve(self) -> Self:
        for name, bus in self.buses.items():
            _require_known(f"buses.{name}.memory", bus.memory, self.memories)
        for name, device in self.devices.items():
            _require_known(f"devices.{name}.bus", device.bus, self.buses)
        return self


def _require_known(path: str, name: str, known: Collection[str]) -> None:
    """Refuse a reference to something the system does not have."""
    if name not in known:
        raise RuleError(path, "must name something in this system", name, nearest(name, known))
