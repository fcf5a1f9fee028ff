"""A plain DRAM controller: lists, one cycle at a time, nothing skipped (for `memory_oracle`)."""

from __future__ import annotations

import math
from typing import Any

from npusim.memory.dram.timing import spacings
from npusim.memory.specs import DramConfig
from tests.property.memory_oracle_parts import (
    INFINITY,
    Bank,
    Rank,
    Request,
    cycle_from,
    edge,
)


class Channel:
    """One controller, one cycle at a time."""

    has_write_queue = True

    def __init__(self, spec: DramConfig, finish) -> None:
        device = spec.device
        self.spec, self.t, self.finish = spec, spacings(device), finish
        self.period = device.cycle_ps
        ranks = device.pseudo_channels * spec.ranks
        per_rank = device.stack_ids * device.bank_groups * device.banks_per_group
        self.ranks = [
            Rank(
                pc=r * device.pseudo_channels // ranks,
                banks=list(range(r * per_rank, (r + 1) * per_rank)),
            )
            for r in range(ranks)
        ]
        self.banks = [
            Bank(b // device.banks_per_group, b // per_rank) for b in range(ranks * per_rank)
        ]
        self.groups = [
            {"act": 0, "rd": 0, "wr": 0}
            for _ in range(ranks * device.stack_ids * device.bank_groups)
        ]
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
        self.listed: list[tuple[str, Any]] = []  # refreshes and forced precharges
        self.after_cas: Request | None = None
        self.last_write_end = 0
        self.commands: list[tuple[int, str, int]] = []

    def has_work(self) -> bool:
        return bool(self.held() or self.listed or self.is_closing_soon())

    def held(self) -> int:
        return len(self.queues[0]) + len(self.queues[1]) + len(self.active)

    def is_closing_soon(self) -> bool:
        has_cap = self.spec.page_policy == "closed_cap"
        return has_cap and any(
            b.served >= self.spec.page_cap and not b.is_listed for b in self.banks
        )

    def next_ps(self) -> float:
        return INFINITY if self.asleep else edge(self.period, self.cycle + 1)

    def offer(self, now: int, bank: int, row: int, address: int, is_write: bool, axi) -> str:
        if any(r.address == address and r.bank == bank for r in self.queues[1]):
            return "merged" if is_write else "forwarded"
        return self.enter(now, bank, row, address, is_write, axi)

    def enter(self, now: int, bank: int, row: int, address: int, is_write: bool, axi) -> str:
        cycle = cycle_from(self.period, now)
        if len(self.queues[is_write]) >= self.limits[is_write]:
            return "full"
        while self.asleep and self.cycle < cycle:
            quiet = cycle if self.spec.refresh == "none" else min(cycle, self.due - 1)
            if quiet > self.cycle and not self.listed:
                self.cycle, self.write_mode = quiet, True  # idle cycles without a refresh
            else:
                self.tick()
        self.asleep = False
        self.queues[is_write].append(
            Request(bank, row, address, is_write, cycle, self.accepted, axi)
        )
        self.accepted += 1
        return "queued"

    # --- one cycle ------------------------------------------------------------------------------

    def run_cycle(self) -> None:
        self.tick()
        self.asleep = not self.has_work()  # wakes, and lives the time slept, with the next request

    def tick(self) -> None:
        self.cycle += 1
        now = self.cycle
        self.list_refreshes(now)
        self.list_precharges(now)
        if self.t["DUAL"]:
            self.use_column_bus(now)
            self.use_row_bus(now)
        else:
            self.use_only_bus(now)

    def list_refreshes(self, now: int) -> None:
        if self.spec.refresh == "none" or now < self.due:
            return
        if self.spec.refresh == "all_bank":
            self.listed += [("rank", rank) for rank in self.ranks]
            self.due += self.t["REFI"]
        else:
            self.listed.append(("bank", self.banks[self.next_bank]))
            self.next_bank = (self.next_bank + 1) % len(self.banks)
            self.due += self.t["REFIPB"]

    def list_precharges(self, now: int) -> None:
        if self.spec.page_policy != "closed_cap":
            return
        for bank in self.banks:
            ready = max(bank.pre_ok, self.ranks[bank.rank].pre_ok) <= now
            if bank.served >= self.spec.page_cap and not bank.is_listed and ready:
                self.listed.append(("precharge", bank))
                bank.is_listed = True

    def use_only_bus(self, now: int) -> None:
        t = self.t
        if self.after_cas is not None:
            request, self.after_cas = self.after_cas, None
            self.issue_column(request, now, after_cas=True)
            return
        deadline = INFINITY if self.second_act is None else self.second_act + t["AAD"]
        is_free = now >= self.row_bus
        command = self.pick(now, is_free)
        if now >= deadline:
            command = None
        if command is not None and command[0] == "column":
            rank = self.ranks[self.banks[command[1].bank].rank]
            if t["WCK"] and now >= rank.wck_end:
                if deadline <= now + 1:
                    command = None
                else:
                    self.commands.append((now, "CAS", -1))
                    self.after_cas = command[1]
                    self.col_bus = self.row_bus = now + 1
                    return
        if command is not None:
            self.issue(command, now)
        elif self.second_act is not None and is_free:
            self.second_act = None
            self.col_bus = self.row_bus = now + 1
            self.commands.append((now, "ACT2", -1))

    def pick(self, now: int, is_free: bool):
        columns = [r for r in self.active if is_free and self.column_ok(r) <= now]
        if columns:
            return "column", min(columns, key=lambda r: r.accepted)  # ties: opened first
        if self.listed:
            return self.refresh_command(now, True) if is_free else None
        self.judge_mode(now)
        if not is_free:
            return None
        queue = [r for r in self.queues[self.write_mode] if r.accepted < now]
        commands = [("column", r) for r in queue if self.is_ready_hit(r, now)]
        commands += [c for r in queue if (c := self.row_command(r, queue, now, True)) is not None]
        return min(commands, key=lambda c: c[1].number, default=None)

    def use_column_bus(self, now: int) -> None:
        if not self.listed:
            self.judge_mode(now)
        if now < self.col_bus or (self.t["ODD"] and now % 2 == 0):
            return
        columns = [r for r in self.active if self.column_ok(r) <= now]
        if columns:
            self.issue_column(min(columns, key=lambda r: r.accepted), now)
        elif not self.listed:
            queue = [r for r in self.queues[self.write_mode] if r.accepted < now]
            hits = [r for r in queue if self.is_ready_hit(r, now)]
            if hits:
                self.issue_column(min(hits, key=lambda r: r.number), now)

    def use_row_bus(self, now: int) -> None:
        if not self.listed:
            self.judge_mode(now)
        if now < self.row_bus:
            return
        parity = not self.t["ODD"] or now % 2 == 1
        if self.listed:
            command = self.refresh_command(now, parity)
        else:
            queue = [r for r in self.queues[self.write_mode] if r.accepted < now]
            rows = [c for r in queue if (c := self.row_command(r, queue, now, parity)) is not None]
            command = min(rows, key=lambda c: c[1].number, default=None)
        if command is not None:
            self.issue_row(command, now)

    def issue(self, command, now: int) -> None:
        if command[0] == "column":
            self.issue_column(command[1], now)
        else:
            self.issue_row(command, now)

    def is_ready_hit(self, r: Request, now: int) -> bool:
        return self.banks[r.bank].row == r.row and self.column_ok(r) <= now

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
        earlier_hit = any(
            o.bank == r.bank and o.row == bank.row and o.accepted <= r.accepted for o in queue
        )
        if earlier_hit and self.spec.scheduler == "frfcfs_row_hit":
            return None
        return ("PRE", r) if max(bank.pre_ok, rank.pre_ok) <= now else None

    def refresh_command(self, now: int, parity: bool):
        kind, what = self.listed[0]
        if kind == "rank":
            is_open = [b for b in what.banks if self.banks[b].row is not None]
            if not is_open:
                return ("REFab", what) if what.ref_ok <= now and parity else None
            used = any(a.bank in what.banks for a in self.active)
            ok = max(what.pre_ok, what.preab_ok, *(self.banks[b].pre_ok for b in is_open))
            return ("PREab", what) if not used and ok <= now else None
        rank = self.ranks[what.rank]
        if kind == "bank" and what.row is None:
            ok = max(what.act_ok + self.t["ACT_LEN"] - 1, rank.refpb_ok)
            return ("REFpb", what) if ok <= now and parity else None
        if any(self.banks[a.bank] is what for a in self.active):
            return None
        return ("PREpb", what) if max(what.pre_ok, rank.pre_ok) <= now else None

    # --- effects --------------------------------------------------------------------------------

    def take_row_bus(self, now: int, length: int) -> None:
        self.row_bus = now + length
        if not self.t["DUAL"]:
            self.col_bus = now + length

    def close(self, bank: Bank, now: int, to_act: int) -> None:
        bank.served, bank.is_listed = 0, False
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
            rank.refpb_ok = max(rank.refpb_ok, now + t["ACT2PBR"])
            self.open_for(what)
            if t["AAD"]:
                self.second_act = now
            self.take_row_bus(now, t["ACT_LEN"])
        elif kind in ("PRE", "PREpb"):
            bank = self.banks[what.bank] if kind == "PRE" else what
            if kind == "PREpb" and self.listed[0][0] == "precharge":
                self.listed.pop(0)
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
            self.listed.pop(0)
            self.take_row_bus(now, 1)
        else:
            rank = self.ranks[what.rank]
            what.act_ok = max(what.act_ok, now + t["RFCPB"])
            rank.act_ok = max(rank.act_ok, now + t["PBR2ACT"])
            rank.refpb_ok = max(rank.refpb_ok, now + t["PBR2PBR"])
            self.listed.pop(0)
            self.take_row_bus(now, 1)

    def open_for(self, r: Request) -> None:
        """An activated request waits for its column command apart from the others."""
        self.queues[r.is_write].remove(r)
        self.active.append(r)

    def remove(self, r: Request) -> None:
        queue = self.active if r in self.active else self.queues[r.is_write]
        queue.remove(r)

    def is_closing(self, r: Request, after_cas: bool) -> bool:
        bank = self.banks[r.bank]
        if self.spec.page_policy == "closed_cap":
            return bank.served >= self.spec.page_cap and not after_cas
        return self.spec.page_policy == "closed" and not any(
            o.bank == r.bank and o.row == bank.row for q in self.queues for o in q
        )

    def issue_column(self, r: Request, now: int, after_cas: bool = False) -> None:
        t, bank = self.t, self.banks[r.bank]
        rank, group = self.ranks[bank.rank], self.groups[bank.group]
        self.commands.append((now, "WR" if r.is_write else "RD", r.number))
        self.remove(r)
        is_closing = self.is_closing(r, after_cas)
        bank.served += 1
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
                per_sid, per_rank = (
                    self.spec.device.bank_groups,
                    self.spec.device.bank_groups * t["SIDS"],
                )
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
        if is_closing:
            rank.preab_ok = max(rank.preab_ok, bank.act_ok - t["RC"] + t["RAS"])
            self.close(bank, bank.pre_ok, t["RP"])
        end = math.ceil((now + latency) * self.period)
        if r.is_write:
            self.last_write_end = max(self.last_write_end, end)
        for served in (*r.merged, r):
            if served.axi is not None:
                self.finish(served.axi, end + (0 if r.is_write else self.spec.latency_ps))
