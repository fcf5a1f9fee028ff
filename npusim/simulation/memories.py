"""The memory system of a device, built from its configuration."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from npusim.config.dram_rate import dram_entry
from npusim.config.dram_table import dram_table
from npusim.config.memory import WritePolicy
from npusim.config.run_spec import Fidelity
from npusim.errors import ConfigError
from npusim.memory.dram.timing import DramDevice, load_dram_device, parse_device
from npusim.memory.specs import BusConfig, DramConfig, PortConfig, SramConfig

if TYPE_CHECKING:
    from npusim.compiler.target import Target
    from npusim.config.memory import DramSpec
    from npusim.config.system import SystemConfig
    from npusim.engine import MemoryKernel
    from npusim.memory.sharing import SharingMemory
    from npusim.memory.system import MemorySystem

PS_PER_S = 10**12


def peak_bytes_per_s(system: SystemConfig) -> dict[str, int]:
    """Peak rate of the pins of every memory."""
    return {name: _dram_peak(spec) for name, spec in system.memories.items()}


def memory_peaks(system: SystemConfig) -> dict[str, int]:
    """Peak rate of every memory and of every shared SRAM, by name."""
    peaks = peak_bytes_per_s(system)
    for name, device in system.devices.items():
        if device.shared_sram is not None:
            width = device.shared_sram.banks * device.shared_sram.port_bytes
            # reads and writes have a data channel each
            peaks[f"{name}.shared_sram"] = 2 * width * device.clock_hz
    return peaks


def check_capacity(system: SystemConfig) -> None:
    """Refuse a memory whose capacity its channels and ranks do not have.

    Raises
    ------
    ConfigError
        With the capacity that the standard, channels and ranks give.
    """
    for name, spec in system.memories.items():
        device = _device(spec)
        built = device.channel_bytes * spec.channels * spec.ranks
        if spec.capacity_bytes > built:
            raise ConfigError(
                f"memories.{name}.capacity_bytes",
                f"{spec.channels} channels x {spec.ranks} ranks of {spec.standard} "
                f"hold {built} bytes",
                spec.capacity_bytes,
            )


def build_memory(
    system: SystemConfig, target: Target, fidelity: Fidelity, *, jumps: bool = True
) -> MemoryKernel:
    """Ports, buses and memories as `Target` numbers them."""
    parts = _parts(system, target)
    if fidelity is Fidelity.TRANSFER:
        from npusim.memory.sharing import SharingMemory  # loads numba

        return _with_cache(SharingMemory(*parts), target)
    from npusim.memory.system import MemorySystem  # loads numba

    return _with_cache(MemorySystem(*parts, jumps=jumps), target)


def memory_identity(system: SystemConfig, target: Target) -> str:
    """Text that is equal for two systems exactly if their memory systems are."""
    return repr((_parts(system, target), target.device.shared_sram))


def _parts(
    system: SystemConfig, target: Target
) -> tuple[list[PortConfig], list[BusConfig], list[DramConfig | SramConfig]]:
    return _ports(target), _buses(system, target), _memories(system, target)


def _with_cache(memory: MemorySystem | SharingMemory, target: Target) -> MemoryKernel:
    """The memory behind the shared SRAM, if that is a cache with lines."""
    shared = target.device.shared_sram
    if shared is None or shared.cache is None:
        return memory
    from npusim.memory.cache import CacheConfig  # loads numba
    from npusim.memory.cached import CachedMemory

    spec = shared.cache
    config = CacheConfig(
        capacity_bytes=shared.capacity_bytes,
        line_bytes=spec.line_bytes,
        sector_bytes=spec.sector_bytes,
        ways=spec.ways,
        write_back=spec.write_policy is WritePolicy.WRITE_BACK,
        write_allocate=spec.write_allocate,
    )
    return CachedMemory(
        memory,
        config,
        cache_memory=target.cache_memory,
        dram_memory=target.spaces[target.dram_space].memory,
        cache_port=target.num_dma_ports,
    )


def memory_configs(
    system: SystemConfig, target: Target
) -> list[tuple[DramConfig | SramConfig, BusConfig, PortConfig]]:
    """The memories a device reaches with bus and first port: its DRAM, then a shared SRAM."""
    buses, ports = _buses(system, target), _ports(target)
    first = [next(port for port in ports if port.bus == i) for i in range(len(buses))]
    found = {memory.name: memory for memory in _memories(system, target)}
    reached = [found[target.dram_name]]
    reached += [memory for memory in found.values() if isinstance(memory, SramConfig)]
    return list(zip(reached, buses, first, strict=True))


@cache
def _device(spec: DramSpec) -> DramDevice:
    """The device of a memory, with its pins at the memory's rate."""
    if spec.data_rate_hz is None:
        return load_dram_device(spec.standard)
    name = f"{spec.standard} at {spec.data_rate_hz} transfers/s"
    return parse_device(name, dram_entry(spec), dram_table()["commands"])


