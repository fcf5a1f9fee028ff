"""Speculative decoding as a pattern of steps with an acceptance rate.

A step proposes k tokens per sequence, by looking them up in the prompt (free) or with a draft, and
checks them in one pass over k + 1 tokens, so that weights are read once. Each proposal is accepted
with probability a, independently of the others; the first one that is not ends the step, whose
pass yields one more token by itself. Source: Leviathan et al. 2023 (arXiv 2211.17192), equation 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.loading import load_model
from npusim.workload.weights import mtp_module

if TYPE_CHECKING:
    from npusim.workload.model_config import ModelConfig

#: `draft_model` that stands for the model's own multi-token-prediction layers
MTP_DRAFT = "mtp"


def expected_tokens_per_step(proposed: int, accept_frac: float) -> Fraction:
    """Tokens that a step yields on average: ``(1 - a^(k+1)) / (1 - a)``, k + 1 for a = 1.

    Examples
    --------
    >>> expected_tokens_per_step(3, 0.5)
    Fraction(15, 8)
    """
    accepted = Fraction(str(accept_frac))
    return sum((accepted**i for i in range(proposed + 1)), Fraction(0))


@dataclass(frozen=True)
class Speculation:
    """How tokens are proposed and how many of them are right.

    Parameters
    ----------
    tokens : int
        Tokens proposed per step and sequence.
    accept_frac : float
        Probability that a proposal is accepted, 0 to 1.
    draft : ModelConfig, optional
        Model that proposes, one token per pass; None looks tokens up in the prompt, at no cost.
    """

    tokens: int
    accept_frac: float
    draft: ModelConfig | None = None

    def __post_init__(self) -> None:
        if type(self.tokens) is not int or self.tokens < 1:
            rule = "must be an integer of at least 1"
            raise WorkloadError("speculate_tokens", rule, self.tokens)
        if not 0.0 <= self.accept_frac <= 1.0:
            raise WorkloadError("accept_frac", "must be 0 to 1", self.accept_frac)

    @property
    def tokens_per_step(self) -> Fraction:
        """Tokens that a step yields on average."""
        return expected_tokens_per_step(self.tokens, self.accept_frac)

    def contexts(self, context_len: int, tokens: int) -> tuple[int, ...]:
        """Tokens cached at the start of every step that it takes to yield `tokens`."""
        mean = self.tokens_per_step
        return tuple(context_len + int(i * mean) for i in range(ceil(tokens / mean)))

    @property
    def method(self) -> str:
        """Name for results."""
        if self.draft is None:
            return "prompt_lookup"
        return "mtp" if self.draft.is_mtp else "draft_model"

    def facts(self) -> dict[str, object]:
        """For results."""
        return {
            "method": self.method,
            "speculate_tokens": self.tokens,
            "accept_frac": float(self.accept_frac),
            "draft_model": self.draft.name if self.draft else None,
            "tokens_per_step": float(self.tokens_per_step),
        }


def speculation_of(
    model: ModelConfig,
    tokens: int | None,
    accept_frac: float | None,
    draft: str | ModelConfig | None,
) -> Speculation | None:
    """Speculation of a run; every part of it or none."""
    if tokens is None:
        for where, value in (("accept_frac", accept_frac), ("draft_model", draft)):
            if value is not None:
                raise WorkloadError(where, "needs speculate_tokens", str(value))
        return None
    if accept_frac is None:
        raise WorkloadError("accept_frac", "is required with speculate_tokens; 0 to 1")
    if draft == MTP_DRAFT:
        return Speculation(tokens, accept_frac, mtp_module(model))
    loaded = load_model(draft) if isinstance(draft, str) else draft
    if loaded is not None and loaded.vocab_size > model.vocab_size:
        rule = f"must have a vocabulary of at most {model.name}'s {model.vocab_size}"
        raise WorkloadError("draft_model", rule, loaded.vocab_size)
    return Speculation(tokens, accept_frac, loaded)
