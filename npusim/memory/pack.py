"""Builds the packed state buffer of `layout` from the configuration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.clocking import reciprocal
from npusim.memory.dram.address_map import segments
from npusim.memory.dram.timing import spacings
from npusim.memory.jumps.words import MEMO_WORDS, NUM_COUNTS, R_COUNTS_AT
from npusim.memory.specs import ARBITRATIONS, DramConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from npusim.memory.specs import BusConfig, PortConfig, SramConfig

LONG_AGO = -(1 << 40)
CHUNK_BYTES, CHUNK_BURSTS = 4096, 32  # a stream's checkpoints: at most and at least so far apart
REFRESHES_LISTED = 16  # per rank; further ones are put on the list when there is room


class Packer:
    """Grows a list of words; objects are appended and linked by index."""

    def __init__(self) -> None:
        self.words: list[int] = [0] * L.HEADER_WORDS

    def block(self, words: int, fill: int = 0) -> int:
        """Append a block and return its index."""
        at = len(self.words)
        self.words.extend([fill] * words)
        return at

    def put(self, base: int, **fields: int) -> None:
        """Set words of an object by field name of `layout`."""
        for name, value in fields.items():
            self.words[base + getattr(L, name)] = int(value)

    def clock(self, base: int, prefix: str, period: Fraction) -> None:
        """Store a clock period."""
        at = base + int(getattr(L, f"{prefix}_CLOCK"))
        self.put(at, CLOCK_NUM=period.numerator, CLOCK_DEN=period.denominator)
        self.divisor(at + L.CLOCK_BY_NUM, period.numerator)
        self.divisor(at + L.CLOCK_BY_DEN, period.denominator)

    def divisor(self, at: int, value: int) -> None:
        """Store what `clocking.divide` needs to divide by `value`."""
        self.words[at], self.words[at + 1] = reciprocal(value)


def build(
    ports: Sequence[PortConfig],
    buses: Sequence[BusConfig],
    memories: Sequence[DramConfig | SramConfig],
    jumps: bool = False,
) -> tuple[L.Words, list[int]]:
    """Pack everything; returns the buffer and each memory's index in it."""
    p = Packer()
    bus_at = p.block(L.BUS_WORDS * len(buses))
    mem_at = p.block(L.MEM_WORDS * len(memories))
    port_at = p.block(L.PORT_WORDS * len(ports))
    num_channels = sum(m.channels for m in memories if isinstance(m, DramConfig))
    channel_at = p.block(L.CHANNEL_WORDS * num_channels)
    first_entity = 3 * len(buses) + 2 * len(ports)
    add_tree(p, first_entity + num_channels)
    p.put(
        0, H_PORTS=port_at, H_NUM_PORTS=len(ports), H_BUSES=bus_at, H_NUM_BUSES=len(buses),
        H_MEMS=mem_at, H_NUM_MEMS=len(memories), H_CHANNELS=channel_at,
        H_NUM_CHANNELS=num_channels, H_FIRST_DONE=L.NEVER, H_RUN_FREE=L.NONE,
    )  # fmt: skip
    for i, bus in enumerate(buses):
        add_bus(p, bus_at + i * L.BUS_WORDS, i, bus, ports, port_at)
    for i, port in enumerate(ports):
        at = port_at + i * L.PORT_WORDS
        add_port(p, at, i, port, bus_at, 3 * len(buses) + 2 * i)
        p.put(at, PT_CROSSING=buses[port.bus].crossing_to(port.clock_period_ps))
    channel = 0
    mem_bases = []
    p.put(0, H_RECORD=p.block(R_COUNTS_AT + NUM_COUNTS * num_channels))
    for i, memory in enumerate(memories):
        base = mem_at + i * L.MEM_WORDS
        mem_bases.append(base)
        if isinstance(memory, DramConfig):
            at = channel_at + channel * L.CHANNEL_WORDS
            add_dram(p, base, memory, at, first_entity + channel, channel)
            p.put(base, **jump_words(memory) if jumps else {"MM_CHUNK": -1})
            channel += memory.channels
        else:
            add_sram(p, base, memory)
    return np.array(p.words, dtype=np.int64), mem_bases


def add_tree(p: Packer, entities: int) -> None:
    """Tournament tree of event times, all NEVER."""
    size = 1 << max(1, math.ceil(math.log2(max(entities, 2))))
    tree = p.block(4 * size, L.NEVER)
    for i in range(size):
        p.words[tree + 2 * (size + i) + 1] = i
    for i in range(size - 1, 0, -1):
        p.words[tree + 2 * i + 1] = p.words[tree + 4 * i + 1]
    p.put(0, H_TREE=tree, H_TREE_LEAF=tree + 2 * size, H_TREE_SIZE=size)


