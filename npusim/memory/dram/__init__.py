"""DRAM: timing tables, address maps and the FR-FCFS controller."""
