"""Read-only views of the packed state: attribution and counters."""

from __future__ import annotations

from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.clocking import edge_ps
from npusim.memory.dram.account import arbitration_ps
from npusim.memory.jit import entry, njit, words_at
from npusim.memory.layout import (
    CAT_ARBITRATION,
    CAT_STARVED,
    CH_CLOCK,
    CH_NUM_PCS,
    CH_PCS,
    CHANNEL_WORDS,
    MM_BANKS,
    MM_CHANNELS,
    MM_CLOCK,
    MM_IS_SRAM,
    MM_NUM_BANKS,
    MM_NUM_CHANNELS,
    NUM_CATEGORIES,
    PC_ACCOUNTED,
    PC_ARB_SEEN,
    PC_CATEGORY,
    PC_DATA_END,
    PC_KIND,
    PC_REASON,
    PC_WORDS,
    SB_FREE,
    SB_KIND,
    SB_READ_CYCLES,
    SRAM_BANK_WORDS,
    Words,
)
from npusim.memory.specs import DramConfig, SramConfig


@njit
def add_data_bus(s: Words, mem: int, ch: int, pc: int, now_ps: int, out: Words) -> None:
    """Add one DRAM data bus: what is charged, then the open piece up to `now_ps`."""
    for i in range(NUM_CATEGORIES):
        out[i] += s[pc + PC_CATEGORY + i]
    at = s[pc + PC_ACCOUNTED]
    if now_ps <= at:
        return
    data_end = min(edge_ps(s, ch + CH_CLOCK, s[pc + PC_DATA_END]), now_ps)
    if data_end > at:
        out[s[pc + PC_KIND]] += data_end - at
        at = data_end
    rest, reason = now_ps - at, s[pc + PC_REASON]
    if reason == CAT_STARVED:
        share = min(rest, arbitration_ps(s, mem, now_ps) - s[pc + PC_ARB_SEEN])
        out[CAT_ARBITRATION] += share
        rest -= share
    out[reason] += rest


@njit
def add_sram_bank(s: Words, mem: int, bank: int, now_ps: int, out: Words) -> None:
    """Add one SRAM bank: cycles served before `now_ps`, the rest starved."""
    clock = mem + MM_CLOCK
    ahead = max(0, edge_ps(s, clock, s[bank + SB_FREE]) - now_ps)
    busy = 0
    for kind in range(2):
        part = edge_ps(s, clock, s[bank + SB_READ_CYCLES + kind])
        if kind == s[bank + SB_KIND]:
            part = max(0, part - ahead)
        part = min(part, now_ps - busy)
        out[kind] += part
        busy += part
    out[CAT_STARVED] += now_ps - busy


@entry
def attribution(state_at: int, mem: int, now_ps: int, out_at: int) -> None:
    """Sum the categories of a memory's data buses up to `now_ps` into `out`."""
    s, out = words_at(state_at), words_at(out_at)
    for i in range(NUM_CATEGORIES):
        out[i] = 0
    if s[mem + MM_IS_SRAM]:
        for i in range(s[mem + MM_NUM_BANKS]):
            add_sram_bank(s, mem, s[mem + MM_BANKS] + i * SRAM_BANK_WORDS, now_ps, out)
        return
    for i in range(s[mem + MM_NUM_CHANNELS]):
        ch = s[mem + MM_CHANNELS] + i * CHANNEL_WORDS
        for k in range(s[ch + CH_NUM_PCS]):
            add_data_bus(s, mem, ch, s[ch + CH_PCS] + k * PC_WORDS, now_ps, out)


def counters(s: Words, mem: int, spec: DramConfig | SramConfig) -> dict[str, int]:
    """Raw counts of one memory."""
    result = {
        "read_bytes": int(s[mem + L.MM_READ_BYTES]),
        "write_bytes": int(s[mem + L.MM_WRITE_BYTES]),
    }
    if isinstance(spec, SramConfig):
        accesses = int(s[mem + L.MM_ACCESSES])
        return result | {
            "burst_bytes": accesses * spec.port_bytes,
            "accesses": accesses,
            "row_hits": accesses,
            "row_misses": 0,
            "row_conflicts": 0,
            "refreshes": 0,
            "activates": 0,
            "conflict_cycles": int(s[mem + L.MM_CONFLICT_CYCLES]),
        }
    first = int(s[mem + L.MM_CHANNELS])

    def total(word: int) -> int:
        return sum(int(s[first + i * CHANNEL_WORDS + word]) for i in range(spec.channels))

    reads, writes = total(L.CH_N_RD), total(L.CH_N_WR)
    kinds = [total(word) for word in (L.CH_N_HIT, L.CH_N_MISS, L.CH_N_CONFLICT)]
    return result | {
        "burst_bytes": (reads + writes) * spec.device.burst_bytes,
        "accesses": sum(kinds),
        "row_hits": kinds[0],
        "row_misses": kinds[1],
        "row_conflicts": kinds[2],
        "refreshes": total(L.CH_N_REF) + total(L.CH_N_REFPB),
        "activates": total(L.CH_N_ACT),
        "precharges": total(L.CH_N_PRE),
        "read_commands": reads,
        "write_commands": writes,
        "cas_commands": total(L.CH_N_CAS),
        "forwarded_reads": int(s[mem + L.MM_FORWARDED]),
        "merged_writes": int(s[mem + L.MM_MERGED]),
        "modify_reads": int(s[mem + L.MM_RMW]),
    }
