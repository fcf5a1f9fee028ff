"""Clocks that meet at ports, buses and memories (for `memory_oracle`)."""

from __future__ import annotations

from npusim.memory.specs import DramConfig
from tests.property.memory_oracle_dram import cycle_from, edge


class Crossings:
    """Needs `ports`, `buses` and `memories`; every method says when one side sees the other."""

    @staticmethod
    def cycles_between(bus, period):
        return 0 if period == bus.clock_period_ps else bus.crossing_cycles

    @staticmethod
    def synchronised(period, cycles, ps):
        return edge(period, cycle_from(period, ps) + cycles) if cycles else ps

    def bus_of(self, port):
        return self.buses[self.ports[port].bus]

    def memory_period(self, memory):
        spec = self.memories[memory]
        return spec.device.cycle_ps if isinstance(spec, DramConfig) else spec.clock_period_ps

    def into_bus(self, port, ps):
        """When the bus sees what the port did at `ps`."""
        bus = self.bus_of(port)
        cycles = self.cycles_between(bus, self.ports[port].clock_period_ps)
        return self.synchronised(bus.clock_period_ps, cycles, ps)

    def at_memory(self, port, memory, ps):
        """When the memory sees what the bus granted and sent at `ps`."""
        bus, period = self.bus_of(port), self.memory_period(memory)
        request = ps + bus.latency_ps - bus.latency_ps // 2
        return self.synchronised(period, self.cycles_between(bus, period), request)

    def back_on_bus(self, port, memory, ps):
        """When the bus has on its side what leaves the memory at `ps`."""
        bus = self.bus_of(port)
        cycles = self.cycles_between(bus, self.memory_period(memory))
        return self.synchronised(bus.clock_period_ps, cycles, ps + bus.latency_ps // 2)

    def port_cycle(self, port, ps):
        """Cycle of the port that sees what is on its bus at `ps`."""
        period = self.ports[port].clock_period_ps
        return cycle_from(period, ps) + self.cycles_between(self.bus_of(port), period)

    def at_port(self, port, ps):
        return edge(self.ports[port].clock_period_ps, self.port_cycle(port, ps))
