"""Small valid records, made by hand, for the tests of results, report and command line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npusim.results.records import (
    Approximation,
    BarrierRecord,
    EngineRecord,
    MemoryRecord,
    OperatorRecord,
    PhaseRecord,
    SpanTable,
    SramRecord,
    StageRecord,
)
from npusim.results.run import RunResult


def tiny_spans(count=4, truncated=False):
    """`count` spans of 250 ps, engines in turn, every third one a stall."""
    index = np.arange(count)
    start = index * 250
    is_stall = index % 3 == 2
    return SpanTable(
        engines=("npu.c0.dma", "npu.c0.matrix"),
        labels=("q_proj", "lm_head", "dram_data"),
        stages=("attention", "lm_head"),
        engine=(index % 2).astype(np.int32),
        start_ps=start.astype(np.int64),
        end_ps=(start + 250).astype(np.int64),
        label=np.where(is_stall, 2, index % 2).astype(np.int32),
        stage=np.where(is_stall, -1, index % 2).astype(np.int32),
        is_stall=is_stall,
        queue=np.zeros(count, dtype=np.int32),
        truncated=truncated,
    )


def tiny_phase(phase="decode", steps=2, spans=True):
    """A phase of 1001 ps: 700 + 301 by stage, 64 + 32 bytes of DRAM traffic, 60 MACs."""
    return PhaseRecord(
        phase=phase,
        elapsed_ps=1001,
        clock="npu",
        clock_hz=2_000_000_000,  # 500 ps: 3 cycles touched
        bound_ps=900,
        tokens=steps,
        steps=steps,
        commands=4,
        kernels=2,
        macs=60,
        peak_macs_per_cycle=100,
        stages=(
            StageRecord("attention", 700, 800, 40, 64, "dram", 10, 1),
            StageRecord("lm_head", 301, 301, 20, 32, "compute", 0, 1),
        ),
        operators=(
            OperatorRecord("layers.0.q_proj", "attention", 0, 700, 800, 40, 64, 3),
            OperatorRecord("lm_head", "lm_head", None, 301, 301, 20, 32, 1),
        ),
        engines=(
            EngineRecord("host", "host", "host", None, 1, 1000, {}, 1),
            EngineRecord("npu.c0.dma", "dma_load", "npu", 0, 600, 101, {"buffer_full": 300}, 1),
            EngineRecord(
                "npu.c0.matrix", "matrix", "npu", 0, 501, 0, {"launch": 100, "dram_data": 400}, 2
            ),
        ),
        memories=(
            MemoryRecord(
                name="dram",
                kind="dram",
                read_bytes=64,
                write_bytes=32,
                bytes_by_role={"weight": 64, "kv": 32},
                accesses=3,
                row_hits=1,
                row_misses=1,
                row_conflicts=1,
                refreshes=0,
                peak_bytes_per_s=100_000_000_000,
                footprint_bytes=4096,
                capacity_bytes=8192,
            ),
        ),
        sram=(
            SramRecord("npu.c0.scratchpad", 30, 120, 5, 512, 1024),
            SramRecord("npu.c1.scratchpad", 0, 0, 0, 0, 1024),
        ),
        barriers=(BarrierRecord("npu.r0.b0", 2, 40),),
        approximations=(Approximation("fold", "layers", 0.001, "spread of 3 layers"),),
        kernels_per_layer=7.5,
        spans=tiny_spans() if spans else None,
        bandwidth=(("dram", 500, np.array([48, 32, 16], dtype=np.int64)),),
        log=("tiling: q_proj 1x64x64", "allocation: 4096 bytes"),
    )


def tiny_run(**changes):
    """A prefill and two decode steps of a model of 100 bytes."""
    values = {
        "npusim_version": "0.1.0",
        "seed": 7,
        "fidelity": "burst",
        "executor": "simpy",
        "overrides": (),
        "hashes": dict.fromkeys(
            ("system", "workload", "compiler", "simulation", "program"), "0" * 64
        ),
        "system": "tiny-npu",
        "clock": "npu",
        "workload": {
            "model": "tiny",
            "parameters": 60,
            "weight_bytes": 100,
            "weight_bytes_by_dtype": {"int8": 60, "bf16": 40},
            "kv_bytes_per_token": 16,
            "quant": "w8a8",
            "kv_dtype": "int8",
            "batch": 1,
            "prompt_len": 5,
            "context_len": None,
            "generate_len": 3,
        },
        "ttft_ps": 1001,
        "phases": {"prefill": replace(tiny_phase("prefill", 1), tokens=5), "decode": tiny_phase()},
        "wall_s": 0.25,
    }
    return RunResult(**{**values, **changes})
