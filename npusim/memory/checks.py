"""What a memory system refuses before time starts, and the closed form of one unloaded read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ConfigError, SimulationError
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.dram.timing import spacings
from npusim.memory.specs import SramConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from npusim.memory.specs import BusConfig, DramConfig, PortConfig


def check_links(
    ports: Sequence[PortConfig],
    buses: Sequence[BusConfig],
    memories: Sequence[DramConfig | SramConfig],
) -> None:
    """Refuse a system without parts or with a port on a bus that does not exist."""
    for name, items in (("ports", ports), ("buses", buses), ("memories", memories)):
        if not items:
            raise ConfigError(name, "at least one is needed")
    for port in ports:
        if not 0 <= port.bus < len(buses):
            raise ConfigError(f"port {port.name!r}.bus", f"lies in 0..{len(buses) - 1}", port.bus)


def check_receivers(
    ports: Sequence[PortConfig], port: int, is_write: bool, receivers: Sequence[int]
) -> None:
    """Refuse a multicast that is no read, or to ports that cannot see the leader's bus."""
    where = "memory.submit"
    if is_write:
        raise SimulationError(where, "a multicast is a read", tuple(receivers))
    others = {r for r in receivers if 0 <= r < len(ports) and r != port}
    if len(others) != len(receivers):
        raise SimulationError(where, "receivers are other ports, each once", tuple(receivers))
    if any(ports[r].bus != ports[port].bus for r in others):
        raise SimulationError(where, "receivers are on the leader's bus", tuple(receivers))
    if max(others) >= L.RECEIVER_WORDS * L.RECEIVER_BITS:
        rule = f"receivers are among the first {L.RECEIVER_WORDS * L.RECEIVER_BITS} ports"
        raise SimulationError(where, rule, max(others))


def checked_runs(
    ports: Sequence[PortConfig],
    memories: Sequence[DramConfig | SramConfig],
    clock_ps: int,
    now_ps: int,
    port: int,
    memory: int,
    runs: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Refuse a transfer that cannot be; rows that touch become one."""
    if now_ps < clock_ps:
        raise SimulationError("memory.submit", f"now_ps >= {clock_ps}", now_ps)
    if not (0 <= port < len(ports) and 0 <= memory < len(memories)):
        raise SimulationError("memory.submit", "port and memory exist", (port, memory))
    runs = np.ascontiguousarray(runs, dtype=np.int64)
    if runs.ndim != 2 or runs.shape[1] != 4 or len(runs) == 0:
        raise SimulationError("memory.submit", "runs have shape (n > 0, 4)", runs.shape)
    base, size, stride, count = runs.T
    if size.min() < 1 or count.min() < 1:
        raise SimulationError("memory.submit", "runs move at least one byte", runs.tolist()[:4])
    last = base + stride * (count - 1)
    low, high = np.minimum(base, last).min(), (np.maximum(base, last) + size).max()
    if low < 0 or high > memories[memory].capacity_bytes:
        where = f"memory {memories[memory].name!r}"
        raise SimulationError(where, "runs stay inside the memory", (int(low), int(high)))
    joined = (stride == size) & (count > 1)
    if joined.any():
        runs = runs.copy()
        runs[joined, 1] *= runs[joined, 3]
        runs[joined, 3] = 1
    return runs


def unloaded_read_ps(
    spec: DramConfig | SramConfig, bus: BusConfig, port: PortConfig, size_bytes: int | None = None
) -> int:
    """Closed form behind `MemorySystem.unloaded_latency_ps`."""
    if isinstance(spec, SramConfig):
        memory_ps = spec.clock_period_ps
        inside = memory_ps * (1 + spec.latency_cycles)
        size = size_bytes or spec.port_bytes
    else:
        memory_ps = spec.device.cycle_ps
        s = spacings(spec.device)
        column = 1 + s["RCDRD"] + (1 if s["WCK"] else 0)
        inside = ((column | s["ODD"]) + s["RL"]) * spec.device.cycle_ps + spec.latency_ps
        size = size_bytes or spec.device.burst_bytes
    beats = -(-size // bus.data_bytes)
    crossing = bus.crossing_to(port.clock_period_ps) * (port.clock_period_ps + bus.clock_period_ps)
    crossing += bus.crossing_to(memory_ps) * (memory_ps + bus.clock_period_ps)
    return int(inside + bus.latency_ps + beats * bus.clock_period_ps + crossing)
