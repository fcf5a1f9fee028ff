"""One operator alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.analytic.bounds import phase_bound_ps
from npusim.compiler.compile import compile_graph
from npusim.compiler.target import Target
from npusim.compiler.unit_timing import matrix_folds
from npusim.config.compiler import CompilerConfig
from npusim.config.run_spec import Fidelity, RunSpec, SimulationConfig, WorkloadConfig
from npusim.engine import FixedLatencyMemory
from npusim.errors import ConfigError
from npusim.program import Opcode
from npusim.results.operator import OperatorResult
from npusim.simulation.approximations import model_approximations
from npusim.simulation.arguments import settings_of, system_of
from npusim.simulation.memories import check_capacity, peak_bytes_per_s
from npusim.simulation.phase import Simulated, simulate_graph
from npusim.simulation.records import PhaseFacts, phase_record
from npusim.simulation.run import executor_of
from npusim.workload.primitives import primitive_graph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.config.system import SystemConfig
    from npusim.program import Program
    from npusim.simulation.piece import Piece
    from npusim.workload.graph import OperatorGraph


def simulate_operator(
    system: SystemConfig | str,
    op: str,
    shape: str,
    *,
    batch: int = 1,
    quant: str = "w16a16",
    ideal_memory: bool = False,
    compiler: CompilerConfig | Mapping[str, object] | None = None,
    simulation: SimulationConfig | Mapping[str, object] | None = None,
) -> OperatorResult:
    """Simulate one operator alone, launch included.

    Parameters
    ----------
    system : SystemConfig or str
        A system, its name in ``hwconfigs/`` or a path.
    op, shape : str
        Kind and sizes, see `primitive_graph`.
    compiler, simulation : optional
        Settings, as `CompilerConfig` and `SimulationConfig` or as mappings of their keys.
    ideal_memory : bool
        Memory answers at once and operand paths cost nothing: what the units alone need.

    Raises
    ------
    WorkloadError, ConfigError, MappingError
        If the operator or a setting is wrong, or it does not fit.
    """
    system = system_of(system)
    spec = operator_spec(system, batch, quant, compiler, simulation)
    executor_of(spec.simulation)
    check_capacity(system)
    if spec.simulation.fidelity is Fidelity.ANALYTIC:
        raise ConfigError(
            "simulation.fidelity", "an operator is simulated at burst or transfer", "analytic"
        )
    graph = primitive_graph(op, shape, batch, quant)
    compiled, piece, executed = simulate_graph(
        graph,
        spec,
        cached_tokens=0,
        kv_capacity_tokens=0,
        memory=FixedLatencyMemory(0) if ideal_memory else None,
    )
    peaks = peak_bytes_per_s(system)
    bound = phase_bound_ps(graph, system, spec.compiler, peaks)
    bound_ps = bound.compute_ps if ideal_memory else bound.elapsed_ps
    tally = piece.tally(0, piece.num_kernels).plus(executed.totals)
    facts = PhaseFacts(
        name="operator",
        tokens=1,
        steps=1,
        bound_ps=bound_ps,
        footprint_bytes=compiled.footprint_bytes,
        approximations=model_approximations(spec, compiled, graph),
        is_memory_ideal=ideal_memory,
    )
    record = phase_record(facts, tally, Simulated(tally, piece, compiled, graph, bound_ps), spec)
    return OperatorResult(
        phase=record,
        compute_cycles=_compute_cycles(piece),
        folds=_folds(graph, system, spec),
        macs=graph.macs,
        bound_ps=bound_ps,
        is_memory_ideal=ideal_memory,
    )


def compile_operator(
    system: SystemConfig | str,
    op: str,
    shape: str,
    *,
    batch: int = 1,
    quant: str = "w16a16",
    compiler: CompilerConfig | Mapping[str, object] | None = None,
) -> Program:
    """Program of one operator, as `simulate_operator` runs it."""
    graph = primitive_graph(op, shape, batch, quant)
    system = system_of(system)
    settings = settings_of(CompilerConfig, compiler, "compiler")
    return compile_graph(graph, system, settings, peak_bytes_per_s(system)).program


def operator_spec(
    system: SystemConfig,
    batch: int,
    quant: str,
    compiler: CompilerConfig | Mapping[str, object] | None,
    simulation: SimulationConfig | Mapping[str, object] | None,
) -> RunSpec:
    """A run specification whose workload carries batch and precision only."""
    return RunSpec(
        system=system,
        workload=WorkloadConfig(model="operator", prompt_len=1, batch=batch, quant=quant),
        compiler=settings_of(CompilerConfig, compiler, "compiler"),
        simulation=settings_of(SimulationConfig, simulation, "simulation"),
    )


def _compute_cycles(piece: Piece) -> int:
    """Busy cycles of products on the busiest engine: commands never overlap on one engine.

    Products run on matrix units, those of one row on a vector unit where the device says so.
    """
    program = piece.program
    products = np.flatnonzero((program.opcode == Opcode.MATMUL) | (program.macs > 0))
    ticks = np.zeros(len(program.engines), dtype=np.int64)
    np.add.at(ticks, program.engine[products], program.duration_ticks[products])
    return int(-(-ticks.max() // program.ticks_per_cycle))


def _folds(graph: OperatorGraph, system: SystemConfig, spec: RunSpec) -> int:
    """Passes over the array, over all cores: of every whole operator, not of its tiles."""
    target = Target(system, peak_bytes_per_s(system), spec.compiler.max_cores)
    total = 0
    for operator in graph:
        if operator.matmul is not None and operator.compute_dtype is not None:
            dtype = target.compute_dtype(operator.compute_dtype, operator.name)
            shape = operator.matmul
            folds = matrix_folds(target.core.matrix, dtype, shape.m, shape.k, shape.n)
            total += shape.batch * int(folds)
    return total
