"""Spans and bandwidth over time of a simulated program, for timelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.results.records import FlowTable, SpanTable
from npusim.simulation.piece import CAUSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program import Program
    from npusim.simulation.piece import Piece

    Ints = NDArray[np.int64]

_BINS = 256


def span_tables(piece: Piece, max_spans: int) -> tuple[SpanTable | None, FlowTable | None]:
    """Command and stall spans in order of start, the first `max_spans`, and edges among them."""
    if max_spans == 0:
        return None, None
    start, end = _span_times(piece)
    keep = np.flatnonzero(end > start)
    order = keep[np.argsort(start[keep], kind="stable")]
    chosen = order[:max_spans]
    spans = _spans(piece, start, end, chosen, is_truncated=len(chosen) < len(order))
    return spans, _flows(piece.program, chosen)


def _span_times(piece: Piece) -> tuple[Ints, Ints]:
    """Start and end of every command, then of every stall."""
    execution = piece.execution
    stalls = execution.stalls
    # the last part of a command, lost to bank conflicts, is a stall of its own
    lost_ps = np.zeros(len(piece.program), dtype=np.int64)
    np.add.at(lost_ps, execution.conflicts.command, execution.conflicts.lost_ps)
    start = np.concatenate((execution.start_ps, stalls.start_ps))
    return start, np.concatenate((execution.end_ps - lost_ps, stalls.end_ps))


def _spans(piece: Piece, start: Ints, end: Ints, chosen: Ints, *, is_truncated: bool) -> SpanTable:
    """The chosen commands and stalls, by index in `_span_times`."""
    program, execution = piece.program, piece.execution
    stalls = execution.stalls
    stage_names = list(dict.fromkeys(kernel.stage for kernel in program.kernels))
    stage_of = np.array([stage_names.index(kernel.stage) for kernel in program.kernels])
    labels = [*(kernel.name for kernel in program.kernels), *(c.value for c in CAUSES)]
    stage = np.concatenate((stage_of[program.kernel], stage_of[program.kernel[stalls.command]]))
    label = np.concatenate((program.kernel, len(program.kernels) + stalls.cause.astype(np.int64)))
    queue = np.concatenate((execution.queue_slot, np.zeros(len(stalls), np.int32)))
    return SpanTable(
        engines=tuple(engine.name for engine in program.engines),
        labels=tuple(labels),
        stages=tuple(stage_names),
        engine=np.concatenate((program.engine, stalls.engine))[chosen].astype(np.int32),
        start_ps=start[chosen],
        end_ps=end[chosen],
        label=label[chosen].astype(np.int32),
        stage=stage[chosen].astype(np.int32),
        is_stall=(chosen >= len(program)),
        queue=queue[chosen].astype(np.int32),
        truncated=is_truncated,
    )


def _flows(program: Program, chosen: Ints) -> FlowTable:
    """Edges whose two commands have spans."""
    row = np.full(len(program), -1, dtype=np.int32)
    is_command = chosen < len(program)
    row[chosen[is_command]] = np.flatnonzero(is_command)
    consumer = row[np.repeat(np.arange(len(program)), np.diff(program.edge_ptr))]
    producer = row[program.edge_producer]
    known = (consumer >= 0) & (producer >= 0)
    return FlowTable(producer[known], consumer[known], program.edge_kind[known])


def bandwidth_series(piece: Piece) -> tuple[tuple[str, int, Ints], ...]:
    """(memory, bin length, bytes per bin); a transfer's bytes are spread evenly over its span."""
    program, execution = piece.program, piece.execution
    commands = np.flatnonzero(program.transfer >= 0)
    transfer = program.transfer[commands]
    bin_ps = max(-(-execution.elapsed_ps // _BINS), 1)
    edges = np.arange(_BINS + 1, dtype=np.int64) * bin_ps
    series = []
    for index, space in enumerate(program.spaces):
        if space.memory < 0 or space.kind == "cache":
            continue
        mine = program.transfers.space[transfer] == index
        done = _bytes_done(
            execution.start_ps[commands[mine]],
            execution.end_ps[commands[mine]],
            (piece.read_bytes + piece.write_bytes)[transfer[mine]],
            edges,
        )
        series.append((space.name, int(bin_ps), np.diff(done)))
    return tuple(series)


def _bytes_done(start: Ints, end: Ints, nbytes: Ints, edges: Ints) -> Ints:
    """Bytes moved before each edge: a piecewise linear sum, by its changes of slope."""
    length = np.maximum(end - start, 1)
    rate = nbytes / length
    times = np.concatenate((start, start + length))
    slopes = np.concatenate((rate, -rate))
    order = np.argsort(times, kind="stable")
    times, slopes = times[order], np.cumsum(slopes[order])
    if not len(times):
        return np.zeros(len(edges), dtype=np.int64)
    done = np.concatenate(([0.0], np.cumsum(np.diff(times) * slopes[:-1])))
    result: Ints = np.round(np.interp(edges, times, done)).astype(np.int64)
    return result
