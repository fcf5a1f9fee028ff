"""Why a phase took as long as it did: bound, stall trees, roofline, operators, bytes, findings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from npusim.insight.findings import bound_shares, findings
from npusim.insight.roofline import roofline
from npusim.insight.stall_tree import stage_stall_trees, stall_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.config.run_spec import RunSpec
    from npusim.insight.findings import Finding
    from npusim.insight.roofline import Roofline
    from npusim.insight.stall_tree import StallTree
    from npusim.results.records import OperatorRecord, PhaseRecord
    from npusim.results.run import RunResult

TOP_OPERATORS = 10


@dataclass(frozen=True, slots=True)
class Explanation:
    """One phase explained.

    Attributes
    ----------
    record : PhaseRecord
        The phase.
    bound_by : Mapping[str, int]
        Time of the stages by what bounds them, in ps, longest first.
    tree : StallTree or None
        Of the phase or of the stage asked for; None if no engines were simulated.
    stages : Mapping[str, StallTree]
        The same by stage.
    roofline : Roofline
        What the stages reached and what compute and memories allow.
    operators : tuple[OperatorRecord, ...]
        Those of the simulated program with the longest exclusive time.
    findings : tuple[Finding, ...]
        Plain sentences.
    """

    record: PhaseRecord
    bound_by: Mapping[str, int]
    tree: StallTree | None
    stages: Mapping[str, StallTree]
    roofline: Roofline
    operators: tuple[OperatorRecord, ...]
    findings: tuple[Finding, ...]

    def summary(self) -> dict[str, Any]:
        """Plain values for JSON."""
        record = self.record
        return {
            "phase": record.phase,
            "elapsed_ps": int(record.elapsed_ps),
            "bound_ps": int(record.bound_ps),
            "bound_reached_frac": record.bound_ps / record.elapsed_ps,
            "bound_by": [
                {"resource": name, "elapsed_ps": ps, "share_frac": ps / record.elapsed_ps}
                for name, ps in self.bound_by.items()
            ],
            "findings": [asdict(finding) for finding in self.findings],
            "stall_tree": None if self.tree is None else self.tree.summary(),
            "stage_stall_trees": [tree.summary() for tree in self.stages.values()],
            "roofline": self.roofline.summary(),
            "top_operators": [asdict(operator) for operator in self.operators],
            "memories": [
                {
                    "name": memory.name,
                    "read_bytes": int(memory.read_bytes),
                    "write_bytes": int(memory.write_bytes),
                    "bytes_by_role": {k: int(v) for k, v in memory.bytes_by_role.items()},
                }
                for memory in record.memories
            ],
            "approximations": [asdict(item) for item in record.approximations],
        }


def explain(
    result: RunResult, phase: str | None = None, stage: str | None = None
) -> tuple[Explanation, ...]:
    """Explain the phases of a run.

    Parameters
    ----------
    result : RunResult
        A finished run.
    phase : str, optional
        Only this phase.
    stage : str, optional
        Stall tree and operators of this stage only.

    Returns
    -------
    tuple[Explanation, ...]
        One per phase.

    Raises
    ------
    ResultError
        If the phase did not run or has no such stage.
    """
    records = result.phases.values() if phase is None else (result.phase(phase),)
    return tuple(explain_phase(record, stage, result.spec) for record in records)


def explain_phase(
    record: PhaseRecord, stage: str | None = None, spec: RunSpec | None = None
) -> Explanation:
    """Explain one phase; a stage chooses whose stall tree and operators."""
    own = [item for item in record.operators if stage in (None, item.stage)]
    operators = sorted(own, key=lambda item: -item.elapsed_ps)[:TOP_OPERATORS]
    has_engines = bool(record.engines) or stage is not None
    return Explanation(
        record=record,
        bound_by=bound_shares(record),
        tree=stall_tree(record, stage) if has_engines else None,
        stages=stage_stall_trees(record) if record.stage_times else {},
        roofline=roofline(record, spec),
        operators=tuple(operators),
        findings=findings(record),
    )
