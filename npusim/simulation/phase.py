"""One phase: compile, simulate, fold identical layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.analytic.bounds import phase_bound_ps
from npusim.compiler.compile import Compiled, compile_graph
from npusim.results.records import Approximation
from npusim.simulation.execute import execute, target_of
from npusim.simulation.memories import peak_bytes_per_s
from npusim.simulation.piece import Piece, Rates
from npusim.simulation.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from npusim.compiler.target import Target
    from npusim.config.run_spec import RunSpec
    from npusim.config.system import SystemConfig
    from npusim.engine import MemoryKernel
    from npusim.simulation.execute import Execute, Executed
    from npusim.workload.graph import OperatorGraph

#: repeat units averaged at first
_FIRST_WINDOW = 4
_WARM_UP_UNITS = 1
_TAIL_UNITS = 1


@dataclass(frozen=True)
class GraphSource:
    """Builds one phase's graph over the first n layers.

    `unit_layers` is the repeat unit: after the first `prefix_layers` (dense ones before the layers
    with experts, say) the layers of a model repeat with this period.
    """

    name: str
    build: Callable[[int], OperatorGraph]
    num_layers: int
    prefix_layers: int
    unit_layers: int
    cached_tokens: int
    kv_capacity_tokens: int


@dataclass(frozen=True)
class Simulated:
    """A phase's counts, with the program they come from."""

    tally: Tally
    piece: Piece
    compiled: Compiled
    graph: OperatorGraph
    bound_ps: int
    approximations: tuple[Approximation, ...] = ()
    is_memory_ideal: bool = False


def simulate_source(source: GraphSource, spec: RunSpec, run: Execute = execute) -> Simulated:
    """Simulate a phase, folded if `simulation.fold` allows and there is enough to fold.

    Folding: layers ``1 .. w`` of a shorter model are the steady window; its counts are added
    ``(L - n) / w`` times. Addresses are those of the whole model. w doubles up to `fold_max_units`
    until the standard error of the mean layer time is within `fold_tolerance_frac` of it.
    """
    units, rest = divmod(source.num_layers - source.prefix_layers, source.unit_layers)
    whole = source.build(source.num_layers)
    if not spec.simulation.fold or rest:
        return _whole(source, spec, whole, run)
    largest = spec.simulation.fold_max_units
    window = min(_FIRST_WINDOW, largest)
    while True:
        simulated_units = _units_to_simulate(units, window)
        if simulated_units >= units:
            return _whole(source, spec, whole, run)
        folded, error = _folded(source, spec, whole, window, simulated_units, run)
        if error <= spec.simulation.fold_tolerance_frac or window >= largest:
            return folded
        window = min(2 * window, largest)


def simulate_graph(
    graph: OperatorGraph,
    spec: RunSpec,
    *,
    cached_tokens: int,
    kv_capacity_tokens: int,
    memory: MemoryKernel | None = None,
    whole: OperatorGraph | None = None,
    run: Execute = execute,
) -> tuple[Compiled, Piece, Executed]:
    """Compile and run one graph; `whole` is the model that it has the first layers of.

    Returns
    -------
    compiled, piece, executed
        The compiled program, its execution cut by kernels, and as a whole.
    """
    system = spec.system
    compiled = compile_graph(
        graph,
        system,
        spec.compiler,
        peak_bytes_per_s(system),
        kv_capacity_tokens=kv_capacity_tokens,
        cached_tokens=cached_tokens,
        ideal_memory=memory is not None,
        whole=whole,
    )
    executed = run(compiled.program, spec, memory)
    piece = Piece(executed.program, executed.execution, rates_of(system, target_of(spec)))
    return compiled, piece, executed


def rates_of(system: SystemConfig, target: Target) -> Rates:
    """Peak rates of a device's paths, in bytes per second."""
    bus = system.buses[target.device.bus]
    shared = target.device.shared_sram
    clock_hz = target.device.clock_hz
    return Rates(
        dram=peak_bytes_per_s(system)[target.dram_name],
        bus=bus.data_bits // 8 * bus.clock_hz,
        core_dma=target.core.dma.dram_bytes_per_cycle * clock_hz,
        shared_sram=shared.banks * shared.port_bytes * clock_hz if shared else 0,
    )


