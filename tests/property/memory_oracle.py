"""A plain model of the memory system: lists, one controller cycle at a time, nothing skipped.

It shares no code with `npusim.memory` but the configuration classes and the spacing table, and
follows docs/modelling/memory.md word by word. Slow and meant to be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from npusim.memory.dram.timing import spacings
from npusim.memory.specs import DramConfig

INFINITY = float("inf")


def edge(period: Fraction, cycle: int) -> int:
    return math.floor(cycle * period)


def cycle_from(period: Fraction, ps: float) -> int:
    return math.ceil(Fraction(ps) / period)


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


@dataclass(eq=False)
class Request:
    bank: int
    row: int
    address: int
    is_write: bool
    accepted: int
    number: int
    axi: AxiBurst | None


@dataclass
class Bank:
    group: int
    rank: int
    row: int | None = None
    act_ok: int = 0
    pre_ok: int = 0
    rd_ok: int = 0
    wr_ok: int = 0


@dataclass
class Rank:
    pc: int
    banks: list[int]
    act_ok: int = 0
    pre_ok: int = 0
    rd_ok: int = 0
    wr_ok: int = 0
    ref_ok: int = 0
    refpb_ok: int = 0
    wck_end: int = 0
    refreshes_due: int = 0
    activates: list[int] = field(default_factory=list)


class Channel:
    """One controller, one cycle at a time."""

    def __init__(self, spec: DramConfig, finish) -> None:
        device = spec.device
        self.spec, self.t, self.finish = spec, spacings(device), finish
        self.period = device.cycle_ps
        ranks = device.pseudo_channels * spec.ranks
        per_rank = device.stack_ids * device.bank_groups * device.banks_per_group
        self.ranks = [
            Rank(pc=r * device.pseudo_channels // ranks, banks=list(range(r * per_rank, (r + 1) * per_rank)))
            for r in range(ranks)
        ]
        self.banks = [Bank(b // device.banks_per_group, b // per_rank) for b in range(ranks * per_rank)]
        self.groups = [dict(act=0, rd=0, wr=0) for _ in range(ranks * device.stack_ids * device.bank_groups)]
        self.queues: tuple[list[Request], list[Request]] = ([], [])
        self.limits = (spec.read_queue_depth, spec.write_queue_depth)
        self.active: list[Request] = []
        self.write_mode = False
        self.cycle = 0  # last cycle that was run
        self.asleep = True
        self.accepted = 0
        self.col_bus = self.row_bus = 0
        self.second_act: int | None = None
        self.due = self.t["REFI"] if spec.refresh == "all_bank" else self.t["REFIPB"]
        self.next_bank = 0
        self.per_bank_due = 0
        self.last_write_end = 0
        self.commands: list[tuple[int, str, int]] = []

    def has_work(self) -> bool:
        return bool(self.queues[0] or self.queues[1] or self.active or self.refresh_listed())

    def refresh_listed(self) -> int:
        return self.per_bank_due + sum(r.refreshes_due for r in self.ranks)

    def next_ps(self) -> float:
        return INFINITY if self.asleep else edge(self.period, self.cycle + 1)

    def offer(self, now: int, bank: int, row: int, address: int, is_write: bool, axi) -> str:
        cycle = cycle_from(self.period, now)
        if any(r.address == address and r.bank == bank for r in self.queues[1]):
            return "merged" if is_write else "forwarded"
        if len(self.queues[is_write]) >= self.limits[is_write]:
            return "full"
        while self.asleep and self.cycle < cycle:
            quiet = cycle if self.spec.refresh == "none" else min(cycle, self.due - 1)
            if quiet > self.cycle and not self.refresh_listed():
                self.cycle, self.write_mode = quiet, True  # idle cycles without a refresh
            else:
                self.tick()
        self.asleep = False
        self.queues[is_write].append(Request(bank, row, address, is_write, cycle, self.accepted, axi))
        self.accepted += 1
        return "queued"

    # --- one cycle ------------------------------------------------------------------------------

    def run_cycle(self) -> None:
        self.tick()
        self.asleep = not self.has_work()  # wakes, and lives the time slept, with the next request

    def tick(self) -> None:
        self.cycle += 1
        now, t = self.cycle, self.t
        if self.spec.refresh != "none" and now >= self.due:
            if self.spec.refresh == "all_bank":
                for rank in self.ranks:
                    rank.refreshes_due += 1
                self.due += t["REFI"]
            else:
                self.per_bank_due += 1
                self.due += t["REFIPB"]
        column, row = self.choose(now)
        if t["AAD"] and self.second_act is not None:
            forced = max(now, self.row_bus) == now and now >= self.second_act + t["AAD"] - 1
            if forced or (column is None and row is None and now >= self.row_bus):
                self.second_act = None
                self.col_bus = self.row_bus = now + 1
                self.commands.append((now, "ACT2", -1))
                return
        if column is not None:
            listed = self.refresh_listed()
            self.issue_column(column, now)
            if not t["DUAL"] or row is None or listed:
                return
            if row[0] == "PRE" and self.banks[row[1].bank].pre_ok > now:
                return
        if row is not None:
            self.issue_row(row, now)

    def choose(self, now: int):
        t = self.t
        parity = not t["ODD"] or now % 2 == 1
        col_free = now >= self.col_bus and parity
        ready = [r for r in self.active if col_free and self.column_ok(r) <= now]
        column = min(ready, key=lambda r: r.number, default=None)
        if column is not None and not t["DUAL"]:
            return column, None
        if self.refresh_listed():
            row = self.refresh_command(now) if now >= self.row_bus else None
            if row is not None and row[0] in ("REFab", "REFpb") and not parity:
                row = None
            return column, row
        if column is None:
            self.judge_mode(now)
        queue = [r for r in self.queues[self.write_mode] if r.accepted < now]
        hits = [r for r in queue if col_free and self.banks[r.bank].row == r.row and self.column_ok(r) <= now]
        if column is None:
            column = min(hits, key=lambda r: r.number, default=None)
        rows = [c for r in queue if (c := self.row_command(r, queue, now, parity)) is not None]
        row = min(rows, key=lambda c: c[1].number, default=None)
        if column is not None and row is not None and not t["DUAL"]:
            return (column, None) if column.number < row[1].number else (None, row)
        return column, row

    def judge_mode(self, now: int) -> None:
        reads, writes = (sum(r.accepted < now for r in q) for q in self.queues)
        depth = self.spec.write_queue_depth
        if self.write_mode:
            if writes < self.spec.write_low_frac * depth and reads > 0:
                self.write_mode = False
        elif writes > self.spec.write_high_frac * depth or reads == 0:
            self.write_mode = True

    def column_ok(self, r: Request) -> int:
        bank = self.banks[r.bank]
        rank, group = self.ranks[bank.rank], self.groups[bank.group]
        if r.is_write:
            return max(bank.wr_ok, rank.wr_ok, group["wr"])
        return max(bank.rd_ok, rank.rd_ok, group["rd"])

    def row_command(self, r: Request, queue: list[Request], now: int, parity: bool):
        bank = self.banks[r.bank]
        rank = self.ranks[bank.rank]
        if now < self.row_bus or bank.row == r.row:
            return None
        if bank.row is None:
            ok = max(bank.act_ok, rank.act_ok, self.groups[bank.group]["act"])
            free = self.second_act is None and parity
            return ("ACT", r) if ok <= now and free else None
        if any(a.bank == r.bank for a in self.active):
            return None
        if self.spec.scheduler == "frfcfs_row_hit":
            # a hit accepted this very cycle is younger than r: it protects nothing
            if any(o.bank == r.bank and o.row == bank.row and o.number < r.number for o in queue):
                return None
        return ("PRE", r) if max(bank.pre_ok, rank.pre_ok) <= now else None

    def refresh_command(self, now: int):
        t = self.t
        if self.spec.refresh == "all_bank":
            for rank in self.ranks:
                if not rank.refreshes_due:
                    continue
                is_open = [b for b in rank.banks if self.banks[b].row is not None]
                if is_open:
                    used = any(a.bank in rank.banks for a in self.active)
                    ok = max(rank.pre_ok, *(self.banks[b].pre_ok for b in is_open))
                    if not used and ok <= now:
                        return "PREab", rank
                elif rank.ref_ok <= now:
                    return "REFab", rank
            return None
        bank = self.banks[self.next_bank]
        rank = self.ranks[bank.rank]
        if bank.row is None:
            ok = max(bank.act_ok + t["ACT_LEN"] - 1, rank.refpb_ok)
            return ("REFpb", bank) if ok <= now else None
        if any(a.bank == self.next_bank for a in self.active):
            return None
        return ("PREpb", bank) if max(bank.pre_ok, rank.pre_ok) <= now else None

    # --- effects --------------------------------------------------------------------------------

    def take_row_bus(self, now: int, length: int) -> None:
        self.row_bus = now + length
        if not self.t["DUAL"]:
            self.col_bus = now + length

    def close(self, bank: Bank, now: int, to_act: int) -> None:
        bank.act_ok = max(bank.act_ok, now + to_act)
        bank.row = None
        rank = self.ranks[bank.rank]
        rank.ref_ok = max(rank.ref_ok, now + self.t["RPREF"])

    def issue_row(self, row, now: int) -> None:
        kind, what = row
        t = self.t
        self.commands.append((now, kind, -1))
        if kind == "ACT":
            bank = self.banks[what.bank]
            rank, group = self.ranks[bank.rank], self.groups[bank.group]
            bank.row = what.row
            bank.rd_ok, bank.wr_ok = now + t["RCDRD"], now + t["RCDWR"]
            bank.pre_ok = max(bank.pre_ok, now + t["RAS"])
            bank.act_ok = now + t["RC"]
            group["act"] = max(group["act"], now + t["RRDL"])
            rank.activates = [*rank.activates[-3:], now]
            rank.act_ok = max(rank.act_ok, now + t["RRDS"])
            if len(rank.activates) == 4:
                rank.act_ok = max(rank.act_ok, rank.activates[0] + t["FAW"])
            rank.ref_ok = max(rank.ref_ok, now + t["RCREF"])
            self.queues[what.is_write].remove(what)
            self.active.append(what)
            if t["AAD"]:
                self.second_act = now
            self.take_row_bus(now, t["ACT_LEN"])
        elif kind in ("PRE", "PREpb"):
            bank = self.banks[what.bank] if kind == "PRE" else what
            self.close(bank, now, t["RP"])
            rank = self.ranks[bank.rank]
            rank.pre_ok = max(rank.pre_ok, now + t["PPD"])
            self.take_row_bus(now, t["PRE_LEN"])
        elif kind == "PREab":
            for b in what.banks:
                self.close(self.banks[b], now, t["RPAB"])
            what.pre_ok = max(what.pre_ok, now + t["PPD"])
            self.take_row_bus(now, t["PRE_LEN"])
        elif kind == "REFab":
            what.act_ok = max(what.act_ok, now + t["RFC"])
            what.ref_ok = max(what.ref_ok, now + t["RFC"])
            what.refreshes_due -= 1
            self.take_row_bus(now, 1)
        else:
            rank = self.ranks[what.rank]
            what.act_ok = max(what.act_ok, now + t["RFCPB"])
            rank.act_ok = max(rank.act_ok, now + t["PBR2ACT"])
            rank.refpb_ok = now + t["PBR2PBR"]
            self.per_bank_due -= 1
            self.next_bank = (self.next_bank + 1) % len(self.banks)
            self.take_row_bus(now, 1)

    def issue_column(self, r: Request, now: int) -> None:
        t, bank = self.t, self.banks[r.bank]
        rank, group = self.ranks[bank.rank], self.groups[bank.group]
        if t["WCK"] and now >= rank.wck_end:
            self.commands.append((now, "CAS", -1))
            now += 1
        self.commands.append((now, "WR" if r.is_write else "RD", r.number))
        if r in self.active:
            self.active.remove(r)
        else:
            self.queues[r.is_write].remove(r)
        latency = t["WL"] if r.is_write else t["RL"]
        if r.is_write:
            bank.pre_ok = max(bank.pre_ok, now + t["WR"])
            group["wr"] = max(group["wr"], now + t["CCDL_WR"])
            group["rd"] = max(group["rd"], now + t["WTRL"])
            same, others = (t["WTRS"], t["CCDS_WR"]), (t["CSW"], t["CCDS_WR"])
        else:
            bank.pre_ok = max(bank.pre_ok, now + t["RTP"])
            group["rd"] = max(group["rd"], now + t["CCDL"])
            same, others = (t["CCDS"], t["RTW"]), (t["CSR"], t["RTW"])
            for i, other in enumerate(self.groups):
                per_sid, per_rank = self.spec.device.bank_groups, self.spec.device.bank_groups * t["SIDS"]
                same_rank, same_sid = (i // n == bank.group // n for n in (per_rank, per_sid))
                if same_rank and not same_sid:
                    other["rd"] = max(other["rd"], now + t["CCDR"])
        for other in self.ranks:
            if other.pc == rank.pc:
                rd, wr = same if other is rank else others
                other.rd_ok, other.wr_ok = max(other.rd_ok, now + rd), max(other.wr_ok, now + wr)
        self.col_bus = now + t["COL_LEN"]
        if not t["DUAL"]:
            self.row_bus = now + t["COL_LEN"]
        rank.wck_end = max(rank.wck_end, now + latency + t["WCKPST"])
        if self.spec.page_policy == "closed" and not any(
            o.bank == r.bank and o.row == bank.row for q in self.queues for o in q
        ):
            self.close(bank, bank.pre_ok, t["RP"])
        end = math.ceil((now + latency) * self.period)
        if r.is_write:
            self.last_write_end = max(self.last_write_end, end)
        if r.axi is not None:
            self.finish(r.axi, end + (0 if r.is_write else self.spec.latency_ps))


class Oracle:
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
            self.channels.append([Channel(m, self.arrived) for _ in range(n)])
        self.bank_free = [[0] * (0 if isinstance(m, DramConfig) else m.banks) for m in memories]

    # --- events -----------------------------------------------------------------------------------

    def run(self, submissions) -> list[int]:
        """`submissions`: (now, port, memory, is_write, runs) sorted by time."""
        transfers, pending = [], list(submissions)
        while True:
            when, action = self.next_event()
            if pending and pending[0][0] <= when:
                transfers.append(self.submit(*pending.pop(0)))
            elif when == INFINITY:
                return [t.done for t in transfers]
            else:
                action(when)

    def next_event(self):
        events = []
        for b in range(len(self.buses)):
            if self.back[b]:
                first = min(self.back[b], key=lambda x: (x.last, x.port, x.transfer.is_write, x.number))
                events.append((first.last, (0, b), lambda now, b=b, x=first: self.deliver(now, b, x)))
            for write in (0, 1):
                when = self.next_grant(b, write)
                events.append((when, (1 + write, b), lambda now, b=b, w=write: self.grant(now, b, w)))
        for p in range(len(self.ports)):
            for write in (0, 1):
                stream = self.streams[p][write]
                if stream and self.blocked[p][write] is None:
                    key = (3, 2 * p + write)
                    events.append((stream[0].arrive, key, lambda now, p=p, w=write: self.enter(now, p, w)))
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
            rows = [(base, size * count)] if stride == size else [(base + i * stride, size) for i in range(count)]
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
        self.ready[port] = max(transfer.submitted, now)
        if transfer.is_write:
            spec = self.ports[port]
            start = max(transfer.submitted, self.write_grants[port][0])
            first = max(self.supply_free[port], cycle_from(spec.clock_period_ps, start))
            self.supply_free[port] = first + -(-size // spec.bytes_per_cycle)
            self.ready[port] = max(now, edge(spec.clock_period_ps, self.supply_free[port]))

    def asks_at(self, port, write) -> float:
        if not self.todo[port] or self.todo[port][0][0].is_write != bool(write):
            return INFINITY
        have = self.credits[port][write]
        releases = self.releases[port][write]
        credit = 0 if have > 0 else (releases[0] if releases else INFINITY)
        return max(self.ready[port], credit)

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
        place = next(i for i in order if self.asks_at(members[i], write) <= now)
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
        self.count[p] += 1
        leaves = now
        if write:
            end = max(self.data_free[b][1], cycle) + self.beats(bus, burst)
            self.data_free[b][1] = end
            leaves = edge(bus.clock_period_ps, end)
            self.write_grants[p] = [self.write_grants[p][1], now]
        burst.arrive = leaves + bus.latency_ps - bus.latency_ps // 2
        self.streams[p][write].append(burst)
        self.prepare(p, now)

    @staticmethod
    def beats(bus, burst) -> int:
        first = burst.address // bus.data_bytes
        return (burst.address + burst.size - 1) // bus.data_bytes - first + 1

    # --- memory side --------------------------------------------------------------------------------

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
                port = self.ports[p]
                back = now + self.buses[port.bus].latency_ps // 2
                self.release(p, 1, burst, self.align(port, back))

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
                return channel, as_write
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
        flat = ((f["pc"] * sizes["rank"] + f["rank"]) * sizes["bg"] + f["bg"]) * sizes["bank"] + f["bank"]
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
        half = self.buses[self.ports[burst.port].bus].latency_ps // 2
        burst.first = edge(spec.clock_period_ps, first + spec.latency_cycles) + half
        burst.last = edge(spec.clock_period_ps, last + spec.latency_cycles) + half
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
        ps += self.buses[bus].latency_ps // 2
        burst.first, burst.last = min(burst.first, ps), max(burst.last, ps)
        burst.waiting_for -= 1
        if burst.waiting_for == 0:
            self.back[bus].append(burst)

    # --- way back -----------------------------------------------------------------------------------

    @staticmethod
    def align(port, ps):
        return edge(port.clock_period_ps, cycle_from(port.clock_period_ps, ps))

    def deliver(self, now, b, burst):
        self.back[b].remove(burst)
        port, bus = self.ports[burst.port], self.buses[b]
        if burst.transfer.is_write:
            self.release(burst.port, 1, burst, self.align(port, now))
            return
        beats, period = self.beats(bus, burst), bus.clock_period_ps
        begin = max(self.data_free[b][0], cycle_from(period, burst.first))
        end = max(begin + beats, cycle_from(period, now) + 1)
        self.data_free[b][0] = end
        mine = port.clock_period_ps
        start = max(self.read_free[burst.port], cycle_from(mine, edge(period, end - beats)))
        finish = start + -(-burst.size // port.bytes_per_cycle)
        finish = max(finish, cycle_from(mine, edge(period, end)))
        self.read_free[burst.port] = finish
        self.release(burst.port, 0, burst, edge(mine, finish))

    def release(self, p, write, burst, done):
        done = max(done, self.last_release[p][write])
        self.last_release[p][write] = done
        self.releases[p][write].append(done)
        transfer = burst.transfer
        transfer.left -= 1
        if transfer.left == 0:
            transfer.done = done
