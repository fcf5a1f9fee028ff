"""Effects of DRAM commands on bank, group, rank and bus state (compiled).

Spacings are those of `timing.Spacing`: cycles from the start of one command to the start of the
next, with command lengths already folded in.
"""

from __future__ import annotations

from npusim.memory.dram.queues import bank_changed
from npusim.memory.jit import inlined, njit
from npusim.memory.jumps.record import note_row
from npusim.memory.layout import (
    BANK_WORDS,
    BK_ACT_OK,
    BK_GROUP,
    BK_ID,
    BK_LISTED,
    BK_PRE_OK,
    BK_RANK,
    BK_RD_OK,
    BK_ROW,
    BK_SERVED,
    BK_WR_OK,
    CH_COL_OK,
    CH_ID,
    CH_MEM,
    CH_N_ACT,
    CH_N_PRE,
    CH_N_RD,
    CH_N_REF,
    CH_N_REFPB,
    CH_N_WR,
    CH_NUM_RANKS,
    CH_RANKS,
    CH_ROW_OK,
    CMD_ACT,
    CMD_PRE,
    CMD_PREAB,
    CMD_RD,
    CMD_RDA,
    CMD_REFAB,
    CMD_REFPB,
    CMD_WR,
    CMD_WRA,
    GP_ACT_OK,
    GP_RD_OK,
    GP_SID,
    GP_WR_OK,
    GROUP_WORDS,
    H_LOG,
    H_LOG_LIMIT,
    H_RECORDING,
    LOG_WORDS,
    NONE,
    RANK_WORDS,
    RK_ACT_OK,
    RK_BANKS,
    RK_FAW,
    RK_FAW_AT,
    RK_GROUPS,
    RK_NUM_BANKS,
    RK_NUM_GROUPS,
    RK_OPEN,
    RK_PC,
    RK_PRE_OK,
    RK_PREAB_OK,
    RK_RD_OK,
    RK_REF_END,
    RK_REF_OK,
    RK_REFPB_OK,
    RK_TURN_RD,
    RK_TURN_WR,
    RK_WCK_END,
    RK_WR_OK,
    T_ACT2PBR,
    T_ACT_LEN,
    T_CCDL,
    T_CCDL_WR,
    T_CCDR,
    T_CCDS,
    T_CCDS_WR,
    T_COL_LEN,
    T_CSR,
    T_CSW,
    T_DUAL,
    T_FAW,
    T_PBR2ACT,
    T_PBR2PBR,
    T_PPD,
    T_PRE_LEN,
    T_RAS,
    T_RC,
    T_RCDRD,
    T_RCDWR,
    T_RCREF,
    T_RFC,
    T_RFCPB,
    T_RL,
    T_RP,
    T_RPAB,
    T_RPREF,
    T_RRDL,
    T_RRDS,
    T_RTP,
    T_RTW,
    T_SIDS,
    T_WCKPST,
    T_WL,
    T_WR,
    T_WTRL,
    T_WTRS,
    Words,
)


@inlined
def record(s: Words, log: Words, ch: int, cycle: int, command: int, bank: int, row: int) -> None:
    """Append a command to the log when one is kept."""
    n = s[H_LOG]
    if n < s[H_LOG_LIMIT]:
        at = n * LOG_WORDS
        log[at], log[at + 1], log[at + 2] = cycle, command, s[ch + CH_ID]
        log[at + 3], log[at + 4] = bank, row
        s[H_LOG] = n + 1


@inlined
def raise_to(s: Words, at: int, value: int) -> None:
    """Set word `at` to at least `value`."""
    if s[at] < value:
        s[at] = value


@inlined
def occupy_row_bus(s: Words, ch: int, cycle: int, length: int) -> None:
    """The command bus that carries row commands is taken for `length` cycles."""
    s[ch + CH_ROW_OK] = cycle + length
    if s[s[ch + CH_MEM] + T_DUAL] == 0:
        s[ch + CH_COL_OK] = cycle + length


