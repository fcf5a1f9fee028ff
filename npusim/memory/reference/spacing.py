"""Command spacings as a reference states them, in the words of `dram.timing.spacings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RANK, GROUP, BANK = ("Channel", "PseudoChannel", "Rank"), ("BankGroup",), ("Bank",)
KEYS = {"level", "prev", "next", "min_cycles", "window", "other_siblings"}

# (spacing, levels, command before, command after, window, between siblings)
RULES: tuple[tuple[str, tuple[str, ...], str, str, int, bool], ...] = (
    ("CCDS", (*RANK, "Sid"), "RD", "RD", 1, False),
    ("CCDS_WR", (*RANK, "Sid"), "WR", "WR", 1, False),
    ("RTW", RANK, "RD", "WR", 1, False),
    ("WTRS", RANK, "WR", "RD", 1, False),
    ("CCDL", GROUP, "RD", "RD", 1, False),
    ("CCDL_WR", GROUP, "WR", "WR", 1, False),
    ("WTRL", GROUP, "WR", "RD", 1, False),
    ("RRDS", RANK, "ACT", "ACT", 1, False),
    ("RRDL", GROUP, "ACT", "ACT", 1, False),
    ("FAW", RANK, "ACT", "ACT", 4, False),
    ("RC", BANK, "ACT", "ACT", 1, False),
    ("RCDRD", BANK, "ACT", "RD", 1, False),
    ("RCDWR", BANK, "ACT", "WR", 1, False),
    ("RAS", BANK, "ACT", "PREpb", 1, False),
    ("RP", BANK, "PREpb", "ACT", 1, False),
    ("RPAB", RANK, "PREab", "ACT", 1, False),
    ("RTP", BANK, "RD", "PREpb", 1, False),
    ("WR", BANK, "WR", "PREpb", 1, False),
    ("PPD", RANK, "PREpb", "PREpb", 1, False),
    ("RPREF", RANK, "PREpb", "REFab", 1, False),
    ("RCREF", RANK, "ACT", "REFab", 1, False),
    ("RFC", RANK, "REFab", "ACT", 1, False),
    ("RFCPB", BANK, "REFpb", "ACT", 1, False),
    ("PBR2PBR", RANK, "REFpb", "REFpb", 1, False),
    ("PBR2ACT", RANK, "REFpb", "ACT", 1, False),
    ("ACT2PBR", RANK, "ACT", "REFpb", 1, False),
    ("CSR", ("Rank",), "RD", "RD", 1, True),
    ("CSW", ("Rank",), "WR", "RD", 1, True),
    ("CCDR", ("Sid",), "RD", "RD", 1, True),
)
CHANNEL = ("Channel",)


def stated_spacings(rows: Sequence[Mapping[str, Any]], where: str, is_dual: bool) -> dict[str, int]:
    """Spacings that a list of constraints fixes; the largest where several apply.

    Parameters
    ----------
    rows : Sequence[Mapping]
        `level` (scope), `prev` and `next` (lists of commands), `min_cycles`, `window` (n-th
        previous) and `other_siblings` (between units of that level).
    where : str
        Place for messages.
    is_dual : bool
        Whether row and column commands have buses of their own.

    Returns
    -------
    dict[str, int]
        Keyed like `spacings`; what the list says nothing of is missing. A command's length on its
        bus is what it keeps a command of another kind away.

    Raises
    ------
    ConfigError
        If a row lacks a key or its cycles are negative.
    """
    for i, row in enumerate(rows):
        missing = sorted(KEYS - set(row))
        if missing:
            raise ConfigError(f"{where}[{i}]", "keys are required", missing)
        if row["min_cycles"] < 0:
            raise ConfigError(f"{where}[{i}].min_cycles", "is at least 0", row["min_cycles"])
    found = {}
    for key, levels, before, after, window, siblings in RULES:
        cycles = list(_matching(rows, levels, before, after, window, siblings))
        if cycles:
            found[key] = max(cycles)
    after_column = "WR" if is_dual else "PREpb"
    for key, before, after in (("ACT_LEN", "ACT", "PREpb"), ("COL_LEN", "RD", after_column)):
        cycles = list(_matching(rows, CHANNEL, before, after, 1, False))
        if cycles:
            found[key] = max(cycles)
    return found


def _matching(
    rows: Sequence[Mapping[str, Any]], levels: tuple[str, ...], before: str, after: str,
    window: int, siblings: bool,
) -> Iterator[int]:  # fmt: skip
    """Cycles of the rows that concern this pair of commands."""
    for row in rows:
        if row["level"] in levels and row["window"] == window:
            pair = _has(row["prev"], before) and _has(row["next"], after)
            if pair and bool(row["other_siblings"]) == siblings:
                yield int(row["min_cycles"])


def _has(commands: Sequence[str], name: str) -> bool:
    """Whether a list has the command; the first half of a two-step activate is an ACT."""
    return name in commands or (name == "ACT" and "ACT1" in commands)
