"""Simulated against measured: every row run as an operator (or phase) alone, errors by regime.

Device time of operators is measured without the host's synchronisation, so `host.sync_ps` counts
nothing in their rows; phases of a model are measured from outside and keep it.

A row's regime is the largest of three closed forms: **launch** if the system's launch floor is at
least both others, else **memory** or **compute** by the roofline.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from npusim.config.compiler import CompilerConfig
from npusim.config.host import LaunchMode
from npusim.config.run_spec import Fidelity, RunSpec, SimulationConfig, WorkloadConfig
from npusim.simulation import simulate_operator, simulate_run
from npusim.studies.closed_forms import Terms, TwoTerm, fit_two_term, terms_of
from npusim.studies.measurements import PHASES, Measurement
from npusim.workload.loading import load_model
from npusim.workload.primitives import primitive_graph
from npusim.workload.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from npusim.config.system import SystemConfig
    from npusim.workload.graph import OperatorGraph

WORST_ROWS = 10
#: what a row is compared with, in the order of the tables
MODELS = ("simulated", "roofline", "fold", "two_term", "two_term_per_op")


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row and what each model says of it; None where a model has no answer."""

    id: str
    op: str
    shape: str
    measured_ns: float
    simulated_ns: float
    regime: str
    is_fitted: bool
    roofline_ns: float
    fold_ns: float
    two_term_ns: float | None
    two_term_per_op_ns: float | None
    bound_by: str

    def error(self, model: str) -> float | None:
        """Relative error of a model, signed."""
        value = getattr(self, f"{model}_ns")
        return None if value is None else value / self.measured_ns - 1


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Errors of one model over a group of rows, as shares of the measured time."""

    rows: int
    mean_abs_frac: float
    bias_frac: float
    worst_frac: float

    @classmethod
    def of(cls, rows: Iterable[Row], model: str) -> ErrorSummary | None:
        """Summary of a model over rows; None if it answers none of them."""
        errors = [error for row in rows if (error := row.error(model)) is not None]
        if not errors:
            return None
        mean = sum(abs(error) for error in errors) / len(errors)
        return cls(len(errors), mean, sum(errors) / len(errors), max(errors, key=abs))


@dataclass(frozen=True)
class Validation:
    """All rows of a device, and the closed form fitted beside the simulator."""

    system: str
    fidelity: str
    rows: tuple[Row, ...]
    two_term: TwoTerm | None
    parameters: dict[str, Any]

    @property
    def scored(self) -> tuple[Row, ...]:
        """Rows not used in any fit."""
        return tuple(row for row in self.rows if not row.is_fitted)

    def groups(self) -> dict[str, tuple[Row, ...]]:
        """Scored rows: all, by operator, by regime; then the fitted ones."""
        scored = self.scored
        result = {"all": scored}
        for key in dict.fromkeys(row.op for row in scored):
            result[key] = tuple(row for row in scored if row.op == key)
        for key in ("launch", "memory", "compute"):
            result[f"{key}-bound"] = tuple(row for row in scored if row.regime == key)
        result["fitted rows"] = tuple(row for row in self.rows if row.is_fitted)
        return {name: rows for name, rows in result.items() if rows}

    def worst(self) -> tuple[Row, ...]:
        """Scored rows with the largest errors."""
        ranked = sorted(self.scored, key=lambda row: -abs(row.error("simulated") or 0))
        return tuple(ranked[:WORST_ROWS])

    def summary(self) -> dict[str, Any]:
        """JSON form."""
        errors = {
            name: {
                model: asdict(found)
                for model in MODELS
                if (found := ErrorSummary.of(rows, model)) is not None
            }
            for name, rows in self.groups().items()
        }
        return {
            "system": self.system,
            "fidelity": self.fidelity,
            "rows": [asdict(row) for row in self.rows],
            "errors": errors,
            "worst": [row.id for row in self.worst()],
            "fitted": [row.id for row in self.rows if row.is_fitted],
            "parameters": self.parameters,
            "two_term": asdict(self.two_term) if self.two_term else None,
        }


def validate(
    system: SystemConfig,
    measurements: Sequence[Measurement],
    shipped: Sequence[Measurement],
    fidelity: Fidelity = Fidelity.TRANSFER,
    progress: Callable[[float, str], None] | None = None,
) -> Validation:
    """Run every measured row.

    Parameters
    ----------
    measurements : sequence of Measurement
        Rows to run.
    shipped : sequence of Measurement
        Rows among which the fitted ones, named under the system's `calibration`, are found: the
        closed form beside ours is fitted to the same.
    """
    fitted = fitted_ids(system)
    terms = {row.name: _terms(system, row) for row in (*shipped, *measurements)}
    basis = [row for row in shipped if row.name in fitted]
    fits = {"": _fit(basis, terms)}
    for op in {row.op for row in basis}:
        fits[op] = _fit([row for row in basis if row.op == op], terms)
    rows = []
    for index, measured in enumerate(measurements):
        rows.append(_row(system, measured, terms[measured.name], fidelity, fits, fitted))
        if progress is not None:
            progress((index + 1) / len(measurements), measured.name)
    parameters = {path: value.note for path, value in system.calibration.items()}
    return Validation(system.name, fidelity.value, tuple(rows), fits[""], parameters)


def fitted_ids(system: SystemConfig) -> frozenset[str]:
    """Ids of all rows a number of the system was fitted to."""
    return frozenset(row for value in system.calibration.values() for row in value.rows)


def launch_floor_ns(system: SystemConfig) -> float:
    """What a launch costs when the device does nothing."""
    host = system.host
    if host.launch is LaunchMode.GRAPH:
        return (host.graph_launch_ps + host.graph_node_ps) / 1e3
    return (host.host_issue_ps + host.device_start_ps) / 1e3


def device_time_ns(
    system: SystemConfig, measured: Measurement, fidelity: Fidelity
) -> tuple[float, str]:
    """Simulated device time of an operator row, and what bounds it."""
    host = system.host.model_copy(update={"sync_ps": 0})
    result = simulate_operator(
        system.model_copy(update={"host": host}),
        measured.primitive,
        measured.shape,
        quant=measured.quant,
        compiler=CompilerConfig(),
        simulation=SimulationConfig(fidelity=fidelity),
    )
    longest = max(result.phase.stages, key=lambda stage: stage.elapsed_ps)
    return result.elapsed_ps / 1e3, longest.bound_by


def _row(
    system: SystemConfig,
    measured: Measurement,
    terms: Terms,
    fidelity: Fidelity,
    fits: dict[str, TwoTerm | None],
    fitted: frozenset[str],
) -> Row:
    simulate = _phase_time_ns if measured.op in PHASES else device_time_ns
    simulated_ns, bound_by = simulate(system, measured, fidelity)
    one, per_op = fits[""], fits.get(measured.op)
    return Row(
        id=measured.name,
        op=measured.op,
        shape=measured.shape,
        measured_ns=measured.measured_ns,
        simulated_ns=simulated_ns,
        regime=_regime(system, terms),
        is_fitted=measured.name in fitted,
        roofline_ns=terms.roofline_ns,
        fold_ns=terms.fold_ns,
        two_term_ns=one.ns(terms) if one else None,
        two_term_per_op_ns=per_op.ns(terms) if per_op else None,
        bound_by=bound_by,
    )


def _regime(system: SystemConfig, terms: Terms) -> str:
    if launch_floor_ns(system) >= terms.roofline_ns:
        return "launch"
    return "memory" if terms.memory_ns >= terms.compute_ns else "compute"


def _fit(basis: Sequence[Measurement], terms: dict[str, Terms]) -> TwoTerm | None:
    return fit_two_term([terms[row.name] for row in basis], [row.measured_ns for row in basis])


def _terms(system: SystemConfig, measured: Measurement) -> Terms:
    return terms_of(_graph(measured), system)


def _graph(measured: Measurement) -> OperatorGraph:
    if measured.op not in PHASES:
        return primitive_graph(measured.primitive, measured.shape, quant=measured.quant)
    config = _workload(measured)
    workload = Workload.of(load_model(measured.model), config)
    layers = workload.model.num_layers
    if measured.op == "prefill":
        return workload.prefill_graph(layers)
    return workload.decode_graph(config.context_len or 0, layers)


def _workload(measured: Measurement) -> WorkloadConfig:
    batch, tokens = (int(size) for size in measured.shape.split("x"))
    is_decode = measured.op == "decode"
    return WorkloadConfig(
        model=measured.model,
        batch=batch,
        quant=measured.quant,
        prompt_len=None if is_decode else tokens,
        context_len=tokens if is_decode else None,
        generate_len=int(is_decode),
    )


def _phase_time_ns(
    system: SystemConfig, measured: Measurement, fidelity: Fidelity
) -> tuple[float, str]:
    """Simulated time of a prefill or a decode step, and what bounds its longest stage."""
    spec = RunSpec(
        system=system,
        workload=_workload(measured),
        simulation=SimulationConfig(fidelity=fidelity),
    )
    phase = simulate_run(spec).phases[measured.op]
    longest = max(phase.stages, key=lambda stage: stage.elapsed_ps)
    return phase.elapsed_ps / 1e3, longest.bound_by
