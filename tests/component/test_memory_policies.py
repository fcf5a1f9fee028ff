"""Controller and page policies on DDR4-3200, hand-derived cycles.

RCD 22, CL 22 + burst 4, CWL 16, RP 22, RAS 52, RC 74, RTP 12, CCD 4/8, RRD 4/8, read to write 12,
RFC 576, REFI 12480. Everything arrives at cycle 0, so the first command is at cycle 1.
"""

from __future__ import annotations

import numpy as np
import pytest

from npusim.errors import ConfigError
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.layout import COMMAND_NAMES
from npusim.memory.replay import replay_trace

ROW, GROUP, COLUMN = 1 << 17, 64, 256  # steps of BGlow


def replay(requests, arrivals=None, **settings):
    addr, is_write = zip(*requests, strict=True)
    arrivals = [0] * len(addr) if arrivals is None else arrivals
    device = load_dram_device(settings.pop("device", "DDR4-3200"))
    columns = [np.array(c, dtype=np.int64) for c in (addr, is_write, arrivals)]
    return replay_trace(*columns, device, settings.pop("map", "BGlow"), command_log=99, **settings)


def commands(result):
    return [(row[0], COMMAND_NAMES[row[1]]) for row in result.commands.tolist()]


def round_robin(requests, **settings):
    return replay(requests, controller="bank_round_robin", **settings)


def test_round_robin_read_of_a_closed_bank():
    result = round_robin([(0, 0)])
    assert commands(result) == [(1, "ACT"), (23, "RD")]
    assert result.total_cycles == 23 + 26


def test_round_robin_moves_one_transaction_a_cycle():
    # four bank groups: the fourth transaction is in its bank's queue at cycle 4; RRD_S 4 is later
    result = round_robin([(GROUP * i, 0) for i in range(4)])
    assert commands(result)[:4] == [(1, "ACT"), (5, "ACT"), (9, "ACT"), (13, "ACT")]
    # sixteen hits of one bank: column commands every CCD_L = 8 cycles
    result = round_robin([(COLUMN * i, 0) for i in range(16)])
    assert result.total_cycles == 23 + 15 * 8 + 26


@pytest.mark.parametrize(("limit", "at_59"), [(4, "PRE"), (5, "WR")])
def test_a_conflict_closes_a_wanted_row_only_after_its_limit(limit, at_59):
    # reads at 23, 31, 39, 47; at 47 + 12 = 59 both the write (read to write 12) and the precharge
    # (RTP 12) are ready, and the conflict is the oldest entry
    reads = [(COLUMN * i, 0) for i in range(1, 4)]
    result = round_robin([(0, 0), (ROW, 0), *reads, (COLUMN * 4, 1)], row_hit_limit=limit)
    assert dict(commands(result))[59] == at_59


def test_banks_take_turns():
    # RD group 0 at 23; ACT of group 1 at 5, its RD at 27 (CCD_S); group 0 again at 31, then 35
    result = round_robin([(0, 0), (COLUMN, 0), (GROUP, 0), (GROUP + COLUMN, 0)])
    columns = [row[0] for row in result.commands.tolist() if COMMAND_NAMES[row[1]] == "RD"]
    banks = [row[3] for row in result.commands.tolist() if COMMAND_NAMES[row[1]] == "RD"]
    assert columns == [23, 27, 31, 35]
    assert banks == [0, 4, 0, 4]


def test_reads_of_one_address_share_a_command():
    result = round_robin([(0, 0)] * 3)
    assert commands(result) == [(1, "ACT"), (23, "RD")]
    assert result.completion_cycles.tolist() == [49, 49, 49]
    # without room for merged reads each has its own
    result = round_robin([(0, 0)] * 3, merged_reads=1)
    assert commands(result)[1:] == [(23, "RD"), (31, "RD")]


def test_writes_of_one_address_merge_and_their_reads_are_forwarded():
    result = round_robin([(0, 1), (0, 1), (0, 0)])
    assert commands(result) == [(1, "ACT"), (23, "WR")]
    assert (result.counters["merged_writes"], result.counters["forwarded_reads"]) == (1, 1)
    assert result.completion_cycles.tolist() == [23, 0, 1]


def test_a_write_does_not_pass_a_read_of_its_address():
    # the write is ready at 23 too, but goes 12 cycles after the read
    result = round_robin([(0, 0), (0, 1)])
    assert commands(result) == [(1, "ACT"), (23, "RD"), (35, "WR")]


