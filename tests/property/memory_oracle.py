"""A plain model of the memory system: lists, one controller cycle at a time, nothing skipped.

It shares no code with `npusim.memory` but the configuration classes and the spacing table, and
follows docs/modelling/memory.md word by word. Slow and meant to be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from npusim.memory.specs import DramConfig
from tests.property.memory_oracle_crossings import Crossings
from tests.property.memory_oracle_dram import Channel
from tests.property.memory_oracle_parts import INFINITY, cycle_from, edge
from tests.property.memory_oracle_round_robin import RoundRobinChannel

SETTLED_PS = 3 * 10**8  # several times as long as the slowest small program takes


@dataclass
class Transfer:
    port: int
    memory: int
    is_write: bool
    submitted: int
    bursts: list[tuple[int, int]]  # (address, bytes), cut
    left: int = 0
    done: int | None = None

    def __post_init__(self):
        self.left = len(self.bursts)


@dataclass
class AxiBurst:
    transfer: Transfer
    port: int
    number: int
    address: int
    size: int
    arrive: int = 0
    pieces: list[tuple[int, bool]] | None = None  # (DRAM burst address, is it a read for RMW)
    waiting_for: int = 0
    first: float = INFINITY
    last: float = 0
    of_direction: int = 0  # its number among the bursts of its port and direction


class Oracle(Crossings):
    """Ports, buses and memories; `run` returns the completion time of each submission."""

    def __init__(self, ports, buses, memories) -> None:
        self.ports, self.buses, self.memories = ports, buses, memories
        self.todo = [[] for _ in ports]  # bursts not granted yet, in order
        self.ready = [INFINITY] * len(ports)  # when the first of them may ask for a grant
        self.credits = [[p.outstanding, p.outstanding] for p in ports]
        self.releases = [[[], []] for _ in ports]
        self.last_release = [[0, 0] for _ in ports]
        self.read_free = [0] * len(ports)
        self.supply_free = [0] * len(ports)
        self.write_grants = [[0, 0] for _ in ports]
        self.count = [0] * len(ports)
        self.flying = [[[], []] for _ in ports]  # granted and not delivered
        self.granted = [[0, 0] for _ in ports]
        self.id_releases = {}  # (port, direction, ID): when its credits come back
        self.streams = [[[], []] for _ in ports]
        self.blocked = [[None, None] for _ in ports]
        self.addr_free = [[0, 0] for _ in buses]
        self.data_free = [[0, 0] for _ in buses]
        self.last_port = []
        for b in range(len(buses)):
            self.last_port.append([sum(p.bus == b for p in ports) - 1] * 2)
        self.back = [[] for _ in buses]
        self.channels = []
        for m in memories:
            n = m.channels if isinstance(m, DramConfig) else 0
            kind = {"frfcfs": Channel, "bank_round_robin": RoundRobinChannel}
            make = kind[getattr(m, "controller", "frfcfs")]
            self.channels.append([make(m, self.arrived) for _ in range(n)])
        self.bank_free = [[0] * (0 if isinstance(m, DramConfig) else m.banks) for m in memories]

    # --- events ---------------------------------------------------------------------------------

    def run(self, submissions) -> list[int]:
        """`submissions`: (now, port, memory, is_write, runs) sorted by time."""
        transfers, pending = [], list(submissions)
        while True:
            when, action = self.next_event()
            assert when == INFINITY or when < SETTLED_PS, "nothing moves any more, but time does"
            if pending and pending[0][0] <= when:
                transfers.append(self.submit(*pending.pop(0)))
            elif when == INFINITY:
                return [t.done for t in transfers]
            else:
                action(when)

    def next_event(self):
        events = []
        for b in range(len(self.buses)):
            may_go = [x for x in self.back[b] if self.is_oldest_of_its_id(x)]
            if may_go:
                first = min(may_go, key=lambda x: (x.last, x.port, x.transfer.is_write, x.number))
                events.append(
                    (first.last, (0, b), lambda now, b=b, x=first: self.deliver(now, b, x))
                )
            for write in (0, 1):
                when = self.next_grant(b, write)
                events.append(
                    (when, (1 + write, b), lambda now, b=b, w=write: self.grant(now, b, w))
                )
        for p in range(len(self.ports)):
            for write in (0, 1):
                stream = self.streams[p][write]
                if stream and self.blocked[p][write] is None:
                    key = (3, 2 * p + write)
                    events.append(
                        (stream[0].arrive, key, lambda now, p=p, w=write: self.enter(now, p, w))
                    )
        flat = [c for group in self.channels for c in group]
        for i, channel in enumerate(flat):
            events.append((channel.next_ps(), (4, i), lambda now, c=channel: self.tick(now, c)))
        when, _, action = min(events, key=lambda e: (e[0], e[1]))
        return when, action

    def submit(self, now, port, memory, is_write, runs):
        limit = self.buses[self.ports[port].bus]
        full = min(4096, limit.max_burst_beats * limit.data_bytes)
        cut = 1 << (full.bit_length() - 1)
        bursts = []
        for base, size, stride, count in runs:
            rows = (
                [(base, size * count)]
                if stride == size
                else [(base + i * stride, size) for i in range(count)]
            )
            for address, left in rows:
                while left:
                    part = min(left, cut - address % cut)
                    bursts.append((address, part))
                    address, left = address + part, left - part
        transfer = Transfer(port, memory, bool(is_write), now, bursts)
        idle = not self.todo[port]
        self.todo[port] += [(transfer, a, n) for a, n in bursts]
        if idle:
            self.prepare(port, now)
        return transfer

    def prepare(self, port, now):
        """The next burst became first in line: when may it ask for its grant?"""
        if not self.todo[port]:
            self.ready[port] = INFINITY
            return
        transfer, _, size = self.todo[port][0]
        self.ready[port] = max(self.into_bus(port, transfer.submitted), now)
        if transfer.is_write:
            spec = self.ports[port]
            start = max(transfer.submitted, self.write_grants[port][0])
            first = max(self.supply_free[port], cycle_from(spec.clock_period_ps, start))
            self.supply_free[port] = first + -(-size // spec.bytes_per_cycle)
            supplied = edge(spec.clock_period_ps, self.supply_free[port])
            self.ready[port] = max(now, self.into_bus(port, supplied))

    def id_of(self, burst):
        ids = self.ports[burst.port].ids
        return burst.of_direction % ids if ids else burst.of_direction

    def is_oldest_of_its_id(self, burst):
        mates = [
            x
            for x in self.flying[burst.port][burst.transfer.is_write]
            if self.id_of(x) == self.id_of(burst)
        ]
        return burst is mates[0]

    def asks_at(self, port, write) -> float:
        if not self.todo[port] or self.todo[port][0][0].is_write != bool(write):
            return INFINITY
        have = self.credits[port][write]
        releases = self.releases[port][write]
        credit = 0 if have > 0 else (releases[0] if releases else INFINITY)
        return max(self.ready[port], credit, self.id_credit(port, write))

    def id_credit(self, port, write):
        """When the ID of the next burst has fewer bursts in flight than it may."""
        spec = self.ports[port]
        if not spec.outstanding_per_id:
            return 0
        number = self.granted[port][write] % spec.ids
        begun = len(range(number, self.granted[port][write], spec.ids))
        must_be_over = begun - spec.outstanding_per_id + 1
        if must_be_over <= 0:
            return 0
        over = self.id_releases.get((port, write, number), [])
        return over[must_be_over - 1] if len(over) >= must_be_over else INFINITY

    def members(self, b):
        return [i for i, p in enumerate(self.ports) if p.bus == b]

    def next_grant(self, b, write) -> float:
        first = min((self.asks_at(p, write) for p in self.members(b)), default=INFINITY)
        if first == INFINITY:
            return INFINITY
        period = self.buses[b].clock_period_ps
        return edge(period, max(cycle_from(period, first), self.addr_free[b][write]))

    def grant(self, now, b, write):
        bus, members = self.buses[b], self.members(b)
        n = len(members)
        start = 0 if bus.arbitration == "fixed" else self.last_port[b][write] + 1
        order = [(start + i) % n for i in range(n)]
        asking = [i for i in order if self.asks_at(members[i], write) <= now]
        if bus.arbitration == "qos":
            best = max(self.ports[members[i]].qos for i in asking)
            asking = [i for i in asking if self.ports[members[i]].qos == best]
        place = asking[0]
        self.last_port[b][write] = place
        p = members[place]
        releases = self.releases[p][write]
        while releases and releases[0] <= now:
            releases.pop(0)
            self.credits[p][write] += 1
        self.credits[p][write] -= 1
        cycle = cycle_from(bus.clock_period_ps, now)
        self.addr_free[b][write] = cycle + 1
        transfer, address, size = self.todo[p].pop(0)
        burst = AxiBurst(transfer, p, self.count[p], address, size)
        burst.of_direction = self.granted[p][write]
        self.count[p] += 1
        self.granted[p][write] += 1
        self.flying[p][write].append(burst)
        leaves = now
        if write:
            end = max(self.data_free[b][1], cycle) + self.beats(bus, burst)
            self.data_free[b][1] = end
            leaves = edge(bus.clock_period_ps, end)
            self.write_grants[p] = [self.write_grants[p][1], now]
        burst.arrive = self.at_memory(p, transfer.memory, leaves)
        self.streams[p][write].append(burst)
        self.prepare(p, now)

    @staticmethod
    def beats(bus, burst) -> int:
        first = burst.address // bus.data_bytes
        return (burst.address + burst.size - 1) // bus.data_bytes - first + 1

    # --- memory side ----------------------------------------------------------------------------

    def enter(self, now, p, write):
        self.blocked[p][write] = None
        stream = self.streams[p][write]
        while stream and stream[0].arrive <= now:
            burst = stream[0]
            spec = self.memories[burst.transfer.memory]
            if isinstance(spec, DramConfig):
                channel = self.enter_dram(now, p, write, burst, spec)
                if channel is not None:
                    self.blocked[p][write] = channel
                    return
            else:
                self.enter_sram(now, burst, spec)
            stream.pop(0)
            if write and isinstance(spec, DramConfig) and spec.posted_writes:
                back = self.back_on_bus(p, burst.transfer.memory, now)
                if self.ports[p].ids:
                    burst.last = back
                    self.back[self.ports[p].bus].append(burst)
                else:
                    self.release(p, 1, burst, self.at_port(p, back))

    def enter_dram(self, now, p, write, burst, spec):
        size = spec.device.burst_bytes
        if burst.pieces is None:
            burst.pieces = []
            at = burst.address - burst.address % size
            while at < burst.address + burst.size:
                partial = at < burst.address or at + size > burst.address + burst.size
                if write and partial and spec.partial_write == "read_modify_write":
                    burst.pieces.append((at, True))
                burst.pieces.append((at, False))
                at += size
            burst.waiting_for = sum(not modify for _, modify in burst.pieces)
        while burst.pieces:
            at, modify = burst.pieces[0]
            number, bank, row = self.decode(spec, at)
            channel = self.channels[burst.transfer.memory][number]
            as_write = bool(write) and not modify
            wanted = not modify and not (write and spec.posted_writes)
            status = channel.offer(now, bank, row, at, as_write, burst if wanted else None)
            if status == "full":
                return channel, as_write and channel.has_write_queue
            burst.pieces.pop(0)
            if status != "queued" and wanted:
                cycle = cycle_from(channel.period, now) + 1
                self.arrived(burst, math.ceil(cycle * channel.period))
        return None

    @staticmethod
    def decode(spec, address):
        """Channel, flat bank and row, written from the README's order of fields."""
        device, burst = spec.device, spec.device.burst_bytes
        block, offset = divmod(address, spec.channel_interleave_bytes)
        channel = block % spec.channels
        index = (block // spec.channels * spec.channel_interleave_bytes + offset) // burst
        sizes = {
            "pc": device.pseudo_channels, "rank": spec.ranks * device.stack_ids,
            "bg": device.bank_groups, "bank": device.banks_per_group,
            "col": device.columns // device.burst_length,
        }  # fmt: skip
        order = {
            "BGlow": ("pc", "bg", "col", "bank", "rank"),
            "BGlowXOR": ("pc", "bg", "col", "bank", "rank"),
            "RowLinear": ("pc", "col", "bg", "bank", "rank"),
            "BankLow": ("pc", "bg", "bank", "rank", "col"),
        }[spec.address_map]
        f = {}
        for name in order:
            index, f[name] = divmod(index, sizes[name])
        if spec.address_map == "BGlowXOR":
            f["bank"] ^= index % sizes["bank"]
            f["bg"] ^= index // sizes["bank"] % sizes["bg"]
        flat = ((f["pc"] * sizes["rank"] + f["rank"]) * sizes["bg"] + f["bg"]) * sizes["bank"] + f[
            "bank"
        ]
        return channel, flat, index

    def enter_sram(self, now, burst, spec):
        start = cycle_from(spec.clock_period_ps, now)
        free = self.bank_free[burst.transfer.memory]
        first, last = INFINITY, 0
        at, end = burst.address, burst.address + burst.size
        while at < end:
            stop = min(end, at - at % spec.interleave_bytes + spec.interleave_bytes)
            bank = at // spec.interleave_bytes % spec.banks
            begin = max(free[bank], start)
            free[bank] = begin + (stop - 1) // spec.port_bytes - at // spec.port_bytes + 1
            first, last = min(first, begin + 1), max(last, free[bank])
            at = stop
        period, latency = spec.clock_period_ps, spec.latency_cycles
        way = (burst.port, burst.transfer.memory)
        burst.first = self.back_on_bus(*way, edge(period, first + latency))
        burst.last = self.back_on_bus(*way, edge(period, last + latency))
        self.back[self.ports[burst.port].bus].append(burst)

    def tick(self, now, channel):
        channel.run_cycle()
        for write in (0, 1):
            while True:
                waiting = [
                    (self.streams[p][w][0].arrive, p, w)
                    for p in range(len(self.ports))
                    for w in (0, 1)
                    if self.blocked[p][w] == (channel, bool(write))
                ]
                if not waiting or len(channel.queues[write]) >= channel.limits[write]:
                    break
                _, p, w = min(waiting)
                self.enter(now, p, w)

    def arrived(self, burst, ps):
        bus = self.ports[burst.port].bus
        ps = self.back_on_bus(burst.port, burst.transfer.memory, ps)
        burst.first, burst.last = min(burst.first, ps), max(burst.last, ps)
        burst.waiting_for -= 1
        if burst.waiting_for == 0:
            self.back[bus].append(burst)

    # --- way back -------------------------------------------------------------------------------

    def deliver(self, now, b, burst):
        self.back[b].remove(burst)
        port, bus = self.ports[burst.port], self.buses[b]
        if burst.transfer.is_write:
            self.release(burst.port, 1, burst, self.at_port(burst.port, now))
            return
        beats, period = self.beats(bus, burst), bus.clock_period_ps
        begin = max(self.data_free[b][0], cycle_from(period, burst.first))
        end = max(begin + beats, cycle_from(period, now) + 1)
        self.data_free[b][0] = end
        mine = port.clock_period_ps
        first_beat = self.port_cycle(burst.port, edge(period, end - beats))
        start = max(self.read_free[burst.port], first_beat)
        finish = start + -(-burst.size // port.bytes_per_cycle)
        finish = max(finish, self.port_cycle(burst.port, edge(period, end)))
        self.read_free[burst.port] = finish
        self.release(burst.port, 0, burst, edge(mine, finish))

    def release(self, p, write, burst, done):
        done = max(done, self.last_release[p][write])
        self.last_release[p][write] = done
        back = self.into_bus(p, done)
        self.releases[p][write].append(back)
        if self.ports[p].ids:
            self.id_releases.setdefault((p, write, self.id_of(burst)), []).append(back)
        self.flying[p][write].remove(burst)
        transfer = burst.transfer
        transfer.left -= 1
        if transfer.left == 0:
            transfer.done = done
