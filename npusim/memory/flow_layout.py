"""Columns of the tables behind fidelity `transfer`: flows, ports, pattern classes, memories.

A flow is one transfer; its row is its id. Times are ps and rates bytes per ps, as floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npusim.memory.layout import NUM_CATEGORIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

NONE = -1
ALL_CHANNELS = -1  # mask of a flow that uses every channel alike
MAX_CHANNELS = 64  # channels (SRAM banks) told apart; more are taken as used alike

# flows: next one of its port, memory, direction, pattern class, channels it touches (a bit each)
FI_NEXT, FI_MEM, FI_WRITE, FI_CLASS, FI_MASK, FLOW_INTS = range(6)
# amounts of a flow: bytes left and in all; own highest rate; per byte, time of the bus direction
# and of the whole memory at peak; bytes its port may have outstanding; load of a touched channel
# over the load of each channel if all were used alike; rate; time from its end to completion
(
    FF_LEFT, FF_TOTAL, FF_CAP, FF_BUS_PS, FF_DATA_PS, FF_WINDOW, FF_SPREAD, FF_RATE, FF_LATENCY_PS,
    FLOW_FLOATS,
) = range(10)  # fmt: skip
# ports: first and last flow, bus
PI_HEAD, PI_TAIL, PI_BUS, PORT_INTS = range(4)
# classes: efficiency of one stream and of many, then shares of the lost time by category
CL_ONE, CL_MANY, CL_LOST = range(3)
CLASS_FLOATS = CL_LOST + NUM_CATEGORIES
# memories: data buses; log2 of the streams behind CL_MANY; with reads and writes, time lost per
# time of written data and weight of a written byte
MF_BUSES, MF_LOG_MANY, MF_TURNAROUND, MF_WRITE_WEIGHT, MEMORY_FLOATS = range(5)
# scratch rows: left and load of bus directions; streams by memory and direction; per port, time
# of the memory per byte and weight
WK_LEFT, WK_LOAD, WK_STREAMS, WK_COST, WK_WEIGHT, WORK_ROWS = range(6)


class Tables(NamedTuple):
    """All state of the compiled functions."""

    flows: Ints
    amounts: Floats
    ports: Ints
    classes: Floats
    memories: Floats
    split_ps: Floats  # (memory, category): data-bus time so far
    own_ps: Floats  # data-bus time of each port's bytes so far
    work: Floats
    active: Ints  # ports with a flow
    left: Floats  # (memory, 1 + channel): share of time left; column 0 is the least of them
    load: Floats  # (memory, 1 + channel): column 0 is flows on all channels


def make_tables(buses_of_ports: list[int], data_buses: list[int], channels: list[int]) -> Tables:
    """Empty tables for ports (their buses) and memories (data buses, channels)."""
    num_ports, num_mems = len(buses_of_ports), len(data_buses)
    ports = np.full((num_ports, PORT_INTS), NONE, dtype=np.int64)
    ports[:, PI_BUS] = buses_of_ports
    memories = np.zeros((num_mems, MEMORY_FLOATS))
    memories[:, MF_BUSES] = data_buses
    columns = 1 + max(count if count <= MAX_CHANNELS else 1 for count in channels)
    widest = max(num_ports, 2 * (max(buses_of_ports) + 1), 2 * num_mems)
    return Tables(
        flows=np.zeros((256, FLOW_INTS), dtype=np.int64),
        amounts=np.zeros((256, FLOW_FLOATS)),
        ports=ports,
        classes=np.zeros((16, CLASS_FLOATS)),
        memories=memories,
        split_ps=np.zeros((num_mems, NUM_CATEGORIES)),
        own_ps=np.zeros(num_ports),
        work=np.zeros((WORK_ROWS, widest)),
        active=np.zeros(num_ports, dtype=np.int64),
        left=np.zeros((num_mems, columns)),
        load=np.zeros((num_mems, columns)),
    )
