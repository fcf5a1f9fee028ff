"""Names of what the models leave out or simplify, for the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.config.run_spec import Fidelity
from npusim.results.records import Approximation
from npusim.workload.operator import Phase

if TYPE_CHECKING:
    from npusim.compiler.compile import Compiled
    from npusim.config.run_spec import RunSpec
    from npusim.simulation.workloads import AnyWorkload
    from npusim.workload.graph import OperatorGraph


def model_approximations(
    spec: RunSpec, compiled: Compiled, graph: OperatorGraph
) -> tuple[Approximation, ...]:
    """What holds for every run of this version, and what this run adds."""
    notes = [
        Approximation(
            "sram_conflicts",
            "scratchpads",
            None,
            "streams of a command are its regions at an even rate, those of DMA engines at "
            "their share of the memory's peak; a set of streams counts from its bases",
        ),
        Approximation("start", "memory", None, "cold: nothing is on chip when a phase starts"),
    ]
    stages = {operator.stage for operator in graph}
    if "scores" in stages:
        notes.append(
            Approximation(
                "causal_mask",
                "attention",
                None,
                "attention computes the full square, as unfused kernels do",
            )
        )
    if "embedding" in stages:
        notes.append(
            Approximation(
                "token_ids",
                "embedding",
                None,
                "embedding rows are spread over the table by a hash of the position",
            )
        )
    if any(space.kind == "cache" for space in compiled.program.spaces):
        notes.append(
            Approximation(
                "cache",
                "shared_sram",
                None,
                "looked up when a transfer is submitted; every phase starts with an empty cache",
            )
        )
    if "shared_sram" in compiled.activation_space:
        notes.append(
            Approximation(
                "shared_sram_cache",
                compiled.activation_space,
                None,
                "activations and tiles shared by cores always hit; no set conflicts or pollution",
            )
        )
    if spec.simulation.fidelity is Fidelity.TRANSFER:
        notes.append(
            Approximation(
                "transfer_fidelity",
                "memory",
                None,
                "transfers share bandwidth at measured efficiencies, no bursts; row hits, misses "
                "and conflicts by measured shares, refreshes by the elapsed time",
            )
        )
    return tuple(notes)


def pattern_approximations(workload: AnyWorkload, phase: str) -> tuple[Approximation, ...]:
    """What a pattern of steps leaves to a rate or takes for granted."""
    speculation = workload.speculation
    if phase == Phase.DECODE and speculation is not None:
        mean = float(speculation.tokens_per_step)
        basis = (
            f"{speculation.tokens} tokens proposed per step by {speculation.method}, each accepted "
            f"with probability {speculation.accept_frac} independently: {mean:.6g} tokens per step "
            "(Leviathan et al. 2023, equation 1); the cache advances by this mean"
        )
        return (Approximation("speculative_acceptance", phase, None, basis),)
    if phase == Phase.DRAFT:
        basis = "one token per pass; catching up on a token of the check alone costs no pass"
        return (Approximation("draft_passes", phase, None, basis),)
    if phase == Phase.MIXED:
        basis = "every step samples for the last token of the chunk too, whether or not it is used"
        return (Approximation("chunk_head", phase, None, basis),)
    return ()
