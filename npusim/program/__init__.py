"""The commands a machine executes, as numpy struct-of-arrays, and their static checks."""

from npusim.program.arrays import Program, ProgramBuilder
from npusim.program.barriers import BarrierBit, Trigger
from npusim.program.commands import Command, Edge, Region, TransferSpec, barrier_id
from npusim.program.tables import (
    END,
    ROLES,
    Allocation,
    BankGeometry,
    EdgeKind,
    Engine,
    EngineKind,
    Kernel,
    MemorySpace,
    Opcode,
    Transfers,
)

__all__ = [
    "END",
    "ROLES",
    "Allocation",
    "BankGeometry",
    "BarrierBit",
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
    "Trigger",
    "barrier_id",
]