def test_refresh_stalls_the_bank_queues():
    # accepted at 12470: ACT 12471, RD would be at 12493; refresh due at 12480: PRE at
    # 12471 + 52 = 12523, REF 22 later, ACT 576 later, RD 22 later
    result = replay([(0, 0)], [12_470], controller="bank_round_robin")
    act = 12_523 + 22 + 576
    assert commands(result) == [
        (12_471, "ACT"), (12_523, "PRE"), (12_545, "REFab"), (act, "ACT"), (act + 22, "RD"),
    ]  # fmt: skip


def test_two_command_buses_take_a_row_and_a_column_command_in_one_cycle():
    # HBM2-2000: RCDRD 15 with the two-cycle ACT. The second request, of another bank group, is
    # accepted at 15: its ACT and the first one's RD share cycle 16
    result = replay([(0, 0), (64, 0)], [0, 15], device="HBM2-2000", controller="bank_round_robin")
    assert commands(result) == [(1, "ACT"), (16, "ACT"), (16, "RD"), (31, "RD")]


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"page_policy": "closed_cap"}, "page_policy: with controller bank_round_robin is open"),
        ({"refresh": "per_bank", "device": "LPDDR4X-4266"}, "refresh: with controller"),
        ({"device": "LPDDR5-6400"}, "two-step activates"),
        ({"bank_queue_depth": 0}, "bank_queue_depth: is above 0"),
    ],
)
def test_what_the_round_robin_controller_does_not_know_is_refused(settings, rule):
    with pytest.raises(ConfigError, match=rule):
        round_robin([(0, 0)], **settings)


def test_closed_cap_turns_the_next_access_into_a_closing_one():
    # RD 23, RDA 31; its precharge starts at max(1 + 52, 31 + 12) = 53; ACT at 53 + 22 = 75
    result = replay([(0, 0), (COLUMN, 0), (2 * COLUMN, 0)], page_policy="closed_cap", page_cap=1)
    assert commands(result)[:5] == [
        (1, "ACT"), (23, "RD"), (31, "RDA"), (75, "ACT"), (97, "RD"),
    ]  # fmt: skip


def test_closed_cap_precharges_a_row_that_nobody_asks_for():
    # RD 23, precharge ready at 1 + 52; the conflict that arrives at 60 finds the bank closed
    result = replay([(0, 0), (ROW, 0)], [0, 60], page_policy="closed_cap", page_cap=1)
    assert commands(result)[:4] == [(1, "ACT"), (23, "RD"), (53, "PRE"), (75, "ACT")]
    assert result.counters["row_conflicts"] == 0
    # two accesses allowed: the row stays open, the conflict costs a precharge of its own
    result = replay([(0, 0), (ROW, 0)], [0, 60], page_policy="closed_cap", page_cap=2)
    assert commands(result)[:4] == [(1, "ACT"), (23, "RD"), (61, "PRE"), (83, "ACT")]


def test_a_hit_that_came_in_the_same_cycle_keeps_the_row_open():
    # the conflict is listed before the last hit, both arrived at 0: hits first
    late = [(0, 0), (ROW, 0), *((COLUMN * i, 0) for i in range(1, 8))]
    names = [name for _, name in commands(replay(late))]
    assert names.index("PRE") == names.index("ACT") + 9
    assert names[1:9] == ["RD"] * 8


def test_ranks_switch_the_bus_and_refresh_one_after_the_other():
    # BGlow: rank above bank. Reads of both ranks: ACT 1 and 2 (own RRD), RD 23, then 4 + tCS 2
    rank = 1 << 17
    result = replay([(0, 0), (rank, 0)], ranks=2)
    assert commands(result) == [(1, "ACT"), (2, "ACT"), (23, "RD"), (29, "RD")]
    # the second rank refreshes in the cycle after the first
    result = replay([(0, 0)], [12_480], ranks=2)
    assert commands(result)[:2] == [(12_480, "REFab"), (12_481, "REFab")]


def test_ddr5_commands_take_two_cycles_of_the_bus():
    # DDR5-4800: RCD 39 counts between last cycles: ACT 1-2, RD 40; the other group's ACT at 9
    result = replay([(0, 0), (64, 0)], device="DDR5-4800")
    assert commands(result)[:3] == [(1, "ACT"), (9, "ACT"), (40, "RD")]
    assert result.total_cycles == 48 + 48  # RD of the second at 48 = 9 + 39, CL 40 + burst 8
