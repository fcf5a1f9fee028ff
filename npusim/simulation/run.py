"""A whole run: prefill, decode, and what they have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from npusim._version import __version__
from npusim.compiler.compile import compile_graph
from npusim.config.compiler import CompilerConfig
from npusim.config.hashing import spec_hash
from npusim.config.run_spec import Executor, Fidelity, RunSpec, SimulationConfig
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.program import Program
from npusim.results.records import Approximation, PhaseRecord
from npusim.results.run import RunResult
from npusim.simulation.approximations import model_approximations, pattern_approximations
from npusim.simulation.arguments import spec_of
from npusim.simulation.closed_form import closed_form_record, closed_form_tally
from npusim.simulation.decode import estimate_decode
from npusim.simulation.execute import execute
from npusim.simulation.footprint import check_footprint, footprint_bytes
from npusim.simulation.memories import check_capacity, peak_bytes_per_s
from npusim.simulation.phase import GraphSource, Simulated, simulate_source
from npusim.simulation.records import PhaseFacts, phase_record
from npusim.simulation.tally import weighted_sum
from npusim.simulation.workloads import workload_facts, workload_of
from npusim.workload.operator import Phase
from npusim.workload.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from npusim.simulation.execute import Execute
    from npusim.simulation.workloads import AnyWorkload
    from npusim.workload.graph import OperatorGraph

    Build = Callable[[int, int], OperatorGraph]  # of (cached tokens, layers)

#: the prompt's way into the cache of a draft model
DRAFT_PREFILL = "draft_prefill"


class Progress(Protocol):
    """Told how far a run is."""

    def update(self, phase: str, done: float, text: str) -> None:
        """`done` runs from 0 to 1 within a phase."""


class NoProgress:
    """Ignores progress."""

    def update(self, phase: str, done: float, text: str) -> None:
        """Do nothing."""


def simulate_run(
    spec: RunSpec,
    progress: Progress | None = None,
    run: Execute = execute,
    workload: AnyWorkload | None = None,
) -> RunResult:
    """Simulate the phases of a run.

    Parameters
    ----------
    spec : RunSpec
        System, workload, compiler and simulation settings.
    progress : Progress, optional
        Told how far the run is.
    run : Execute, optional
        What executes the programs; studies vary it.
    workload : Workload or TraceWorkload, optional
        What `spec.workload` describes, where it is at hand; read from its files otherwise.

    Raises
    ------
    ConfigError, WorkloadError, MappingError
        If the run cannot start: something is wrong, too large or not supported.
    SimulationError
        If a simulation broke one of its invariants.
    """
    return _Run(spec, workload or workload_of(spec), progress, run).run()


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
    spec = spec_of(system, workload, compiler, simulation)
    return _Run(spec, workload, None).run()


def compile_run(spec: RunSpec, phase: str) -> Program:
    """Program of the first pass of a phase over all layers; ConfigError without such a phase."""
    source = first_source(spec, phase)
    return compile_graph(
        source.build(source.num_layers),
        spec.system,
        spec.compiler,
        peak_bytes_per_s(spec.system),
        kv_capacity_tokens=source.kv_capacity_tokens,
        cached_tokens=source.cached_tokens,
    ).program


def first_source(spec: RunSpec, phase: str) -> GraphSource:
    """Graph of the first pass of a phase; ConfigError names the phases there are."""
    run = _Run(spec, workload_of(spec), None)
    if phase not in run.phase_names():
        raise ConfigError("phase", f"this run has {', '.join(run.phase_names())}", phase)
    return run.source(run.steps(phase), 0)


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


@dataclass(frozen=True)
class _Steps:
    """Passes of a phase: cached tokens at the start of each, and what builds the graph of one."""

    phase: str
    workload: AnyWorkload
    build: Build
    contexts: Sequence[int]

    @property
    def is_prefill(self) -> bool:
        """Whether there is one pass, without cached tokens."""
        return self.phase in (Phase.PREFILL, DRAFT_PREFILL)


class _Run:
    """Phases of one run and what they share."""

    def __init__(
        self,
        spec: RunSpec,
        workload: AnyWorkload,
        progress: Progress | None,
        run: Execute = execute,
    ) -> None:
        self._spec, self._workload, self._execute = spec, workload, run
        self._progress = progress or NoProgress()
        self._executor = executor_of(spec.simulation)
        check_capacity(spec.system)
        self._digests: list[str] = []
        self._is_memory_ideal = False

    def run(self) -> RunResult:
        """Both phases, as the workload has them."""
        started = time.perf_counter()
        workload, spec = self._workload, self._spec
        check_footprint(spec, workload)
        is_closed_form = spec.simulation.fidelity is Fidelity.ANALYTIC
        phases: dict[str, PhaseRecord] = {}
        for name in self.phase_names():
            phases[name] = self._closed_phase(name) if is_closed_form else self._phase(name)
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
            workload=workload_facts(self._workload),
            ttft_ps=prefill.elapsed_ps if prefill else None,
            phases=phases,
            wall_s=time.perf_counter() - started,
            spec=spec,
            is_memory_ideal=self._is_memory_ideal,
        )

    def phase_names(self) -> list[str]:
        """Phases that run, in order; a draft model needs the prompt in its cache too."""
        workload = self._workload
        names = [phase.value for phase in workload.phases]
        if Phase.DRAFT in workload.phases and workload.prompt_len is not None:
            names.insert(1, DRAFT_PREFILL)
        return names

    def steps(self, phase: str) -> _Steps:
        """Passes of a phase."""
        workload = self._workload
        if phase == Phase.PREFILL:
            return _Steps(phase, workload, lambda _, layers: workload.prefill_graph(layers), (0,))
        if isinstance(workload, Workload) and workload.draft is not None:
            draft = workload.draft
            if phase == DRAFT_PREFILL:
                read = workload.draft_prefill_graph
                return _Steps(phase, draft, lambda _, layers: read(layers), (0,))
            if phase == Phase.DRAFT:
                proposals = range(workload.new_tokens - 1)
                passes = sorted(c + i for c in workload.decode_contexts for i in proposals)
                return _Steps(phase, draft, workload.draft_graph, passes)
        return _Steps(phase, workload, workload.decode_graph, workload.decode_contexts)

    def source(self, steps: _Steps, index: int) -> GraphSource:
        """Graph of one pass of a phase."""
        context_len, build = steps.contexts[index], steps.build
        prefix_layers, unit_layers = _repeat_unit(steps.workload.layer_kinds)
        return GraphSource(
            name=steps.phase if steps.is_prefill else f"{steps.phase} at context {context_len}",
            build=lambda layers: build(context_len, layers),
            num_layers=steps.workload.model.num_layers,
            prefix_layers=prefix_layers,
            unit_layers=unit_layers,
            cached_tokens=context_len,
            kv_capacity_tokens=self._workload.capacity_tokens,
        )

    def _tokens(self, phase: str, steps: int) -> int:
        """Tokens that a phase is for: read in a prefill, proposed in a draft, else generated."""
        workload = self._workload
        if phase in (Phase.PREFILL, DRAFT_PREFILL):
            assert workload.prompt_len is not None
            return workload.batch * workload.prompt_len
        if phase == Phase.DECODE and workload.speculation is not None:
            return int(workload.batch * steps * workload.speculation.tokens_per_step)
        return workload.batch * steps

    def _phase(self, phase: str) -> PhaseRecord:
        """One phase, simulated; of many steps a few."""
        steps = self.steps(phase)
        self._progress.update(phase, 0.0, "simulating")
        pieces, notes = self._simulate_steps(steps)
        self._progress.update(phase, 1.0, "done")
        notes = (*notes, *pattern_approximations(self._workload, phase))
        return self._record(phase, pieces, self._tokens(phase, len(steps.contexts)), notes)

    def _simulate_steps(
        self, steps: _Steps
    ) -> tuple[list[tuple[Simulated, int]], tuple[Approximation, ...]]:
        contexts = steps.contexts
        estimate = estimate_decode(
            range(len(contexts)),
            lambda index: self._simulate(self.source(steps, index)),
            self._spec.simulation.decode_tolerance_frac,
            lambda done: self._progress.update(steps.phase, done, "simulating"),
        )
        pieces = [(estimate.steps[i], w) for i, w in sorted(estimate.weights.items())]
        if estimate.is_exact:
            return pieces, ()
        simulated = ", ".join(str(contexts[i]) for i in sorted(estimate.steps))
        note = Approximation(
            kind="decode_interpolation",
            scope=steps.phase,
            estimated_error_frac=estimate.worst_error_frac,
            basis=f"{len(estimate.steps)} of {len(contexts)} steps simulated, at contexts "
            f"{simulated}; error at unseen midpoints",
        )
        return pieces, (note,)

    def _closed_phase(self, phase: str) -> PhaseRecord:
        steps = self.steps(phase)
        sources = [self.source(steps, index) for index in range(len(steps.contexts))]
        record = self._closed_record(phase, sources, self._tokens(phase, len(sources)))
        notes = pattern_approximations(self._workload, phase)
        return replace(record, approximations=(*record.approximations, *notes))

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
            num_layers=sources[0].num_layers,
        )

    def _simulate(self, source: GraphSource) -> Simulated:
        simulated = simulate_source(source, self._spec, self._execute)
        self._digests.append(simulated.compiled.program.digest())
        self._is_memory_ideal |= simulated.is_memory_ideal
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
            is_memory_ideal=pieces[0][0].is_memory_ideal,
            approximations=(
                *notes,
                *folding.values(),
                *model_approximations(self._spec, pieces[0][0].compiled, pieces[0][0].graph),
                *_model_notes(self._workload.notes),
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