def add_bus(
    p: Packer, base: int, number: int, bus: BusConfig, ports: Sequence[PortConfig], port_at: int
) -> None:
    """One bus with its list of ports and its heap of returning bursts."""
    members = [i for i, port in enumerate(ports) if port.bus == number]
    listing = p.block(max(1, len(members)))
    for k, i in enumerate(members):
        p.words[listing + k] = port_at + i * L.PORT_WORDS
    heap = p.block(1 + 2 * sum(ports[i].outstanding for i in members))
    p.clock(base, "BS", bus.clock_period_ps)
    p.put(
        base, BS_ID=number, BS_DATA=bus.data_bytes, BS_CUT=bus.cut_bytes,
        BS_REQUEST_PS=bus.latency_ps - bus.latency_ps // 2, BS_RESPONSE_PS=bus.latency_ps // 2,
        BS_ARBITER=ARBITRATIONS.index(bus.arbitration), BS_CROSSING=bus.crossing_cycles,
        BS_PORTS=listing, BS_NUM_PORTS=len(members),
        BS_LAST=len(members) - 1, BS_LAST_W=len(members) - 1, BS_HEAP=heap,
    )  # fmt: skip


def add_port(p: Packer, base: int, number: int, port: PortConfig, bus_at: int, entity: int) -> None:
    """One port with a stream per direction, each with its pool of bursts and credits."""
    streams = p.block(2 * L.STREAM_WORDS)
    p.clock(base, "PT", port.clock_period_ps)
    p.put(
        base, PT_BUS=bus_at + port.bus * L.BUS_WORDS, PT_RATE=port.bytes_per_cycle,
        PT_STREAMS=streams, PT_ID=number, PT_HEAD=L.NONE, PT_TAIL=L.NONE, PT_NODE=L.NONE,
        PT_QOS=port.qos,
    )  # fmt: skip
    for write in (L.READ, L.WRITE):
        stream = streams + write * L.STREAM_WORDS
        n = port.outstanding
        bursts = p.block(n * L.AXI_WORDS)
        for i in range(n):
            after = bursts + (i + 1) * L.AXI_WORDS if i + 1 < n else L.NONE
            burst = bursts + i * L.AXI_WORDS
            p.put(burst, AX_PORT=base, AX_STREAM=stream, AX_NEXT=after, AX_ID=L.NONE)
            p.put(burst, AX_TID=L.NONE)
        p.put(
            stream, ST_PORT=base, ST_WRITE=write, ST_ENTITY=entity + write, ST_CREDITS=n,
            ST_LIMIT=n, ST_RELEASES=p.block(n), ST_FIFO=p.block(n), ST_FREE_BURST=bursts,
            ST_WAIT_NEXT=L.NONE, ST_POOL=bursts,
        )  # fmt: skip
        if port.ids:
            add_ids(p, stream, port)


def add_ids(p: Packer, stream: int, port: PortConfig) -> None:
    """The AXI IDs of a stream."""
    ids = p.block(port.ids * L.ID_WORDS)
    limit = port.outstanding_per_id
    for i in range(port.ids):
        p.put(
            ids + i * L.ID_WORDS, ID_CREDITS=limit, ID_LIMIT=limit, ID_RELEASES=p.block(limit),
            ID_HEAD=L.NONE, ID_TAIL=L.NONE,
        )  # fmt: skip
    p.put(stream, ST_NUM_IDS=port.ids, ST_IDS=ids, ST_NEXT_ID=ids)


def add_sram(p: Packer, base: int, memory: SramConfig) -> None:
    """One SRAM with its banks."""
    banks = p.block(memory.banks * L.SRAM_BANK_WORDS)
    p.clock(base, "MM", memory.clock_period_ps)
    p.put(
        base, MM_IS_SRAM=1, MM_CAPACITY=memory.capacity_bytes, MM_BANKS=banks,
        MM_NUM_BANKS=memory.banks, MM_PORT_BYTES=memory.port_bytes,
        MM_INTERLEAVE=memory.interleave_bytes, MM_LATENCY_CYCLES=memory.latency_cycles,
    )  # fmt: skip


