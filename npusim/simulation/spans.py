"""Spans and bandwidth over time of a simulated program, for timelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.results.records import SpanTable
from npusim.simulation.piece import CAUSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.simulation.piece import Piece

    Ints = NDArray[np.int64]

_BINS = 256


def span_table(piece: Piece, max_spans: int) -> SpanTable | None:
    """Command and stall spans in order of start, the first `max_spans` of them."""
    if max_spans == 0:
        return None
    program, execution = piece.program, piece.execution
    stalls = execution.stalls
    count = len(program)
    stage_names = list(dict.fromkeys(kernel.stage for kernel in program.kernels))
    stage_of = np.array([stage_names.index(kernel.stage) for kernel in program.kernels])
    labels = [*(kernel.name for kernel in program.kernels), *(c.value for c in CAUSES)]
    start = np.concatenate((execution.start_ps, stalls.start_ps))
    lost_ps = np.zeros(count, dtype=np.int64)  # the last part of a command, a stall of its own
    np.add.at(lost_ps, execution.conflicts.command, execution.conflicts.lost_ps)
    end = np.concatenate((execution.end_ps - lost_ps, stalls.end_ps))
    keep = np.flatnonzero(end > start)
    order = keep[np.argsort(start[keep], kind="stable")]
    chosen = order[:max_spans]
    stage = np.concatenate((stage_of[program.kernel], stage_of[program.kernel[stalls.command]]))
    label = np.concatenate((program.kernel, len(program.kernels) + stalls.cause.astype(np.int64)))
    return SpanTable(
        engines=tuple(engine.name for engine in program.engines),
        labels=tuple(labels),
        stages=tuple(stage_names),
        engine=np.concatenate((program.engine, stalls.engine))[chosen].astype(np.int32),
        start_ps=start[chosen],
        end_ps=end[chosen],
        label=label[chosen].astype(np.int32),
        stage=stage[chosen].astype(np.int32),
        is_stall=(chosen >= count),
        queue=np.concatenate((execution.queue_slot, np.zeros(len(stalls), np.int32)))[
            chosen
        ].astype(np.int32),
        truncated=len(chosen) < len(order),
    )


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
