"""Compile the memory kernels into numba's cache once, so that parallel tests need not."""

from __future__ import annotations

import numpy as np

from npusim.config.loader import load_system
from npusim.memory.dram.timing import load_dram_device
from npusim.memory.replay import replay_trace
from npusim.simulation import simulate_operator

simulate_operator(load_system("rk3588"), "matmul", "8x64x64", quant="w8a8")
zeros = np.zeros(1, dtype=np.int64)
replay_trace(zeros, zeros, zeros, load_dram_device("DDR4-3200"), "BGlow")
