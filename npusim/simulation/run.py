"""A whole run: prefill, decode, and what they have in common."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from npusim._version import __version__
from npusim.compiler.compile import compile_graph
from npusim.config.compiler import CompilerConfig
from npusim.config.hashing import spec_hash
from npusim.config.run_spec import Executor, Fidelity, RunSpec, SimulationConfig, WorkloadConfig
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.program import Program
from npusim.results.records import Approximation, PhaseRecord
from npusim.results.run import RunResult
from npusim.simulation.approximations import model_approximations
from npusim.simulation.arguments import check_workload, settings_of, system_of
from npusim.simulation.closed_form import closed_form_record, closed_form_tally
from npusim.simulation.decode import estimate_decode
from npusim.simulation.footprint import check_footprint, footprint_bytes
from npusim.simulation.memories import check_capacity, peak_bytes_per_s
from npusim.simulation.phase import GraphSource, Simulated, simulate_source
from npusim.simulation.records import PhaseFacts, phase_record
from npusim.simulation.tally import weighted_sum
from npusim.simulation.workloads import workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from npusim.simulation.workloads import AnyWorkload
    from npusim.workload.workload import Workload


class Progress(Protocol):
    """Told how far a run is."""

    def update(self, phase: str, done: float, text: str) -> None:
        """`done` runs from 0 to 1 within a phase."""


class NoProgress:
    """Ignores progress."""

    def update(self, phase: str, done: float, text: str) -> None:
        """Do nothing."""


def simulate_run(spec: RunSpec, progress: Progress | None = None) -> RunResult:
    """Simulate the phases of a run.

    Parameters
    ----------
    spec : RunSpec
        System, workload, compiler and simulation settings.
    progress : Progress, optional
        Told how far the run is.

    Raises
    ------
    ConfigError, WorkloadError, MappingError
        If the run cannot start: something is wrong, too large or not supported.
    SimulationError
        If a simulation broke one of its invariants.
    """
    return _Run(spec, workload_of(spec), progress).run()


def simulate(
    system: SystemConfig | str,
    workload: Workload,
    *,
    compiler: CompilerConfig | Mapping[str, object] | None = None,
    simulation: SimulationConfig | Mapping[str, object] | None = None,
) -> RunResult:
    """Simulate a workload on a system.

    Parameters
    ----------
    system : SystemConfig or str
        A system, its name in ``hwconfigs/`` or a path.
    workload : Workload
        From `transformer`.
    compiler, simulation : optional
        Settings, as `CompilerConfig` and `SimulationConfig` or as mappings of their keys.

    Raises
    ------
    NpusimError
        If an argument is wrong, or the run cannot start.
    """
    check_workload(workload)
    spec = RunSpec(
        system=system_of(system),
        workload=WorkloadConfig(
            model=workload.model.name,
            prompt_len=workload.prompt_len,
            context_len=workload.context_len,
            generate_len=workload.generate_len,
            batch=workload.batch,
            quant=workload.quant.name,
            kv_dtype=workload.kv_dtype,
            expert_routing=workload.routing.text,
        ),
        compiler=settings_of(CompilerConfig, compiler, "compiler"),
        simulation=settings_of(SimulationConfig, simulation, "simulation"),
    )
    return _Run(spec, workload, None).run()


def compile_run(spec: RunSpec, phase: str) -> Program:
    """Program of one phase, or of the first decode step, over all layers.

    Raises
    ------
    ConfigError
        If the run has no such phase.
    """
    workload = workload_of(spec)
    run = _Run(spec, workload, None)
    if phase not in [p.value for p in workload.phases]:
        raise ConfigError(
            "phase", f"this run has {', '.join(p.value for p in workload.phases)}", phase
        )
    source = (
        run.prefill_source()
        if phase == "prefill"
        else run.decode_source(workload.decode_contexts.start)
    )
    return compile_graph(
        source.build(source.num_layers),
        spec.system,
        spec.compiler,
        peak_bytes_per_s(spec.system),
        kv_capacity_tokens=source.kv_capacity_tokens,
        cached_tokens=source.cached_tokens,
    ).program


def executor_of(simulation: SimulationConfig) -> str:
    """What will run the program.

    Raises
    ------
    ConfigError
        For the compiled executor, which this version does not have, or for an executor that the
        fidelity does not use.
    """
    if simulation.executor is Executor.COMPILED:
        raise ConfigError(
            "simulation.executor",
            "this version executes programs on the SimPy machine only",
            simulation.executor.value,
            "use 'auto' or 'simpy'",
        )
    if simulation.fidelity is Fidelity.ANALYTIC:
        if simulation.executor is Executor.SIMPY:
            raise ConfigError(
                "simulation.executor",
                "fidelity 'analytic' evaluates closed forms and executes nothing",
                simulation.executor.value,
                "use 'auto'",
            )
        return "closed_form"
    return Executor.SIMPY.value


class _Run:
    """Phases of one run and what they share."""

    def __init__(self, spec: RunSpec, workload: AnyWorkload, progress: Progress | None) -> None:
        self._spec, self._workload = spec, workload
        self._progress = progress or NoProgress()
        self._executor = executor_of(spec.simulation)
        check_capacity(spec.system)
        self._digests: list[str] = []

    def run(self) -> RunResult:
        """Both phases, as the workload has them."""
        started = time.perf_counter()
        workload, spec = self._workload, self._spec
        check_footprint(spec, workload)
        is_closed_form = spec.simulation.fidelity is Fidelity.ANALYTIC
        phases: dict[str, PhaseRecord] = {}
        if workload.prompt_len is not None:
            phases["prefill"] = self._closed_prefill() if is_closed_form else self._prefill()
        if len(workload.decode_contexts):
            phases["decode"] = self._closed_decode() if is_closed_form else self._decode()
        prefill = phases.get("prefill")
        return RunResult(
            npusim_version=__version__,
            seed=spec.simulation.seed,
            fidelity=spec.simulation.fidelity.value,
            executor=self._executor,
            overrides=(),
            hashes=self._hashes(),
            system=spec.system.name,
            clock=next(iter(phases.values())).clock,
            workload=self._workload_facts(),
            ttft_ps=prefill.elapsed_ps if prefill else None,
            phases=phases,
            wall_s=time.perf_counter() - started,
            spec=spec,
        )

    def prefill_source(self) -> GraphSource:
        """Graph of the prefill."""
        return self._source("prefill", self._workload.prefill_graph, 0)

    def decode_source(self, context_len: int) -> GraphSource:
        """Graph of one decode step."""
        workload = self._workload
        return self._source(
            f"decode at context {context_len}",
            lambda layers: workload.decode_graph(context_len, layers),
            context_len,
        )

    def _source(self, name: str, build: Callable[[int], object], cached_tokens: int) -> GraphSource:
        model = self._workload.model
        prefix_layers, unit_layers = _repeat_unit(self._workload.layer_kinds)
        return GraphSource(
            name=name,
            build=build,  # type: ignore[arg-type]  # both builders return OperatorGraph
            num_layers=model.num_layers,
            prefix_layers=prefix_layers,
            unit_layers=unit_layers,
            cached_tokens=cached_tokens,
            kv_capacity_tokens=self._workload.capacity_tokens,
        )

    def _prefill(self) -> PhaseRecord:
        self._progress.update("prefill", 0.0, "simulating")
        simulated = self._simulate(self.prefill_source())
        self._progress.update("prefill", 1.0, "done")
        workload = self._workload
        assert workload.prompt_len is not None
        return self._record("prefill", [(simulated, 1)], workload.batch * workload.prompt_len, ())

    def _decode(self) -> PhaseRecord:
        contexts = self._workload.decode_contexts
        self._progress.update("decode", 0.0, "simulating")
        estimate = estimate_decode(
            contexts,
            lambda context_len: self._simulate(self.decode_source(context_len)),
            self._spec.simulation.decode_tolerance_frac,
            lambda done: self._progress.update("decode", done, "simulating"),
        )
        notes: tuple[Approximation, ...] = ()
        if not estimate.is_exact:
            notes = (
                Approximation(
                    kind="decode_interpolation",
                    scope="decode",
                    estimated_error_frac=estimate.worst_error_frac,
                    basis=f"{len(estimate.steps)} of {len(contexts)} steps simulated, at contexts "
                    f"{', '.join(map(str, sorted(estimate.steps)))}; error at unseen midpoints",
                ),
            )
        pieces = [(estimate.steps[c], w) for c, w in sorted(estimate.weights.items())]
        return self._record("decode", pieces, len(contexts) * self._workload.batch, notes)

    def _closed_prefill(self) -> PhaseRecord:
        workload = self._workload
        assert workload.prompt_len is not None
        tokens = workload.batch * workload.prompt_len
        return self._closed_record("prefill", [self.prefill_source()], tokens)

    def _closed_decode(self) -> PhaseRecord:
        contexts = self._workload.decode_contexts
        sources = [self.decode_source(context_len) for context_len in contexts]
        return self._closed_record("decode", sources, len(contexts) * self._workload.batch)

    def _closed_record(self, phase: str, sources: list[GraphSource], tokens: int) -> PhaseRecord:
        pieces = [closed_form_tally(source, self._spec) for source in sources]
        return closed_form_record(
            phase,
            weighted_sum([(tally, 1) for tally, _ in pieces]),
            self._spec,
            tokens=tokens,
            steps=len(sources),
            bound_ps=sum(bound_ps for _, bound_ps in pieces),
            footprint_bytes=footprint_bytes(self._workload, self._spec),
            num_layers=self._workload.model.num_layers,
        )

    def _simulate(self, source: GraphSource) -> Simulated:
        simulated = simulate_source(source, self._spec)
        self._digests.append(simulated.compiled.program.digest())
        return simulated

    def _record(
        self,
        phase: str,
        pieces: list[tuple[Simulated, int]],
        tokens: int,
        notes: tuple[Approximation, ...],
    ) -> PhaseRecord:
        folding = {n.kind: n for piece, _ in pieces for n in piece.approximations}
        facts = PhaseFacts(
            name=phase,
            tokens=tokens,
            steps=sum(weight for _, weight in pieces),
            bound_ps=sum(piece.bound_ps * weight for piece, weight in pieces),
            footprint_bytes=self._footprint(pieces[-1][0]),
            approximations=(
                *notes,
                *folding.values(),
                *model_approximations(self._spec, pieces[0][0].compiled, pieces[0][0].graph),
                *_model_notes(self._workload.model.notes),
            ),
        )
        tally = weighted_sum([(piece.tally, weight) for piece, weight in pieces])
        return phase_record(facts, tally, pieces[0][0], self._spec)

    def _footprint(self, simulated: Simulated) -> int:
        """Weights and KV cache of the whole model plus the activations of the program in DRAM."""
        activations = sum(
            a.nbytes
            for a in simulated.compiled.program.allocations
            if a.role == "activation" and a.space == 0
        )
        return footprint_bytes(self._workload, self._spec) + activations

    def _hashes(self) -> dict[str, str | None]:
        """Of every part; closed forms run no program."""
        spec, digests = self._spec, self._digests
        return {
            "system": spec_hash(spec.system),
            "workload": spec_hash(spec.workload),
            "compiler": spec_hash(spec.compiler),
            "simulation": spec_hash(spec.simulation),
            "program": sha256("".join(digests).encode()).hexdigest() if digests else None,
        }

    def _workload_facts(self) -> dict[str, object]:
        workload = self._workload
        return {
            "model": workload.model.name,
            "parameters": workload.parameters,
            "weight_bytes": workload.weight_bytes,
            "weight_bytes_by_dtype": workload.weight_bytes_by_dtype,
            "kv_bytes_per_token": workload.kv_bytes_per_token,
            "quant": workload.quant.name,
            "kv_dtype": workload.kv_dtype,
            "batch": workload.batch,
            "prompt_len": workload.prompt_len,
            "context_len": workload.context_len,
            "generate_len": workload.generate_len,
        }


def _repeat_unit(kinds: Sequence[Hashable]) -> tuple[int, int]:
    """(layers before the pattern, its shortest period), with as few layers before as possible."""
    count = len(kinds)
    for prefix in range(count):
        rest = kinds[prefix:]
        for unit in range(1, len(rest) // 2 + 1):
            if len(rest) % unit == 0 and all(k == rest[i % unit] for i, k in enumerate(rest)):
                return prefix, unit
    return 0, count


def _model_notes(notes: tuple[str, ...]) -> tuple[Approximation, ...]:
    """What was assumed when the model's config was read."""
    return tuple(Approximation("model_config", "workload", None, note) for note in notes)
