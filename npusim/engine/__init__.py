"""SimPy plumbing: clocks, co-simulation with a memory, run-until-done, spans, stall causes."""

from npusim.engine.clock import Clock
from npusim.engine.component import Component
from npusim.engine.kernel import ATTRIBUTION_CATEGORIES, FixedLatencyMemory, MemoryKernel
from npusim.engine.runner import CoSimEnvironment, run_until_done
from npusim.engine.stall import StallCause

__all__ = [
    "ATTRIBUTION_CATEGORIES",
    "Clock",
    "CoSimEnvironment",
    "Component",
    "FixedLatencyMemory",
    "MemoryKernel",
    "StallCause",
    "run_until_done",
]