@inlined
def activate(s: Words, log: Words, ch: int, bank: int, row: int, cycle: int) -> None:
    """ACT (for LPDDR5 its first half)."""
    mem, rank, group = s[ch + CH_MEM], s[bank + BK_RANK], s[bank + BK_GROUP]
    s[bank + BK_ROW] = row
    if s[H_RECORDING]:
        note_row(s, ch, bank)
    s[bank + BK_RD_OK] = cycle + s[mem + T_RCDRD]
    s[bank + BK_WR_OK] = cycle + s[mem + T_RCDWR]
    raise_to(s, bank + BK_PRE_OK, cycle + s[mem + T_RAS])
    s[bank + BK_ACT_OK] = cycle + s[mem + T_RC]
    raise_to(s, group + GP_ACT_OK, cycle + s[mem + T_RRDL])
    at = s[rank + RK_FAW_AT]
    s[rank + RK_FAW + at] = cycle
    at = (at + 1) & 3
    s[rank + RK_FAW_AT] = at
    ok = max(cycle + s[mem + T_RRDS], s[rank + RK_FAW + at] + s[mem + T_FAW])
    raise_to(s, rank + RK_ACT_OK, ok)
    raise_to(s, rank + RK_REF_OK, cycle + s[mem + T_RCREF])
    if s[mem + T_ACT2PBR]:
        raise_to(s, rank + RK_REFPB_OK, cycle + s[mem + T_ACT2PBR])
    s[rank + RK_OPEN] += 1
    occupy_row_bus(s, ch, cycle, s[mem + T_ACT_LEN])
    s[ch + CH_N_ACT] += 1
    record(s, log, ch, cycle, CMD_ACT, s[bank + BK_ID], row)


@inlined
def close(s: Words, ch: int, bank: int, cycle: int, to_act: int) -> None:
    """Close a bank by a precharge that starts at `cycle`."""
    mem, rank = s[ch + CH_MEM], s[bank + BK_RANK]
    s[bank + BK_SERVED], s[bank + BK_LISTED] = 0, 0
    raise_to(s, bank + BK_ACT_OK, cycle + to_act)
    raise_to(s, rank + RK_REF_OK, cycle + s[mem + T_RPREF])
    if s[bank + BK_ROW] != NONE:
        s[bank + BK_ROW] = NONE
        if s[H_RECORDING]:
            note_row(s, ch, bank)
        s[rank + RK_OPEN] -= 1


@njit
def precharge(s: Words, log: Words, ch: int, bank: int, cycle: int) -> None:
    """PRE of one bank."""
    mem = s[ch + CH_MEM]
    close(s, ch, bank, cycle, s[mem + T_RP])
    raise_to(s, s[bank + BK_RANK] + RK_PRE_OK, cycle + s[mem + T_PPD])
    occupy_row_bus(s, ch, cycle, s[mem + T_PRE_LEN])
    s[ch + CH_N_PRE] += 1
    bank_changed(s, ch, bank, True)
    record(s, log, ch, cycle, CMD_PRE, s[bank + BK_ID], NONE)