def add_dram(
    p: Packer, base: int, memory: DramConfig, channel_at: int, entity: int, number: int
) -> None:
    """One DRAM: timing, address map and channels."""
    device = memory.device
    p.clock(base, "MM", device.cycle_ps)
    rows = segments(memory.address_map, device, memory.ranks)
    listing = p.block(len(rows) * L.SEGMENT_WORDS)
    for i, row in enumerate(rows):
        at = listing + i * L.SEGMENT_WORDS
        p.put(at, **dict(zip(("SEG_FROM", "SEG_MASK", "SEG_TO", "SEG_TARGET"), row, strict=True)))
    p.put(base, **{f"T_{name}": value for name, value in spacings(device).items()})
    refresh = {"none": L.REFRESH_NONE, "all_bank": L.REFRESH_ALL, "per_bank": L.REFRESH_PER_BANK}
    p.put(
        base, MM_CAPACITY=memory.capacity_bytes, MM_CHANNELS=channel_at,
        MM_NUM_CHANNELS=memory.channels, MM_BURST=device.burst_bytes,
        MM_INTERLEAVE=memory.channel_interleave_bytes, MM_LATENCY_PS=memory.latency_ps,
        MM_POSTED=memory.posted_writes, MM_PARTIAL_RMW=memory.partial_write != "masked",
        MM_SEGMENTS=listing, MM_NUM_SEGMENTS=len(rows),
        T_ROW_HIT_FIRST=memory.scheduler == "frfcfs_row_hit",
        T_CLOSED=memory.page_policy == "closed", T_REFRESH=refresh[memory.refresh],
        T_CAP=memory.page_cap if memory.page_policy == "closed_cap" else 0,
        T_ROUND_ROBIN=memory.is_round_robin, T_BANK_QUEUE=memory.bank_queue_depth,
        T_HIT_LIMIT=memory.row_hit_limit,
    )  # fmt: skip
    p.put(base, MM_BURST_BITS=device.burst_bytes.bit_length() - 1)
    p.divisor(base + L.MM_BY_INTERLEAVE, memory.channel_interleave_bytes)
    p.divisor(base + L.MM_BY_CHANNELS, memory.channels)
    for i in range(memory.channels):
        at = channel_at + i * L.CHANNEL_WORDS
        add_channel(p, at, memory, base, entity + i, number + i)


