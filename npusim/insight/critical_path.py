"""Critical path of a finished run: the chain of commands that set when it ended.

From the last end backwards: every command on the path started when the one before it released it.
The stretches between their starts sum to the elapsed time. Slack says how much later a command
could have started, or a command could have lasted longer, without a later end. Durations are held:
what a change gives under contention, only a simulation tells.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.errors import SimulationError
from npusim.insight.command_graph import REASONS, command_graph
from npusim.results.tables import Table

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from numpy.typing import NDArray

    from npusim.insight.command_graph import CommandGraph
    from npusim.machine.execution import Execution
    from npusim.program import Program

    Ints = NDArray[np.int64]

DRAIN = "drain"  # reason of the last stretch if posted writes outlast the commands
END = "end"  # reason of the last stretch otherwise


@dataclass(frozen=True, slots=True)
class Step:
    """A command on the path.

    Attributes
    ----------
    command : int
        Index in the program.
    operator, stage, engine, kind : str
        Whose it is, and the engine with its kind.
    from_ps, to_ps : int
        Its start, and the start of the next command on the path; of the last one the end.
    reason : str
        Of `REASONS`: how it released the next command. Of the last one `END` or `DRAIN`.
    """

    command: int
    operator: str
    stage: str
    engine: str
    kind: str
    from_ps: int
    to_ps: int
    reason: str

    @property
    def time_ps(self) -> int:
        """Its part of the path."""
        return self.to_ps - self.from_ps


@dataclass(frozen=True, slots=True)
class OperatorSlack:
    """One operator instance.

    Attributes
    ----------
    operator, stage : str
        Which.
    path_ps : int
        Its part of the critical path.
    slack_ps : int
        Least slack of its commands: by so much all of it could have started later.
    """

    operator: str
    stage: str
    path_ps: int
    slack_ps: int


@dataclass(frozen=True)
class CriticalPath:
    """Path and slacks of one simulated program.

    Attributes
    ----------
    phase : str
        Whose program.
    elapsed_ps : int
        Simulated time, and length of the path.
    steps : tuple[Step, ...]
        From time 0 to the end, connected.
    operators : tuple[OperatorSlack, ...]
        In program order.
    slack_ps : array of int, shape (commands,)
        By how much each command could have started later.
    length_slack_ps : array of int, shape (commands,)
        By how much each command could have lasted longer; at least `slack_ps`.
    graph : CommandGraph
        Releases, for other lengths.
    """

    phase: str
    elapsed_ps: int
    steps: tuple[Step, ...]
    operators: tuple[OperatorSlack, ...]
    slack_ps: Ints
    length_slack_ps: Ints
    graph: CommandGraph

    def share_by(self, what: str) -> dict[str, int]:
        """Time on the path by a field of `Step` (kind, stage, reason), longest first."""
        total: dict[str, int] = {}
        for step in self.steps:
            key = str(getattr(step, what))
            total[key] = total.get(key, 0) + step.time_ps
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    def stretches(self) -> list[Step]:
        """Steps with neighbours of one operator and engine joined; `command` is the first one."""
        joined = []
        for _, group in groupby(self.steps, key=lambda step: (step.operator, step.engine)):
            first, *rest = group
            last = rest[-1] if rest else first
            whose = (first.command, first.operator, first.stage, first.engine, first.kind)
            joined.append(Step(*whose, first.from_ps, last.to_ps, last.reason))
        return joined

    def chain(self) -> nx.DiGraph[int]:
        """The path as a graph of commands, edges with `time_ps` and `reason`."""
        import networkx  # slow to load

        chain: nx.DiGraph[int] = networkx.DiGraph()
        chain.add_nodes_from((step.command, asdict(step)) for step in self.steps)
        for step, after in zip(self.steps, self.steps[1:], strict=False):
            chain.add_edge(step.command, after.command, time_ps=step.time_ps, reason=step.reason)
        return chain

    def table(self) -> Table:
        """One row per operator."""
        names = ("operator", "stage", "path_ps", "slack_ps")
        columns = {name: [getattr(item, name) for item in self.operators] for name in names}
        return Table("critical_path", {"phase": [self.phase] * len(self.operators), **columns})

    def to_frame(self) -> pd.DataFrame:
        """One row per operator, as a frame."""
        return self.table().to_frame()

    def summary(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "elapsed_ps": self.elapsed_ps,
            "commands": len(self.steps),
            "by_kind_ps": self.share_by("kind"),
            "by_stage_ps": self.share_by("stage"),
            "by_reason_ps": self.share_by("reason"),
            "stretches": [asdict(step) for step in self.stretches()],
            "operators": [asdict(item) for item in self.operators],
        }


def critical_path(program: Program, execution: Execution, phase: str = "") -> CriticalPath:
    """Critical path of a finished run.

    Parameters
    ----------
    program, execution : Program, Execution
        What ran.
    phase : str, optional
        Name for the result.

    Raises
    ------
    SimulationError
        If the path does not have the length of the run.
    """
    graph = command_graph(program, execution)
    commands, reasons = _walk_back(graph)
    steps = tuple(_steps(program, execution, commands, reasons))
    length_ps = sum(step.time_ps for step in steps)
    if length_ps != execution.elapsed_ps:
        rule = f"has the length of the run, {execution.elapsed_ps} ps"
        raise SimulationError("critical path", rule, length_ps)
    slack = graph.latest_start_ps() - graph.start_ps
    return CriticalPath(
        phase=phase,
        elapsed_ps=execution.elapsed_ps,
        steps=steps,
        operators=_operators(program, steps, slack),
        slack_ps=slack,
        length_slack_ps=_length_slack(graph, slack),
        graph=graph,
    )


def _walk_back(graph: CommandGraph) -> tuple[list[int], list[str]]:
    """Commands of the path in order of time, and how each released the next one.

    Of several releases at the last moment the first in order counts: signals by index, the queue,
    the engine.
    """
    end = graph.start_ps + graph.length_ps
    command = int(np.argmax(end))
    commands, reasons = [command], [DRAIN if graph.drain_ps else END]
    release = graph.start_ps - graph.delay_ps
    while True:
        edges = np.arange(graph.edge_ptr[command], graph.edge_ptr[command + 1])
        earlier = graph.earlier[edges]
        binding = edges[graph.start_ps[earlier] + graph.lag_ps[edges] == release[command]]
        if not len(binding):
            break
        command = int(graph.earlier[binding[0]])
        commands.append(command)
        reasons.append(REASONS[graph.reason[binding[0]]])
    return commands[::-1], reasons[::-1]


def _steps(
    program: Program, execution: Execution, commands: list[int], reasons: list[str]
) -> list[Step]:
    """Stretches between the starts of the commands on the path."""
    borders = [*execution.start_ps[commands].tolist(), execution.elapsed_ps]
    borders[0] = 0  # what nothing released waits for its clock only
    steps = []
    for i, (command, reason) in enumerate(zip(commands, reasons, strict=True)):
        kernel = program.kernels[program.kernel[command]]
        engine = program.engines[program.engine[command]]
        whose = (command, kernel.name, kernel.stage, engine.name, engine.kind.value)
        steps.append(Step(*whose, borders[i], borders[i + 1], reason))
    return steps


def _operators(
    program: Program, steps: tuple[Step, ...], slack_ps: Ints
) -> tuple[OperatorSlack, ...]:
    """Time on the path and least slack by kernel."""
    least = np.full(len(program.kernels), np.iinfo(np.int64).max)
    np.minimum.at(least, program.kernel, slack_ps)
    on_path = np.zeros(len(program.kernels), dtype=np.int64)
    for step in steps:
        on_path[program.kernel[step.command]] += step.time_ps
    rows = zip(program.kernels, on_path.tolist(), least.tolist(), strict=True)
    return tuple(OperatorSlack(k.name, k.stage, time_ps, slack) for k, time_ps, slack in rows)


def _length_slack(graph: CommandGraph, slack_ps: Ints) -> Ints:
    """How much longer each command could last: until the first that its end holds up."""
    end = graph.start_ps + graph.length_ps
    result = int(end.max()) - end
    later = np.repeat(np.arange(len(graph)), np.diff(graph.edge_ptr))
    at_end = graph.is_at_end
    earlier, later = graph.earlier[at_end], later[at_end]
    latest = graph.start_ps[later] + slack_ps[later] - graph.delay_ps[later]
    np.minimum.at(result, earlier, latest - end[earlier])
    return result
