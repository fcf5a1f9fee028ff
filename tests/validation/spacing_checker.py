"""Checks a command log against published spacings; knows nothing of the kernel but its log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npusim.memory.layout import COMMAND_NAMES

LEVELS = ("Channel", "PseudoChannel", "Rank", "Sid", "BankGroup", "Bank")
WHOLE_RANK = ("PREab", "REFab")


@dataclass(frozen=True)
class Log:
    """Commands of one channel in order: cycles, names and, per level, the unit concerned.

    A command of a whole rank has no bank group or bank of its own (-1) but concerns all of them.
    """

    cycles: np.ndarray
    names: np.ndarray
    units: dict[str, np.ndarray]


def published_rules(entry):
    """The spacing list of a device, or the one its tool derives from `timing_in_tCK`."""
    if "command_constraints_cycles" in entry:
        return entry["command_constraints_cycles"]
    t, burst = entry["timing_in_tCK"], entry["burst_cycles"]
    organisation = entry["organisation"]
    long = "S" if organisation["bankgroups"] == 1 else "L"
    rl, wl = t["CL"], t["CWL"]
    rcd = ("tRCDRD", "tRCDWR") if "tRCDRD" in t else ("tRCD", "tRCD")
    rows = [
        ("Rank", "RD", "RD", max(burst, t["tCCD_S"])),
        ("BankGroup", "RD", "RD", max(burst, t[f"tCCD_{long}"])),
        ("Rank", "WR", "WR", max(burst, t["tCCD_S"])),
        ("BankGroup", "WR", "WR", max(burst, t[f"tCCD_{long}"])),
        ("Rank", "RD", "WR", rl + burst - wl + t["tRTRS"]),
        ("Rank", "WR", "RD", wl + burst + t["tWTR_S"]),
        ("BankGroup", "WR", "RD", wl + burst + t[f"tWTR_{long}"]),
        ("Bank", "RD", "PREpb", t["tRTP"]),
        ("Bank", "WR", "PREpb", wl + burst + t["tWR"]),
        ("Bank", "ACT", "ACT", t["tRAS"] + t["tRP"]),
        ("Bank", "ACT", "PREpb", t["tRAS"]),
        ("Bank", "ACT", "RD", t[rcd[0]]),
        ("Bank", "ACT", "WR", t[rcd[1]]),
        ("BankGroup", "ACT", "ACT", t[f"tRRD_{long}"]),
        ("Rank", "ACT", "ACT", t["tRRD_S"]),
        ("Bank", "PREpb", "ACT", t["tRP"]),
        ("Bank", "PREpb", "REFab", t["tRP"]),
        ("Rank", "REFab", "ACT", t["tRFC"]),
    ]
    if entry["standard"] == "LPDDR4":
        rows.append(("Rank", "PREpb", "PREpb", t["tPPD"]))
    rules = [rule(level, before, after, cycles) for level, before, after, cycles in rows]
    return [*rules, rule("Rank", "ACT", "ACT", t["tFAW"], window=4)]


def rule(level, before, after, cycles, window=1):
    return {
        "level": level, "prev": [before], "next": [after], "min_cycles": cycles,
        "window": window, "other_siblings": False,
    }  # fmt: skip


def logs(commands, entry):
    """The kernel's log as one `Log` per channel, units numbered from the entry's field widths."""
    bits = entry["address_field_bits"]
    sizes = [1 << bits.get(name, 0) for name in ("Bank", "BankGroup", "Sid", "Rank")]
    act = "ACT1" if "LPDDR5" in entry["standard"] else "ACT"
    renamed = {"ACT": act, "PRE": "PREpb"}
    table = np.array([renamed.get(name, name) for name in COMMAND_NAMES])
    for channel in range(entry["channels"]):
        rows = commands[commands[:, 2] == channel]
        names, place = table[rows[:, 1]], rows[:, 3]
        whole = np.isin(names, WHOLE_RANK)
        bank = np.where(whole, place * sizes[0] * sizes[1] * sizes[2], place)
        group = bank // sizes[0]
        sid = group // sizes[1]
        rank = sid // sizes[2]
        units = {"Bank": bank, "BankGroup": group, "Sid": sid, "Rank": rank}
        for level in ("Bank", "BankGroup", "Sid"):
            units[level] = np.where(whole, -1, units[level])
        units["PseudoChannel"] = rank // sizes[3]
        units["Channel"] = np.zeros_like(rank)
        yield Log(rows[:, 0], names, units)


def violations(log, rules):
    """(rule, cycle) of every command that comes too early."""
    found = []
    for item in rules:
        before = np.isin(log.names, item["prev"])
        after = np.isin(log.names, item["next"])
        if before.any() and after.any():
            found += [(item, cycle) for cycle in early(log, item, before, after)]
    return found


def early(log, item, before, after):
    units, ranks = log.units[item["level"]], log.units["Rank"]
    for unit in np.unique(units[units >= 0]):
        mine = units == unit
        home = ranks[mine][0]
        mine = mine | ((units == -1) & (ranks == home))
        first = before & mine
        if item["other_siblings"]:
            parent = log.units["PseudoChannel"]
            first = before & ~mine & (parent == parent[mine][0])
        times = log.cycles[first]
        positions = np.flatnonzero(after & mine)
        seen = np.searchsorted(np.flatnonzero(first), positions)  # earlier ones, in log order
        enough = seen >= item["window"]
        gaps = log.cycles[positions[enough]] - times[seen[enough] - item["window"]]
        yield from log.cycles[positions[enough]][gaps < item["min_cycles"]].tolist()
