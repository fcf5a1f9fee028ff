"""Progressive filling: weighted max-min fair rates under own and shared limits (compiled).

Resources are the directions of the buses and the channels of the memories. The rates of all heads
rise together, each in proportion to the bytes its port has asked for (a first-come queue gives
every byte the same wait), until the flow's own limit, its bus direction or one of its channels
stops it. Source: Bertsekas & Gallager, Data Networks, 6.5.2; the weights: Little's law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.memory.flow_layout import (
    ALL_CHANNELS,
    CL_MANY,
    CL_ONE,
    FF_BUS_PS,
    FF_CAP,
    FF_DATA_PS,
    FF_RATE,
    FF_SPREAD,
    FF_TOTAL,
    FF_WINDOW,
    FI_CLASS,
    FI_MASK,
    FI_MEM,
    FI_NEXT,
    FI_WRITE,
    MF_LOG_MANY,
    MF_TURNAROUND,
    MF_WRITE_WEIGHT,
    NONE,
    PI_BUS,
    PI_HEAD,
    WK_COST,
    WK_LEFT,
    WK_LOAD,
    WK_STREAMS,
    WK_WEIGHT,
)
from npusim.memory.jit import njit

if TYPE_CHECKING:
    from npusim.memory.flow_layout import Tables

FULL = 1e-12
ENDLESS = 1e300


@njit
def share(t: Tables) -> None:
    """Set the rates of the flows at the heads of all ports."""
    count = collect(t)
    if not fits(t, count):
        fill(t, count)


@njit
def collect(t: Tables) -> int:
    """List the ports with a flow, with the flow's cost and weight; returns how many."""
    streams, count = t.work[WK_STREAMS], 0
    streams[: 2 * t.memories.shape[0]] = 0.0
    for port in range(t.ports.shape[0]):
        flow = t.ports[port, PI_HEAD]
        if flow != NONE:
            t.active[count] = port
            count += 1
            streams[2 * t.flows[flow, FI_MEM] + t.flows[flow, FI_WRITE]] += 1.0
    for a in range(count):
        port = t.active[a]
        flow = t.ports[port, PI_HEAD]
        mem = t.flows[flow, FI_MEM]
        reads, writes = streams[2 * mem], streams[2 * mem + 1]
        turns = t.flows[flow, FI_WRITE] == 1 and reads > 0
        t.work[WK_COST, port] = memory_ps_per_byte(t, flow, reads + writes, turns)
        t.work[WK_WEIGHT, port] = asked_bytes(t, flow)
        if turns:
            t.work[WK_WEIGHT, port] *= t.memories[mem, MF_WRITE_WEIGHT]
        t.amounts[flow, FF_RATE] = 0.0
    return count


@njit
def memory_ps_per_byte(t: Tables, flow: int, streams: float, turns: bool) -> float:
    """Time of the whole memory per byte of a flow that is one of `streams` streams.

    Between one stream and many the efficiency goes with the logarithm. Turning the data bus
    around is charged to the writes: each drain of the write queue costs one.
    """
    mem, pattern = t.flows[flow, FI_MEM], t.flows[flow, FI_CLASS]
    one, many = t.classes[pattern, CL_ONE], t.classes[pattern, CL_MANY]
    place = min(1.0, np.log2(streams) / t.memories[mem, MF_LOG_MANY])
    lost = t.memories[mem, MF_TURNAROUND] if turns else 0.0
    return float(t.amounts[flow, FF_DATA_PS] * (1.0 / (one + (many - one) * place) + lost))


@njit
def asked_bytes(t: Tables, flow: int) -> float:
    """Bytes a head's port has asked for: those of its queue, at most its outstanding bursts."""
    window, total = t.amounts[flow, FF_WINDOW], t.amounts[flow, FF_TOTAL]
    while total < window and t.flows[flow, FI_NEXT] != NONE:
        flow = t.flows[flow, FI_NEXT]
        total += t.amounts[flow, FF_TOTAL]
    return float(min(total, window))


@njit
def clear_load(t: Tables) -> None:
    """Forget all loads."""
    t.work[WK_LOAD, :] = 0.0
    t.load[:, :] = 0.0


