"""Lengths and patterns of steps that make no run, refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.speculation import MTP_DRAFT
from npusim.workload.transformer import check_length

if TYPE_CHECKING:
    from npusim.workload.workload import Workload


def check_lengths(workload: Workload) -> None:
    """Refuse lengths that make no run."""
    prompt, context = workload.prompt_len, workload.context_len
    if (prompt is None) == (context is None):
        raise WorkloadError("lengths", "exactly one of prompt_len and context_len is required")
    for where, value, least in (
        ("prompt_len", prompt, 1),
        ("context_len", context, 1),
        ("generate_len", workload.generate_len, 0 if context is None else 1),
        ("batch", workload.batch, 1),
    ):
        if value is not None:
            check_length(where, value, least)


def check_patterns(workload: Workload) -> None:
    """Refuse chunks, speculation and extra layers that make no run."""
    speculation, limit = workload.speculation, workload.model.mtp_layers
    check_length("chunk_tokens", workload.chunk_tokens, 0)
    check_length("chunk_context_len", workload.chunk_context_len, 0)
    check_length("mtp_layers", workload.mtp_layers, 0)
    if workload.chunk_context_len and not workload.chunk_tokens:
        raise WorkloadError("chunk_context_len", "needs chunk_tokens", workload.chunk_context_len)
    if workload.chunk_tokens and workload.context_len is None:
        rule = "needs context_len: sequences that decode while the chunk is computed"
        raise WorkloadError("chunk_tokens", rule, workload.chunk_tokens)
    if workload.chunk_tokens and speculation is not None:
        raise WorkloadError("chunk_tokens", "excludes speculate_tokens", workload.chunk_tokens)
    if workload.chunk_capacity_tokens > workload.model.max_positions:
        rule = f"all chunks must fit {workload.model.name}'s {workload.model.max_positions}"
        raise WorkloadError("chunk_tokens", rule, workload.chunk_capacity_tokens)
    if workload.mtp_layers > limit:
        rule = f"{workload.model.name} states {limit} multi-token-prediction layers"
        raise WorkloadError("mtp_layers", rule, workload.mtp_layers)
    if speculation is not None and not workload.decode_contexts:
        rule = "needs tokens to generate in decode"
        raise WorkloadError("speculate_tokens", rule, speculation.tokens)
    if speculation is not None and speculation.method == MTP_DRAFT and not workload.mtp_layers:
        raise WorkloadError("draft_model", "needs mtp_layers", MTP_DRAFT)