def _dram_peak(spec: DramSpec) -> int:
    device = _device(spec)
    return int(device.channel_peak_bytes_per_s * spec.channels)


def _ports(target: Target) -> list[PortConfig]:
    dma = target.core.dma
    ports = []
    for engine in target.engines:
        if engine.port < 0:
            continue
        for path, rate in target.port_paths():
            ports.append(
                PortConfig(
                    name=f"{engine.name}.{path}",
                    bus=0 if path == "dram" else 1,
                    clock_period_ps=engine.period_ps,
                    bytes_per_cycle=rate,
                    outstanding=dma.outstanding_bursts,
                    ids=dma.ids or 0,
                    outstanding_per_id=dma.outstanding_per_id or 0,
                    qos=(dma.qos or {}).get(engine.name.rpartition(".")[2], 0),
                )
            )
    shared = target.device.shared_sram
    if shared is not None and shared.cache is not None:  # writes evicted lines back
        ports.append(
            PortConfig(
                name=f"{target.device_name}.shared_sram.write_back",
                bus=0,
                clock_period_ps=target.period_ps,
                bytes_per_cycle=shared.banks * shared.port_bytes,
                outstanding=dma.outstanding_bursts,
            )
        )
    return ports


def _buses(system: SystemConfig, target: Target) -> list[BusConfig]:
    spec = system.buses[target.device.bus]
    buses = [
        BusConfig(
            name=target.device.bus,
            clock_period_ps=Fraction(PS_PER_S, spec.clock_hz),
            data_bytes=spec.data_bits // 8,
            latency_ps=spec.latency_ps,
            max_burst_beats=spec.max_burst_beats,
            arbitration=spec.arbitration.value,
            crossing_cycles=spec.crossing_cycles or 0,
        )
    ]
    shared = target.device.shared_sram
    if shared is not None:
        buses.append(
            BusConfig(
                name=f"{target.device_name}.shared_sram",
                clock_period_ps=target.period_ps,
                data_bytes=shared.banks * shared.port_bytes,
                latency_ps=0,
                max_burst_beats=256,
                arbitration=spec.arbitration.value,
            )
        )
    return buses


def _controller(spec: DramSpec) -> dict[str, Any]:
    """Optional keys of the controller that a system states."""
    keys = ("controller", "scheduler", "page_cap", "bank_queue_depth", "row_hit_limit")
    stated = {key: getattr(spec, key) for key in keys}
    return {k: getattr(v, "value", v) for k, v in stated.items() if v is not None}


def _memories(system: SystemConfig, target: Target) -> list[DramConfig | SramConfig]:
    memories: list[DramConfig | SramConfig] = [
        DramConfig(
            name=name,
            device=_device(spec),
            channels=spec.channels,
            ranks=spec.ranks,
            capacity_bytes=spec.capacity_bytes,
            address_map=spec.address_map,
            channel_interleave_bytes=spec.channel_interleave_bytes,
            read_queue_depth=spec.read_queue_depth,
            write_queue_depth=spec.write_queue_depth,
            write_high_frac=spec.write_high_frac,
            write_low_frac=spec.write_low_frac,
            page_policy=spec.page_policy.value,
            refresh=spec.refresh.value,
            posted_writes=spec.posted_writes,
            partial_write=spec.partial_write.value,
            latency_ps=spec.latency_ps,
            **_controller(spec),
        )
        for name, spec in system.memories.items()
    ]
    shared = target.device.shared_sram
    if shared is not None:
        memories.append(
            SramConfig(
                name=f"{target.device_name}.shared_sram",
                clock_period_ps=target.period_ps,
                banks=shared.banks,
                port_bytes=shared.port_bytes,
                interleave_bytes=shared.interleave_bytes,
                latency_cycles=shared.latency_cycles,
                capacity_bytes=shared.capacity_bytes,
            )
        )
    return memories