@njit
def precharge_all(s: Words, log: Words, ch: int, rank: int, cycle: int) -> None:
    """PREab of one rank."""
    mem = s[ch + CH_MEM]
    for i in range(s[rank + RK_NUM_BANKS]):
        bank = s[rank + RK_BANKS] + i * BANK_WORDS
        close(s, ch, bank, cycle, s[mem + T_RPAB])
        bank_changed(s, ch, bank, True)
    raise_to(s, rank + RK_PRE_OK, cycle + s[mem + T_PPD])
    occupy_row_bus(s, ch, cycle, s[mem + T_PRE_LEN])
    s[ch + CH_N_PRE] += 1
    record(s, log, ch, cycle, CMD_PREAB, (rank - s[ch + CH_RANKS]) // RANK_WORDS, NONE)


@njit
def refresh_all(s: Words, log: Words, ch: int, rank: int, cycle: int) -> None:
    """REFab of one rank."""
    mem = s[ch + CH_MEM]
    end = cycle + s[mem + T_RFC]
    raise_to(s, rank + RK_ACT_OK, end)
    raise_to(s, rank + RK_REF_OK, end)
    s[rank + RK_REF_END] = end
    occupy_row_bus(s, ch, cycle, 1)
    s[ch + CH_N_REF] += 1
    record(s, log, ch, cycle, CMD_REFAB, (rank - s[ch + CH_RANKS]) // RANK_WORDS, NONE)


@njit
def refresh_bank(s: Words, log: Words, ch: int, bank: int, cycle: int) -> None:
    """REFpb of one bank."""
    mem, rank = s[ch + CH_MEM], s[bank + BK_RANK]
    raise_to(s, bank + BK_ACT_OK, cycle + s[mem + T_RFCPB])
    raise_to(s, rank + RK_ACT_OK, cycle + s[mem + T_PBR2ACT])
    raise_to(s, rank + RK_REFPB_OK, cycle + s[mem + T_PBR2PBR])
    occupy_row_bus(s, ch, cycle, 1)
    s[ch + CH_N_REFPB] += 1
    bank_changed(s, ch, bank, False)
    record(s, log, ch, cycle, CMD_REFPB, s[bank + BK_ID], NONE)


@njit
def separate_stack_ids(s: Words, rank: int, group: int, ok: int) -> None:
    """Reads of another stack ID come a little later than those of the same one."""
    for i in range(s[rank + RK_NUM_GROUPS]):
        other = s[rank + RK_GROUPS] + i * GROUP_WORDS
        if s[other + GP_SID] != s[group + GP_SID]:
            raise_to(s, other + GP_RD_OK, ok)


@inlined
def column(
    s: Words, log: Words, ch: int, bank: int, write: int, cycle: int, is_closing: bool
) -> None:
    """RD or WR; `cycle` is that of the column command itself (after a CAS, if any).

    A closing one (RDA, WRA) precharges by itself once tRAS and tRTP or tWR are over.
    """
    mem, rank, group = s[ch + CH_MEM], s[bank + BK_RANK], s[bank + BK_GROUP]
    if write:
        raise_to(s, bank + BK_PRE_OK, cycle + s[mem + T_WR])
        raise_to(s, group + GP_WR_OK, cycle + s[mem + T_CCDL_WR])
        raise_to(s, group + GP_RD_OK, cycle + s[mem + T_WTRL])
        same_rd, same_wr = s[mem + T_WTRS], s[mem + T_CCDS_WR]
        other_rd, other_wr = s[mem + T_CSW], s[mem + T_CCDS_WR]
        s[rank + RK_TURN_RD] = max(cycle + s[mem + T_WTRL], s[rank + RK_TURN_RD])
        s[ch + CH_N_WR] += 1
    else:
        raise_to(s, bank + BK_PRE_OK, cycle + s[mem + T_RTP])
        raise_to(s, group + GP_RD_OK, cycle + s[mem + T_CCDL])
        same_rd, same_wr = s[mem + T_CCDS], s[mem + T_RTW]
        other_rd, other_wr = s[mem + T_CSR], s[mem + T_RTW]
        s[rank + RK_TURN_WR] = cycle + same_wr
        s[ch + CH_N_RD] += 1
    pc = s[rank + RK_PC]
    for i in range(s[ch + CH_NUM_RANKS]):
        other = s[ch + CH_RANKS] + i * RANK_WORDS
        if other == rank:
            raise_to(s, rank + RK_RD_OK, cycle + same_rd)
            raise_to(s, rank + RK_WR_OK, cycle + same_wr)
        elif s[other + RK_PC] == pc:
            raise_to(s, other + RK_RD_OK, cycle + other_rd)
            raise_to(s, other + RK_WR_OK, cycle + other_wr)
    if s[mem + T_SIDS] > 1 and write == 0:
        separate_stack_ids(s, rank, group, cycle + s[mem + T_CCDR])
    length = s[mem + T_COL_LEN]
    s[ch + CH_COL_OK] = cycle + length
    if s[mem + T_DUAL] == 0:
        s[ch + CH_ROW_OK] = cycle + length
    latency = s[mem + T_WL] if write else s[mem + T_RL]
    raise_to(s, rank + RK_WCK_END, cycle + latency + s[mem + T_WCKPST])
    s[bank + BK_SERVED] += 1
    if not is_closing:
        record(s, log, ch, cycle, CMD_WR if write else CMD_RD, s[bank + BK_ID], s[bank + BK_ROW])
        return
    record(s, log, ch, cycle, CMD_WRA if write else CMD_RDA, s[bank + BK_ID], s[bank + BK_ROW])
    # a PREab still waits for the tRAS of this row
    raise_to(s, rank + RK_PREAB_OK, s[bank + BK_ACT_OK] - s[mem + T_RC] + s[mem + T_RAS])
    close(s, ch, bank, s[bank + BK_PRE_OK], s[mem + T_RP])
