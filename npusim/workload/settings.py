"""What a workload reads of the settings of a run."""

from __future__ import annotations

from typing import Protocol


class RunLengths(Protocol):
    """The settings of a run that `Workload.of` reads; a `WorkloadConfig` is one."""

    @property
    def prompt_len(self) -> int | None:
        """Tokens of the prefill."""

    @property
    def context_len(self) -> int | None:
        """Tokens already cached."""

    @property
    def generate_len(self) -> int:
        """Tokens generated."""

    @property
    def batch(self) -> int:
        """Sequences."""

    @property
    def quant(self) -> str:
        """Precision of weights and activations."""

    @property
    def kv_dtype(self) -> str | None:
        """Format of the cache."""

    @property
    def kv_prune(self) -> str | None:
        """Pruning policy of the cache."""

    @property
    def expert_routing(self) -> str:
        """Which experts tokens visit."""

    @property
    def chunk_tokens(self) -> int | None:
        """Tokens of another prompt in every step."""

    @property
    def chunk_context_len(self) -> int | None:
        """Tokens of that prompt already cached."""

    @property
    def speculate_tokens(self) -> int | None:
        """Tokens proposed per step."""

    @property
    def accept_frac(self) -> float | None:
        """Probability that a proposal is accepted."""

    @property
    def draft_model(self) -> str | None:
        """What proposes tokens."""

    @property
    def mtp_layers(self) -> int | None:
        """Multi-token-prediction layers in use."""
