"""The cases of `run.py`; each prints one JSON object of figures."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from npusim.config.run_spec import SimulationConfig

MIB = 1 << 20


def import_time() -> dict[str, float]:
    """Wall time of ``import npusim`` and ``npusim --help`` in a fresh interpreter."""
    return {
        "import_s": _wall([sys.executable, "-c", "import npusim"]),
        "help_s": _wall([sys.executable, "-m", "npusim", "--help"]),
        "bare_interpreter_s": _wall([sys.executable, "-c", "pass"]),
    }


def commands() -> dict[str, float]:
    """SimPy machine alone: alternating loads and products over a memory of fixed latency."""
    from npusim.engine import FixedLatencyMemory
    from npusim.machine.system import Machine
    from npusim.program import (
        EdgeKind,
        Engine,
        EngineKind,
        Kernel,
        MemorySpace,
        Opcode,
        ProgramBuilder,
    )

    count = 50_000
    period = Fraction(1000)
    engines = (
        Engine("load", EngineKind.DMA_LOAD, "npu", 0, period, queue_depth=4, port=0),
        Engine("matrix", EngineKind.MATRIX, "npu", 0, period),
    )
    spaces = (MemorySpace("dram", "dram", 1 << 30, 0),)
    builder = ProgramBuilder(engines, [Kernel("k", "op", "stage", None)], spaces)
    order = np.arange(count, dtype=np.int64) * 2
    loads = builder.commands(count, engine=0, opcode=Opcode.LOAD, kernel=0, order=order)
    products = builder.commands(
        count, engine=1, opcode=Opcode.MATMUL, kernel=0, order=order + 1, duration_ticks=100
    )
    builder.edges(products, loads, EdgeKind.DATA)
    builder.edges(loads[2:], products[:-2], EdgeKind.BUFFER_FREE)
    runs = np.tile(np.array([[0, 4096, 0, 1]], dtype=np.int64), (count, 1))
    builder.transfers(loads, space=0, is_write=False, role="weight", runs=runs)
    machine = Machine(builder.build(), FixedLatencyMemory(150_000))
    started = time.process_time()
    machine.run()
    return {"commands_per_s": 2 * count / (time.process_time() - started)}


def bursts() -> dict[str, float]:
    """Burst kernel alone, one port of rk3588's memory: a stream, and random 64-byte reads."""
    figures = {}
    for name, nbytes in (("stream", 64 * MIB), ("random", 8 * MIB)):
        memory = _memory("rk3588")
        _drive(memory, _runs(name, 64 * 1024))
        before = memory.memory_counters(0)["accesses"]
        started = time.process_time()
        _drive(memory, _runs(name, nbytes))
        spent = time.process_time() - started
        figures[f"{name}_bursts_per_s"] = (memory.memory_counters(0)["accesses"] - before) / spent
    return figures


def llama_decode() -> dict[str, float]:
    """Llama-3.1-8B, 16 bit, one decode step at context 512 on tpu-v6e, burst fidelity, folded."""
    from npusim.config.run_spec import SimulationConfig

    return _decode_step("llama-3.1-8b", SimulationConfig(max_spans=0))


def qwen_decode_transfer() -> dict[str, float]:
    """Qwen2-1.5B, w8a8, one decode step at context 512 on rk3588, transfer fidelity, folded."""
    from npusim.config.run_spec import Fidelity, SimulationConfig

    settings = SimulationConfig(max_spans=0, fidelity=Fidelity.TRANSFER)
    return _decode_step("qwen2-1.5b", settings, system="rk3588", quant="w8a8")


def _decode_step(
    model: str, settings: SimulationConfig, system: str = "tpu-v6e", quant: str = "w16a16"
) -> dict[str, float]:
    import npusim as ns

    small = ns.transformer("smollm2-135m", phase="decode", context_len=16, quant=quant)
    ns.simulate(system, small, simulation=settings)  # loads compiled code and pattern efficiencies
    workload = ns.transformer(model, phase="decode", context_len=512, quant=quant)
    started = time.process_time()
    result = ns.simulate(system, workload, simulation=settings)
    return {
        "cpu_s": time.process_time() - started,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB,
        "simulated_ms": result.elapsed_ps / 1e9,
        "commands": float(result.phases["decode"].commands),
    }


def _memory(system: str):  # type: ignore[no-untyped-def]  # the class loads numba
    from npusim.compiler.target import Target
    from npusim.config.loader import load_system
    from npusim.config.run_spec import Fidelity
    from npusim.simulation.memories import build_memory, peak_bytes_per_s

    config = load_system(system)
    return build_memory(config, Target(config, peak_bytes_per_s(config)), Fidelity.BURST)


def _runs(pattern: str, nbytes: int) -> np.ndarray:
    if pattern == "stream":
        return np.array([[0, nbytes, 0, 1]], dtype=np.int64)
    count = nbytes // 64
    base = np.random.default_rng(0).integers(0, (256 * MIB) // 64, count) * 64
    ones = np.ones(count, dtype=np.int64)
    return np.stack((base, 64 * ones, 0 * ones, ones), axis=1)


def _drive(memory, runs: np.ndarray) -> None:  # type: ignore[no-untyped-def]
    memory.submit(memory.clock_ps, 0, 0, False, runs)
    while memory.pending:
        memory.advance(None)


def _wall(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


CASES: dict[str, Callable[[], dict[str, float]]] = {
    case.__name__: case
    for case in (import_time, commands, bursts, qwen_decode_transfer, llama_decode)
}

if __name__ == "__main__":
    print(json.dumps(list(CASES) if sys.argv[1] == "--list" else CASES[sys.argv[1]]()))
