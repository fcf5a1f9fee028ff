"""`OperatorTrace`: the file form of operator graphs, to export, edit and replay."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from npusim.errors import WorkloadError, nearest
from npusim.workload.graph import OperatorGraph
from npusim.workload.operator import Phase
from npusim.workload.trace_records import OperatorRecord, StepRecord, TraceHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npusim.workload.operator import Operator
    from npusim.workload.workload import Workload

MARK = "npusim_trace"

Line = TypeVar("Line", bound=BaseModel)


@dataclass(frozen=True)
class OperatorTrace:
    """Operators of every pass of a run, in program order.

    Parameters
    ----------
    header : TraceHeader
        Model, lengths, precision, bytes.
    steps : tuple of tuple of Operator
        Operators of each of the header's steps.
    """

    header: TraceHeader
    steps: tuple[tuple[Operator, ...], ...]

    @classmethod
    def of(cls, workload: Workload) -> OperatorTrace:
        """Every pass of a workload: the prefill and each decode step."""
        if workload.speculation is not None:
            rule = "a trace holds passes of one model, not a pattern of drafts and checks"
            raise WorkloadError("speculate_tokens", rule, workload.speculation.tokens)
        passes: list[tuple[StepRecord, tuple[Operator, ...]]] = []
        if workload.prompt_len is not None:
            step = StepRecord(phase="prefill", tokens=workload.prompt_len * workload.batch)
            passes.append((step, workload.prefill_graph().operators))
        for context_len in workload.decode_contexts:
            step = StepRecord(
                phase=workload.step_phase.value,  # type: ignore[arg-type]  # decode or mixed
                context_len=context_len,
                tokens=workload.batch + workload.chunk_tokens,
            )
            passes.append((step, workload.decode_graph(context_len).operators))
        header = TraceHeader(
            npusim_trace=1,
            model=workload.model.name,
            dtype=workload.model.dtype,  # type: ignore[arg-type]  # bf16 or fp16
            steps=[step for step, _ in passes],
            batch=workload.batch,
            prompt_len=workload.prompt_len,
            context_len=workload.context_len,
            generate_len=workload.generate_len,
            capacity_tokens=workload.capacity_tokens,
            chunk_tokens=workload.chunk_tokens,
            chunk_context_len=workload.chunk_context_len,
            chunk_capacity_tokens=workload.chunk_capacity_tokens,
            quant=workload.quant.name,
            kv_dtype=workload.kv_dtype,  # type: ignore[arg-type]
            parameters=workload.parameters,
            weight_bytes_by_dtype=workload.weight_bytes_by_dtype,
            kv_bytes_per_token=workload.kv_bytes_per_token,
            notes=list(workload.notes),
        )
        return cls(header, tuple(operators for _, operators in passes))

    def graph(self, step: int) -> OperatorGraph:
        """Graph of one step.

        Raises
        ------
        WorkloadError
            If two operators share a name or produce the same activation.
        """
        return OperatorGraph(self.steps[step])

    def lines(self) -> Iterator[str]:
        """Lines of the JSONL form, without line ends."""
        yield self.header.model_dump_json(exclude_defaults=True)
        for index, operators in enumerate(self.steps):
            for operator in operators:
                yield OperatorRecord.of(operator, index).model_dump_json(exclude_defaults=True)

    @classmethod
    def from_lines(cls, lines: Iterable[str], where: str) -> OperatorTrace:
        """Read the JSONL form; empty lines are skipped.

        Raises
        ------
        WorkloadError
            With the line, the key, the rule and the value of what is wrong.
        """
        header: TraceHeader | None = None
        steps: list[list[Operator]] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"{where}: line {number}"
            if header is None:
                header = parse_line(TraceHeader, line, place)
                steps = [[] for _ in header.steps]
                continue
            record = parse_line(OperatorRecord, line, place)
            add_operator(header, steps, record, place)
        return cls(*finished(header, steps, where))


def add_operator(
    header: TraceHeader, steps: list[list[Operator]], record: OperatorRecord, place: str
) -> None:
    """Append an operator to its step."""
    if record.step >= len(steps):
        rule = f"step must be below the {len(steps)} steps of the header"
        raise WorkloadError(place, rule, record.step)
    steps[record.step].append(record.operator(Phase(header.steps[record.step].phase)))


def finished(
    header: TraceHeader | None, steps: list[list[Operator]], where: str
) -> tuple[TraceHeader, tuple[tuple[Operator, ...], ...]]:
    """Header and steps, refused if there is nothing to run."""
    if header is None:
        raise WorkloadError(where, "line 1: the file is empty; a trace header is needed")
    empty = [index for index, operators in enumerate(steps) if not operators]
    if empty:
        raise WorkloadError(where, f"step {empty[0]} has no operators")
    return header, tuple(tuple(operators) for operators in steps)


def parse_line(kind: type[Line], line: str, place: str) -> Line:
    """One line, with the first thing wrong told in one message."""
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        problems = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        problem = problems[0]
        path = ".".join(map(str, problem["loc"]))
        rule = problem["msg"].removeprefix("Value error, ")
        hint = None
        if problem["type"] == "extra_forbidden":
            rule, hint = "unknown key", nearest(str(problem["loc"][-1]), kind.model_fields)
        value = problem["input"]
        shown = value if isinstance(value, (int, float, bool)) else json.dumps(value, default=str)
        text = f"{path}: {rule}" if path else rule
        raise WorkloadError(place, text, str(shown)[:80], hint) from None
