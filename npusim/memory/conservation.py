"""What must balance once everything is over: bytes, bursts, row states, refreshes, credits.

Each sum is counted at two places that do not know of each other, so that a burst lost or counted
twice anywhere between them shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import SimulationError
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.dram.refresh import IS_PRECHARGE
from npusim.memory.specs import DramConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npusim.memory.specs import SramConfig


def check_conservation(
    state: L.Words,
    transfers: L.Words,
    memories: Sequence[DramConfig | SramConfig],
    bases: Sequence[int],
) -> None:
    """Check a memory system in which nothing is in flight or queued.

    Parameters
    ----------
    state : ndarray of int64
        The packed state.
    transfers : ndarray of int64, shape (transfers, TRANSFER_WORDS)
        All transfers ever submitted; their bytes as asked, as served by the memory and as brought
        back are equal, and each access was a row hit, miss or conflict.
    memories, bases
        Each memory and the index of its block.

    Raises
    ------
    SimulationError
        Naming the transfer, memory or stream whose sums differ.
    """
    _check_transfers(transfers)
    for spec, base in zip(memories, bases, strict=True):
        where = f"memory {spec.name!r}"
        mine = transfers[transfers[:, L.TR_MEM] == base]
        writes = mine[:, L.TR_WRITE] != 0
        for name, rows, word in (
            ("bytes read", ~writes, L.MM_READ_BYTES),
            ("bytes written", writes, L.MM_WRITE_BYTES),
        ):
            asked = int(mine[rows, L.TR_ASKED].sum())
            _equal(where, f"{name} are those of its transfers", asked, int(state[base + word]))
        if isinstance(spec, DramConfig):
            _check_dram(state, base, spec, where, int(mine[:, L.TR_ACCESSES].sum()))
    for port in range(int(state[L.H_NUM_PORTS])):
        _check_credits(state, port)


def _check_transfers(transfers: L.Words) -> None:
    rows = transfers[:, [L.TR_HITS, L.TR_MISSES, L.TR_CONFLICTS]].sum(axis=1)
    for rule, expected, found in (
        ("bytes served by the memory are those asked", L.TR_ASKED, transfers[:, L.TR_BYTES]),
        ("bytes brought back are those asked", L.TR_ASKED, transfers[:, L.TR_RETURNED]),
        ("row hits + misses + conflicts are its accesses", L.TR_ACCESSES, rows),
    ):
        bad = np.flatnonzero(transfers[:, expected] != found)
        if len(bad):
            tid = int(bad[0])
            _equal(f"transfer {tid}", rule, int(transfers[tid, expected]), int(found[tid]))


def _check_dram(state: L.Words, base: int, spec: DramConfig, where: str, accesses: int) -> None:
    first = int(state[base + L.MM_CHANNELS])
    channels = [first + i * L.CHANNEL_WORDS for i in range(spec.channels)]

    def total(*words: int) -> int:
        return sum(int(state[ch + word]) for ch in channels for word in words)

    columns = total(L.CH_N_RD, L.CH_N_WR)
    rows = total(L.CH_N_HIT, L.CH_N_MISS, L.CH_N_CONFLICT)
    _equal(where, "row hits + misses + conflicts are its column commands", columns, rows)
    _equal(where, "accesses of its transfers are its column commands", columns, accesses)
    asked = int(state[base + L.MM_ASKED]) + int(state[base + L.MM_RMW])
    served = columns + int(state[base + L.MM_FORWARDED]) + int(state[base + L.MM_MERGED])
    _equal(where, "every DRAM burst asked for is a command, forwarded or merged", asked, served)
    for number, ch in enumerate(channels):
        _check_refresh(state, ch, spec, f"{where} channel {number}")


def _check_refresh(state: L.Words, ch: int, spec: DramConfig, where: str) -> None:
    """Every interval that has ended gave one refresh (per rank), issued or still on the list."""
    if spec.refresh == "none":
        due = 0
    elif spec.refresh == "all_bank":
        interval = int(state[int(state[ch + L.CH_MEM]) + L.T_REFI])
        due = (int(state[ch + L.CH_REF_DUE]) // interval - 1) * int(state[ch + L.CH_NUM_RANKS])
    else:
        interval = int(state[int(state[ch + L.CH_MEM]) + L.T_REFIPB])
        due = int(state[ch + L.CH_REF_DUE]) // interval - 1
    issued = int(state[ch + L.CH_N_REF]) + int(state[ch + L.CH_N_REFPB])
    counted = issued + _listed_refreshes(state, ch)
    _equal(where, "a refresh per interval is issued or pending", due, counted)


def _listed_refreshes(state: L.Words, ch: int) -> int:
    """Entries of a controller's list that are refreshes, not precharges."""
    first, limit = int(state[ch + L.CH_LIST_HEAD]), int(state[ch + L.CH_LIST_LIMIT])
    entries = (first + np.arange(int(state[ch + L.CH_REF_PENDING]))) % max(limit, 1)
    listed = state[int(state[ch + L.CH_LIST]) + entries]
    return int(((listed & IS_PRECHARGE) == 0).sum())


def _check_credits(state: L.Words, port: int) -> None:
    base = int(state[L.H_PORTS]) + port * L.PORT_WORDS
    for write, direction in ((L.READ, "read"), (L.WRITE, "write")):
        stream = int(state[base + L.PT_STREAMS]) + write * L.STREAM_WORDS
        where = f"port {port} {direction} stream"
        first_id = int(state[stream + L.ST_IDS]) + L.ID_CREDITS
        ids = range(int(state[stream + L.ST_NUM_IDS]))
        held = [(f"ID {i}", first_id + i * L.ID_WORDS) for i in ids]
        for owner, at in [("the port", stream + L.ST_CREDITS), *held]:
            back = int(state[at + L.CR_CREDITS]) + int(state[at + L.CR_RELEASE_N])
            limit = int(state[at + L.CR_LIMIT])
            _equal(where, f"every credit of {owner} comes back", limit, back)


def _equal(where: str, rule: str, expected: int, found: int) -> None:
    if found != expected:
        raise SimulationError(where, f"{rule} ({expected})", found)
