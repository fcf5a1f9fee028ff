"""Plain sentences about a phase, each derived from its numbers by a stated rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.insight.stall_tree import family_of, stall_tree
from npusim.results.derived import DRAM_KIND, MATRIX_KIND, achieved_bytes_per_s, utilization_of
from npusim.results.records import BUSY, IDLE
from npusim.units import format_bytes, format_bytes_per_s, format_time_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npusim.insight.stall_tree import Node, StallTree
    from npusim.results.records import MemoryRecord, PhaseRecord

#: launch and imbalance are worth a sentence from these shares on
LAUNCH_FRAC, IMBALANCE_FRAC, ERROR_FRAC = 0.05, 0.1, 0.01
_NAMED_STAGES = 3
#: what a family of causes means, after "wait most for"
_MEANINGS = {
    "dependency": "results of other engines and for ordered commands",
    "dram": "DRAM",
    "bus": "the bus",
    "sram": "SRAM",
    "buffer": "buffers and DMA queues",
    "barrier": "barriers",
    "convert": "the convert unit",
    "launch": "launches",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence.

    Attributes
    ----------
    topic : str
        ``bound``, ``resource``, ``stage``, ``wait``, ``matrix``, ``memory``, ``bytes``, ``launch``,
        ``imbalance`` or ``estimate``.
    text : str
        The sentence.
    share_frac : float
        The share it is about.
    """

    topic: str
    text: str
    share_frac: float


def findings(record: PhaseRecord) -> tuple[Finding, ...]:
    """What the numbers of a phase say, most general first.

    Notes
    -----
    Nothing is judged that is not in the record: shares of time, bytes and peaks. What a change
    would give is not derivable from one run; simulate the change.
    """
    return tuple(finding for rule in _RULES for finding in rule(record))


def bound_shares(record: PhaseRecord) -> dict[str, int]:
    """Exclusive time of the stages by what bounds them, longest first."""
    times: dict[str, int] = {}
    for stage in record.stages:
        times[stage.bound_by] = times.get(stage.bound_by, 0) + int(stage.elapsed_ps)
    ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    return {name: ps for name, ps in ranked if ps}


def _percent(frac: float) -> str:
    return f"{100 * frac:.1f} %"


def _bound(record: PhaseRecord) -> Iterator[Finding]:
    """Simulated time beside the closed-form bound."""
    reached = record.bound_ps / record.elapsed_ps
    beyond = format_time_ps(record.elapsed_ps - record.bound_ps)
    text = (
        f"{format_time_ps(record.elapsed_ps)} simulated against a closed-form bound of "
        f"{format_time_ps(record.bound_ps)}: {_percent(reached)} reached, {beyond} beyond it"
    )
    yield Finding("bound", text, reached)


def _resource(record: PhaseRecord) -> Iterator[Finding]:
    """The resource that bounds most of the time, and the stages it bounds."""
    name, time_ps = next(iter(bound_shares(record).items()))
    own = [s for s in record.stages if s.bound_by == name and s.elapsed_ps]
    own.sort(key=lambda s: -s.elapsed_ps)
    shown = ", ".join(s.stage for s in own[:_NAMED_STAGES])
    more = f" and {len(own) - _NAMED_STAGES} more" if len(own) > _NAMED_STAGES else ""
    share = time_ps / record.elapsed_ps
    text = f"{name} bounds the stages of {_percent(share)} of the time ({shown}{more})"
    yield Finding("resource", text, share)


def _stage(record: PhaseRecord) -> Iterator[Finding]:
    """The longest stage."""
    longest = max(record.stages, key=lambda s: s.elapsed_ps)
    share = longest.elapsed_ps / record.elapsed_ps
    text = f"{longest.stage} is the longest stage: {_percent(share)} of the time"
    yield Finding("stage", f"{text}, bound by {longest.bound_by}", share)


