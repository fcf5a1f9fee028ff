"""Peak rates of a system: what no schedule can exceed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.config.compute import ComputeDtype
from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.config.compiler import CompilerConfig
    from npusim.config.system import DeviceSpec, SystemConfig

#: 16-bit formats stand in for each other where a unit has only one
TWINS = {"bf16": "fp16", "fp16": "bf16"}


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak rates, summed over devices.

    Parameters
    ----------
    macs_per_s : Mapping[str, int]
        By format; what a device does not compute in counts at the format that stands in, or at its
        fastest one, so that a bound made of these stays a bound.
    dram_bytes_per_s : int
        Pins of all memories that a device reaches, reads and writes together.
    bus_bytes_per_s : int
        Data channels of all buses, each direction.
    """

    macs_per_s: Mapping[str, int]
    dram_bytes_per_s: int
    bus_bytes_per_s: int


def peaks_of(
    system: SystemConfig, compiler: CompilerConfig, peak_bytes_per_s: Mapping[str, int]
) -> Peaks:
    """Peaks of a system with the cores the compiler may use.

    Parameters
    ----------
    system : SystemConfig
        Devices, buses and memories.
    compiler : CompilerConfig
        Read for `max_cores`, per device.
    peak_bytes_per_s : Mapping[str, int]
        Peak rate of every memory by name; comes from its DRAM standard.

    Raises
    ------
    ConfigError
        If a memory behind a device has no peak rate.
    """
    buses = {device.bus: system.buses[device.bus] for device in system.devices.values()}
    memories = {bus.memory for bus in buses.values()}
    for name in sorted(memories - set(peak_bytes_per_s)):
        rule = "has no peak rate"
        raise ConfigError(f"memories.{name}", rule, None, nearest(name, peak_bytes_per_s))
    return Peaks(
        macs_per_s={
            dtype.value: sum(
                _macs_per_s(device, dtype, compiler.max_cores) for device in system.devices.values()
            )
            for dtype in ComputeDtype
        },
        dram_bytes_per_s=sum(peak_bytes_per_s[name] for name in memories),
        bus_bytes_per_s=sum(bus.data_bits // 8 * bus.clock_hz for bus in buses.values()),
    )


def _macs_per_s(device: DeviceSpec, dtype: ComputeDtype, max_cores: int | None) -> int:
    """Peak of one device in a format."""
    matrix = device.core.matrix
    if dtype not in matrix.dtypes:
        twin = ComputeDtype(TWINS.get(dtype.value, dtype.value))
        fastest = max(matrix.dtypes, key=matrix.macs_per_cycle)
        dtype = twin if twin in matrix.dtypes else fastest
    cores = min(device.cores, max_cores or device.cores)
    return cores * matrix.macs_per_cycle(dtype) * device.clock_hz
