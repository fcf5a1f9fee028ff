"""Buses, DRAM and SRAM as one compiled kernel with packed state.

Importing this package loads numba; nothing in `npusim` does so before a memory is needed.
"""
