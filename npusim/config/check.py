"""What a system must satisfy beyond its own keys: its DRAM standards, and remarks on its balance.

The loader refuses what is wrong in itself; this check also reads the table of DRAM standards, which
a system under construction may not match yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from npusim.config.document import Path, dotted, leaves, value_at
from npusim.config.dram_rate import dram_entry
from npusim.config.dram_table import dram_table
from npusim.config.fields import FieldType
from npusim.config.memory import DramSpec, RefreshMode
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError, nearest
from npusim.units import format_bytes, format_bytes_per_s

_PS_PER_S = 10**12


def check_system(system: SystemConfig) -> tuple[str, ...]:
    """Check a loaded system against the DRAM standards it names.

    Parameters
    ----------
    system : SystemConfig
        A system that `load_system` accepted.

    Returns
    -------
    tuple[str, ...]
        Remarks: what limits what, numbers without an entry in ``sources``, and entries of
        ``sources`` or ``calibration`` that belong to no number.

    Raises
    ------
    ConfigError
        If a standard does not exist, a capacity is not channels x ranks x channel size, an
        interleave is smaller than a burst, or the standard lacks the refresh mode.
    """
    for name, dram in system.memories.items():
        _check_dram(f"memories.{name}", dram)
    return (*_bus_remarks(system), *_source_remarks(system))


def number_paths(system: SystemConfig) -> list[str]:
    """Dotted path of every number of a system, the ones that need an entry in ``sources``."""
    data = system.model_dump(mode="json", exclude={"sources", "calibration"}, exclude_none=True)
    root = FieldType(SystemConfig)
    return [dotted(path) for path in leaves(data) if _is_number(root, path)]


def _is_number(root: FieldType, path: Path) -> bool:
    place = root.below(path)
    return place is not None and place.annotation in (int, float, Fraction)


def _check_dram(path: str, dram: DramSpec) -> None:
    """Refuse a DRAM that its standard cannot make."""
    standard = _standard(path, dram)
    channel_bytes, burst_bytes = _channel_bytes(standard), _burst_bytes(standard)
    whole_bytes = dram.channels * dram.ranks * channel_bytes
    if dram.capacity_bytes != whole_bytes:
        rule = (
            f"must be {dram.channels} channels x {dram.ranks} ranks x "
            f"{format_bytes(channel_bytes)} of {dram.standard} = {format_bytes(whole_bytes)}"
        )
        raise ConfigError(f"{path}.capacity_bytes", rule, format_bytes(dram.capacity_bytes))
    if dram.channel_interleave_bytes < burst_bytes:
        rule = f"must be at least one burst of {dram.standard}, {burst_bytes} B"
        value = format_bytes(dram.channel_interleave_bytes)
        raise ConfigError(f"{path}.channel_interleave_bytes", rule, value)
    if dram.refresh is RefreshMode.PER_BANK and "nRFCpb" not in standard["timing_nCK"]:
        rule = f"{dram.standard} has no per-bank refresh"
        raise ConfigError(f"{path}.refresh", rule, dram.refresh.value, "use all_bank or none")


def dram_peak_bytes_per_s(dram: DramSpec) -> Fraction:
    """Peak rate of all channels of a DRAM: its data buses never idle."""
    standard = _standard("memory", dram)
    ticks = dram_table()["commands"][standard["standard"]]["ticks_per_clock"]
    cycles = int(standard["timing_nCK"]["nBL"]) * int(ticks)
    burst_ps = cycles * Fraction(str(standard["cycle_ps"]))
    buses = dram.channels * int(standard["organisation"]["pseudo_channels"])
    return Fraction(buses * _burst_bytes(standard) * _PS_PER_S) / burst_ps


def _standard(path: str, dram: DramSpec) -> dict[str, Any]:
    """Entry of the standard a DRAM names."""
    devices = dram_table()["devices"]
    if dram.standard not in devices:
        hint = nearest(dram.standard, devices)
        raise ConfigError(f"{path}.standard", "no such DRAM standard", dram.standard, hint)
    return dram_entry(dram)


def _channel_bytes(standard: dict[str, Any]) -> int:
    """Bytes of one channel with one rank."""
    organisation = standard["organisation"]
    width_bits = organisation["width_bits"]
    devices = width_bits // organisation.get("device_width_bits", width_bits)
    bits = organisation["density_bits"] * devices * organisation["pseudo_channels"]
    return int(bits) // 8


def _burst_bytes(standard: dict[str, Any]) -> int:
    """Bytes of one burst on one data bus."""
    organisation = standard["organisation"]
    return int(organisation["width_bits"] * organisation["burst_length"]) // 8


def _bus_remarks(system: SystemConfig) -> Iterator[str]:
    """Where a bus or all DMA engines together cannot carry what the DRAM gives."""
    for name, device in system.devices.items():
        bus = system.buses[device.bus]
        dram_rate = dram_peak_bytes_per_s(system.memories[bus.memory])
        peak = format_bytes_per_s(dram_rate)
        dma = device.core.dma
        dma_rate = device.clock_hz * device.cores * dma.load_engines * dma.dram_bytes_per_cycle
        for what, rate in ((f"buses.{device.bus}", bus.bytes_per_s), (f"DMA of {name}", dma_rate)):
            if rate < dram_rate:
                text = format_bytes_per_s(rate)
                yield f"{what} carries {text}, below the {peak} of {bus.memory}"


def _source_remarks(system: SystemConfig) -> Iterator[str]:
    """Numbers without a source, and sources without a value."""
    numbers = set(number_paths(system))
    for path in sorted(numbers - set(system.sources)):
        yield f"{path} has no entry in sources"
    data = system.model_dump(mode="json", exclude_none=True)
    for block in ("sources", "calibration"):
        for path in getattr(system, block):
            value = value_at(data, tuple(path.split(".")))
            if value is None or isinstance(value, (dict, list)):
                yield f"{block}.{path} belongs to no value"
