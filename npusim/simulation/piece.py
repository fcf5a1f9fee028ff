"""One simulated program, cut into tallies by kernel range and time window."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.engine import StallCause
from npusim.machine.execution import CACHE_TRAFFIC, COUNTERS
from npusim.program import EdgeKind, EngineKind, Opcode
from npusim.simulation.reads import count_stage_reads
from npusim.simulation.stage_time import count_stage_time
from npusim.simulation.tally import Key, Tally
from npusim.simulation.traffic import memory_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.machine.execution import Execution
    from npusim.program import Program

    Ints = NDArray[np.int64]

CAUSES = tuple(StallCause)
PS_PER_S = 10**12
_CONFLICT = CAUSES.index(StallCause.SRAM_CONFLICT)
_ROLE_NAMES = ("weight", "kv", "activation")
_FRONT_END = (EngineKind.HOST, EngineKind.DISPATCH, EngineKind.BARRIER)
_VECTOR = (EngineKind.VECTOR, EngineKind.CONVERT)


@dataclass(frozen=True)
class Rates:
    """Rates used to say what bounds a stage, in bytes per second."""

    dram: int
    bus: int
    core_dma: int
    shared_sram: int


class Piece:
    """A program and its execution; `tally` counts a kernel range over its own time window.

    The completion frontier of kernel i is the latest end of any command of kernels 0..i; its
    advance over a kernel is that kernel's elapsed time. The last kernel also gets what follows it
    (draining posted writes).
    """

    def __init__(self, program: Program, execution: Execution, rates: Rates) -> None:
        self.program, self.execution, self._rates = program, execution, rates
        ends = np.zeros(len(program.kernels), dtype=np.int64)
        np.maximum.at(ends, program.kernel, execution.end_ps)
        frontier = np.maximum.accumulate(ends)
        frontier[-1] = execution.elapsed_ps
        self.border_ps: Ints = np.concatenate(([0], frontier))
        self.read_bytes, self.write_bytes = memory_bytes(program, execution)
        self._nbytes = self.read_bytes + self.write_bytes
        self._engine_kind = np.array([list(EngineKind).index(e.kind) for e in program.engines])
        self._has_transfer = np.flatnonzero(program.transfer >= 0)

    @property
    def num_kernels(self) -> int:
        """Kernels of the program."""
        return len(self.program.kernels)

    def elapsed_ps(self, first: int, last: int) -> int:
        """Time of kernels ``[first, last)``."""
        return int(self.border_ps[last] - self.border_ps[first])

    def tally(self, first: int, last: int) -> Tally:
        """Counts of kernels ``[first, last)`` and of the time in which they completed."""
        counts: dict[Key, int] = defaultdict(int)
        window = (int(self.border_ps[first]), int(self.border_ps[last]))
        counts["phase", "elapsed_ps"] = window[1] - window[0]
        counts["phase", "kernels"] = last - first
        commands = np.flatnonzero((self.program.kernel >= first) & (self.program.kernel < last))
        counts["phase", "commands"] = len(commands)
        counts["phase", "macs"] = int(self.program.macs[commands].sum())
        self._count_stages(counts, first, last)
        self._count_engines(counts, commands, window)
        self._count_transfers(counts, first, last)
        self._count_scratchpads(counts, commands)
        self._count_cache(counts, first, last)
        count_stage_reads(counts, self.program, self.execution, first, last)
        self._count_conflicts(counts, first, last)
        self._count_barriers(counts, window)
        borders = self.border_ps[first : last + 1]
        count_stage_time(counts, self.program, self.execution, borders, first)
        return Tally(dict(counts))

    def peak_occupancy_bytes(self) -> dict[str, int]:
        """Highest byte in use per scratchpad."""
        program = self.program
        peak = np.zeros(len(program.spaces), dtype=np.int64)
        np.maximum.at(peak, program.region_space, program.region_offset + program.region_bytes)
        return {
            space.name: int(peak[index])
            for index, space in enumerate(program.spaces)
            if space.kind == "scratchpad"
        }

    def kernel_rows(self) -> list[dict[str, int]]:
        """Per kernel: elapsed, active, MACs, DRAM bytes, commands."""
        program = self.program
        commands = np.bincount(program.kernel, minlength=self.num_kernels)
        macs = np.bincount(program.kernel, weights=program.macs, minlength=self.num_kernels)
        dram = self._dram_bytes_by_kernel()
        active = self._active_by_kernel()
        return [
            {
                "elapsed_ps": int(self.border_ps[i + 1] - self.border_ps[i]),
                "active_ps": int(active[i]),
                "macs": int(macs[i]),
                "dram_bytes": int(dram[i]),
                "commands": int(commands[i]),
            }
            for i in range(self.num_kernels)
        ]

    def _dram_bytes_by_kernel(self) -> Ints:
        program = self.program
        result = np.zeros(self.num_kernels, dtype=np.int64)
        transfer = program.transfer[self._has_transfer]
        is_dram = np.array([s.kind == "dram" for s in program.spaces], dtype=np.bool_)
        mine = is_dram[program.transfers.space[transfer]]
        kernel = program.kernel[self._has_transfer][mine]
        np.add.at(result, kernel, self._nbytes[transfer[mine]])
        return result

    def _device_commands(self) -> Ints:
        """Commands of cores (not of host, dispatch or barrier registers)."""
        front = [i for i, e in enumerate(self.program.engines) if e.kind in _FRONT_END]
        return np.flatnonzero(~np.isin(self.program.engine, front))

    def _active_by_kernel(self) -> Ints:
        return self._union_by(self._device_commands(), self.program.kernel, self.num_kernels)

    def _union_by(self, commands: Ints, group: NDArray[np.integer], count: int) -> Ints:
        """Length of the union of command spans, per group."""
        start, end = self.execution.start_ps[commands], self.execution.end_ps[commands]
        owner = group[commands].astype(np.int64)
        order = np.lexsort((start, owner))
        start, end, owner = start[order], end[order], owner[order]
        result = np.zeros(count, dtype=np.int64)
        if not len(start):
            return result
        # shift each group past the previous ones so that one running maximum serves all
        span = int(self.execution.elapsed_ps) + 1
        start, end = start + owner * span, end + owner * span
        covered = np.concatenate(([0], np.maximum.accumulate(end)[:-1]))
        np.add.at(result, owner, np.maximum(end - np.maximum(start, covered), 0))
        return result

    def _count_stages(self, counts: dict[Key, int], first: int, last: int) -> None:
        program, borders = self.program, self.border_ps
        dispatched = np.zeros(self.num_kernels, dtype=np.int64)
        is_dispatch = program.opcode == Opcode.DISPATCH
        np.maximum.at(dispatched, program.kernel[is_dispatch], self.execution.end_ps[is_dispatch])
        scores = self._scores()
        dram = self._dram_bytes_by_kernel()
        macs = np.zeros(self.num_kernels, dtype=np.int64)
        np.add.at(macs, program.kernel, program.macs)
        active = self._active_by_kernel()
        for kernel in range(first, last):
            stage = program.kernels[kernel].stage
            advance = int(borders[kernel + 1] - borders[kernel])
            launch = min(max(int(dispatched[kernel] - borders[kernel]), 0), advance)
            values = {
                "elapsed_ps": advance,
                "launch_ps": launch,
                "macs": int(macs[kernel]),
                "dram_bytes": int(dram[kernel]),
                "kernels": 1,
                "score.launch": launch,
                "score.sync": max(advance - launch - int(active[kernel]), 0),
            }
            for name, value in values.items():
                counts["stage", stage, name] += value
            for name, array in scores.items():
                counts["stage", stage, f"score.{name}"] += int(array[kernel])
        self._count_active(counts, first, last)

    def _count_active(self, counts: dict[Key, int], first: int, last: int) -> None:
        """Union of the spans of each stage's commands; stages may overlap each other."""
        program = self.program
        names = list(dict.fromkeys(k.stage for k in program.kernels))
        stage_of = np.array([names.index(k.stage) for k in program.kernels])[program.kernel]
        commands = self._device_commands()
        kernel = program.kernel[commands]
        commands = commands[(kernel >= first) & (kernel < last)]
        active = self._union_by(commands, stage_of, len(names))
        for name, ps in zip(names, active.tolist(), strict=True):
            if ps:
                counts["stage", name, "active_ps"] += ps

    def _scores(self) -> dict[str, Ints]:
        """Time each resource needs for each kernel by itself, and (`busy.`) time it was in use."""
        program, rates = self.program, self._rates
        kind = self._engine_kind
        kinds = list(EngineKind)
        matrix = np.flatnonzero(kind == kinds.index(EngineKind.MATRIX))
        vector = np.flatnonzero(np.isin(kind, [kinds.index(k) for k in _VECTOR]))
        space_kind = np.array([s.kind for s in program.spaces], dtype=np.str_)
        transfer = program.transfer[self._has_transfer]
        on_dram = space_kind[program.transfers.space[transfer]] == "dram"
        dram_commands = self._has_transfer[on_dram]
        sram_commands = self._has_transfer[~on_dram]
        dram = self._bytes_by_kernel(dram_commands)
        one_way = np.maximum(
            self._bytes_by_kernel(dram_commands, is_write=False),
            self._bytes_by_kernel(dram_commands, is_write=True),
        )
        per_core = self._busiest_core_bytes(dram_commands)
        bus = np.maximum(_time(one_way, rates.bus), _time(per_core, rates.core_dma))
        return {
            "compute": self._busiest(matrix),
            "vector": self._busiest(vector),
            "dram": _time(dram, rates.dram),
            "bus": bus,
            "sram": _time(self._bytes_by_kernel(sram_commands), rates.shared_sram),
            "busy.compute": self._union_of(np.isin(program.engine, matrix)),
            "busy.vector": self._union_of(np.isin(program.engine, vector)),
            "busy.dram": self._union_by(dram_commands, program.kernel, self.num_kernels),
            "busy.sram": self._union_by(sram_commands, program.kernel, self.num_kernels),
        }

    def _union_of(self, mask: NDArray[np.bool_]) -> Ints:
        return self._union_by(np.flatnonzero(mask), self.program.kernel, self.num_kernels)

    def _busiest(self, engines: Ints) -> Ints:
        """Longest busy time of any of the engines, per kernel."""
        program = self.program
        mask = np.isin(program.engine, engines)
        duration = (self.execution.end_ps - self.execution.start_ps)[mask]
        table = np.zeros((len(program.engines), self.num_kernels), dtype=np.int64)
        np.add.at(table, (program.engine[mask], program.kernel[mask]), duration)
        longest: Ints = table.max(axis=0)
        return longest

    def _bytes_by_kernel(self, commands: Ints, *, is_write: bool | None = None) -> Ints:
        program = self.program
        per_transfer = {None: self._nbytes, False: self.read_bytes, True: self.write_bytes}
        result = np.zeros(self.num_kernels, dtype=np.int64)
        nbytes = per_transfer[is_write][program.transfer[commands]]
        np.add.at(result, program.kernel[commands], nbytes)
        return result

    def _busiest_core_bytes(self, commands: Ints) -> Ints:
        program = self.program
        table = np.zeros((len(program.engines), self.num_kernels), dtype=np.int64)
        nbytes = program.transfers.nbytes()[program.transfer[commands]]  # also by multicast
        np.add.at(table, (program.engine[commands], program.kernel[commands]), nbytes)
        most: Ints = table.max(axis=0)
        return most

    def _count_engines(
        self, counts: dict[Key, int], commands: Ints, window: tuple[int, int]
    ) -> None:
        program, execution = self.program, self.execution
        low, high = window
        stalls = execution.stalls
        stall_ps = np.maximum(np.minimum(stalls.end_ps, high) - np.maximum(stalls.start_ps, low), 0)
        table = np.zeros((len(program.engines), len(CAUSES)), dtype=np.int64)
        np.add.at(table, (stalls.engine, stalls.cause), stall_ps)
        everything = np.arange(len(program))
        busy = self._clipped_union(everything, program.engine, len(program.engines), window)
        own = np.bincount(program.engine[commands], minlength=len(program.engines))
        for index, engine in enumerate(program.engines):
            name = engine.name
            busy_ps = int(busy[index]) - int(table[index, _CONFLICT])
            counts["engine", name, "busy_ps"] = busy_ps
            stalled = 0
            for code in np.flatnonzero(table[index]):
                ps = int(table[index, code])
                counts["engine", name, f"stall.{CAUSES[code].value}"] = ps
                stalled += ps
            counts["engine", name, "idle_ps"] = high - low - busy_ps - stalled
            counts["engine", name, "commands"] = int(own[index])

    def _clipped_union(
        self, commands: Ints, group: NDArray[np.integer], count: int, window: tuple[int, int]
    ) -> Ints:
        """Union of command spans inside a window, per group."""
        low, high = window
        start = np.clip(self.execution.start_ps[commands], low, high)
        end = np.clip(self.execution.end_ps[commands], low, high)
        owner = group[commands].astype(np.int64)
        order = np.lexsort((start, owner))
        span = high - low + 1
        start = start[order] - low + owner[order] * span
        end = end[order] - low + owner[order] * span
        covered = np.concatenate(([0], np.maximum.accumulate(end)[:-1]))
        result = np.zeros(count, dtype=np.int64)
        np.add.at(result, owner[order], np.maximum(end - np.maximum(start, covered), 0))
        return result

    def _count_transfers(self, counts: dict[Key, int], first: int, last: int) -> None:
        program = self.program
        kernel = program.kernel[self._has_transfer]
        commands = self._has_transfer[(kernel >= first) & (kernel < last)]
        transfer = program.transfer[commands]
        counters = self.execution.counters[transfer]
        transfers = program.transfers
        for index, space in enumerate(program.spaces):
            if space.memory < 0:
                continue
            mine = transfers.space[transfer] == index
            name = space.name
            nbytes = self._nbytes[transfer[mine]]
            counts["memory", name, "read_bytes"] = int(self.read_bytes[transfer[mine]].sum())
            counts["memory", name, "write_bytes"] = int(self.write_bytes[transfer[mine]].sum())
            for code, role in enumerate(_ROLE_NAMES):
                of_role = transfers.role[transfer[mine]] == code
                counts["memory", name, f"role.{role}"] = int(nbytes[of_role].sum())
            for column, label in enumerate(COUNTERS[:-1]):
                counts["memory", name, label] = int(counters[mine, column].sum())

    def _count_scratchpads(self, counts: dict[Key, int], commands: Ints) -> None:
        """Bytes compute commands read from each scratchpad, and bytes DMA brought in."""
        program = self.program
        engine_kind = self._engine_kind[program.engine]
        kinds = list(EngineKind)
        computes = np.isin(
            engine_kind,
            [kinds.index(k) for k in (EngineKind.MATRIX, EngineKind.VECTOR, EngineKind.CONVERT)],
        )
        in_range = np.zeros(len(program), dtype=np.bool_)
        in_range[commands] = True
        owner = np.repeat(np.arange(len(program)), np.diff(program.region_ptr))
        for index, space in enumerate(program.spaces):
            if space.kind != "scratchpad":
                continue
            mine = (program.region_space == index) & in_range[owner]
            reads = mine & ~program.region_is_write & computes[owner]
            fills = mine & program.region_is_write & (program.transfer[owner] >= 0)
            requested = int(program.region_bytes[reads].sum())
            filled = int(program.region_bytes[fills].sum())
            counts["sram", space.name, "requested_bytes"] = requested
            counts["sram", space.name, "hit_bytes"] = max(requested - filled, 0)

    def _count_cache(self, counts: dict[Key, int], first: int, last: int) -> None:
        """What the transfers did at a cache in front of the DRAM, and bytes that went around it."""
        traffic = self.execution.cache_traffic
        if traffic is None:
            return
        program = self.program
        kernel = program.kernel[self._has_transfer]
        mine = program.transfer[self._has_transfer[(kernel >= first) & (kernel < last)]]
        total = dict(zip(CACHE_TRAFFIC, traffic[mine].sum(axis=0).tolist(), strict=True))
        moved = total.pop("dram_read_bytes") + total.pop("dram_write_bytes")
        through = sum(total[key] for key in ("fill_bytes", "write_back_bytes", "through_bytes"))
        (name,) = (space.name for space in program.spaces if space.kind == "cache")
        for key, count in (*total.items(), ("bypass_bytes", moved - through)):
            counts["sram", name, key] = count

    def _count_conflicts(self, counts: dict[Key, int], first: int, last: int) -> None:
        """Time commands lost to bank conflicts, by scratchpad and pair of engines."""
        program, table = self.program, self.execution.conflicts
        kernel = program.kernel[table.command]
        engines = [engine.name for engine in program.engines]
        for row in np.flatnonzero((kernel >= first) & (kernel < last)).tolist():
            command = int(table.command[row])
            regions = program.region_space[program.regions_of(command)]
            space = next(s for s in regions.tolist() if program.spaces[s].banks is not None)
            pair = (engines[program.engine[command]], engines[table.by[row]])
            counts["conflict", program.spaces[space].name, *pair] += int(table.lost_ps[row])

    def _count_barriers(self, counts: dict[Key, int], window: tuple[int, int]) -> None:
        stalls = self.execution.stalls
        low, high = window
        barrier = CAUSES.index(StallCause.BARRIER)
        rows = np.flatnonzero(
            (stalls.edge_kind == EdgeKind.BARRIER)
            & (stalls.cause == barrier)
            & (stalls.end_ps > low)
            & (stalls.start_ps < high)
        )
        named = {barrier.key: barrier.name for barrier in self.program.barriers}
        for row in rows:
            producer = int(stalls.producer[row])
            stage = self.program.kernels[self.program.kernel[producer]].stage
            name = named.get(int(self.program.barrier[producer]), f"after {stage}")
            wait = min(int(stalls.end_ps[row]), high) - max(int(stalls.start_ps[row]), low)
            counts["barrier", name, "waits"] += 1
            counts["barrier", name, "wait_ps"] += wait


def _time(nbytes: Ints, rate: int) -> Ints:
    """Picoseconds that bytes need at a rate."""
    if rate == 0:
        return np.zeros_like(nbytes)
    result: Ints = (nbytes.astype(np.float64) * (PS_PER_S / rate)).astype(np.int64)
    return result
