"""Why an engine waits: one closed list."""

from __future__ import annotations

from enum import StrEnum


class StallCause(StrEnum):
    """Cause of one picosecond of waiting; `idle` (no command left) is not a stall.

    ================== ==========================================================================
    dependency         a result of another compute engine, or the turn of a command queued there
    buffer_free        a reader that still holds the buffer to be overwritten
    buffer_full        a DMA queue with `queue_depth` descriptors in flight
    dma_issue          a DMA engine that was issuing the awaited descriptor
    barrier            the SIGNAL of a barrier register bit
    launch             the host's launch or the device's dispatch of the kernel
    order              an ordering edge without data
    convert            a result of a convert unit
    dram_data          DRAM: the awaited port's own data was moving
    dram_other         DRAM: data of other ports was moving
    dram_refresh       DRAM: refresh
    dram_turnaround    DRAM: switching between reads and writes
    dram_row           DRAM: opening or closing a row
    dram_bank_conflict DRAM: another row was open in the bank
    dram_command       DRAM: command bus, tFAW and tRRD
    dram_arbitration   DRAM: another port was served first
    dram_latency       DRAM: channels had nothing to do: latency of bus, pins and issue
    sram               a transfer of the shared SRAM tier
    sram_conflict      banks of the scratchpad were busy with other streams while a command ran
    bus                a bus without a DRAM behind it
    ================== ==========================================================================
    """

    DEPENDENCY = "dependency"
    BUFFER_FREE = "buffer_free"
    BUFFER_FULL = "buffer_full"
    DMA_ISSUE = "dma_issue"
    BARRIER = "barrier"
    LAUNCH = "launch"
    ORDER = "order"
    CONVERT = "convert"
    DRAM_DATA = "dram_data"
    DRAM_OTHER = "dram_other"
    DRAM_REFRESH = "dram_refresh"
    DRAM_TURNAROUND = "dram_turnaround"
    DRAM_ROW = "dram_row"
    DRAM_BANK_CONFLICT = "dram_bank_conflict"
    DRAM_COMMAND = "dram_command"
    DRAM_ARBITRATION = "dram_arbitration"
    DRAM_LATENCY = "dram_latency"
    SRAM = "sram"
    SRAM_CONFLICT = "sram_conflict"
    BUS = "bus"
