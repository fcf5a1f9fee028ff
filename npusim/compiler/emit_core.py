"""Commands of one core that every kind of kernel needs: loads of whole ranges, stores in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.views import LinearView
from npusim.program import EdgeKind, Opcode

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from npusim.compiler.emit import Emission
    from npusim.compiler.slots import Slots
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]


class CoreEmission:
    """One core's engines and scratchpad within the open kernel."""

    def __init__(self, emission: Emission, core: int) -> None:
        self.emission = emission
        self.builder = emission.builder
        self.engines = emission.target.core_engines[core]
        self.pad = emission.scratchpads[core]

    def load_once(
        self, tensor: Tensor, engine: int, order: int, start: int, stop: int
    ) -> tuple[int, Slots]:
        """Load bytes ``[start, stop)`` of a tensor into a slot of their own."""
        slot = self.pad.slots(stop - start, 1)
        load = self.emission.add(engine, Opcode.LOAD, order)
        self.emission.wait_for_tensor(load, tensor)
        self.attach_range(load, tensor, start, stop, is_write=False)
        self.pad.fill(load, slot)
        return int(load[0]), slot

    def read_loaded(self, readers: Ints, load: int, slot: Slots, last_users: Ints) -> None:
        """Readers of what `load_once` brought; the slot is free after `last_users`."""
        self.builder.edges(readers, load, EdgeKind.DATA)
        self.pad.read(readers, slot)
        self.pad.release(slot.offset, slot.nbytes, last_users)

    def attach_range(
        self, commands: Ints, tensor: Tensor, start: ArrayLike, stop: ArrayLike, *, is_write: bool
    ) -> None:
        """Transfers of bytes ``[start, stop)`` of a tensor."""
        home = self.emission.home(tensor)
        self.builder.transfers(
            commands,
            space=home.space,
            is_write=is_write,
            role=tensor.role.value,
            runs=LinearView(home.space, home.offset, tensor.nbytes).runs(start, stop),
        )

    def add_stores(self, order: Ints) -> Ints:
        """STOREs dealt to the store engines in turn; the kernel's SIGNAL waits for them."""
        engines = np.array(self.engines.stores, dtype=np.int64)
        ids = self.emission.add(engines[np.arange(len(order)) % len(engines)], Opcode.STORE, order)
        self.emission.arrive(ids)
        return ids

    def drain(self, stores: Ints, ring: Slots, producers: Ints, writers: Ints) -> None:
        """Stores read what producers left in a ring that writers filled, and free its slots."""
        self.builder.edges(stores, producers, EdgeKind.DATA)
        self.pad.read(stores, ring)
        self.pad.recycle(ring, writers, stores)
