"""Where everything lives in the packed int64 state of the memory kernel.

Every object (port, bus, channel, bank, request, ...) is a block of consecutive words in one buffer
`s`; its name in the code is the index of its first word, so `s[bank + BK_ROW]` is the open row of
`bank`. Links between objects are such indices, -1 means none. One buffer keeps the cost of
entering the kernel constant and the state trivially copyable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]

NONE = -1
NEVER = 1 << 62  # a time that does not come
READ, WRITE = 0, 1

ATTRIBUTION_CATEGORIES = (
    "data_read",
    "data_write",
    "refresh",
    "turnaround",
    "row",
    "bank_conflict",
    "command",
    "arbitration",
    "starved",
)
(
    CAT_READ,
    CAT_WRITE,
    CAT_REFRESH,
    CAT_TURNAROUND,
    CAT_ROW,
    CAT_CONFLICT,
    CAT_COMMAND,
    CAT_ARBITRATION,
    CAT_STARVED,
) = range(9)
NUM_CATEGORIES = 9

# --- header -------------------------------------------------------------------------------------
(
    H_PORTS, H_NUM_PORTS, H_BUSES, H_NUM_BUSES, H_MEMS, H_NUM_MEMS, H_CHANNELS, H_NUM_CHANNELS,
    H_TREE, H_TREE_LEAF, H_TREE_SIZE, H_CLOCK, H_LAST_WRITE, H_OUT, H_RUN_FREE,
    H_UNFINISHED, H_QUEUED_WRITES, H_FIRST_DONE, H_LOG, H_LOG_LIMIT,
    H_CROSSED,  # stream that passed a boundary of `MM_CHUNK`, 0 if none
    H_RECORDING, H_RECORD,  # whether a hop is being recorded; where (`jumps.record`)
) = range(23)  # fmt: skip
HEADER_WORDS = 32
H_ZERO = 31  # a word that stays 0: no opinion

# --- clock: part of ports, buses, memories and channels ------------------------------------------
CLOCK_NUM = 0  # period in ps, a fraction
CLOCK_BY_DEN, CLOCK_BY_NUM = 1, 3  # two words each: how to divide by it (`clocking.divide`)
CLOCK_DEN = 5
CLOCK_WORDS = 6

# --- port: one bus master -----------------------------------------------------------------------
(
    PT_BUS, PT_RATE, PT_STREAMS, PT_ID,
    PT_HEAD, PT_TAIL, PT_NODE, PT_ROW, PT_OFFSET,  # transfer being cut and the place in it
    PT_VALID, PT_ADDR, PT_BYTES, PT_WRITE, PT_MEM, PT_TID, PT_READY,  # the burst cut next
    PT_READ_FREE, PT_SUPPLY_FREE, PT_GRANT, PT_GRANT_BEFORE, PT_SEQ, PT_OWN_PS,
    PT_QOS, PT_CROSSING,  # constants: 0..15; cycles to pass between the port's and the bus's clock
    PT_CLOCK,
) = range(25)  # fmt: skip
PORT_WORDS = PT_CLOCK + CLOCK_WORDS

# --- stream: one direction of a port; bursts reach the memory in order --------------------------
(
    ST_PORT, ST_WRITE, ST_ENTITY, ST_CREDITS, ST_LIMIT, ST_RELEASES, ST_RELEASE_HEAD, ST_RELEASE_N,
    ST_LAST_RELEASE, ST_FIFO, ST_FIFO_HEAD, ST_FIFO_N, ST_FREE_BURST,
    ST_AT, ST_PHASE, ST_BLOCKED, ST_WAIT_NEXT, ST_WAIT_SINCE,
    ST_NUM_IDS, ST_IDS,  # constants: IDs (0: each burst has its own), index of the first ID's block
    ST_NEXT_ID,  # index of the block whose ID the next burst takes
    ST_POOL,  # first of the stream's `ST_LIMIT` bursts
) = range(22)  # fmt: skip
STREAM_WORDS = 22
# credits, part of a stream (from ST_CREDITS) and of an ID: a ring of times at which they come back
CR_CREDITS, CR_LIMIT, CR_RELEASES, CR_RELEASE_HEAD, CR_RELEASE_N = range(5)

# --- AXI ID of a stream: its bursts return in order -----------------------------------------------
(
    ID_CREDITS, ID_LIMIT, ID_RELEASES, ID_RELEASE_HEAD, ID_RELEASE_N,  # as CR_*; limit 0: none
    ID_HEAD, ID_TAIL,  # bursts granted and not on their way back yet, oldest first
    ID_LAST,  # time at which the last one sent back reaches the bus
) = range(8)  # fmt: skip
ID_WORDS = 8

# --- AXI burst in flight ------------------------------------------------------------------------
(
    AX_PORT, AX_STREAM, AX_MEM, AX_ADDR, AX_END, AX_TID, AX_BEATS, AX_SEQ, AX_ARRIVE,
    AX_LEFT, AX_FIRST, AX_LAST, AX_NEXT,
    AX_ID, AX_AFTER,  # block of its ID (NONE without IDs), next younger burst of that ID
) = range(15)  # fmt: skip
AXI_WORDS = 15

# --- bus ----------------------------------------------------------------------------------------
(
    BS_ID, BS_DATA, BS_CUT, BS_REQUEST_PS, BS_RESPONSE_PS, BS_ARBITER, BS_CROSSING,
    BS_PORTS, BS_NUM_PORTS,
    BS_ADDR_FREE,  # two words: read and write address channel, next free bus cycle
    BS_ADDR_FREE_W,
    BS_LAST, BS_LAST_W,  # position of the port granted last
    BS_DATA_FREE, BS_DATA_FREE_W, BS_HEAP, BS_HEAP_N,
    BS_CLOCK,
) = range(18)  # fmt: skip
BUS_WORDS = BS_CLOCK + CLOCK_WORDS
ARBITER_ROUND_ROBIN, ARBITER_FIXED, ARBITER_QOS = range(3)

# --- memory: common part, then DRAM timing or SRAM geometry -------------------------------------
(
    MM_IS_SRAM, MM_CAPACITY, MM_READ_BYTES, MM_WRITE_BYTES, MM_ARB_PS, MM_ARB_END,
    MM_FORWARDED, MM_MERGED, MM_RMW,
    MM_CHANNELS, MM_NUM_CHANNELS, MM_BURST, MM_INTERLEAVE, MM_LATENCY_PS, MM_POSTED, MM_PARTIAL_RMW,
    MM_SEGMENTS, MM_NUM_SEGMENTS,
    MM_BANKS, MM_NUM_BANKS, MM_PORT_BYTES, MM_LATENCY_CYCLES, MM_CONFLICT_CYCLES,
    MM_ACCESSES, MM_REQUEST_READ_PS, MM_REQUEST_WRITE_PS,
    MM_BURST_BITS,
) = range(27)  # fmt: skip
(
    T_RL, T_WL, T_BL, T_RCDRD, T_RCDWR, T_RP, T_RPAB, T_RAS, T_RC, T_RTP, T_WR, T_CCDS, T_CCDL,
    T_CCDS_WR, T_CCDL_WR, T_RTW, T_WTRS, T_WTRL, T_RRDS, T_RRDL, T_FAW, T_PPD, T_RPREF, T_RCREF,
    T_RFC, T_REFI, T_RFCPB, T_REFIPB, T_PBR2PBR, T_PBR2ACT, T_CSR, T_CSW, T_CCDR, T_SIDS,
    T_ACT_LEN, T_COL_LEN, T_PRE_LEN, T_DUAL, T_ODD, T_AAD, T_WCK, T_WCKPST,
    T_ROW_HIT_FIRST, T_CLOSED, T_REFRESH,
) = range(27, 72)  # fmt: skip
MM_BY_INTERLEAVE, MM_BY_CHANNELS = 72, 74  # two words each
MM_ASKED = 76  # count: DRAM bursts that AXI bursts touched, before forwarding and merging
MM_CLOCK = 77
(
    T_CAP,  # column accesses after which a row is closed; 0: rows are not closed by count
    T_ROUND_ROBIN, T_BANK_QUEUE, T_HIT_LIMIT,  # controller: bank_round_robin and its limits
    T_ACT2PBR,
    MM_SPAN,  # bytes after which banks repeat and rows advance evenly (`jumps`)
    MM_CHUNK,  # mask of the address bits that are 0 at a checkpoint of a stream; -1: never
    MM_MARGIN,  # cycles after which a passed deadline no longer matters
    MM_SNAPSHOT,  # most words a snapshot takes
) = range(MM_CLOCK + CLOCK_WORDS, MM_CLOCK + CLOCK_WORDS + 9)  # fmt: skip
MEM_WORDS = MM_CLOCK + CLOCK_WORDS + 9
SEGMENT_WORDS = 4  # source bit, mask, destination bit, target
SEG_FROM, SEG_MASK, SEG_TO, SEG_TARGET = range(4)
TARGET_BANK, TARGET_ROW, TARGET_BANK_XOR_ROW = range(3)
REFRESH_NONE, REFRESH_ALL, REFRESH_PER_BANK = range(3)

# --- SRAM bank ----------------------------------------------------------------------------------
SB_FREE, SB_KIND, SB_READ_CYCLES, SB_WRITE_CYCLES = range(4)
SRAM_BANK_WORDS = 4

# --- DRAM channel (controller) ------------------------------------------------------------------
(
    CH_MEM, CH_ENTITY, CH_ID, CH_MARKS,
    CH_BANKS, CH_NUM_BANKS, CH_RANKS, CH_NUM_RANKS, CH_PCS, CH_NUM_PCS,
    CH_QUEUED,  # two words: requests in the read and in the write queue
    CH_QUEUED_W, CH_LIMIT, CH_LIMIT_W, CH_HIGH, CH_LOW, CH_WRITE_MODE,
    CH_COLS, CH_COLS_W, CH_COLS_N, CH_COLS_N_W,  # queues of reads, writes with a column candidate
    CH_ROWS, CH_ROWS_W, CH_ROWS_N, CH_ROWS_N_W,  # and with a row candidate
    CH_ACTIVE, CH_ACTIVE_N, CH_FREE_REQ, CH_SEQ, CH_HELD,
    CH_COL_OK, CH_ROW_OK, CH_ACT2_AT, CH_ACT2_BANK,
    CH_REF_DUE, CH_REF_PENDING, CH_REF_BANK, CH_NOW,
    CH_PLAN_COL_T, CH_PLAN_COL, CH_PLAN_ROW_T, CH_PLAN_ROW, CH_PLAN_CMD, CH_PLAN_KEY, CH_PLANNED,
    CH_WAIT, CH_WAIT_W,  # first stream waiting for a slot of the read, write queue
    CH_N_RD, CH_N_WR, CH_N_ACT, CH_N_PRE, CH_N_REF, CH_N_REFPB, CH_N_HIT, CH_N_MISS, CH_N_CONFLICT,
    CH_LAST_WR, CH_N_CAS,
    CH_MODE_AT, CH_MODE_BEFORE,  # cycle the write mode was last judged for, mode before that
    CH_NEW_AT, CH_NEW, CH_NEW_W,  # requests accepted at cycle CH_NEW_AT: not seen at that cycle
    CH_CLOCK,
) = range(64)  # fmt: skip
(
    # list of refreshes and forced precharges, a ring of (target << 1 | is a precharge)
    CH_LIST, CH_LIST_HEAD, CH_LIST_LIMIT,
    CH_CAP_AT,  # closed_cap: cycle at which the next bank asks for its precharge
    CH_SLOT_MASK,  # 1 with a read and a write queue, 0 with one queue for both
    # bank_round_robin: transaction queue, bank visited last, reads that share a command
    CH_FIRST, CH_LAST, CH_VISITED, CH_MERGED, CH_MERGED_LIMIT,
    CH_CAS_REQ,  # LPDDR5: request whose CAS has been issued, NONE between
) = range(CH_CLOCK + CLOCK_WORDS, CH_CLOCK + CLOCK_WORDS + 11)  # fmt: skip
CHANNEL_WORDS = CH_CLOCK + CLOCK_WORDS + 11
MARK_BITS = 8
NUM_MARKS = 1 << MARK_BITS  # counters of queued writes by a hash of their address

# --- DRAM bank ----------------------------------------------------------------------------------
(
    BK_ROW, BK_ACT_OK, BK_PRE_OK, BK_RD_OK, BK_WR_OK, BK_GROUP, BK_RANK, BK_PC, BK_ACTIVE, BK_ID,
    BK_QUEUE,  # words of the read queue, then of the write queue
) = range(11)  # fmt: skip
(
    Q_HEAD, Q_TAIL, Q_HIT, Q_OTHER, Q_COL_AT, Q_ROW_AT, Q_BANK,  # places in the channel's lists
    # candidates for the scheduler: ready as far as the bank knows, words with the group's and the
    # rank's opinion, age
    Q_COL, Q_COL_GROUP, Q_COL_RANK, Q_COL_SEQ, Q_ROW, Q_ROW_GROUP, Q_ROW_RANK, Q_ROW_SEQ, Q_IS_ACT,
) = range(16)  # fmt: skip
QUEUE_WORDS = 16
(
    BK_SERVED, BK_LISTED,  # column accesses since the row was opened; precharge is on the list
    BK_FIRST, BK_LAST, BK_COUNT,  # bank_round_robin: command queue in arrival order
) = range(BK_QUEUE + 2 * QUEUE_WORDS, BK_QUEUE + 2 * QUEUE_WORDS + 5)  # fmt: skip
BANK_WORDS = BK_QUEUE + 2 * QUEUE_WORDS + 5
NO_CYCLE = 1 << 40  # no candidate; leaves room to pack a cycle and an age into one word

GP_ACT_OK, GP_RD_OK, GP_WR_OK, GP_SID = range(4)
GROUP_WORDS = 4

(
    RK_ACT_OK, RK_RD_OK, RK_WR_OK, RK_PRE_OK, RK_TURN_RD, RK_TURN_WR, RK_FAW, RK_FAW1, RK_FAW2,
    RK_FAW3, RK_FAW_AT, RK_REF_OK, RK_REF_END, RK_REF_PENDING, RK_OPEN, RK_WCK_END, RK_BANKS,
    RK_NUM_BANKS, RK_PC, RK_REFPB_OK, RK_GROUPS, RK_NUM_GROUPS, RK_PREAB_OK,
) = range(23)  # fmt: skip
RANK_WORDS = 23

# --- pseudo-channel: one data bus ---------------------------------------------------------------
(PC_ACCOUNTED, PC_DATA_END, PC_KIND, PC_REASON, PC_ARB_SEEN, PC_HELD, PC_PIECE, PC_CATEGORY) = (
    range(8)
)
PC_WORDS = 17

# --- DRAM request -------------------------------------------------------------------------------
(
    RQ_NEXT, RQ_PREV, RQ_SEQ, RQ_ARRIVE, RQ_BANK, RQ_ROW, RQ_ADDR, RQ_AXI, RQ_TID, RQ_WRITE,
    RQ_CLASS, RQ_QUEUED, RQ_MERGED,  # next read served by the same command
) = range(13)  # fmt: skip
REQUEST_WORDS = 13
CLASS_NEW, CLASS_HIT, CLASS_MISS, CLASS_CONFLICT = -1, 0, 1, 2
# what becomes of a burst that is offered; NEW: no waiting burst serves it
ACCEPT_FULL, ACCEPT_QUEUED, ACCEPT_FORWARDED, ACCEPT_MERGED, ACCEPT_NEW = range(5)

# --- growing tables: transfers and run nodes ----------------------------------------------------
(
    TR_PORT, TR_WRITE, TR_MEM, TR_SUBMIT, TR_NODE, TR_NEXT, TR_LEFT, TR_ALL_CUT,
    TR_ACCESSES, TR_HITS, TR_MISSES, TR_CONFLICTS, TR_BYTES, TR_DONE,
    TR_ASKED, TR_RETURNED,  # bytes of its runs; bytes of its bursts that came back
) = range(16)  # fmt: skip
#: ports that receive what a transfer reads, a bit each, RECEIVER_BITS to a word (a set, no time)
TR_MULTICAST, TR_RECEIVERS = 16, 17
RECEIVER_WORDS, RECEIVER_BITS = 4, 62
# its requests in controllers: a posted write completes before they are served
TR_QUEUED = TR_RECEIVERS + RECEIVER_WORDS
TRANSFER_WORDS = TR_QUEUED + 1
RN_BASE, RN_BYTES, RN_STRIDE, RN_COUNT, RN_NEXT = range(5)
RUN_WORDS = 5
LOG_WORDS = 5  # cycle, command, channel, bank or rank, row

# --- command codes (log, planning) --------------------------------------------------------------
(
    CMD_ACT, CMD_ACT2, CMD_PRE, CMD_PREAB, CMD_RD, CMD_WR, CMD_REFAB, CMD_REFPB, CMD_CAS,
    CMD_RDA, CMD_WRA,
) = range(11)  # fmt: skip
COMMAND_NAMES = (
    "ACT", "ACT2", "PRE", "PREab", "RD", "WR", "REFab", "REFpb", "CAS", "RDA", "WRA",
)  # fmt: skip
