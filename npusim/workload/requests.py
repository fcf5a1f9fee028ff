"""Request traces: when requests arrive, and how many tokens each one brings and asks for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np

from npusim.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

MAX_REQUESTS = 2_000_000
MAX_TOKENS = 2**31 - 1
MAX_ARRIVAL_PS = 2**62  # 53 days
MAX_HASH = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Parameters
    ----------
    arrival_ps : int
        Time of arrival.
    prompt_len : int
        Tokens of the prompt, at least 1.
    output_len : int
        Tokens to generate; 0 is a request that is only prefilled.
    prefix_hashes : tuple[int, ...]
        Names of the prompt's blocks of `RequestTrace.prefix_block_tokens` tokens, in order; a name
        stands for the block and all before it, so two prompts begin alike as far as their names
        agree. Empty if nothing is known.
    """

    arrival_ps: int
    prompt_len: int
    output_len: int
    prefix_hashes: tuple[int, ...] = ()

    def check(self, where: str, prefix_block_tokens: int | None) -> None:
        """Refuse values that no request can have.

        Raises
        ------
        WorkloadError
            With `where`, the rule and the value.
        """
        limits = (
            ("arrival_ps", self.arrival_ps, 0, MAX_ARRIVAL_PS),
            ("prompt_len", self.prompt_len, 1, MAX_TOKENS),
            ("output_len", self.output_len, 0, MAX_TOKENS),
        )
        for name, value, least, most in limits:
            if type(value) is not int or not least <= value <= most:
                rule = f"{name} must be an integer {least} to {most}"
                raise WorkloadError(where, rule, str(value)[:80])
        if not self.prefix_hashes:
            return
        if prefix_block_tokens is None:
            raise WorkloadError(where, "prefix_hashes need the trace's prefix_block_tokens")
        most = -(-self.prompt_len // prefix_block_tokens)
        if len(self.prefix_hashes) > most:
            rule = (
                f"a prompt of {self.prompt_len} tokens has at most {most} blocks of "
                f"{prefix_block_tokens}, not as many prefix hashes"
            )
            raise WorkloadError(where, rule, len(self.prefix_hashes))
        for value in self.prefix_hashes:
            if type(value) is not int or not 0 <= value <= MAX_HASH:
                rule = f"prefix_hashes must be integers 0 to {MAX_HASH}"
                raise WorkloadError(where, rule, str(value)[:80])


@dataclass(frozen=True)
class RequestTrace:
    """Requests in order of arrival; at least one.

    Parameters
    ----------
    name : str
        For results.
    requests : tuple[Request, ...]
        Sorted by arrival; requests of the same time keep their order.
    prefix_block_tokens : int, optional
        Tokens per prefix hash; None if no request has hashes.
    notes : tuple[str, ...]
        What was assumed on the way here.

    Raises
    ------
    WorkloadError
        If there is no request, or they are out of order, or one has impossible values.
    """

    name: str
    requests: tuple[Request, ...]
    prefix_block_tokens: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.requests) <= MAX_REQUESTS:
            rule = f"a request trace has 1 to {MAX_REQUESTS} requests"
            raise WorkloadError(self.name, rule, len(self.requests))
        if self.prefix_block_tokens is not None and self.prefix_block_tokens < 1:
            raise WorkloadError(
                self.name, "prefix_block_tokens must be at least 1", self.prefix_block_tokens
            )
        earlier_ps = 0
        for index, request in enumerate(self.requests):
            place = f"{self.name}: request {index}"
            request.check(place, self.prefix_block_tokens)
            if request.arrival_ps < earlier_ps:
                rule = "requests must be in order of arrival"
                raise WorkloadError(place, rule, request.arrival_ps)
            earlier_ps = request.arrival_ps

    @classmethod
    def sorted(
        cls,
        name: str,
        requests: Iterable[Request],
        prefix_block_tokens: int | None = None,
        notes: Iterable[str] = (),
    ) -> Self:
        """A trace of requests in any order; a note says how many came too late."""
        given = list(requests)
        late = sum(b.arrival_ps < a.arrival_ps for a, b in pairwise(given))
        extra = (f"{late} requests stood behind a later one: sorted by arrival",) if late else ()
        ordered = sorted(given, key=lambda request: request.arrival_ps)
        return cls(name, tuple(ordered), prefix_block_tokens, (*notes, *extra))

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    @cached_property
    def arrivals_ps(self) -> NDArray[np.int64]:
        """Times of arrival."""
        return np.array([r.arrival_ps for r in self.requests], dtype=np.int64)

    @cached_property
    def prompt_lens(self) -> NDArray[np.int64]:
        """Prompt tokens of each request."""
        return np.array([r.prompt_len for r in self.requests], dtype=np.int64)

    @cached_property
    def output_lens(self) -> NDArray[np.int64]:
        """Generated tokens of each request."""
        return np.array([r.output_len for r in self.requests], dtype=np.int64)

    @property
    def has_prefix_hashes(self) -> bool:
        """Whether any request names the blocks of its prompt."""
        return any(r.prefix_hashes for r in self.requests)
