"""A count that is off by one anywhere in the memory system makes a run fail."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from npusim.errors import SimulationError
from npusim.machine import Machine
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.specs import PortConfig
from npusim.memory.system import MemorySystem
from npusim.program import EngineKind, Program
from tests.component.test_machine_support import SPACES, dma, load, store
from tests.component.test_memory_dram import parts


def finished(refresh="all_bank", device="LPDDR5-6400"):
    """Reads, writes, a forwarded read and a few refreshes, all over."""
    memory = MemorySystem(*parts(device, refresh=refresh))
    for is_write, base, size in ((True, 0, 256), (False, 0, 64), (False, 65536, 4096)):
        memory.submit(memory.clock_ps, 0, 0, is_write, np.array([[base, size, 0, 1]]))
        while memory.advance(memory.clock_ps + 100_000):
            pass
    memory.submit(9_000_000, 0, 0, False, np.array([[1 << 20, 512, 0, 1]]))
    while memory.advance(None):
        pass
    memory.drain()
    return memory


def channel_word(memory, word):
    return int(memory._state[memory._mem_bases[0] + L.MM_CHANNELS]) + word


def stream_word(memory, word):
    return int(memory._state[int(memory._state[L.H_PORTS]) + L.PT_STREAMS]) + word


def test_the_run_has_everything_that_is_counted():
    counts = finished().memory_counters(0)
    assert counts["refreshes"] > 0
    assert counts["forwarded_reads"] + counts["read_commands"] > 0
    assert counts["row_hits"] * counts["row_misses"] > 0


@pytest.mark.parametrize("delta", [-1, 1])
@pytest.mark.parametrize(
    ("word", "rule"),
    [
        (L.CH_N_RD, "row hits"),  # a command counted twice or not at all
        (L.CH_N_WR, "row hits"),
        (L.CH_N_HIT, "row hits"),
        (L.CH_N_MISS, "row hits"),
        (L.CH_N_CONFLICT, "row hits"),
        (L.CH_N_REF, "a refresh per interval"),
    ],
)
def test_a_miscounted_command_is_caught(word, rule, delta):
    memory = finished()
    memory._state[channel_word(memory, word)] += delta
    with pytest.raises(SimulationError, match=rule):
        memory.drain()


@pytest.mark.parametrize("refresh", ["all_bank", "per_bank"])
def test_an_uncounted_refresh_is_caught(refresh):
    memory = finished(refresh)
    word = L.CH_N_REF if refresh == "all_bank" else L.CH_N_REFPB
    memory._state[channel_word(memory, word)] -= 1
    with pytest.raises(SimulationError, match="memory 'dram' channel 0: a refresh per interval"):
        memory.drain()


def test_a_refresh_without_refresh_is_caught():
    memory = finished("none")
    memory._state[channel_word(memory, L.CH_N_REF)] += 1
    with pytest.raises(SimulationError, match=r"a refresh per interval .*\(0\)"):
        memory.drain()


@pytest.mark.parametrize("delta", [-64, 64])
@pytest.mark.parametrize(
    ("column", "rule"),
    [
        (L.TR_BYTES, "transfer 2: bytes served"),
        (L.TR_RETURNED, "transfer 2: bytes brought back"),
        (L.TR_ASKED, "transfer 2: bytes served"),
        (L.TR_HITS, r"transfer 2: row hits"),
        (L.TR_ACCESSES, r"transfer 2: row hits"),
    ],
)
def test_a_transfer_that_lost_a_burst_or_had_one_twice_is_caught(column, rule, delta):
    memory = finished()
    memory._transfers[2, column] += delta
    with pytest.raises(SimulationError, match=rule):
        memory.drain()


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        (L.MM_READ_BYTES, "bytes read"),
        (L.MM_WRITE_BYTES, "bytes written"),
        (L.MM_ASKED, "every DRAM burst asked for"),
        (L.MM_FORWARDED, "every DRAM burst asked for"),
        (L.MM_MERGED, "every DRAM burst asked for"),
        (L.MM_RMW, "every DRAM burst asked for"),
    ],
)
def test_a_memory_that_disagrees_with_its_transfers_is_caught(word, rule):
    memory = finished()
    memory._state[memory._mem_bases[0] + word] += 1
    with pytest.raises(SimulationError, match=f"memory 'dram': {rule}"):
        memory.drain()


def test_a_lost_credit_is_caught():
    memory = finished()
    memory._state[stream_word(memory, L.ST_CREDITS)] -= 1
    with pytest.raises(SimulationError, match=r"every credit of the port comes back \(16\)"):
        memory.drain()


def test_a_lost_credit_of_an_id_is_caught():
    ports, buses, memories = parts()
    ports = [PortConfig("p", 0, Fraction(1000), 64, 8, ids=2, outstanding_per_id=3)]
    memory = MemorySystem(ports, buses, memories)
    memory.submit(0, 0, 0, False, np.array([[0, 4096, 0, 1]]))
    while memory.advance(None):
        pass
    memory.drain()
    block = int(memory._state[stream_word(memory, L.ST_IDS)]) + L.ID_WORDS
    memory._state[block + L.ID_CREDITS] -= 1
    with pytest.raises(SimulationError, match=r"every credit of ID 1 comes back \(3\)"):
        memory.drain()


class Losing(MemorySystem):
    """Drops the first read burst that waits at the memory, as if it had been served."""

    is_lossy = True

    def advance(self, horizon_ps):
        if self.is_lossy and horizon_ps is not None:
            done = super().advance(min(horizon_ps, self.clock_ps + 1))
            stream = stream_word(self, 0)
            if self._state[stream + L.ST_FIFO_N] > 1:
                self._drop(stream)
            return done
        return super().advance(horizon_ps)

    def _drop(self, stream):
        """The youngest burst on its way vanishes; its transfer and its port take it for over."""
        state, self.is_lossy = self._state, False
        at = int(state[stream + L.ST_FIFO_HEAD] + state[stream + L.ST_FIFO_N] - 1)
        burst = state[state[stream + L.ST_FIFO] + at % state[stream + L.ST_LIMIT]]
        state[stream + L.ST_FIFO_N] -= 1
        state[stream + L.ST_CREDITS] += 1
        self._transfers[state[burst + L.AX_TID], L.TR_LEFT] -= 1
        state[burst + L.AX_NEXT] = state[stream + L.ST_FREE_BURST]
        state[stream + L.ST_FREE_BURST] = burst


class Miscounting(MemorySystem):
    """One refresh is not counted."""

    def drain(self):
        super().drain()
        self._state[channel_word(self, L.CH_N_REF)] -= 1
        return super().drain()


def machine(memory_type, nbytes):
    engines = [dma(), dma("store", EngineKind.DMA_STORE, port=0)]
    commands = [load(0, nbytes=nbytes), store(1, nbytes=nbytes)]
    program = Program.from_commands(commands, engines, SPACES)
    return Machine(program, memory_type(*parts()))


def test_a_run_that_drops_a_burst_fails():
    machine(MemorySystem, 1 << 15).run()
    with pytest.raises(SimulationError, match="transfer 0: bytes served by the memory"):
        machine(Losing, 1 << 15).run()


def test_a_run_that_does_not_count_a_refresh_fails():
    with pytest.raises(SimulationError, match="a refresh per interval"):
        machine(Miscounting, 1 << 20).run()
