"""The same program on a chip with one cost gone: bounds of what a fix can give.

A bound keeps the commands, their order, edges and engines, and takes one cost away. Nothing is
compiled again: it says what removing that cost gives, not what a compiler would then do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from npusim.config.memory import RefreshMode
from npusim.config.run_spec import RunSpec
from npusim.engine import FixedLatencyMemory
from npusim.errors import ConfigError, nearest
from npusim.program import END, ROLES, EngineKind, Opcode, Program, Transfers
from npusim.program.check import check_program
from npusim.simulation.execute import Executed, run_machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from npusim.engine import MemoryKernel

Change = Callable[[Program], Program]


@dataclass(frozen=True)
class Ideal:
    """One cost taken away.

    Attributes
    ----------
    text : str
        What is gone.
    change : callable
        The program without the cost.
    is_memory_free : bool
        Whether every transfer completes when it is issued.
    has_refresh : bool
        Whether DRAM is refreshed.
    """

    text: str
    change: Change = lambda program: program
    is_memory_free: bool = False
    has_refresh: bool = True

    def __call__(
        self, program: Program, spec: RunSpec, memory: MemoryKernel | None = None
    ) -> Executed:
        """Run the program without the cost; see `Execute`."""
        if self.is_memory_free:
            memory = FixedLatencyMemory(0)
        if not self.has_refresh:
            spec = _without_refresh(spec)
        check_program(program)
        executed = run_machine(self.change(program), spec, memory)
        return replace(executed, is_ideal=True, is_memory_ideal=self.is_memory_free)


def ideal_of(name: str) -> Ideal:
    """Bound by its name; ConfigError for an unknown one."""
    if name not in IDEALS:
        raise ConfigError(
            "ideal", f"must be one of {', '.join(IDEALS)}", name, nearest(name, IDEALS)
        )
    return IDEALS[name]


def without_duration(program: Program, commands: NDArray[np.bool_]) -> Program:
    """The program with commands that take no time; signals inside them come at their start."""
    at_end = program.edge_offset == END
    inside = commands[program.edge_producer] & ~at_end
    return replace(
        program,
        duration_ticks=np.where(commands, 0, program.duration_ticks),
        edge_offset=np.where(inside, 0, program.edge_offset),
    )


def _free_engines(*kinds: EngineKind) -> Change:
    def change(program: Program) -> Program:
        mine = [index for index, engine in enumerate(program.engines) if engine.kind in kinds]
        return without_duration(program, np.isin(program.engine, mine))

    return change


def _free_launches(program: Program) -> Program:
    front = (Opcode.LAUNCH, Opcode.DISPATCH, Opcode.SYNC)
    return without_duration(program, np.isin(program.opcode, front))


def _free_issue(program: Program) -> Program:
    engines = tuple(replace(e, issue_ticks=0, gather_ticks=0) for e in program.engines)
    return replace(program, engines=engines)


def _one_port_per_access(program: Program) -> Program:
    """Scratchpads without banks: nothing conflicts."""
    return replace(program, spaces=tuple(replace(s, banks=None) for s in program.spaces))


def _free_activations(program: Program) -> Program:
    """Loads and stores of activations are issued, but move nothing."""
    every = program.transfers
    is_free = every.role == ROLES.index("activation")
    runs = every.runs.copy()
    runs[np.repeat(is_free, every.num_runs()), 1] = 0
    commands = (program.transfer >= 0) & is_free[program.transfer]
    return replace(
        _free_launches(program),
        transfer=np.where(commands, -1, program.transfer).astype(np.int32),
        transfers=Transfers(
            every.space, every.is_write, every.role, every.run_ptr, runs, every.leader
        ),
    )


def _without_refresh(spec: RunSpec) -> RunSpec:
    system = spec.system
    memories = {
        name: memory.model_copy(update={"refresh": RefreshMode.NONE})
        for name, memory in system.memories.items()
    }
    changed = system.model_copy(update={"memories": memories})
    return spec.model_copy(update={"system": changed})


IDEALS: Mapping[str, Ideal] = MappingProxyType(
    {
        "infinite_bandwidth": Ideal(
            "every transfer completes when it is issued", is_memory_free=True
        ),
        "no_refresh": Ideal("DRAM is never refreshed", has_refresh=False),
        "zero_launch": Ideal(
            "launches, dispatches and the final sync take no time", _free_launches
        ),
        "zero_barriers": Ideal("barriers take no time", _free_engines(EngineKind.BARRIER)),
        "zero_dma_issue": Ideal("descriptors are issued in no time", _free_issue),
        "no_sram_conflicts": Ideal(
            "no two accesses of a scratchpad conflict", _one_port_per_access
        ),
        "infinite_matrix": Ideal("products take no time", _free_engines(EngineKind.MATRIX)),
        "infinite_vector": Ideal(
            "vector and convert units take no time",
            _free_engines(EngineKind.VECTOR, EngineKind.CONVERT),
        ),
        "perfect_fusion": Ideal(
            "activations are not moved and launches take no time", _free_activations
        ),
    }
)