def _wait(record: PhaseRecord) -> Iterator[Finding]:
    """What the matrix engines wait for most, and the largest cause in it."""
    if not any(engine.kind == MATRIX_KIND for engine in record.engines):
        return
    tree = stall_tree(record)
    waits = [n for n in tree.root.children if n.name not in (BUSY, IDLE)]
    waits = [n for n in waits if n.by_kind.get(MATRIX_KIND)]
    if not waits:
        return
    family = max(waits, key=lambda n: n.by_kind[MATRIX_KIND])
    share = tree.share_frac(family, MATRIX_KIND)
    text = f"matrix engines wait most for {_MEANINGS[family_of(family.name)]}: "
    yield Finding("wait", f"{text}{_percent(share)} of their time{_part(tree, family)}", share)


def _part(tree: StallTree, family: Node) -> str:
    """The largest cause of a family, where there are several."""
    largest = max(family.children, key=lambda n: n.by_kind.get(MATRIX_KIND, 0))
    if len(family.children) == 1:
        return ""
    return f", the largest part {largest.name} ({_percent(tree.share_frac(largest, MATRIX_KIND))})"


def _matrix(record: PhaseRecord) -> Iterator[Finding]:
    """How much of the matrix units is used."""
    used = utilization_of(record)
    if used.mac_frac is None or used.matrix_busy_frac is None:
        return
    text = f"matrix engines are busy {_percent(used.matrix_busy_frac)} of the time and do "
    yield Finding("matrix", f"{text}{_percent(used.mac_frac)} of their peak MACs", used.mac_frac)


def _memory(record: PhaseRecord) -> Iterator[Finding]:
    """Rate and row hits of every DRAM."""
    for memory in _drams(record):
        rate = achieved_bytes_per_s(memory, record.elapsed_ps)
        share = rate / memory.peak_bytes_per_s
        text = f"{memory.name} moves {format_bytes_per_s(rate)}, {_percent(share)} of its peak"
        if memory.accesses:
            text += f", with {_percent(memory.row_hits / memory.accesses)} row hits"
        yield Finding("memory", text, share)


def _bytes(record: PhaseRecord) -> Iterator[Finding]:
    """The role of most DRAM bytes."""
    for memory in _drams(record):
        moved = memory.read_bytes + memory.write_bytes
        if moved:
            role = max(sorted(memory.bytes_by_role), key=lambda name: memory.bytes_by_role[name])
            share = memory.bytes_by_role[role] / moved
            text = f"{_percent(share)} of the {format_bytes(moved)} through {memory.name}"
            yield Finding("bytes", f"{text} belong to the role {role}", share)


def _launch(record: PhaseRecord) -> Iterator[Finding]:
    """Time before dispatches, if it matters."""
    share = sum(stage.launch_ps for stage in record.stages) / record.elapsed_ps
    if share >= LAUNCH_FRAC:
        per_layer = f"{record.kernels_per_layer:g} kernels per layer"
        yield Finding("launch", f"launches take {_percent(share)} of the time ({per_layer})", share)


def _imbalance(record: PhaseRecord) -> Iterator[Finding]:
    """Matrix engines that work unequally long."""
    busy = [int(e.busy_ps) for e in record.engines if e.kind == MATRIX_KIND]
    share = (max(busy) - min(busy)) / record.elapsed_ps if busy else 0.0
    if share >= IMBALANCE_FRAC:
        text = f"the busiest matrix engine works {format_time_ps(max(busy))}, the least busy one "
        yield Finding("imbalance", f"{text}{format_time_ps(min(busy))}", share)


def _estimate(record: PhaseRecord) -> Iterator[Finding]:
    """Estimates with a large error."""
    for item in record.approximations:
        error = item.estimated_error_frac
        if error is not None and error >= ERROR_FRAC:
            text = f"{item.kind} ({item.scope}) is off by about {_percent(error)}"
            yield Finding("estimate", text, error)


def _drams(record: PhaseRecord) -> list[MemoryRecord]:
    return [memory for memory in record.memories if memory.kind == DRAM_KIND]


_RULES: tuple[Callable[[PhaseRecord], Iterator[Finding]], ...] = (
    *(_bound, _resource, _stage, _wait, _matrix, _memory, _bytes, _launch, _imbalance, _estimate),
)