@njit
def add_load(t: Tables, port: int, flow: int, rate: float) -> None:
    """Add what a flow at `rate` takes of its bus direction and channels."""
    t.work[WK_LOAD, 2 * t.ports[port, PI_BUS] + t.flows[flow, FI_WRITE]] += (
        rate * t.amounts[flow, FF_BUS_PS]
    )
    use = rate * t.work[WK_COST, port]
    mem, mask = t.flows[flow, FI_MEM], t.flows[flow, FI_MASK]
    if mask == ALL_CHANNELS:
        t.load[mem, 0] += use
        return
    use *= t.amounts[flow, FF_SPREAD]
    for channel in range(t.load.shape[1] - 1):
        if (mask >> channel) & 1:
            t.load[mem, channel + 1] += use


@njit
def fits(t: Tables, count: int) -> bool:
    """Whether everything has room for all flows at their own limits; then those are the rates."""
    clear_load(t)
    for a in range(count):
        flow = t.ports[t.active[a], PI_HEAD]
        add_load(t, t.active[a], flow, t.amounts[flow, FF_CAP])
    if t.work[WK_LOAD].max() > 1.0:
        return False
    for mem in range(t.load.shape[0]):
        if t.load[mem, 0] + t.load[mem, 1:].max() > 1.0:
            return False
    for a in range(count):
        flow = t.ports[t.active[a], PI_HEAD]
        t.amounts[flow, FF_RATE] = t.amounts[flow, FF_CAP]
    return True


@njit
def fill(t: Tables, count: int) -> None:
    """Raise the rates of all flows together until each has met a limit."""
    t.work[WK_LEFT, :] = 1.0
    t.left[:, :] = 1.0
    while count > 0:
        clear_load(t)
        step = ENDLESS
        for a in range(count):
            port = t.active[a]
            flow, weight = t.ports[port, PI_HEAD], t.work[WK_WEIGHT, port]
            add_load(t, port, flow, weight)
            step = min(step, (t.amounts[flow, FF_CAP] - t.amounts[flow, FF_RATE]) / weight)
        step = take(t, step)
        kept = 0
        for a in range(count):
            port = t.active[a]
            flow = t.ports[port, PI_HEAD]
            t.amounts[flow, FF_RATE] += step * t.work[WK_WEIGHT, port]
            if not is_stopped(t, port, flow):
                t.active[kept] = port
                kept += 1
        count = kept


@njit
def take(t: Tables, step: float) -> float:
    """Largest step that no resource forbids, taken from all of them."""
    left, load = t.work[WK_LEFT], t.work[WK_LOAD]
    for k in range(load.shape[0]):
        if load[k] > 0.0:
            step = min(step, left[k] / load[k])
    for mem in range(t.load.shape[0]):
        for column in range(1, t.load.shape[1]):
            t.load[mem, column] += t.load[mem, 0]
            if t.load[mem, column] > 0.0:
                step = min(step, t.left[mem, column] / t.load[mem, column])
    for k in range(load.shape[0]):
        left[k] -= step * load[k]
    for mem in range(t.load.shape[0]):
        for column in range(1, t.load.shape[1]):
            t.left[mem, column] -= step * t.load[mem, column]
        t.left[mem, 0] = t.left[mem, 1:].min()
    return step


@njit
def is_stopped(t: Tables, port: int, flow: int) -> bool:
    """Whether a flow has met its own limit, or a full bus direction or channel.

    The bursts of a port enter the memory in order, so one full channel stops the whole flow.
    """
    cap = t.amounts[flow, FF_CAP]
    if cap - t.amounts[flow, FF_RATE] <= FULL * cap:
        return True
    if t.work[WK_LEFT, 2 * t.ports[port, PI_BUS] + t.flows[flow, FI_WRITE]] <= FULL:
        return True
    mem, mask = t.flows[flow, FI_MEM], t.flows[flow, FI_MASK]
    if mask == ALL_CHANNELS:
        return bool(t.left[mem, 0] <= FULL)
    for channel in range(t.left.shape[1] - 1):
        if (mask >> channel) & 1 and t.left[mem, channel + 1] <= FULL:
            return True
    return False
