"""Synthetic request traces: seeded arrivals and lengths.

Times between arrivals are Gamma distributed with mean ``1 / rate`` and coefficient of variation
``cv``: shape ``1 / cv^2``, scale ``cv^2 / rate``; ``cv = 1`` is a Poisson process. Each is rounded
to whole picoseconds before they are added up. Lengths are pairs of a real trace, drawn with
replacement, or independent lognormal ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Protocol

import numpy as np

from npusim.errors import WorkloadError
from npusim.workload.request_statistics import PS_PER_S
from npusim.workload.requests import MAX_ARRIVAL_PS, MAX_REQUESTS, MAX_TOKENS, Request, RequestTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Lengths(Protocol):
    """Where lengths come from."""

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Prompt and output lengths of `count` requests."""

    def describe(self) -> str:
        """For the trace's notes."""


@dataclass(frozen=True)
class EmpiricalLengths:
    """Pairs of prompt and output length, drawn with replacement: their correlation stays.

    Parameters
    ----------
    name : str
        Where they come from.
    pairs : tuple of (int, int)
        Prompt and output tokens.
    """

    name: str
    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise WorkloadError(self.name, "has no lengths to draw from")

    @classmethod
    def of(cls, trace: RequestTrace) -> EmpiricalLengths:
        """Those of a trace."""
        return cls(trace.name, tuple((r.prompt_len, r.output_len) for r in trace))

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs drawn with replacement."""
        table = np.array(self.pairs, dtype=np.int64)
        chosen = table[rng.integers(0, len(table), count)]
        return chosen[:, 0], chosen[:, 1]

    def describe(self) -> str:
        """For the trace's notes."""
        return f"lengths drawn from the {len(self.pairs)} pairs of {self.name}"


@dataclass(frozen=True)
class Lognormal:
    """``ceil(median x exp(sigma x N(0, 1)))`` tokens, drawn again above `most`."""

    median: float
    sigma: float
    most: int = MAX_TOKENS

    def __post_init__(self) -> None:
        if not (isfinite(self.median) and 1 <= self.median <= self.most):
            rule = f"the median must be 1 to the limit of {self.most} tokens"
            raise WorkloadError("lognormal lengths", rule, self.median)
        if not (isfinite(self.sigma) and 0 <= self.sigma <= 10):
            raise WorkloadError("lognormal lengths", "sigma must be 0 to 10", self.sigma)
        if not 1 <= self.most <= MAX_TOKENS:
            raise WorkloadError("lognormal lengths", f"the limit is 1 to {MAX_TOKENS}", self.most)

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`count` lengths; half of all draws lie below the median, so this ends."""
        kept = np.zeros(0, dtype=np.int64)
        while len(kept) < count:
            drawn = np.ceil(self.median * np.exp(self.sigma * rng.standard_normal(count)))
            kept = np.concatenate((kept, drawn[drawn <= self.most].astype(np.int64)))
        return kept[:count]


@dataclass(frozen=True)
class LognormalLengths:
    """Independent lognormal prompt and output lengths."""

    prompt: Lognormal
    output: Lognormal

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First all prompt lengths, then all output lengths."""
        return self.prompt.draw(count, rng), self.output.draw(count, rng)

    def describe(self) -> str:
        """For the trace's notes."""
        texts = (
            f"{name} median {of.median:g} sigma {of.sigma:g} at most {of.most}"
            for name, of in (("prompt", self.prompt), ("output", self.output))
        )
        return f"lognormal lengths: {', '.join(texts)}"


def generator(seed: int) -> np.random.Generator:
    """The source of randomness of a seed."""
    return np.random.default_rng(seed)


def synthesize_requests(
    count: int,
    rate_per_s: float,
    lengths: Lengths,
    rng: np.random.Generator,
    *,
    cv: float = 1.0,
    name: str = "synthetic",
) -> RequestTrace:
    """A trace of random requests; the first arrives after the first random time.

    Parameters
    ----------
    count : int
        Requests.
    rate_per_s : float
        Mean arrivals per second.
    lengths : EmpiricalLengths or LognormalLengths
        Where lengths come from.
    rng : numpy.random.Generator
        Source of randomness; equal generators give equal traces.
    cv : float, optional
        Standard deviation over mean of the times between arrivals; 1 is Poisson, 0 a fixed rate.
    name : str, optional
        Name of the trace.

    Raises
    ------
    WorkloadError
        If a number is out of its range.

    Examples
    --------
    >>> lengths = EmpiricalLengths("two", ((100, 10), (200, 20)))
    >>> trace = synthesize_requests(4, 2.0, lengths, np.random.default_rng(0), cv=0)
    >>> [request.arrival_ps // 10**9 for request in trace]
    [500, 1000, 1500, 2000]
    """
    if not 1 <= count <= MAX_REQUESTS:
        raise WorkloadError("requests", f"must be 1 to {MAX_REQUESTS}", count)
    if not (isfinite(rate_per_s) and rate_per_s > 0):
        raise WorkloadError("rate", "must be above 0 requests per second", rate_per_s)
    if not (isfinite(cv) and 0 <= cv <= 100):
        raise WorkloadError("cv", "must be 0 to 100", cv)
    mean_ps = PS_PER_S / rate_per_s
    gaps = np.full(count, mean_ps) if cv == 0 else rng.gamma(cv**-2, cv**2 * mean_ps, count)
    if not float(gaps.sum()) < MAX_ARRIVAL_PS:
        rule = f"the last request must arrive before {MAX_ARRIVAL_PS} ps; raise the rate"
        raise WorkloadError("rate", rule, rate_per_s)
    arrivals = np.cumsum(np.rint(gaps).astype(np.int64))
    prompts, outputs = lengths.draw(count, rng)
    rows = zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    process = "Poisson" if cv == 1 else f"Gamma (cv {cv:g})"
    notes = (f"{process} arrivals at {rate_per_s:g} per second", lengths.describe())
    return RequestTrace(name, tuple(Request(*row) for row in rows), None, notes)
