"""Static checks of a program: what can be refused before time starts is refused here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProtocolError
from npusim.program.barriers import check_barriers, check_lost
from npusim.program.hazards import check_hazards
from npusim.program.labels import name_of
from npusim.program.multicast import check_multicasts
from npusim.program.ordering import previous_on_engine
from npusim.program.tables import END, EngineKind, Opcode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program.arrays import Program

    Ints = NDArray[np.int64]

DMA_KINDS = (EngineKind.DMA_LOAD, EngineKind.DMA_STORE)


def check_program(program: Program) -> None:
    """Refuse a program that breaks the command protocol.

    Indices, durations, offsets, transfers and regions are in range; waits are acyclic together
    with the order of each engine; every WAIT meets exactly one SIGNAL and no barrier is lost; DMA
    and host queues are finite and never over capacity; every read of a scratchpad waits for what
    it reads and every overwriting command for the last readers.

    Raises
    ------
    ProtocolError
        Naming engine and command of the first violation.
    """
    _check_ranges(program)
    _check_transfers(program)
    check_multicasts(program)
    _check_regions(program)
    check_barriers(program)
    _check_queues(program)
    _check_acyclic(program)
    check_lost(program)
    check_hazards(program)


def peak_occupancy(program: Program) -> dict[int, int]:
    """Bytes of each scratchpad space up to the end of the highest region touched.

    Returns
    -------
    dict of int to int
        By index of the space; an upper bound of what is live at any time.
    """
    ends = program.region_offset + program.region_bytes
    return {
        index: int(ends[program.region_space == index].max(initial=0))
        for index, space in enumerate(program.spaces)
        if space.kind == "scratchpad"
    }


def _refuse(
    program: Program, bad: NDArray[np.bool_], rule: str, values: NDArray[np.generic]
) -> None:
    """Raise for the first command flagged in `bad`; `values` are per command."""
    commands = np.flatnonzero(bad)
    if len(commands):
        command = int(commands[0])
        raise ProtocolError(name_of(program, command), rule, values[command].item())


def _consumers(program: Program) -> Ints:
    return np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))


def _check_ranges(program: Program) -> None:
    count = len(program)
    if not count:
        raise ProtocolError("program", "a program needs at least one command")
    engine, producer = program.engine, program.edge_producer
    bad_engine = (engine < 0) | (engine >= len(program.engines))
    _refuse(program, bad_engine, "the engine exists", engine)
    bad_kernel = (program.kernel < 0) | (program.kernel >= len(program.kernels))
    _refuse(program, bad_kernel, "the kernel exists", program.kernel)
    _refuse(
        program, program.duration_ticks < 0, "durations are not negative", program.duration_ticks
    )
    outside = np.flatnonzero((producer < 0) | (producer >= count))
    if len(outside):
        command = int(_consumers(program)[outside[0]])
        rule = "an awaited command exists"
        raise ProtocolError(name_of(program, command), rule, int(producer[outside[0]]))
    offset = program.edge_offset
    last = np.where(program.transfer[producer] >= 0, 0, program.duration_ticks[producer])
    bad = np.flatnonzero((offset != END) & ((offset < 0) | (offset > last)))
    if len(bad):
        command = int(_consumers(program)[bad[0]])
        rule = "a signal lies between its producer's start and end (of a transfer: at its start)"
        raise ProtocolError(name_of(program, command), rule, int(offset[bad[0]]))


def _check_transfers(program: Program) -> None:
    transfers = program.transfers
    is_load = program.opcode == Opcode.LOAD
    moves = is_load | (program.opcode == Opcode.STORE)
    has = program.transfer >= 0
    _refuse(program, moves & ~has, "a LOAD or STORE has a transfer", program.transfer)
    _refuse(program, has & ~moves, "only LOAD and STORE have a transfer", program.transfer)
    command = np.flatnonzero(has)
    if not np.array_equal(np.sort(program.transfer[command]), np.arange(len(transfers))):
        raise ProtocolError("program", "every transfer belongs to one command", len(transfers))
    on_dma = np.array([e.kind in DMA_KINDS and e.port >= 0 for e in program.engines], np.bool_)
    rule = "a LOAD or STORE runs on a DMA engine with a port"
    _refuse(program, moves & ~on_dma[program.engine], rule, program.engine)
    rule = "a transfer has no duration of its own"
    _refuse(program, moves & (program.duration_ticks > 0), rule, program.duration_ticks)
    owner = np.empty(len(transfers), dtype=np.int64)
    owner[program.transfer[command]] = command
    _check_runs(program, owner)
    wrong = np.flatnonzero(transfers.is_write == is_load[owner])
    if len(wrong):
        raise ProtocolError(name_of(program, int(owner[wrong[0]])), "LOADs read and STOREs write")


def _check_runs(program: Program, owner: Ints) -> None:
    transfers, runs = program.transfers, program.transfers.runs
    run_owner = np.repeat(owner, np.diff(transfers.run_ptr))
    empty = np.flatnonzero(transfers.nbytes() <= 0)
    if len(empty):
        raise ProtocolError(name_of(program, int(owner[empty[0]])), "a transfer moves bytes", 0)
    has_memory = np.array([space.memory >= 0 for space in program.spaces], dtype=np.bool_)
    bad = np.flatnonzero(~has_memory[transfers.space])
    if len(bad):
        place = program.spaces[transfers.space[bad[0]]].name
        rule = "a transfer is with a DRAM or shared SRAM"
        raise ProtocolError(name_of(program, int(owner[bad[0]])), rule, place)
    base, nbytes, stride, count = runs.T
    last = base + stride * (count - 1)
    capacity = np.array([space.capacity_bytes for space in program.spaces], dtype=np.int64)
    limit = capacity[np.repeat(transfers.space, np.diff(transfers.run_ptr))]
    outside = (nbytes < 1) | (count < 1) | (np.minimum(base, last) < 0)
    outside |= np.maximum(base, last) + nbytes > limit
    bad = np.flatnonzero(outside)
    if len(bad):
        rule = "runs (base, bytes, stride, count) are not empty and within the space's capacity"
        raise ProtocolError(name_of(program, int(run_owner[bad[0]])), rule, runs[bad[0]].tolist())
    _check_scatters(program, run_owner)


def _check_scatters(program: Program, run_owner: Ints) -> None:
    """No STORE writes a byte twice, as far as rows of one run and contiguous runs show."""
    transfers, runs = program.transfers, program.transfers.runs
    transfer = np.repeat(np.arange(len(transfers)), transfers.num_runs())
    base, nbytes, stride, count = runs.T
    is_write = transfers.is_write[transfer]
    twice = is_write & (count > 1) & (np.abs(stride) < nbytes)
    whole = np.flatnonzero(is_write & ((count == 1) | (stride == nbytes)))
    order = whole[np.lexsort((base[whole], transfer[whole]))]
    end = base[order] + nbytes[order] * count[order]
    overlaps = (transfer[order][1:] == transfer[order][:-1]) & (base[order][1:] < end[:-1])
    twice[order[1:][overlaps]] = True
    bad = np.flatnonzero(twice)
    if len(bad):
        rule = "a STORE writes no byte twice"
        raise ProtocolError(name_of(program, int(run_owner[bad[0]])), rule, runs[bad[0]].tolist())


def _check_regions(program: Program) -> None:
    space, offset, nbytes = program.region_space, program.region_offset, program.region_bytes
    exists = (space >= 0) & (space < len(program.spaces))
    capacity = np.array([s.capacity_bytes for s in program.spaces] or [0], dtype=np.int64)
    limit = capacity[np.where(exists, space, 0)]
    bad = np.flatnonzero(~exists | (offset < 0) | (nbytes < 1) | (offset + nbytes > limit))
    if len(bad):
        command = int(np.searchsorted(program.region_ptr, bad[0], side="right")) - 1
        value = (int(space[bad[0]]), int(offset[bad[0]]), int(nbytes[bad[0]]))
        rule = "regions (space, offset, bytes) are not empty and within the space's capacity"
        raise ProtocolError(name_of(program, command), rule, value)


def _check_queues(program: Program) -> None:
    for index, engine in enumerate(program.engines):
        if engine.queue_depth < 1:
            raise ProtocolError(engine.name, "queues have at least one entry", engine.queue_depth)
        if min(engine.issue_ticks, engine.gather_ticks) < 0:
            issue = (engine.issue_ticks, engine.gather_ticks)
            raise ProtocolError(engine.name, "issue takes no negative time", issue)
        if engine.gather_runs < 1:
            rule = "a fetch brings at least one piece of a gather list"
            raise ProtocolError(engine.name, rule, engine.gather_runs)
        if engine.kind is EngineKind.HOST:
            _check_launch_queue(program, index)


def _check_launch_queue(program: Program, host: int) -> None:
    """A launch waits until fewer than `queue_depth` earlier ones are undispatched."""
    launches = np.flatnonzero((program.engine == host) & (program.opcode == Opcode.LAUNCH))
    depth = program.engines[host].queue_depth
    if len(launches) <= depth:
        return
    consumer = _consumers(program)
    number = np.full(len(program), -1, dtype=np.int64)
    number[launches] = np.arange(len(launches))
    taken = np.full(len(program), -1, dtype=np.int64)  # by DISPATCH: number of the launch it takes
    dispatches = program.opcode[consumer] == Opcode.DISPATCH
    np.maximum.at(taken, consumer[dispatches], number[program.edge_producer[dispatches]])
    freed = np.full(len(program), -1, dtype=np.int64)  # by host command: latest launch known taken
    by_host = program.engine[consumer] == host
    np.maximum.at(freed, consumer[by_host], taken[program.edge_producer[by_host]])
    commands = np.flatnonzero(program.engine == host)
    known = np.full(len(program), -1, dtype=np.int64)
    known[commands] = np.maximum.accumulate(freed[commands])
    bad = launches[known[launches] < number[launches] - depth]
    if len(bad):
        command = int(bad[0])
        rule = f"a LAUNCH waits for a DISPATCH that leaves at most {depth} launches outstanding"
        hint = "depth is the HOST engine's queue_depth"
        raise ProtocolError(name_of(program, command), rule, int(number[command]), hint)


def _check_acyclic(program: Program) -> None:
    """Waits and engine order have no cycle; trivially none if all wait for earlier commands."""
    consumer = _consumers(program)
    if bool((program.edge_producer < consumer).all()):
        return
    previous = previous_on_engine(program)
    degree = np.diff(program.edge_ptr) + (previous >= 0)
    after = np.concatenate((program.edge_producer, previous[previous >= 0]))
    before = np.concatenate((consumer, np.flatnonzero(previous >= 0)))
    order = np.argsort(after, kind="stable")
    ptr = np.concatenate(([0], np.cumsum(np.bincount(after, minlength=len(program))))).tolist()
    followers: list[int] = before[order].tolist()
    left: list[int] = degree.tolist()
    ready = [command for command, count in enumerate(left) if not count]
    done = 0
    while ready:
        command = ready.pop()
        done += 1
        for follower in followers[ptr[command] : ptr[command + 1]]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    if done != len(program):
        raise ProtocolError("program", "waits are acyclic", _find_cycle(program, left, previous))


def _find_cycle(program: Program, left: list[int], previous: Ints) -> list[str]:
    """One cycle among the commands that cannot run."""
    command = next(c for c, count in enumerate(left) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while command not in seen:
        seen[command] = len(path)
        path.append(command)
        edges = program.edge_producer[program.edges_of(command)].tolist()
        candidates = [*edges, int(previous[command])]
        command = next(c for c in candidates if c >= 0 and left[c])
    return [name_of(program, c) for c in path[seen[command] :]]
