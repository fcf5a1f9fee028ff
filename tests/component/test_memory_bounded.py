"""The kernel's tables hold what is in flight and the results asked to be kept, nothing else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from npusim.errors import SimulationError
from npusim.memory import layout as L  # noqa: N812 - a namespace of word offsets
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.jumps.words import MEMO_WORDS
from npusim.memory.specs import BusConfig, DramConfig, PortConfig
from npusim.memory.system import MemorySystem

GIB = 1 << 30


def memory_of(posted=True):
    device = load_dram_device("LPDDR5-6400")
    return MemorySystem(
        [PortConfig("port", 0, Fraction(1000), 512, 64)],
        [BusConfig("bus", Fraction(1000), 512, 40_000, 16)],
        [DramConfig("dram", device, 1, GIB, "BGlow", 256, posted_writes=posted)],
    )


def stream(memory, num_tiles, tile_bytes, *, in_flight=4, writes=False):
    """Tiles one after the other, each forgotten once it is complete; returns the ids seen."""
    seen, at, now = set(), 0, 0
    while at < num_tiles or memory.pending:
        while at < num_tiles and memory.pending < in_flight:
            is_write = writes and at % 2 == 1
            runs = np.array([[at * tile_bytes % GIB, tile_bytes, 0, 1]])
            seen.add(memory.submit(now, 0, 0, is_write, runs))
            at += 1
        for now_ps, tid in memory.advance(None):
            memory.forget(tid)
            now = now_ps
    return seen


@pytest.mark.parametrize("posted", [True, False])
def test_forgotten_transfers_give_back_their_rows(posted):
    # 4 in flight; a posted write keeps its row until the controller has written it: at most the
    # write queue (32 bursts of 32 bytes, less than one tile of 4 KiB) lags behind, one tile more
    memory = memory_of(posted=posted)
    seen = stream(memory, 2000, 4096, writes=True)
    assert len(seen) <= 4 + 2
    assert memory.memory_counters(0)["read_bytes"] == 1000 * 4096
    memory.drain()
    assert memory.memory_counters(0)["write_bytes"] == 1000 * 4096


def test_results_are_kept_until_forgotten():
    memory = memory_of()
    tids = [memory.submit(0, 0, 0, False, np.array([[i * 64, 64, 0, 1]])) for i in range(300)]
    while memory.pending:
        memory.advance(None)
    before = memory.state_bytes
    assert tids == list(range(300))
    assert all(memory.transfer_counters(tid)[0] == 2 for tid in tids)
    # a row of TRANSFER_WORDS words each, the table doubles from 64 rows: 512
    assert memory._transfers.shape == (512, L.TRANSFER_WORDS)
    for tid in tids:
        memory.forget(tid)
    again = {memory.submit(memory.clock_ps, 0, 0, False, np.array([[0, 64, 0, 1]])) for _ in tids}
    assert again == set(tids)
    assert memory.state_bytes == before


def test_forgetting_twice_or_an_unknown_transfer_is_refused():
    memory = memory_of()
    tid = memory.submit(0, 0, 0, False, np.array([[0, 64, 0, 1]]))
    memory.forget(tid)
    for wrong in (tid, 1, -1):
        with pytest.raises(SimulationError, match="the transfer is known"):
            memory.forget(wrong)


@pytest.mark.slow
def test_a_stream_of_16_gib_keeps_the_state_bounded():
    memory = memory_of()  # 1 GiB, read 16 times
    fixed = memory.state_bytes
    seen = stream(memory, 1024, 16 << 20)
    assert memory.memory_counters(0)["read_bytes"] == 16 * GIB
    assert memory.memory_counters(0)["accesses"] == 16 * GIB // 32
    assert len(seen) <= 5
    assert memory.state_bytes <= fixed + 8 * MEMO_WORDS
