"""A program as readable lines."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProtocolError, nearest
from npusim.program.tables import END, EdgeKind, Opcode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from npusim.program.arrays import Program

_SHOWN = 6  # edges or regions of a command before "and n more"


def dump_program(
    program: Program, limit: int | None = None, kernel: str | None = None
) -> Iterator[str]:
    """Lines that describe a program: counts per engine and opcode, then one line per command.

    Parameters
    ----------
    program : Program
        Any program, also a broken one whose indices are in range.
    limit : int, optional
        Commands to show; default all.
    kernel : str, optional
        Show only commands of the kernels of this name.

    Yields
    ------
    str
        A line without its newline.

    Raises
    ------
    ProtocolError
        If no kernel has that name.
    """
    commands = _selected(program, kernel)
    shown = commands if limit is None else commands[:limit]
    return _lines(program, shown, len(commands))


def _lines(program: Program, shown: NDArray[np.int64], selected: int) -> Iterator[str]:
    yield from _header(program)
    yield ""
    nbytes = program.transfers.nbytes().tolist()
    for command in shown.tolist():
        yield _command(program, command, nbytes)
    if len(shown) < selected:
        yield f"... {selected - len(shown)} more commands"


def _selected(program: Program, kernel: str | None) -> NDArray[np.int64]:
    if kernel is None:
        return np.arange(len(program))
    matching = [i for i, k in enumerate(program.kernels) if k.name == kernel]
    if not matching:
        known = {k.name for k in program.kernels}
        raise ProtocolError("kernel", "a kernel of the program", kernel, nearest(kernel, known))
    return np.flatnonzero(np.isin(program.kernel, matching))


def _header(program: Program) -> Iterator[str]:
    total = int(program.transfers.nbytes().sum())
    yield (
        f"{len(program)} commands, {len(program.edge_kind)} edges, {len(program.kernels)} kernels,"
        f" {len(program.transfers)} transfers of {total} bytes, digest {program.digest()[:12]}"
    )
    for space in program.spaces:
        yield f"space   {space.name}: {space.kind}, {space.capacity_bytes} bytes"
    width = max(len(engine.name) for engine in program.engines)
    for index, engine in enumerate(program.engines):
        opcodes = np.bincount(program.opcode[program.engine == index], minlength=len(Opcode))
        counts = ", ".join(f"{n} {Opcode(code).name}" for code, n in enumerate(opcodes) if n)
        yield f"engine  {engine.name:<{width}}  {engine.kind:<9}  {counts or 'no commands'}"


def _command(program: Program, command: int, nbytes: list[int]) -> str:
    engine, opcode = program.engines[program.engine[command]], Opcode(program.opcode[command])
    kernel = program.kernels[program.kernel[command]]
    parts = [f"#{command}", engine.name, opcode.name, kernel.name]
    if kernel.operator != kernel.name:
        parts.append(f"({kernel.operator})")
    transfer = int(program.transfer[command])
    if transfer >= 0:
        space = program.spaces[program.transfers.space[transfer]].name
        direction = "to" if program.transfers.is_write[transfer] else "from"
        leader = int(program.transfers.leader[transfer])
        by = f" by multicast of #{_owner(program, leader)}" if leader >= 0 else ""
        parts.append(f"{nbytes[transfer]} bytes {direction} {space}{by}")
    else:
        parts.append(f"{_cycles(program, int(program.duration_ticks[command]))} cycles")
    if program.macs[command]:
        parts.append(f"{program.macs[command]} MACs")
    if program.barrier[command] >= 0:
        barrier = int(program.barrier[command])
        name = program.barrier_names.get(barrier, f"barrier {barrier}")
        parts.append(f"{name} generation {program.generation[command]}")
    return "  ".join([*parts, *_waits(program, command), *_regions(program, command)])


def _owner(program: Program, transfer: int) -> int:
    """Command of a transfer."""
    return int(np.flatnonzero(program.transfer == transfer)[0])


def _cycles(program: Program, ticks: int) -> str:
    cycles = Fraction(ticks, program.ticks_per_cycle)
    return str(cycles.numerator) if cycles.denominator == 1 else f"{float(cycles):g}"


def _waits(program: Program, command: int) -> list[str]:
    edges = program.edges_of(command)
    texts = [
        f"#{producer}{'' if offset == END else f'+{_cycles(program, offset)}'}"
        f":{EdgeKind(kind).name.lower()}"
        for producer, offset, kind in zip(
            program.edge_producer[edges].tolist(),
            program.edge_offset[edges].tolist(),
            program.edge_kind[edges].tolist(),
            strict=True,
        )
    ]
    return [f"waits {_shortened(texts)}"] if texts else []


def _regions(program: Program, command: int) -> list[str]:
    regions = program.regions_of(command)
    columns = (program.region_space, program.region_offset, program.region_bytes)
    rows = zip(*(column[regions].tolist() for column in columns), strict=True)
    places = [f"{program.spaces[s].name}[{at}:{at + n}]" for s, at, n in rows]
    is_write = program.region_is_write[regions].tolist()
    result = []
    for verb, wanted in (("reads", False), ("writes", True)):
        mine = [place for place, w in zip(places, is_write, strict=True) if w is wanted]
        if mine:
            result.append(f"{verb} {_shortened(mine)}")
    return result


def _shortened(texts: list[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return " ".join(texts[:_SHOWN]) + more
