"""Helpers and bad values of the config tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from npusim.config.loader import load_system
from npusim.errors import ConfigError


def edited(folder: Path, text: str, old: str, new: str, name: str = "mine.yaml") -> Path:
    """File with one change, which must apply."""
    assert old in text
    path = folder / name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def line_of(path: Path, fragment: str) -> int:
    """Number of the first line with a fragment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if fragment in line)


def refusal(path: Path | str) -> ConfigError:
    """What `load_system` says."""
    with pytest.raises(ConfigError) as caught:
        load_system(path)
    return caught.value


BAD_VALUES = [
    (
        "clock_hz: 1.5 GHz\n    bus:",
        "clock: 1.5 GHz\n    bus:",
        "clock: 1.5 GHz",
        ["devices.npu.clock: unknown key", "'clock'", "did you mean 'clock_hz'?"],
    ),
    (
        "queue_depth: 8\n",
        "queue_dept: 8\n",
        "queue_dept: 8",
        ["devices.npu.core.dma.queue_dept: unknown key", "did you mean 'queue_depth'?", "1 more"],
    ),
    (
        "capacity_bytes: 1 MiB",
        "capacity_bytes: 1048576",
        "capacity_bytes: 1048576",
        ["scratchpad.capacity_bytes: needs a unit", "1048576", "for example '64 KiB'"],
    ),
    (
        "capacity_bytes: 1 MiB",
        "capacity_bytes: '1048576'",
        "capacity_bytes: '1048576'",
        ["scratchpad.capacity_bytes", "has no unit", "64 KiB"],
    ),
    (
        "clock_hz: 1.5 GHz\n    bus:",
        "clock_hz: 1.5 GiB\n    bus:",
        "clock_hz: 1.5 GiB",
        ["devices.npu.clock_hz", "'GiB'", "1.8 GHz"],
    ),
    (
        "clock_hz: 1.5 GHz\n    bus:",
        "clock_hz: 1.5 Ghz\n    bus:",
        "clock_hz: 1.5 Ghz",
        ["devices.npu.clock_hz", "did you mean 'GHz'?"],
    ),
    (
        "port_bytes: 32 B",
        "port_bytes: -32 B",
        "port_bytes: -32 B",
        ["scratchpad.port_bytes", "negative", "-32 B"],
    ),
    (
        "port_bytes: 32 B",
        "port_bytes: 0 B",
        "port_bytes: 0 B",
        ["scratchpad.port_bytes: must be greater than 0", "'0 B'"],
    ),
    (
        "port_bytes: 32 B",
        "port_bytes: 0.5 B",
        "port_bytes: 0.5 B",
        ["scratchpad.port_bytes", "whole number", "0.5 B"],
    ),
    ("cores: 4", "cores: 0", "cores: 0", ["devices.npu.cores: must be greater than 0 (got 0)"]),
    ("cores: 4", "cores: -4", "cores: -4", ["devices.npu.cores: must be greater than 0 (got -4)"]),
    ("cores: 4", "cores: 4.0", "cores: 4.0", ["devices.npu.cores: must be a whole number"]),
    ("cores: 4", "cores: true", "cores: true", ["devices.npu.cores: must be a whole number"]),
    ("cores: 4", "cores: '4'", "cores: '4'", ["devices.npu.cores: must be a whole number"]),
    ("cores: 4", "cores: 4 cores", "4 cores", ["must be a whole number", "'4 cores'"]),
    ("cores: 4", "cores: .inf", "cores: .inf", ["cores: is not a finite number", "'.inf'"]),
    ("cores: 4", "cores: 99999", "cores: 99999", ["devices.npu.cores: must be at most 4096"]),
    (
        "latency_cycles: 8 cycles",
        "latency_cycles: 8.5 cycles",
        "latency_cycles: 8.5",
        ["vector.latency_cycles: must be a whole number of cycles", "8.5 cycles"],
    ),
    (
        "bf16: {m: 8",
        "fp17: {m: 8",
        "fp17: {m: 8",
        ["matrix.cube.fp17: unknown key", "did you mean 'fp16'?"],
    ),
    ("k: 64", "k: 0", "k: 0", ["cube.int4.k: must be greater than 0 (got 0)"]),
    (
        "kind: cube\n        units",
        "kind: cubes\n        units",
        "kind: cubes",
        ["matrix.kind: must be one of systolic, cube", "'cubes'", "did you mean 'cube'?"],
    ),
    (
        "launch: graph",
        "launch: nothing",
        "launch: nothing",
        ["host.launch: must be one of eager, graph", "'nothing'"],
    ),
    (
        "posted_writes: true",
        "posted_writes: yes",
        "posted_writes: yes",
        ["posted_writes: must be true or false", "'yes'"],
    ),
    (
        "write_high_frac: 0.8",
        "write_high_frac: 80",
        "write_high_frac: 80",
        ["write_high_frac: must be at most 1", "80"],
    ),
    (
        "write_low_frac: 0.2",
        "write_low_frac: 0.9",
        "write_low_frac: 0.9",
        ["write_low_frac: must be below write_high_frac=0.8", "0.9"],
    ),
    (
        "channels: 8",
        "channels: 6",
        "channels: 6",
        ["memories.dram.channels: must be a power of two (got 6)"],
    ),
    (
        "channel_interleave_bytes: 256 B",
        "channel_interleave_bytes: 300 B",
        "channel_interleave_bytes: 300 B",
        ["channel_interleave_bytes: must be a power of two (got 300)"],
    ),
    (
        "capacity_bytes: 16 GiB",
        "capacity_bytes: 1000000001 B",
        "capacity_bytes: 1000000001 B",
        ["memories.dram.capacity_bytes: must be a multiple of", "1000000001"],
    ),
    (
        "banks: 8\n",
        "banks: 7\n",
        "banks: 7",
        ["shared_sram.banks: must be a power of two (got 7)"],
    ),
    (
        "banks: 16\n",
        "banks: 7\n",
        "capacity_bytes: 1 MiB",
        ["scratchpad.capacity_bytes: must be a multiple of banks=7", "1048576"],
    ),
    (
        "data_bits: 1024 bit",
        "data_bits: 24 bit",
        "data_bits: 24 bit",
        ["buses.axi.data_bits: must be a power of two (got 24)"],
    ),
    (
        "max_burst_beats: 32",
        "max_burst_beats: 257",
        "max_burst_beats: 257",
        ["buses.axi.max_burst_beats: must be at most 256 (got 257)"],
    ),
    (
        "memory: dram",
        "memory: drum",
        "memory: drum",
        ["buses.axi.memory: must name something", "'drum'", "did you mean 'dram'?"],
    ),
    (
        "bus: axi",
        "bus: xia",
        "bus: xia",
        ["devices.npu.bus: must name something", "'xia'", "axi"],
    ),
    (
        "dram_bytes_per_cycle: 64 B/cycle",
        "dram_bytes_per_cycle: 256 B/cycle",
        "dram_bytes_per_cycle: 256",
        ["dma.dram_bytes_per_cycle: must not exceed bytes_per_cycle=128 (got 256)"],
    ),
    (
        "exp: 4 cycles",
        "expo: 4 cycles",
        "expo: 4 cycles",
        ["op_cycles.expo: is no operation", "did you mean 'exp'?"],
    ),
    (
        "          exp: 4 cycles\n",
        "",
        "op_cycles:",
        ["vector.op_cycles: lacks the operation 'exp'"],
    ),
    (
        "      convert:\n        elems_per_cycle: 64\n        fixed_cycles: 1.8 cycles\n",
        "",
        "weight_dequant: convert_unit",
        ["core.weight_dequant: needs a convert block", "convert_unit"],
    ),
    (
        "          fp32: 32\n          fp16: 64\n",
        "",
        "lanes:",
        ["vector.lanes: must have fp16 or fp32", "bf16"],
    ),
    ("name: edge-npu", "name: Edge NPU!", "name: Edge", ["name: must be lower-case", "Edge NPU!"]),
    (
        "  dram:\n",
        "  DRAM:\n",
        "DRAM:",
        ["memories.DRAM: a name needs lower-case letters", "'DRAM'"],
    ),
    (
        "    barrier_cycles: 16 cycles\n",
        "",
        "  npu:",
        ["devices.npu.barrier_cycles: is required", "1.8 cycles"],
    ),
    (
        "    cores: 4\n",
        "    cores: 4\n    cores: 5\n",
        "cores: 5",
        ["cores: duplicate key", "line"],
    ),
    ("cores: 4", "cores: [4]", "cores: [4]", ["devices.npu.cores: must be a whole number"]),
    ("description: >-", "description: [1]\nx: >-", "x: >-", ["x: unknown key", "'x'"]),
]
