"""What the compiler knows of the device it compiles for: engines, spaces and rates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from npusim.compiler.dram_pattern import DramPattern
from npusim.config.compute import ComputeDtype
from npusim.errors import ConfigError, MappingError
from npusim.program import BankGeometry, Engine, EngineKind, MemorySpace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.config.compute import CoreSpec
    from npusim.config.memory import SharedSramSpec
    from npusim.config.system import SystemConfig

PS_PER_S = 10**12

#: a convert unit reads or writes 32-bit elements at most
_WIDEST_ELEM_BYTES = 4

#: scratchpad of an ideal memory
_UNBOUNDED_BYTES = 1 << 60

#: tRCD + tCL of any DRAM of today, about; used for predicted cost only
_ROW_PS = 36_000


@dataclass(frozen=True)
class CoreEngines:
    """Engine indices of one core."""

    matrix: int
    vector: int
    convert: int | None
    loads: tuple[int, ...]
    stores: tuple[int, ...]


class Target:
    """One device of a system, resolved for code generation.

    Spaces are, in order: the DRAM behind the device's bus, the shared SRAM if there is one, then
    one scratchpad per core. Ports are numbered as DMA engines are: per core, loads before stores;
    each engine has one port per path (`port_paths`).

    Parameters
    ----------
    system : SystemConfig
        System with exactly one device.
    dram_bytes_per_s : mapping of str to int
        Peak rate of every memory, by name; used for predicted cost only.
    max_cores : int, optional
        Cores the compiler may use; default all.
    active_cores : int, optional
        Cores of these that a program gives work; default all. Others exist, but idle.
    is_memory_ideal : bool
        Scratchpads hold whatever is put in, and issuing a descriptor takes no time.

    Raises
    ------
    ConfigError
        If the system has several devices.
    """

    def __init__(
        self,
        system: SystemConfig,
        dram_bytes_per_s: Mapping[str, int],
        max_cores: int | None = None,
        *,
        active_cores: int | None = None,
        is_memory_ideal: bool = False,
    ) -> None:
        if len(system.devices) != 1:
            raise ConfigError("devices", "one program runs on one device", sorted(system.devices))
        self.device_name, self.device = next(iter(system.devices.items()))
        self.host = system.host
        self._is_memory_ideal = is_memory_ideal
        bus = system.buses[self.device.bus]
        self.dram_name = bus.memory
        self.dram = system.memories[bus.memory]
        self.cores = min(self.device.cores, max_cores or self.device.cores)
        self.active_cores = min(self.cores, active_cores or self.cores)
        self.period_ps = Fraction(PS_PER_S, self.device.clock_hz)
        bus_bytes_per_s = bus.data_bits // 8 * bus.clock_hz
        self.dram_bytes_per_cycle = Fraction(
            min(dram_bytes_per_s[bus.memory], bus_bytes_per_s), self.device.clock_hz
        )
        self.dram_latency_cycles = (
            Fraction(bus.latency_ps + self.dram.latency_ps + _ROW_PS) / self.period_ps
        )
        self._num_memories = len(system.memories)
        self.bus_bytes = bus.data_bits // 8
        self.bus_beat_cycles = Fraction(self.device.clock_hz, bus.clock_hz)
        self.dram_accept_cycles = Fraction(bus.latency_ps) / self.period_ps
        self.dram_pattern = DramPattern.of(
            self.dram, float(self.dram_bytes_per_cycle * self.device.clock_hz)
        )
        self.ticks_per_cycle = self._ticks()
        self.spaces = self._spaces(system)
        self.engines, self.core_engines = self._engines()

    @property
    def core(self) -> CoreSpec:
        """The core template."""
        return self.device.core

    @property
    def host_engine(self) -> int:
        """Engine index of the host."""
        return 0

    @property
    def dispatch_engine(self) -> int:
        """Engine index of the device front end."""
        return 1

    @property
    def barrier_engine(self) -> int:
        """Engine index of the barrier registers."""
        return 2

    @property
    def dram_space(self) -> int:
        """Space index of the DRAM."""
        return 0

    @property
    def shared_space(self) -> int | None:
        """Space index of the shared SRAM; None without one, or if it is a cache with lines."""
        return None if self._managed_sram is None else 1

    @property
    def _managed_sram(self) -> SharedSramSpec | None:
        """The shared SRAM, if programs name bytes of it."""
        shared = self.device.shared_sram
        return None if shared is None or shared.cache is not None else shared

    @property
    def cache_memory(self) -> int:
        """Index in the memory system of the cache in front of the DRAM, -1 without one."""
        shared = self.device.shared_sram
        return self._num_memories if shared is not None and shared.cache is not None else -1

    @property
    def num_dma_ports(self) -> int:
        """Ports of all DMA engines."""
        dma = self.core.dma
        return self.cores * (dma.load_engines + dma.store_engines) * len(self.port_paths())

    def port_paths(self) -> tuple[tuple[str, int], ...]:
        """Paths of one DMA engine, each a memory-system port: name and bytes per cycle."""
        dma = self.core.dma
        paths = [("dram", dma.dram_bytes_per_cycle)]
        if self.device.shared_sram is not None:
            paths.append(("shared_sram", dma.bytes_per_cycle))
        return tuple(paths)

    def path_bytes_per_cycle(self, space: int) -> int:
        """Rate of one DMA engine towards a space."""
        is_dram = self.spaces[space].kind == "dram"
        return self.core.dma.dram_bytes_per_cycle if is_dram else self.core.dma.bytes_per_cycle

    def scratchpad_space(self, core: int) -> int:
        """Space index of a core's scratchpad."""
        return (1 if self._managed_sram is None else 2) + core

    def ticks(self, cycles: Fraction | int) -> int:
        """Exact ticks of a number of cycles."""
        ticks = cycles * self.ticks_per_cycle
        if Fraction(ticks).denominator != 1:
            raise AssertionError(f"{cycles} cycles are no whole number of ticks")
        return int(ticks)

    def compute_dtype(self, wanted: str, where: str) -> ComputeDtype:
        """Format the matrix unit computes in for `wanted`, or its 16-bit twin.

        fp16 and bf16 stand in for each other, as in the bounds (`analytic.peaks.TWINS`, which the
        compiler does not import).

        Raises
        ------
        MappingError
            If the unit supports neither.
        """
        supported = self.core.matrix.dtypes
        twins = {"bf16": "fp16", "fp16": "bf16"}
        for name in (wanted, twins.get(wanted)):
            if name in supported:
                return ComputeDtype(name)
        raise MappingError(
            where,
            f"the matrix unit of {self.device_name} computes in "
            f"{', '.join(d.value for d in supported)} only",
            wanted,
        )

    def vector_dtype(self, wanted: str | None, where: str) -> ComputeDtype:
        """Format the vector unit computes in: `wanted`, its 16-bit twin, or fp32.

        Raises
        ------
        MappingError
            If the unit has none of them.
        """
        lanes = self.core.vector.lanes
        for name in (wanted, "fp16", "bf16", "fp32"):
            if name in lanes:
                return ComputeDtype(name)
        raise MappingError(where, "the vector unit lacks a floating-point format", wanted)

    def _ticks(self) -> int:
        convert = self.core.convert
        return convert.fixed_cycles.denominator if convert is not None else 1

    def _spaces(self, system: SystemConfig) -> tuple[MemorySpace, ...]:
        names = list(system.memories)
        sram = self.device.shared_sram
        cache = sram.cache if sram is not None and not self._is_memory_ideal else None
        spaces = [
            MemorySpace(
                self.dram_name,
                "dram",
                self.dram.capacity_bytes,
                names.index(self.dram_name),
                cache=-1 if cache is None else self.cache_memory,
                cached_roles=() if cache is None else cache.cached_roles,
            )
        ]
        shared = self._managed_sram
        if shared is not None:
            spaces.append(
                MemorySpace(
                    f"{self.device_name}.shared_sram",
                    "shared_sram",
                    shared.capacity_bytes,
                    len(names),
                )
            )
        ideal = self._is_memory_ideal
        capacity = _UNBOUNDED_BYTES if ideal else self.core.scratchpad.capacity_bytes
        banks = None if ideal else self._banks()
        spaces.extend(
            MemorySpace(
                f"{self.device_name}.core{c}.scratchpad", "scratchpad", capacity, banks=banks
            )
            for c in range(self.cores)
        )
        if cache is not None and sram is not None:
            spaces.append(
                MemorySpace(
                    f"{self.device_name}.shared_sram",
                    "cache",
                    sram.capacity_bytes,
                    self.cache_memory,
                )
            )
        return tuple(spaces)

    def _banks(self) -> BankGeometry:
        pad = self.core.scratchpad
        return BankGeometry(
            pad.banks, pad.port_bytes, pad.bank_interleave_bytes, pad.ports or 1, pad.queue_depth
        )

    def _engines(self) -> tuple[tuple[Engine, ...], tuple[CoreEngines, ...]]:
        one_ps, name = Fraction(1), self.device_name
        depth = self.host.queue_depth
        engines = [
            Engine("host", EngineKind.HOST, "host", None, one_ps, queue_depth=depth),
            Engine(f"{name}.dispatch", EngineKind.DISPATCH, name, None, one_ps),
            Engine(f"{name}.barrier", EngineKind.BARRIER, name, None, self.period_ps),
        ]
        cores = tuple(self._add_core(engines, core) for core in range(self.cores))
        return tuple(engines), cores

    def _path_bytes(self, kind: EngineKind) -> tuple[int, int]:
        """Scratchpad bytes per cycle of an engine, see `Engine.path_bytes`."""
        core = self.core
        if kind is EngineKind.MATRIX:
            return core.matrix.operand_bytes_per_cycle, core.matrix.accumulator_bytes_per_cycle
        if kind is EngineKind.VECTOR:
            return core.vector.bytes_per_cycle, core.vector.bytes_per_cycle
        if kind is EngineKind.CONVERT and core.convert is not None:
            widest = core.convert.elems_per_cycle * _WIDEST_ELEM_BYTES
            return widest, widest
        return self._dma_share(core.dma.dram_bytes_per_cycle, self.dram_bytes_per_cycle), (
            self._dma_share(core.dma.bytes_per_cycle, self._shared_bytes_per_cycle())
        )

    def _dma_share(self, path: int, peak: Fraction | int) -> int:
        """Bytes per cycle of one DMA engine when those of all cores load at once."""
        engines = self.cores * self.core.dma.load_engines
        return max(min(path, -(-Fraction(peak) // engines)), 1)

    def _shared_bytes_per_cycle(self) -> int:
        shared = self.device.shared_sram
        return shared.banks * shared.port_bytes if shared is not None else 0

    def _add_core(self, engines: list[Engine], core: int) -> CoreEngines:
        """Append one core's engines."""
        name, dma = self.device_name, self.core.dma
        first_dma = core * (dma.load_engines + dma.store_engines)

        def add(unit: str, kind: EngineKind) -> int:
            full = f"{name}.core{core}.{unit}"
            path = self._path_bytes(kind)
            engines.append(Engine(full, kind, name, core, self.period_ps, path_bytes=path))
            return len(engines) - 1

        def add_dma(unit: str, kind: EngineKind, number: int) -> int:
            index = add(unit, kind)
            ticks = 0 if self._is_memory_ideal else self.ticks_per_cycle
            engines[index] = replace(
                engines[index],
                queue_depth=dma.queue_depth,
                issue_ticks=dma.issue_cycles * ticks,
                gather_ticks=(dma.gather_issue_cycles or 0) * ticks,
                gather_runs=dma.gather_pieces_per_fetch or 1,
                port=number * len(self.port_paths()),
            )
            return index

        matrix = add("matrix", EngineKind.MATRIX)
        vector = add("vector", EngineKind.VECTOR)
        convert = add("convert", EngineKind.CONVERT) if self.core.convert else None
        loads = tuple(
            add_dma(f"load{i}", EngineKind.DMA_LOAD, first_dma + i) for i in range(dma.load_engines)
        )
        stores = tuple(
            add_dma(f"store{i}", EngineKind.DMA_STORE, first_dma + dma.load_engines + i)
            for i in range(dma.store_engines)
        )
        return CoreEngines(matrix, vector, convert, loads, stores)
