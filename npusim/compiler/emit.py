"""The program under construction: kernels, launches and barriers.

Every kernel follows one scheme. The host launches it, the device front end dispatches it, the
first command of every engine waits for the dispatch (LAUNCH edge), its outputs are handed on by one
SIGNAL of the barrier registers, and loads of a tensor wait for the SIGNAL of its producers (BARRIER
edge).
Eager kernels start when the kernel before has signalled; a graph dispatches ahead, so that weight
loads of a kernel may run while the one before still computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.slots import Scratchpad
from npusim.config.host import LaunchMode
from npusim.program import EdgeKind, Kernel, Opcode, ProgramBuilder, barrier_id
from npusim.workload.tensor import Role

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from npusim.compiler.layout import Home, Layout
    from npusim.compiler.target import Target
    from npusim.config.compiler import CompilerConfig
    from npusim.program import Program
    from npusim.workload.graph import OperatorGraph
    from npusim.workload.operator import Operator
    from npusim.workload.tensor import Tensor

    Ints = NDArray[np.int64]

#: order keys of one step; ranks inside a step keep producers before consumers
STEP = 32
FIRST_STEP = STEP
_LAST_STEP = 1 << 40
_BARRIER_BITS = 64


class Emission:
    """Commands of one program, kernel by kernel."""

    def __init__(
        self,
        graph: OperatorGraph,
        target: Target,
        layout: Layout,
        config: CompilerConfig,
        launch: LaunchMode,
        *,
        cached_tokens: int,
        ideal: bool,
    ) -> None:
        self.graph = graph
        self.target = target
        self.layout = layout
        self.config = config
        self.launch = launch
        self.cached_tokens = cached_tokens
        self.ideal = ideal
        self.builder = ProgramBuilder(target.engines, (), target.spaces, target.ticks_per_cycle)
        self.builder.allocations.extend(layout.allocations)
        self.scratchpads = [
            Scratchpad(
                self.builder, target.scratchpad_space(core), layout.scratchpad_reserved_bytes
            )
            for core in range(target.cores)
        ]
        self._signals: dict[str, list[int]] = {}
        self._last_reader: dict[str, int] = {}
        self._kernel = -1
        self._dispatches: list[int] = []
        self._signal_ids: list[int] = []
        self._first: dict[int, tuple[int, int]] = {}
        self._arrivals: list[Ints] = []
        self._launch_graph()

    @property
    def kernel(self) -> int:
        """Index of the open kernel."""
        return self._kernel

    @property
    def runs_ahead(self) -> bool:
        """Whether loads of weights start while the kernel before still runs."""
        return self.launch is LaunchMode.GRAPH and self.config.prefetch

    def add(
        self,
        engine: Ints | int,
        opcode: Opcode,
        order: ArrayLike,
        *,
        duration_ticks: ArrayLike = 0,
        macs: ArrayLike = 0,
    ) -> Ints:
        """Commands of the open kernel; `order` sets how many, `FIRST_STEP` is added to it."""
        orders = np.atleast_1d(np.asarray(order, dtype=np.int64)) + FIRST_STEP
        ids = self.builder.commands(
            len(orders),
            engine=engine,
            opcode=int(opcode),
            kernel=self._kernel,
            order=orders,
            duration_ticks=duration_ticks,
            macs=macs,
        )
        if isinstance(engine, int):
            self._note_first(engine, orders, ids)
        else:
            for one in np.unique(engine).tolist():
                mine = np.flatnonzero(engine == one)
                self._note_first(one, orders[mine], ids[mine])
        return ids

    def _note_first(self, engine: int, orders: Ints, ids: Ints) -> None:
        first = int(np.argmin(orders))
        candidate = (int(orders[first]), int(ids[first]))
        self._first[engine] = min(self._first.get(engine, candidate), candidate)

    def arrive(self, commands: Ints) -> None:
        """The kernel's SIGNAL waits for these."""
        self._arrivals.append(commands)

    def wait_for_tensor(self, commands: ArrayLike, tensor: Tensor) -> None:
        """Commands that read a tensor wait for the SIGNAL of its producers."""
        for signal in self._signals.get(tensor.name, ()):
            self.builder.edges(commands, signal, EdgeKind.BARRIER)

    def home(self, tensor: Tensor) -> Home:
        """Home of a tensor."""
        return self.layout.home(tensor)

    def is_in_scratchpad(self, tensor: Tensor) -> bool:
        """Whether a tensor stays in the (only) core's scratchpad between operators."""
        return self.target.spaces[self.home(tensor).space].kind == "scratchpad"

    def budget_bytes(self) -> int:
        """Scratchpad bytes that slots of one core may take."""
        return self.target.core.scratchpad.capacity_bytes - self.layout.scratchpad_reserved_bytes

    def open_kernel(self, operator: Operator) -> None:
        """Start a kernel: launch and dispatch commands."""
        self._kernel += 1
        kernel = Kernel(operator.name, operator.name, operator.stage, operator.layer)
        self.builder.kernels.append(kernel)
        self._first, self._arrivals = {}, []
        for scratchpad in self.scratchpads:
            scratchpad.open_kernel()
        host, target = self.target.host, self.target
        duration = host.graph_node_ps
        if self.launch is LaunchMode.EAGER:
            duration = host.device_start_ps
            launch = self._front_end(target.host_engine, Opcode.LAUNCH, 0, host.host_issue_ps)
            if len(self._dispatches) >= host.queue_depth:
                blocker = self._dispatches[-host.queue_depth]
                self.builder.edges(launch, blocker, EdgeKind.BUFFER_FREE)
        else:
            launch = self._graph_launch
        dispatch = self._front_end(target.dispatch_engine, Opcode.DISPATCH, 1, duration)
        self.builder.edges(dispatch, launch, EdgeKind.LAUNCH)
        if not self.runs_ahead and self._signal_ids:
            self.builder.edges(dispatch, self._signal_ids[-1], EdgeKind.ORDER)
        self._dispatches.append(int(dispatch[0]))

    def close_kernel(self, operator: Operator) -> None:
        """End a kernel: gate first commands, order reused memory, signal the outputs."""
        firsts = np.array([command for _, command in self._first.values()], dtype=np.int64)
        self.builder.edges(firsts, self._dispatches[-1], EdgeKind.LAUNCH)
        signal = self._signal()
        for arrivals in self._arrivals:
            self.builder.edges(np.full(len(arrivals), signal), arrivals, EdgeKind.DATA)
        self._signal_ids.append(signal)
        for tensor in operator.inputs:
            self._last_reader[tensor.name] = signal
        for tensor in operator.outputs:
            for blocker in self._reuse_blockers(tensor):
                self.builder.edges(firsts, blocker, EdgeKind.ORDER)
            has_others = tensor.role is Role.KV or tensor.all_rows > 0
            earlier = self._signals.get(tensor.name, []) if has_others else []
            self._signals[tensor.name] = [*earlier, signal]

    def finish(self) -> Program:
        """Host waits for the last kernel; freeze."""
        sync = self.builder.commands(
            1,
            engine=self.target.host_engine,
            opcode=int(Opcode.SYNC),
            kernel=self._kernel,
            order=_LAST_STEP + 1,
            duration_ticks=self.target.host.sync_ps * self.target.ticks_per_cycle,
        )
        self.builder.edges(sync, self._signal_ids[-1], EdgeKind.ORDER)
        return self.builder.build()

    def _reuse_blockers(self, tensor: Tensor) -> list[int]:
        """Signals after which the tensor's bytes are free: last readers of what lay there."""
        if not self.runs_ahead:
            return []
        names = self.layout.previous_tenants(tensor)
        return sorted(
            {self._last_reader[n] for n in names if n in self._last_reader} - {self._signal_ids[-1]}
        )

    def _front_end(self, engine: int, opcode: Opcode, order: int, duration_ps: int) -> Ints:
        return self.builder.commands(
            1,
            engine=engine,
            opcode=int(opcode),
            kernel=max(self._kernel, 0),
            order=order,
            duration_ticks=duration_ps * self.target.ticks_per_cycle,
        )

    def _launch_graph(self) -> None:
        if self.launch is LaunchMode.GRAPH:
            self._graph_launch = self._front_end(
                self.target.host_engine, Opcode.LAUNCH, 0, self.target.host.graph_launch_ps
            )

    def _signal(self) -> int:
        barrier = barrier_id(0, self._kernel % _BARRIER_BITS)
        self.builder.barrier_names[barrier] = f"{self.target.device_name}.barrier.{barrier}"
        ids = self.builder.commands(
            1,
            engine=self.target.barrier_engine,
            opcode=int(Opcode.SIGNAL),
            kernel=self._kernel,
            order=_LAST_STEP,
            duration_ticks=self.target.ticks(self.target.device.barrier_cycles),
            barrier=barrier,
            generation=self._kernel // _BARRIER_BITS,
        )
        return int(ids[0])
