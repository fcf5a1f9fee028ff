"""The commands a machine executes, as numpy struct-of-arrays, and their static checks."""

from npusim.program.arrays import (
    END,
    ROLES,
    Allocation,
    EdgeKind,
    Engine,
    EngineKind,
    Kernel,
    MemorySpace,
    Opcode,
    Program,
    Transfers,
)
from npusim.program.build import (
    Command,
    Edge,
    ProgramBuilder,
    Region,
    TransferSpec,
    barrier_id,
    program_from_commands,
)

__all__ = [
    "END",
    "ROLES",
    "Allocation",
    "Command",
    "Edge",
    "EdgeKind",
    "Engine",
    "EngineKind",
    "Kernel",
    "MemorySpace",
    "Opcode",
    "Program",
    "ProgramBuilder",
    "Region",
    "TransferSpec",
    "Transfers",
    "barrier_id",
    "program_from_commands",
]
