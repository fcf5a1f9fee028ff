"""Systems and compilations for tests of the compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.compiler.compile import Compiled, compile_graph
from npusim.config.compiler import CompilerConfig
from npusim.config.loader import load_system
from npusim.config.overrides import apply_system_overrides
from npusim.simulation.memories import peak_bytes_per_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.config.system import SystemConfig
    from npusim.program import Program
    from npusim.workload.graph import OperatorGraph

DEVICE = "system.devices.npu"
CORE = f"{DEVICE}.core"


def system_with(name: str, *overrides: str) -> SystemConfig:
    """A shipped system with changes."""
    return apply_system_overrides(load_system(name), overrides)


def compiled(
    graph: OperatorGraph,
    system: SystemConfig,
    *,
    kv_capacity_tokens: int = 0,
    cached_tokens: int = 0,
    **settings: object,
) -> Compiled:
    """Compile with compiler settings given as Python values."""
    return compile_graph(
        graph,
        system,
        CompilerConfig.model_validate(settings),
        peak_bytes_per_s(system),
        kv_capacity_tokens=kv_capacity_tokens,
        cached_tokens=cached_tokens,
    )


def bytes_moved(program: Program, role: str, *, is_write: bool, space: str = "dram") -> int:
    """Bytes of a role that transfers move in one direction of one kind of memory."""
    transfers = program.transfers
    kinds = np.array([s.kind for s in program.spaces])
    roles = ("weight", "kv", "activation")
    mine = (transfers.role == roles.index(role)) & (transfers.is_write == is_write)
    mine &= kinds[transfers.space] == space
    return int(transfers.nbytes()[mine].sum())


def consumers(program: Program) -> NDArray[np.int64]:
    """Consumer of every edge."""
    return np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))