def _units_to_simulate(units: int, window: int) -> int:
    """Warm-up, window and tail, plus what keeps the rest a multiple of the window."""
    least = _WARM_UP_UNITS + window + _TAIL_UNITS
    return least + max(units - least, 0) % window


def _whole(source: GraphSource, spec: RunSpec, graph: OperatorGraph, run: Execute) -> Simulated:
    compiled, piece, executed = simulate_graph(
        graph,
        spec,
        cached_tokens=source.cached_tokens,
        kv_capacity_tokens=source.kv_capacity_tokens,
        run=run,
    )
    tally = piece.tally(0, piece.num_kernels).plus(executed.totals)
    bound_ps = _bound(graph, spec, executed)
    return Simulated(
        tally, piece, compiled, graph, bound_ps, is_memory_ideal=executed.is_memory_ideal
    )


def _folded(
    source: GraphSource,
    spec: RunSpec,
    model: OperatorGraph,
    window: int,
    simulated_units: int,
    run: Execute,
) -> tuple[Simulated, float]:
    simulated_layers = source.prefix_layers + simulated_units * source.unit_layers
    graph = source.build(simulated_layers)
    compiled, piece, executed = simulate_graph(
        graph,
        spec,
        cached_tokens=source.cached_tokens,
        kv_capacity_tokens=source.kv_capacity_tokens,
        whole=model,
        run=run,
    )
    borders = _unit_borders(piece, source)
    first, last = borders[_WARM_UP_UNITS], borders[_WARM_UP_UNITS + window]
    units = (source.num_layers - source.prefix_layers) // source.unit_layers
    repeats = (units - simulated_units) // window
    steady = piece.tally(first, last)
    whole = piece.tally(0, piece.num_kernels)
    times = [
        piece.elapsed_ps(borders[i], borders[i + 1])
        for i in range(_WARM_UP_UNITS, _WARM_UP_UNITS + window)
    ]
    error = _relative_error(times)
    note = Approximation(
        kind="layer_folding",
        scope=source.name,
        estimated_error_frac=error,
        basis=f"{simulated_layers} of {source.num_layers} layers simulated; "
        f"{window} steady repeat units, mean {sum(times) // window} ps, added {repeats} times",
    )
    steady_totals = Tally(
        {
            key: count * steady["phase", "elapsed_ps"] // whole["phase", "elapsed_ps"]
            for key, count in executed.totals.counts.items()
        }
    )
    total = whole.plus(executed.totals).plus(steady, repeats).plus(steady_totals, repeats)
    bound_ps = _bound(model, spec, executed)
    simulated = Simulated(
        total, piece, compiled, graph, bound_ps, (note,), executed.is_memory_ideal
    )
    return simulated, error


def _unit_borders(piece: Piece, source: GraphSource) -> list[int]:
    """First kernel of every repeat unit, and the kernel after the last one."""
    layers = [kernel.layer for kernel in piece.program.kernels]
    last_layer = max(layer for layer in layers if layer is not None)
    units = range(source.prefix_layers, last_layer + 1, source.unit_layers)
    firsts = [layers.index(layer) for layer in units]
    after = len(layers) - layers[::-1].index(last_layer)
    return [*firsts, after]


def _relative_error(times: list[int]) -> float:
    """Standard error of the mean of the units' times, relative to it."""
    mean = sum(times) / len(times)
    variance = sum((time - mean) ** 2 for time in times) / (len(times) - 1)
    return float((variance / len(times)) ** 0.5 / mean) if mean else 0.0


def _bound(graph: OperatorGraph, spec: RunSpec, executed: Executed) -> int:
    """Closed-form bound; none where a cost was taken away."""
    if executed.is_ideal:
        return 0
    peaks = peak_bytes_per_s(spec.system)
    return phase_bound_ps(graph, spec.system, spec.compiler, peaks).elapsed_ps