def add_channel(
    p: Packer, base: int, memory: DramConfig, mem: int, entity: int, number: int
) -> None:
    """One controller with pseudo-channels, ranks, groups, banks and a pool of requests."""
    device = memory.device
    pcs = device.pseudo_channels
    ranks = pcs * memory.ranks
    groups_per_rank = device.stack_ids * device.bank_groups
    groups, per_group = ranks * groups_per_rank, device.banks_per_group
    banks = groups * per_group
    per_rank = groups_per_rank * per_group
    pc_at = p.block(pcs * L.PC_WORDS)
    rank_at = p.block(ranks * L.RANK_WORDS)
    group_at = p.block(groups * L.GROUP_WORDS)
    bank_at = p.block(banks * L.BANK_WORDS)
    for i in range(pcs):
        p.put(pc_at + i * L.PC_WORDS, PC_REASON=L.CAT_STARVED)
    for i in range(ranks):
        at = rank_at + i * L.RANK_WORDS
        p.put(
            at, RK_FAW=LONG_AGO, RK_FAW1=LONG_AGO, RK_FAW2=LONG_AGO, RK_FAW3=LONG_AGO,
            RK_BANKS=bank_at + i * per_rank * L.BANK_WORDS, RK_NUM_BANKS=per_rank,
            RK_PC=pc_at + i * pcs // ranks * L.PC_WORDS, RK_NUM_GROUPS=groups_per_rank,
            RK_GROUPS=group_at + i * groups_per_rank * L.GROUP_WORDS,
        )  # fmt: skip
    for i in range(groups):
        p.put(group_at + i * L.GROUP_WORDS, GP_SID=i // device.bank_groups % device.stack_ids)
    for i in range(banks):
        rank = rank_at + i // per_rank * L.RANK_WORDS
        at = bank_at + i * L.BANK_WORDS
        p.put(
            at, BK_ROW=L.NONE, BK_GROUP=group_at + i // per_group * L.GROUP_WORDS, BK_RANK=rank,
            BK_PC=p.words[rank + L.RK_PC], BK_ACTIVE=L.NONE, BK_ID=i, BK_FIRST=L.NONE,
            BK_LAST=L.NONE,
        )  # fmt: skip
        add_queues(p, at, group_at + i // per_group * L.GROUP_WORDS, rank)
    reads, writes = memory.read_queue_depth, memory.write_queue_depth
    requests = reads + writes + banks
    if memory.is_round_robin:
        requests = reads + banks * memory.bank_queue_depth + memory.merged_reads
        writes = reads
    limit = 2 * banks + REFRESHES_LISTED * ranks  # entries of the refresh list
    p.clock(base, "CH", device.cycle_ps)
    p.put(
        base, CH_MEM=mem, CH_ENTITY=entity, CH_ID=number, CH_BANKS=bank_at, CH_NUM_BANKS=banks,
        CH_RANKS=rank_at, CH_NUM_RANKS=ranks, CH_PCS=pc_at, CH_NUM_PCS=pcs, CH_LIMIT=reads,
        CH_LIMIT_W=writes, CH_HIGH=math.floor(memory.write_high_frac * writes),
        CH_LOW=math.ceil(memory.write_low_frac * writes), CH_COLS=p.block(banks),
        CH_COLS_W=p.block(banks), CH_ROWS=p.block(banks), CH_ROWS_W=p.block(banks),
        CH_ACTIVE=p.block(banks),
        CH_ACT2_AT=L.NONE, CH_CAS_REQ=L.NONE, CH_CAP_AT=L.NEVER, CH_FIRST=L.NONE, CH_LAST=L.NONE,
        CH_LIST=p.block(limit), CH_LIST_LIMIT=limit, CH_SLOT_MASK=not memory.is_round_robin,
        CH_MERGED_LIMIT=memory.merged_reads, CH_FREE_REQ=add_requests(p, requests),
        CH_REF_DUE=p.words[mem + (L.T_REFI if memory.refresh == "all_bank" else L.T_REFIPB)],
        CH_WAIT=L.NONE, CH_WAIT_W=L.NONE, CH_PLAN_COL_T=L.NEVER, CH_PLAN_ROW_T=L.NEVER,
        CH_MARKS=p.block(L.NUM_MARKS), CH_LAST_WR=L.NONE, CH_MODE_AT=L.NONE, CH_NEW_AT=L.NONE,
    )  # fmt: skip


def add_queues(p: Packer, bank: int, group: int, rank: int) -> None:
    """The read and the write queue of a bank, empty."""
    for write in (L.READ, L.WRITE):
        p.put(
            bank + L.BK_QUEUE + write * L.QUEUE_WORDS, Q_HEAD=L.NONE, Q_TAIL=L.NONE, Q_HIT=L.NONE,
            Q_OTHER=L.NONE, Q_COL_AT=L.NONE, Q_ROW_AT=L.NONE, Q_BANK=bank,
            Q_COL=L.NO_CYCLE, Q_ROW=L.NO_CYCLE,
            Q_COL_GROUP=group + (L.GP_WR_OK if write else L.GP_RD_OK),
            Q_COL_RANK=rank + (L.RK_WR_OK if write else L.RK_RD_OK),
            Q_ROW_GROUP=L.H_ZERO, Q_ROW_RANK=L.H_ZERO,
        )  # fmt: skip


def add_requests(p: Packer, count: int) -> int:
    """A linked pool of free requests; returns the first."""
    first = p.block(count * L.REQUEST_WORDS)
    for i in range(count):
        at = first + i * L.REQUEST_WORDS
        p.put(at, RQ_NEXT=at + L.REQUEST_WORDS if i + 1 < count else L.NONE, RQ_MERGED=L.NONE)
    return first


def jump_words(memory: DramConfig) -> dict[str, int]:
    """Checkpoints of a memory's streams (`jumps`); none where rows do not advance evenly.

    Addresses a span apart have equal banks, and their rows differ alike everywhere: the row must
    be one field above all others, and hashed row bits and the interleave divide the span.
    """
    device = memory.device
    if memory.is_round_robin or memory.page_policy == "closed_cap":
        return {"MM_CHUNK": -1}  # their state is not part of a snapshot
    rows = segments(memory.address_map, device, memory.ranks)
    fields = [row for row in rows if row[3] == L.TARGET_ROW]
    if len(fields) != 1:
        return {"MM_CHUNK": -1}
    top = max(lsb + mask.bit_length() for lsb, mask, _, kind in rows if kind <= L.TARGET_ROW)
    row_lsb, row_mask = fields[0][0], fields[0][1]
    if row_lsb + row_mask.bit_length() != top or fields[0][2]:
        return {"MM_CHUNK": -1}
    hashed = max(
        (lsb + mask.bit_length() for lsb, mask, _, kind in rows if kind > L.TARGET_ROW), default=0
    )
    interleave = memory.channel_interleave_bytes
    banks = device.banks_per_group * device.bank_groups * device.stack_ids
    ranks = device.pseudo_channels * memory.ranks
    words = 32 + 32 * ranks * (1 + device.bank_groups * device.stack_ids) + 7 * banks * ranks
    words += 4 * (memory.read_queue_depth + banks * ranks)
    snapshot = memory.channels * words
    if snapshot > MEMO_WORDS // 64:
        return {"MM_CHUNK": -1}
    chunk = max(CHUNK_BURSTS * device.burst_bytes, interleave * memory.channels)
    return {
        "MM_SPAN": math.lcm(1 << (row_lsb + hashed), interleave) * memory.channels,
        "MM_CHUNK": (1 << min(chunk, CHUNK_BYTES).bit_length() - 1) - 1,
        "MM_MARGIN": spacings(device)["FAW"] + 64,
        "MM_SNAPSHOT": snapshot,
    }
