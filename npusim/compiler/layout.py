"""Base addresses of weights, KV cache and activations.

Weights come first, every tensor aligned to `ALIGNMENT_BYTES`, then the KV cache (per layer K then
V, per sequence and head `capacity` token rows, as `workload.kv_cache` describes it), then an
activation arena that is reused as tensors die (first fit by first use). Addresses count from 0 in
each memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.config.compiler import ActivationResidency, WeightResidency
from npusim.config.host import LaunchMode
from npusim.config.memory import SharedSramKind
from npusim.errors import MappingError
from npusim.program import Allocation
from npusim.workload.operator import OperatorKind
from npusim.workload.tensor import Role, packed_bytes

if TYPE_CHECKING:
    from npusim.compiler.target import Target
    from npusim.config.compiler import CompilerConfig
    from npusim.workload.graph import OperatorGraph
    from npusim.workload.tensor import Tensor

ALIGNMENT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Home:
    """Where a tensor lives. `space` may be the scratchpad of a program's only active core."""

    space: int
    offset: int
    nbytes: int


class Layout:
    """Homes of every tensor of a graph.

    Parameters
    ----------
    kv_capacity_tokens : int
        Token rows reserved per sequence and head.
    whole : OperatorGraph, optional
        The whole model, if the graph is only the first of its layers: weights and KV cache lie
        where the whole model has them.

    Raises
    ------
    MappingError
        If the DRAM or the device's address space is too small, or `on_chip` activations do not fit.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        target: Target,
        config: CompilerConfig,
        launch: LaunchMode,
        kv_capacity_tokens: int,
        whole: OperatorGraph | None = None,
    ) -> None:
        self._target = target
        self._homes: dict[str, Home] = {}
        self.allocations: list[Allocation] = []
        self.kv_capacity_tokens = kv_capacity_tokens
        self._capacities = {
            op.outputs[0].name: op.kv_slot[1] for op in whole or graph if op.kv_slot is not None
        }
        self._next = 0
        self._tenants: dict[str, tuple[str, ...]] = {}
        self._next_shared = 0
        self._place_weights(whole or graph, config)
        self._place_kv(whole or graph)
        self.scratchpad_reserved_bytes = 0
        self.activation_space = self._activation_space(graph, config, launch)
        self._place_activations(graph)
        self._check_capacity()

    def home(self, tensor: Tensor) -> Home:
        """Home of a tensor, or of the part of it that an operand is."""
        home = self._homes[tensor.name]
        if not tensor.first_row:
            return home
        return Home(home.space, home.offset + tensor.first_byte, tensor.nbytes)

    def capacity_tokens(self, tensor: Tensor) -> int:
        """Token rows reserved per sequence and head of a KV tensor."""
        return self._capacities.get(tensor.name, self.kv_capacity_tokens)

    def previous_tenants(self, tensor: Tensor) -> tuple[str, ...]:
        """Activations that held bytes of this one's home before it."""
        return self._tenants.get(tensor.name, ())

    def footprint_bytes(self) -> int:
        """Bytes of DRAM in use."""
        return self._next

    def _place_dram(self, name: str, nbytes: int, role: Role) -> None:
        if name in self._homes:
            return
        space = self._target.dram_space
        self._homes[name] = Home(space, self._next, nbytes)
        self.allocations.append(Allocation(name, space, self._next, nbytes, role.value))
        self._next += _aligned(nbytes)

    def _place_weights(self, graph: OperatorGraph, config: CompilerConfig) -> None:
        """In DRAM, or all in the shared SRAM when they are to stay on chip."""
        if config.weight_residency is WeightResidency.COLD:
            for tensor in graph.weights:
                self._place_dram(tensor.name, tensor.nbytes, Role.WEIGHT)
            return
        space, shared = self._target.shared_space, self._target.device.shared_sram
        need = sum(_aligned(tensor.nbytes) for tensor in graph.weights)
        if space is None or shared is None or need > shared.capacity_bytes:
            raise MappingError(
                "compiler.weight_residency",
                f"{need} bytes of weights do not stay in "
                + (f"{shared.capacity_bytes} bytes of shared SRAM" if shared else "no shared SRAM"),
                config.weight_residency.value,
                "use 'cold'",
            )
        for tensor in graph.weights:
            self._homes[tensor.name] = Home(space, self._next_shared, tensor.nbytes)
            self._next_shared += _aligned(tensor.nbytes)
        self.allocations.append(Allocation("weights", space, 0, need, Role.WEIGHT.value))

    def _place_kv(self, graph: OperatorGraph) -> None:
        for operator in graph:
            for tensor in (*operator.inputs, *operator.outputs):
                if tensor.role is Role.KV:
                    *outer, tokens, width = tensor.shape
                    rows = max(tokens, self.capacity_tokens(tensor))
                    matrices = 1
                    for extent in outer:
                        matrices *= extent
                    nbytes = matrices * rows * packed_bytes(width, tensor.dtype)
                    self._place_dram(tensor.name, nbytes, Role.KV)

    def _activation_space(
        self, graph: OperatorGraph, config: CompilerConfig, launch: LaunchMode
    ) -> int:
        """DRAM, shared SRAM or one active core's scratchpad, by `activation_residency`."""
        target = self._target
        residency = config.activation_residency
        shared = None if target.shared_space is None else target.device.shared_sram
        if residency is ActivationResidency.DRAM:
            return target.dram_space
        need = self._arena_bytes(graph)
        if shared is not None:
            may = shared.kind is SharedSramKind.CACHE or launch is LaunchMode.GRAPH
            fits = need <= shared.capacity_bytes - self._next_shared
            if fits and (may or residency is ActivationResidency.ON_CHIP):
                assert target.shared_space is not None
                return target.shared_space
        elif target.active_cores == 1:
            budget = target.core.scratchpad.capacity_bytes // 2
            may = launch is LaunchMode.GRAPH or residency is ActivationResidency.ON_CHIP
            if need <= budget and may:
                return target.scratchpad_space(0)
        if residency is ActivationResidency.ON_CHIP:
            raise MappingError(
                "compiler.activation_residency",
                f"activations of {need} bytes do not fit on the chip",
                residency.value,
            )
        return target.dram_space

    def _arena_bytes(self, graph: OperatorGraph) -> int:
        return max((end for _, _, end in _arena(graph)), default=0)

    def _place_activations(self, graph: OperatorGraph) -> None:
        """Graph inputs and outputs live in DRAM; everything between in the activation space.

        Stationary operands come in by DMA, so those that are activations (expanded keys of latent
        attention) do not stay in a scratchpad.
        """
        target = self._target
        boundary = {t.name: t for t in (*graph.inputs, *graph.outputs)}
        if self.activation_space not in (target.dram_space, target.shared_space):
            boundary |= {t.name: t for t in _stationary(graph)}
        for tensor in boundary.values():
            self._place_dram(tensor.name, tensor.nbytes, Role.ACTIVATION)
        base = 0
        if self.activation_space == target.dram_space:
            base = self._next
        elif self.activation_space == target.shared_space:
            base = self._next_shared
        high = 0
        earlier: list[tuple[str, int, int]] = []
        for tensor, start, end in _arena(graph):
            if tensor.name in boundary:
                continue
            self._tenants[tensor.name] = tuple(n for n, s, e in earlier if s < end and start < e)
            earlier = [x for x in earlier if not (start <= x[1] and x[2] <= end)]
            earlier.append((tensor.name, start, end))
            self._homes[tensor.name] = Home(self.activation_space, base + start, tensor.whole_bytes)
            high = max(high, end)
        role = Role.ACTIVATION.value
        self.allocations.append(Allocation("activations", self.activation_space, base, high, role))
        if self.activation_space == target.dram_space:
            self._next += _aligned(high)
        elif self.activation_space != target.shared_space:
            self.scratchpad_reserved_bytes = high

    def _check_capacity(self) -> None:
        target = self._target
        limit = target.dram.capacity_bytes
        where, what = f"memories.{target.dram_name}.capacity_bytes", "the memory holds"
        address_limit = target.device.address_limit_bytes
        if address_limit is not None and address_limit < limit:
            limit = address_limit
            where = f"devices.{target.device_name}.address_limit_bytes"
            what = "the device can address"
        if self._next > limit:
            weights = sum(a.nbytes for a in self.allocations if a.role == "weight")
            raise MappingError(
                where,
                f"weights, KV cache and activations need {self._next} bytes "
                f"({weights} of weights), {what} {limit}",
                hint="use a narrower --quant, a shorter context or a larger memory",
            )


def _stationary(graph: OperatorGraph) -> list[Tensor]:
    """Activations that are the stationary operand of a matmul."""
    return [
        op.inputs[1]
        for op in graph
        if op.kind is OperatorKind.MATMUL and op.inputs[1].role is Role.ACTIVATION
    ]


def _arena(graph: OperatorGraph) -> list[tuple[Tensor, int, int]]:
    """(tensor, start, end) of every intermediate activation, first fit by lifetime."""
    last_use: dict[str, int] = {}
    born: dict[str, tuple[int, Tensor]] = {}
    for index, operator in enumerate(graph):
        for tensor in operator.inputs:
            last_use[tensor.name] = index
        for tensor in operator.outputs:
            if tensor.role is Role.ACTIVATION:
                born.setdefault(tensor.name, (index, tensor))
    live: list[tuple[int, int, int]] = []  # start, end, last use
    placed = []
    for name, (index, tensor) in born.items():
        live = [block for block in live if block[2] >= index]
        size = _aligned(tensor.whole_bytes)
        start = 0
        for low, high, _ in sorted(live):
            if start + size <= low:
                break
            start = max(start, high)
        live.append((start, start + size, last_use.get(name, index)))
        placed.append((tensor, start, start + size))
    return placed


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
