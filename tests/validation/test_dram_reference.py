"""The DRAM controllers against a public cycle-level simulator (tests/data/dram/README.md).

Tolerance per case 8 %, mean 3 % (DESIGN.md, section 5); measured errors are in
docs/modelling/memory.md. The spacing checker knows nothing of the kernel but its command log.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from npusim.memory.dram.timing import load_dram_device
from npusim.memory.layout import COMMAND_NAMES
from npusim.memory.replay import replay_trace

DATA = Path(__file__).parents[1] / "data" / "dram"
REFERENCE = json.loads((DATA / "cases.json").read_text(encoding="utf-8"))
MICRO = [case for case in REFERENCE["cases"] if "requests" in case]
TRACES = [case for case in REFERENCE["cases"] if "requests" not in case]
WORST_FRAC, MEAN_FRAC = 0.08, 0.03


def replay(case):
    if "requests" in case:
        columns = np.array(case["requests"], dtype=np.int64).T
    else:
        with np.load(DATA / "traces" / f"{case['id']}.npz") as file:
            columns = [file[k].astype(np.int64) for k in ("addr", "is_write", "arrival_cycle")]
    device = load_dram_device(case["device"])
    log = 8 * len(columns[0]) + 4096
    return replay_trace(*columns, device, case["address_map"], command_log=log)


def named(device, commands):
    """Log rows as (cycle, reference's name, place = (pseudo-channel, rank, SID, group, bank))."""
    first = "ACT1" if device.two_step_activate else "ACT"
    per_rank = device.stack_ids * device.bank_groups * device.banks_per_group
    for cycle, code, _, place, _ in commands.tolist():
        name = COMMAND_NAMES[code]
        if name in ("ACT2", "CAS"):
            yield cycle, name, None
            continue
        whole = name in ("PREab", "REFab")
        rank = place if whole else place // per_rank
        group = None if whole else place // device.banks_per_group
        name = {"ACT": first, "PRE": "PREpb"}.get(name, name)
        sid = None if whole else group // device.bank_groups
        yield cycle, name, (rank, rank, sid, group, None if whole else place)


@pytest.mark.parametrize("case", MICRO, ids=lambda c: c["id"])
def test_micro_command_lists_are_exact(case):
    result = replay(case)
    expected = [(row[0], row[1].split("_")[0]) for row in case["commands"]["rows"]]
    device = load_dram_device(case["device"])
    assert [(cycle, name) for cycle, name, _ in named(device, result.commands)] == expected
    assert result.total_cycles == case["total_cycles"]


@pytest.mark.parametrize("case", TRACES, ids=lambda c: c["id"])
def test_trace_cycles_are_within_tolerance(case):
    result = replay(case)
    error = abs(result.total_cycles - case["total_cycles"]) / case["total_cycles"]
    assert error <= WORST_FRAC
    counts = result.counters
    kinds = counts["row_hits"] + counts["row_misses"] + counts["row_conflicts"]
    assert kinds == counts["accesses"] == result.reads + result.writes - merged(counts)


def merged(counts):
    return counts["merged_writes"] + counts["forwarded_reads"]


def test_mean_error_is_within_tolerance():
    errors = [abs(replay(c).total_cycles / c["total_cycles"] - 1) for c in TRACES]
    assert np.mean(errors) <= MEAN_FRAC


@pytest.mark.parametrize("case", TRACES, ids=lambda c: c["id"])
def test_no_command_spacing_is_violated(case):
    device = load_dram_device(case["device"])
    commands = list(named(device, replay(case).commands))
    for rule in REFERENCE["constraints"][case["device"]]:
        check_rule(rule, commands, device)


def check_rule(rule, commands, device):
    """Every `next` comes at least min_cycles after the window-th last `prev` of the same place."""
    level = {"Channel": None, "PseudoChannel": 0, "Rank": 1, "Sid": 2, "BankGroup": 3, "Bank": 4}
    index = level[rule["level"]]
    if rule["other_siblings"]:
        return check_siblings(rule, commands)
    history = defaultdict(list)
    for cycle, name, place in commands:
        if place is None:
            continue
        keys = expand(place, index, device)
        for key in keys:
            past = history[key]
            if name in rule["next"] and len(past) >= rule["window"]:
                gap = cycle - past[-rule["window"]]
                assert gap >= rule["min_cycles"], (rule, cycle, key)
        for key in keys:
            if name in rule["prev"]:
                history[key].append(cycle)
    return None


def expand(place, index, device):
    """The units of a level that a command concerns; a whole-rank command concerns its banks."""
    if index is None:
        return [0]
    if place[index] is not None:
        return [place[index]]
    if index <= 1:
        return [place[1]]
    sizes = {2: 1, 3: device.bank_groups, 4: device.bank_groups * device.banks_per_group}
    per_rank = device.stack_ids * sizes[index]
    return [place[1] * per_rank + i for i in range(per_rank)]


def check_siblings(rule, commands):
    last = {}
    for cycle, name, place in commands:
        if place is None:
            continue
        pc, unit = place[0], place[2 if rule["level"] == "Sid" else 1]
        for (other_pc, other), at in last.items():
            if other_pc == pc and other != unit and name in rule["next"]:
                assert cycle - at >= rule["min_cycles"], (rule, cycle, unit, other)
        if name in rule["prev"]:
            last[pc, unit] = cycle
