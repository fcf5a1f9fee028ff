"""Flows that move at the rates of `filling`, and end (compiled).

Rates change only when a flow starts at an idle port or ends, so time in between is one multiply
per flow, and looking at a time in between (`foresee`) changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.memory.filling import share
from npusim.memory.flow_layout import (
    CL_LOST,
    CL_MANY,
    FF_DATA_PS,
    FF_LEFT,
    FF_RATE,
    FI_CLASS,
    FI_MEM,
    FI_NEXT,
    FI_WRITE,
    MF_BUSES,
    NONE,
    PI_HEAD,
    PI_TAIL,
)
from npusim.memory.jit import entry, njit
from npusim.memory.layout import CAT_READ, CAT_WRITE, NUM_CATEGORIES

if TYPE_CHECKING:
    from npusim.memory.flow_layout import Floats, Ints, Tables

SAME_TIME_PS = 1e-3  # ends closer than this are one event; times are whole ps


@entry
def start(t: Tables) -> float:
    """Set all rates anew; returns the time until the first flow ends."""
    share(t)
    return first_end(t)


@entry
def step(t: Tables, span_ps: float, ended: Ints) -> tuple[int, float]:
    """Move for `span_ps`, take off what has ended; (how many, time until the next end)."""
    run(t, span_ps)
    count = 0
    for port in range(t.ports.shape[0]):
        flow = t.ports[port, PI_HEAD]
        if flow == NONE or t.amounts[flow, FF_LEFT] > t.amounts[flow, FF_RATE] * SAME_TIME_PS:
            continue
        ended[count] = flow
        count += 1
        t.amounts[flow, FF_LEFT] = 0.0
        t.ports[port, PI_HEAD] = t.flows[flow, FI_NEXT]
        if t.ports[port, PI_HEAD] == NONE:
            t.ports[port, PI_TAIL] = NONE
    share(t)
    return count, first_end(t)


@entry
def move(t: Tables, span_ps: float) -> None:
    """Let all flows run for `span_ps`, within which none ends."""
    run(t, span_ps)


@entry
def foresee(t: Tables, span_ps: float, split_ps: Floats, own_ps: Floats) -> None:
    """Charge to copies what the next `span_ps` would charge; the flows stay where they are."""
    for port in range(t.ports.shape[0]):
        flow = t.ports[port, PI_HEAD]
        if flow != NONE:
            moved = min(t.amounts[flow, FF_LEFT], t.amounts[flow, FF_RATE] * span_ps)
            charge(t, port, flow, moved, split_ps, own_ps)


@njit
def first_end(t: Tables) -> float:
    """Time until the first flow ends, infinite without flows."""
    first = np.inf
    for port in range(t.ports.shape[0]):
        flow = t.ports[port, PI_HEAD]
        if flow != NONE:
            first = min(first, t.amounts[flow, FF_LEFT] / t.amounts[flow, FF_RATE])
    return float(first)


@njit
def run(t: Tables, span_ps: float) -> None:
    """Move the heads of all ports and charge what they use."""
    for port in range(t.ports.shape[0]):
        flow = t.ports[port, PI_HEAD]
        if flow != NONE:
            moved = min(t.amounts[flow, FF_LEFT], t.amounts[flow, FF_RATE] * span_ps)
            t.amounts[flow, FF_LEFT] -= moved
            charge(t, port, flow, moved, t.split_ps, t.own_ps)


@njit
def charge(t: Tables, port: int, flow: int, moved: float, split_ps: Floats, own_ps: Floats) -> None:
    """Add the data time of `moved` bytes, and by measured shares the time lost with them."""
    mem, pattern = t.flows[flow, FI_MEM], t.flows[flow, FI_CLASS]
    data_ps = moved * t.amounts[flow, FF_DATA_PS] * t.memories[mem, MF_BUSES]
    own_ps[port] += data_ps
    split_ps[mem, CAT_WRITE if t.flows[flow, FI_WRITE] else CAT_READ] += data_ps
    lost_ps = data_ps * (1.0 / t.classes[pattern, CL_MANY] - 1.0)
    for k in range(NUM_CATEGORIES):
        split_ps[mem, k] += lost_ps * t.classes[pattern, CL_LOST + k]
