"""The plain controller of `memory_oracle_dram` with a queue per bank, served round robin."""

from __future__ import annotations

from tests.property.memory_oracle_dram import Channel
from tests.property.memory_oracle_parts import Request, cycle_from


class RoundRobinChannel(Channel):
    """One transaction queue, a command queue per bank, one bank visited after the other."""

    has_write_queue = False

    def __init__(self, spec, finish) -> None:
        super().__init__(spec, finish)
        transactions: list[Request] = []
        self.queues = (transactions, transactions)
        self.limits = (spec.read_queue_depth, spec.read_queue_depth)
        self.bank_queues: list[list[Request]] = [[] for _ in self.banks]
        self.visited = 0

    def held(self) -> int:
        return len(self.queues[0]) + sum(map(len, self.bank_queues))

    def offer(self, now, bank, row, address, is_write, axi) -> str:
        waiting = self.bank_queues[bank] + self.queues[0]
        same = [r for r in waiting if r.address == address]
        if any(r.is_write for r in same):
            return "merged" if is_write else "forwarded"
        merged = sum(len(r.merged) for q in (self.queues[0], *self.bank_queues) for r in q)
        if same and not is_write and merged < self.spec.merged_reads:
            cycle = cycle_from(self.period, now)
            same[0].merged.append(Request(bank, row, address, False, cycle, -1, axi))
            return "queued"
        return self.enter(now, bank, row, address, is_write, axi)

    def tick(self) -> None:
        self.cycle += 1
        now = self.cycle
        self.list_refreshes(now)
        self.move(now)
        command = self.refresh_command(now, True) if self.listed and now >= self.row_bus else None
        if command is None:
            command = self.search(now, now >= self.col_bus, now >= self.row_bus)
        if command is None:
            return
        self.issue(command, now)
        if not self.t["DUAL"]:
            return
        is_column = command[0] == "column"
        second = self.search(
            now, is_column or now >= self.col_bus, not is_column or now >= self.row_bus
        )
        if second is not None and (second[0] == "column") != is_column:
            self.issue(second, now)

    def move(self, now: int) -> None:
        for request in self.queues[0]:
            queue = self.bank_queues[request.bank]
            if len(queue) < self.spec.bank_queue_depth:
                if request.accepted < now:
                    self.queues[0].remove(request)
                    queue.append(request)
                return

    def search(self, now: int, column_free: bool, row_free: bool):
        for i in range(len(self.banks)):
            number = (self.visited + 1 + i) % len(self.banks)
            bank, queue = self.banks[number], self.bank_queues[number]
            if self.listed and self.ranks[bank.rank] is self.listed[0][1]:
                continue
            for request in queue:
                command = self.next_command(request, queue, bank, now)
                if command is not None and (column_free if command[0] == "column" else row_free):
                    self.visited = number
                    return command
        return None

    def next_command(self, r: Request, queue: list[Request], bank, now: int):
        rank = self.ranks[bank.rank]
        if bank.row is None:
            ok = max(bank.act_ok, rank.act_ok, self.groups[bank.group]["act"])
            return ("ACT", r) if ok <= now else None
        if bank.row != r.row:
            wanted = any(o.row == bank.row for o in queue)
            may = r is queue[0] and (not wanted or bank.served >= self.spec.row_hit_limit)
            return ("PRE", r) if may and max(bank.pre_ok, rank.pre_ok) <= now else None
        older = queue[: queue.index(r)]
        passes_read = r.is_write and any(o.address == r.address for o in older)
        return ("column", r) if self.column_ok(r) <= now and not passes_read else None

    def refresh_command(self, now: int, parity: bool):
        rank = self.listed[0][1]
        is_open = [self.banks[b] for b in rank.banks if self.banks[b].row is not None]
        for bank in is_open:
            if max(bank.pre_ok, rank.pre_ok) <= now:
                return "PREpb", bank
        return ("REFab", rank) if not is_open and rank.ref_ok <= now else None

    def open_for(self, r: Request) -> None:
        """An activated request stays where it is."""

    def remove(self, r: Request) -> None:
        self.bank_queues[r.bank].remove(r)
