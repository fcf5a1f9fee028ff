"""Predicted cycles of what the tilings of one grid move, all tilings at once.

A tile that several cores need and that passes the shared SRAM (`shared_tiles: shared_sram`) is read
from DRAM by one of them, each core in turn; the others wait for it and read the shared SRAM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.matmul_traits import bits_to_bytes
from npusim.config.system import SharedTiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.matmul_traits import Rows
    from npusim.compiler.tile_costs import TileCosts

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Operand:
    """One operand of all tilings: what a tile of it is, where it lies and how often it moves."""

    tile_bytes: Floats  # mean of one tile
    moves: Ints  # per core and batch entry
    passes: Floats  # moves of each byte
    total_bytes: float  # of the whole operand
    copies: int  # cores that need each byte
    in_dram: bool
    on_chip: bool
    dma_rate: int  # towards its home
    run_bytes: Floats  # of one row of a tile
    tile_rows: Ints
    rows: Rows
    beside: Ints | int  # tiles in flight whose rows follow each other

    @property
    def is_contiguous(self) -> NDArray[np.bool_]:
        """Tilings whose tiles are one run."""
        pitch = self.rows.pitch_bytes
        whole: NDArray[np.bool_] = (self.run_bytes >= pitch) | (self.tile_rows == 1)
        return whole | (pitch == 0)

    @property
    def span_bytes(self) -> Floats:
        """Addresses from the first to the last byte of a tile."""
        rows = np.asarray(self.tile_rows, dtype=np.float64) * self.rows.pitch_bytes
        return np.maximum(rows, self.tile_bytes)

    def beats(self, width_bytes: int) -> Floats:
        """Beats of a bus that one tile takes: whole ones for every run."""
        by_row = self.tile_rows * np.ceil(self.run_bytes / width_bytes)
        result: Floats = np.where(self.is_contiguous, self.tile_bytes / width_bytes, by_row)
        return result


class TileMoves:
    """Costs of loads and stores of one grid's tilings."""

    def __init__(self, tiling: TileCosts) -> None:
        self._tiling = tiling
        self._target, self._traits = tiling.target, tiling.traits
        self.a, self.w, self.c = self._moving(), self._stationary(), self._output()

    def _moving(self) -> _Operand:
        """Rows along k, which is innermost: the next tile lies beside this one."""
        tiling, traits = self._tiling, self._traits
        tm, tk, _ = tiling.axes[:3]
        nm, nk, _ = tiling.counts
        a_loads, _ = tiling.loads
        bits = 0 if traits.a_on_chip else traits.a_bits
        heads = min(tiling.grid[0] * tiling.grid[1], traits.a_rows.interleaved)
        return _Operand(
            tile_bytes=tiling.share[1] * tiling.shape.k * bits / 8 / (nm * nk),
            moves=a_loads,
            passes=a_loads / (nm * nk),
            total_bytes=tiling.traffic.a_total,
            copies=tiling.traffic.a_copies,
            in_dram=traits.a_in_dram,
            on_chip=traits.a_on_chip,
            dma_rate=traits.a_bytes_per_cycle,
            run_bytes=tk * bits / 8,
            tile_rows=tm,
            rows=traits.a_rows,
            beside=np.where(tk < tiling.shape.k, tiling.buffers, 1) * heads,
        )

    def _stationary(self) -> _Operand:
        tiling, traits = self._tiling, self._traits
        _, tk, tn = tiling.axes[:3]
        _, nk, nn = tiling.counts
        _, w_loads = tiling.loads
        is_transposed = traits.w_rows.transposed
        rows, columns = (tn, tk) if is_transposed else (tk, tn)
        return _Operand(
            tile_bytes=tiling.share[2] * tiling.shape.k * traits.w_dram_bits / 8 / (nn * nk),
            moves=w_loads,
            passes=w_loads / (nn * nk),
            total_bytes=tiling.traffic.w_total,
            copies=tiling.traffic.w_copies,
            in_dram=traits.w_in_dram,
            on_chip=False,
            dma_rate=traits.w_bytes_per_cycle,
            run_bytes=columns * traits.w_dram_bits / 8,
            tile_rows=rows,
            rows=traits.w_rows,
            beside=tiling.buffers if is_transposed else tiling.grid[2],
        )

    def _output(self) -> _Operand:
        """Rows along n: with m outermost the next tile lies beside this one, as other cores' do."""
        tiling, traits = self._tiling, self._traits
        tm, _, tn = tiling.axes[:3]
        nm, _, nn = tiling.counts
        bits = 0 if traits.c_on_chip else traits.out_bits
        heads = min(tiling.grid[0] * tiling.grid[1], traits.c_rows.interleaved)
        beside = np.where(tiling.axes[3] == 0, 1, tiling.buffers) * heads * tiling.grid[2]
        return _Operand(
            tile_bytes=tiling.share[1] * tiling.share[2] * bits / 8 / (nm * nn),
            moves=nm * nn,
            passes=np.ones((1,) * 6),
            total_bytes=tiling.traffic.c_total,
            copies=1,
            in_dram=traits.c_in_dram,
            on_chip=traits.c_on_chip,
            dma_rate=traits.c_bytes_per_cycle,
            run_bytes=tn * bits / 8,
            tile_rows=tm,
            rows=traits.c_rows,
            beside=beside,
        )

    def memory_cycles(self) -> Floats:
        """Cycles of DRAM, its bus and the shared SRAM for all cores; read and write channels."""
        moved = (self.a, self.w, self.c)
        dram = sum((self._dram_cycles(x) for x in moved), np.zeros((1,) * 6))
        bus = [self._bus_cycles(x) for x in moved]
        shared = [self._shared_cycles(x) for x in moved]
        result: Floats = dram
        for reads, writes in ((bus[0] + bus[1], bus[2]), (shared[0] + shared[1], shared[2])):
            result = np.maximum(result, np.maximum(reads, writes))
        return result

    def dram_bytes(self) -> Floats:
        """Bytes between DRAM and all cores, both directions."""
        total: Floats = sum(
            (self._dram_bytes(x) for x in (self.a, self.w, self.c)), np.zeros((1,) * 6)
        )
        return total

    def dma_cycles(self) -> Floats:
        """Cycles of the busiest DMA engine; with several load engines, a has the first alone."""
        traits, dma = self._traits, self._target.core.dma
        batch = self._tiling.share[0]
        *_, a_res, w_res = self._tiling.axes
        w_engines = max(dma.load_engines - 1, 1)
        w_cycles = self.w.moves * self._each(self.w, w_engines, w_res)
        a_cycles = self.a.moves * self._each(self.a, 1, a_res)
        if traits.a_on_chip:
            a_cycles = np.zeros_like(a_cycles)
        load = a_cycles + w_cycles if dma.load_engines == 1 else np.maximum(a_cycles, w_cycles)
        if traits.c_on_chip:
            return batch * load
        c_cycles = self.c.moves * self._each(self.c, dma.store_engines, 0)
        result: Floats = batch * np.maximum(load, c_cycles)
        return result

    def first_cycles(self) -> Floats:
        """Until the first tiles of both operands have arrived in every core.

        A follower's tile comes after its leader's. Weights that run ahead hide their latency.
        """
        traits, target = self._traits, self._target
        tm, tk, tn = self._tiling.axes[:3]
        a_tile = bits_to_bytes(tm * tk * (0 if traits.a_on_chip else traits.a_bits))
        w_tile = bits_to_bytes(tk * tn * traits.w_dram_bits)
        path = a_tile / self.a.dma_rate + w_tile / self.w.dma_rate
        at_once = a_tile * self._readers(self.a) * self.a.in_dram
        at_once = at_once + w_tile * self._readers(self.w) * self.w.in_dram
        slower = np.maximum(path, at_once / float(target.dram_bytes_per_cycle))
        follow = self._follow(self.a, a_tile) + self._follow(self.w, w_tile)
        latency = max(self._latency(self.a), 0.0 if traits.w_ahead else self._latency(self.w))
        return np.asarray(slower + follow + latency, dtype=np.float64)

    def last_cycles(self) -> Floats:
        """From the last product to its result being where the next kernel reads it."""
        tm, _, tn = self._tiling.axes[:3]
        if self._traits.c_on_chip:
            return np.zeros((1,) * 6)
        store: Floats = bits_to_bytes(tm * tn * self._traits.out_bits) / self.c.dma_rate
        return store + self._latency(self.c, is_store=True)

    def _is_shared(self, operand: _Operand) -> bool:
        """Whether one core reads a tile from DRAM for all that need it."""
        device = self._target.device
        passes_sram = device.shared_tiles is SharedTiles.SHARED_SRAM
        in_dram = operand.in_dram and device.shared_sram is not None
        return passes_sram and in_dram and operand.copies > 1

    def _reads(self, operand: _Operand) -> int:
        """Reads that bring a tile to all cores that need it: one if it is delivered to all."""
        is_multicast = self._target.device.shared_tiles is SharedTiles.MULTICAST
        return 1 if is_multicast else operand.copies

    def _readers(self, operand: _Operand) -> int:
        """Cores that read their tile from DRAM."""
        reads = 1 if self._is_shared(operand) else self._reads(operand)
        return self._tiling.cores // operand.copies * reads

    def _latency(self, operand: _Operand, *, is_store: bool = False) -> float:
        target = self._target
        if operand.on_chip:
            return 0.0
        if operand.in_dram:
            return float(target.dram_accept_cycles if is_store else target.dram_latency_cycles)
        return self._shared_latency()

    def _shared_latency(self) -> float:
        shared = self._target.device.shared_sram
        return float(shared.latency_cycles) if shared is not None else 0.0

    def _dram_bytes(self, operand: _Operand) -> Floats:
        """Shared tiles once, or once per pass if the operand is too large to stay."""
        if not operand.in_dram:
            return np.zeros_like(operand.passes)
        if not self._is_shared(operand):
            return operand.total_bytes * self._reads(operand) * operand.passes
        shared = self._target.device.shared_sram
        assert shared is not None
        stays = operand.total_bytes <= shared.capacity_bytes
        return operand.total_bytes * (np.ones_like(operand.passes) if stays else operand.passes)

    def _dram_cycles(self, operand: _Operand) -> Floats:
        """Bytes at the peak rate, longer for runs that are short and far apart."""
        if not operand.in_dram:
            return np.zeros((1,) * 6)
        factor = self._target.dram_pattern.factor(
            operand.tile_rows, operand.run_bytes, operand.rows.pitch_bytes, operand.beside
        )
        return self._dram_bytes(operand) * factor / float(self._target.dram_bytes_per_cycle)

    def _bus_cycles(self, operand: _Operand) -> Floats:
        """Beats of the DRAM's bus."""
        if not operand.in_dram:
            return np.zeros((1,) * 6)
        tiles = self._dram_bytes(operand) / np.maximum(operand.tile_bytes, 1e-9)
        beats = operand.beats(self._target.bus_bytes) * tiles
        result: Floats = beats * float(self._target.bus_beat_cycles)
        return result

    def _shared_cycles(self, operand: _Operand) -> Floats:
        """Reads or writes of the shared SRAM: beats of its bus, or bytes over the banks in use.

        Cores that need the same tile read it side by side, so they share the banks it lies in.
        """
        shared = self._target.device.shared_sram
        if shared is None or operand.on_chip:
            return np.zeros((1,) * 6)
        loaded = operand.total_bytes * self._reads(operand) * operand.passes
        moved = np.maximum(loaded - self._dram_bytes(operand), 0.0)
        different = self._tiling.cores // operand.copies
        banks = np.ceil(operand.span_bytes / shared.interleave_bytes) * different
        by_bank = moved / (np.minimum(banks, shared.banks) * shared.port_bytes)
        tiles = moved / np.maximum(operand.tile_bytes, 1e-9)
        result: Floats = np.maximum(
            by_bank, tiles * operand.beats(shared.banks * shared.port_bytes)
        )
        return result

    def _each(self, operand: _Operand, engines: int, resident: Ints | int) -> Floats:
        """Cycles per transfer: issue, bytes at the engines' rate, or latency over those in flight.

        A streamed operand has a slot, so a transfer in flight, per buffer; a resident one as many
        as the queues take. Of a shared tile each core leads its part and follows in the rest.
        """
        dma = self._target.core.dma
        queued = dma.queue_depth * engines
        in_flight = np.where(resident == 1, queued, min(self._tiling.buffers, queued))
        move = operand.tile_bytes / operand.dma_rate
        latency = self._latency(operand) + move
        if self._is_shared(operand):
            latency = latency + self._follow(operand, operand.tile_bytes)
            followed = operand.tile_bytes / dma.bytes_per_cycle
            move = move / operand.copies + followed * (1 - 1 / operand.copies)
        result: Floats = np.maximum(
            np.maximum(move, dma.issue_cycles) / engines, latency / in_flight
        )
        return result

    def _follow(self, operand: _Operand, tile_bytes: Floats | Ints) -> Floats:
        """Cycles a follower needs after its leader has the tile."""
        if not self._is_shared(operand):
            return np.zeros((1,) * 6)
        rate = self._target.core.dma.bytes_per_cycle
        result: Floats = self._shared_latency() + tile_bytes / rate
        return result
