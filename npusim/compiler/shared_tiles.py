"""Tiles that several cores load: by hits in the shared SRAM, or by multicast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.config.system import SharedTiles
from npusim.program import EdgeKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.compiler.emit import Emission
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _CoreLoads:
    """One core's loads of one operand; `owner` is the position of each run's load."""

    ids: Ints
    order: Ints
    keys: Ints
    runs: Ints
    owner: Ints


class SharedTileLoads:
    """Loads of one operand of a kernel by all cores; `attach` gives them their transfers.

    With `shared_tiles: shared_sram`, the earliest load of a tile in program order leads: it reads
    the DRAM, and later loads of the tile wait for it and read the shared SRAM. Cores that load a
    tile at the same step lead in turn, tile by tile. An operand larger than the shared SRAM does
    not stay there: its n-th pass is led anew.

    With `shared_tiles: multicast`, loads of a tile in the same step of several cores are one read,
    delivered to all of them. The first core's load leads: it reads the memory once the slots of all
    are free; the others receive. Loads of a tile in different steps read it again: waiting for each
    other could close a circle, within a step it cannot.
    """

    def __init__(self, emission: Emission, tensor: Tensor) -> None:
        self._emission, self._tensor = emission, tensor
        self._cores: list[_CoreLoads] = []

    def add(self, ids: Ints, order: Ints, keys: Ints, runs: Ints, owner: Ints) -> None:
        """One core's loads; equal `keys` are equal tiles."""
        self._cores.append(_CoreLoads(ids, order, keys, runs, owner))

    def attach(self) -> None:
        """Choose leaders, wire followers, attach all transfers."""
        emission, tensor = self._emission, self._tensor
        if not self._cores:
            return
        target, home = emission.target, emission.home(tensor)
        ids = np.concatenate([core.ids for core in self._cores])
        runs = np.concatenate([core.runs for core in self._cores])
        before = np.cumsum([0, *(len(core.ids) for core in self._cores[:-1])])
        owner = np.concatenate(
            [core.owner + base for core, base in zip(self._cores, before, strict=True)]
        )
        space = np.full(len(ids), home.space)
        shared = target.device.shared_sram
        if (
            target.device.shared_tiles is SharedTiles.SHARED_SRAM
            and home.space == target.dram_space
            and shared is not None
            and target.shared_space is not None
        ):
            leader = self._leaders(ids, stays=tensor.nbytes <= shared.capacity_bytes)
            follows = leader != ids
            emission.builder.edges(ids[follows], leader[follows], EdgeKind.DATA)
            _, ordinal = self._core_and_ordinal()
            emission.builder.ties(ids, 2 * ordinal + follows)
            space[follows] = target.shared_space
            runs = _wrap(runs, follows[owner], shared.capacity_bytes)
        leads = np.full(len(ids), -1)
        if target.device.shared_tiles is SharedTiles.MULTICAST:
            leader = self._step_leaders(ids)
            follows = leader != ids
            leads[follows] = leader[follows]
            emission.builder.await_alike(leader[follows], ids[follows])
        emission.builder.transfers(
            ids,
            space=space,
            is_write=False,
            role=tensor.role.value,
            runs=runs,
            run_owner=owner,
            leader=leads,
        )

    def _step_leaders(self, ids: Ints) -> Ints:
        """First load of each tile and order key, itself for a leader."""
        keys = np.concatenate([core.keys for core in self._cores])
        order = np.concatenate([core.order for core in self._cores])
        return _first_of(ids, (keys, order), np.lexsort((ids, order, keys)))

    def _core_and_ordinal(self) -> tuple[Ints, Ints]:
        """Core of each load, and how many loads that core issues before it."""
        counts = [len(core.ids) for core in self._cores]
        ordinal = [np.arange(count, dtype=np.int64) for count in counts]
        return np.repeat(np.arange(len(counts)), counts), np.concatenate(ordinal)

    def _leaders(self, ids: Ints, *, stays: bool) -> Ints:
        """Leader of each load, itself for a leader."""
        keys = np.concatenate([core.keys for core in self._cores])
        order = np.concatenate([core.order for core in self._cores])
        turn = np.zeros(len(ids), dtype=np.int64)
        if not stays:
            turn = np.concatenate([_occurrence(core.keys) for core in self._cores])
        core, nth = self._core_and_ordinal()
        by_tile = np.lexsort(((core - nth) % len(self._cores), nth, order, keys, turn))
        return _first_of(ids, (keys, turn), by_tile)


def _first_of(ids: Ints, groups: tuple[Ints, Ints], by_group: Ints) -> Ints:
    """First id, in the order `by_group`, of the group each id belongs to."""
    one, other = (values[by_group] for values in groups)
    first = np.ones(len(ids), dtype=np.bool_)
    first[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    leader = np.empty_like(ids)
    leader[by_group] = ids[by_group[first]][np.cumsum(first) - 1]
    return leader


def _occurrence(keys: Ints) -> Ints:
    """How often each key occurred before."""
    by_key = np.argsort(keys, kind="stable")
    first = np.concatenate(([True], keys[by_key[1:]] != keys[by_key[:-1]]))
    index = np.arange(len(keys))
    result = np.empty_like(index)
    result[by_key] = index - np.maximum.accumulate(np.where(first, index, 0))
    return result


def _wrap(runs: Ints, hits: NDArray[np.bool_], capacity: int) -> Ints:
    """Addresses of cached tiles: DRAM addresses folded into the shared SRAM.

    A tile whose rows lie further apart than the shared SRAM is large is packed there.
    """
    folded = runs.copy()
    too_wide = hits & (runs[:, 1] + runs[:, 2] * (runs[:, 3] - 1) > capacity)
    folded[too_wide, 2] = runs[too_wide, 1]
    span = folded[:, 1] + folded[:, 2] * (folded[:, 3] - 1)
    folded[hits, 0] = runs[hits, 0] % np.maximum(capacity - span[hits], 1)
    return folded
