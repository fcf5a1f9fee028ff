"""How messages and dumps name commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.program.tables import Opcode

if TYPE_CHECKING:
    from npusim.program.arrays import Program


def name_of(program: Program, command: int) -> str:
    """Engine, index, opcode and named barrier: ``core0.matrix #12 SIGNAL fp16_done``."""
    engine, opcode = int(program.engine[command]), int(program.opcode[command])
    known = 0 <= engine < len(program.engines)
    place = program.engines[engine].name if known else f"engine {engine}"
    barrier = program.barrier_names.get(int(program.barrier[command]))
    return f"{place} #{command} {Opcode(opcode).name}" + (f" {barrier}" if barrier else "")


def place_of(program: Program, region: int) -> str:
    """Space and bytes of a region, by its index in the program: ``pad [0, 256)``."""
    space = program.spaces[program.region_space[region]].name
    offset, nbytes = int(program.region_offset[region]), int(program.region_bytes[region])
    return f"{space} [{offset}, {offset + nbytes})"
