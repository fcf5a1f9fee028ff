"""Tables of an explained phase, as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.report.tables import count, percent
from npusim.units import format_bytes, format_time_ps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npusim.insight.explain import Explanation
    from npusim.insight.roofline import Point, Roofline
    from npusim.insight.stall_tree import Node, StallTree

#: heading and whether the column holds numbers
Headings = tuple[tuple[str, bool], ...]

OPERATOR_HEADINGS: Headings = (
    *(("operator", False), ("stage", False), ("time", True), ("active", True), ("MACs", True)),
    *(("DRAM bytes", True), ("commands", True)),
)
ROOFLINE_HEADINGS: Headings = (
    *(("roofline", False), ("memory", False), ("FLOP/byte", True), ("GFLOP/s", True)),
    *(("roof", True), ("reached", True), ("roof of", False)),
)
_LEAST_FRAC = 0.0005  # what shows as 0.1 % or more
#: engines that no data moves through; their waits follow those of the others
_FRONT_END = ("host", "dispatch", "barrier")


def bound_line(explanation: Explanation) -> str:
    """What bounds the stages, by share of the time."""
    record = explanation.record
    shares = (f"{k} {percent(ps, record.elapsed_ps)}" for k, ps in explanation.bound_by.items())
    return f"bound by {', '.join(shares)}"


def tree_headings(tree: StallTree) -> Headings:
    """Cause, time, share in all engines, and a column per kind of engine."""
    kinds = ((f"{kind} ({tree.engines[kind]})", True) for kind in _shown_kinds(tree))
    return (("where the time went", False), ("time", True), ("all", True), *kinds)


def tree_rows(tree: StallTree) -> list[tuple[str, ...]]:
    """One row per node with a share that shows; a family of one cause is one row."""
    return [_row(tree, node) for node in tree.root.walk() if _is_shown(tree, node)]


def _shown_kinds(tree: StallTree) -> list[str]:
    return [kind for kind in tree.engines if kind not in _FRONT_END]


def _is_shown(tree: StallTree, node: Node) -> bool:
    """Whether any share of it rounds to something, and it says more than its family."""
    shares = [tree.share_frac(node), *(tree.share_frac(node, k) for k in _shown_kinds(tree))]
    parent = next((n for n in tree.root.children if n.path == node.path[:1]), node)
    is_only_child = len(node.path) == 2 and parent.children == (node,)
    return max(shares) >= _LEAST_FRAC and not (is_only_child and node.name == parent.name)


def _row(tree: StallTree, node: Node) -> tuple[str, ...]:
    shares = (tree.share_frac(node, kind) for kind in _shown_kinds(tree))
    return (
        "  " * len(node.path) + node.name,
        format_time_ps(node.time_ps),
        percent(tree.share_frac(node)),
        *(percent(share) if share else "-" for share in shares),
    )


def operator_rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """One row per operator."""
    return [
        (
            item.name,
            item.stage,
            format_time_ps(item.elapsed_ps),
            format_time_ps(item.active_ps),
            count(item.macs),
            format_bytes(item.dram_bytes),
            f"{item.commands:,}",
        )
        for item in explanation.operators
    ]


def roofline_rows(found: Roofline, points: Sequence[Point]) -> list[tuple[str, ...]]:
    """One row per point."""
    return [
        (
            point.stage,
            point.level,
            f"{point.intensity_flops_per_byte:.4g}",
            f"{point.achieved_flops_per_s / 10**9:.4g}",
            f"{found.attainable_flops_per_s(point) / 10**9:.4g}",
            percent(found.reached_frac(point)),
            found.limit(point),
        )
        for point in points
    ]
