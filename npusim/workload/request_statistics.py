"""Distributions of a request trace: lengths, rate, burstiness, shared prefixes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.workload.requests import RequestTrace

PS_PER_S = 10**12
PERCENTILES = (50, 90, 95, 99)

#: arrivals are counted in windows of this length for `index_of_dispersion`
WINDOW_PS = 10 * PS_PER_S


@dataclass(frozen=True)
class Spread:
    """Spread of a whole-numbered quantity; percentiles are of nearest rank, values that occur."""

    minimum: int
    p50: int
    p90: int
    p95: int
    p99: int
    maximum: int
    mean: float

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> Spread:
        """Spread of at least one value."""
        ordered = np.sort(values)
        ranks = [ordered[-(-p * len(ordered) // 100) - 1] for p in PERCENTILES]
        mean = sum(ordered.tolist()) / len(ordered)
        p50, p90, p95, p99 = (int(rank) for rank in ranks)
        return cls(int(ordered[0]), p50, p90, p95, p99, int(ordered[-1]), mean)


@dataclass(frozen=True)
class RequestStatistics:
    """What a request trace looks like.

    Parameters
    ----------
    requests : int
        Their number.
    duration_ps : int
        From first to last arrival.
    rate_per_s : float, optional
        Arrivals after the first per second of the duration; None if all come at once.
    interarrival_ps : Spread, optional
        Times between arrivals; None for one request.
    interarrival_cv : float, optional
        Standard deviation over mean of these: 1 for a Poisson process, more for bursts.
    index_of_dispersion : float, optional
        Variance over mean of arrivals per window of 10 s, whole windows only: 1 for a Poisson
        process. None with fewer than two windows.
    prompt_len, output_len : Spread
        Tokens.
    prefix_block_tokens : int, optional
        Tokens per prefix hash.
    requests_with_hashes : int
        Requests that name blocks of their prompt.
    prefix_reuse_frac : float, optional
        Share of all prompt tokens in a longest run of first blocks that an earlier request had
        too: the hit share of a prefix cache that forgets nothing. None without hashes.
    """

    requests: int
    duration_ps: int
    rate_per_s: float | None
    interarrival_ps: Spread | None
    interarrival_cv: float | None
    index_of_dispersion: float | None
    prompt_len: Spread
    output_len: Spread
    prefix_block_tokens: int | None
    requests_with_hashes: int
    prefix_reuse_frac: float | None

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def request_statistics(trace: RequestTrace) -> RequestStatistics:
    """Distributions of a trace."""
    arrivals = trace.arrivals_ps
    duration_ps = int(arrivals[-1] - arrivals[0])
    gaps = np.diff(arrivals)
    mean_ps = duration_ps / len(gaps) if len(gaps) else 0.0
    return RequestStatistics(
        requests=len(trace),
        duration_ps=duration_ps,
        rate_per_s=len(gaps) * PS_PER_S / duration_ps if duration_ps else None,
        interarrival_ps=Spread.of(gaps) if len(gaps) else None,
        interarrival_cv=float(np.std(gaps) / mean_ps) if duration_ps else None,
        index_of_dispersion=_dispersion(arrivals, duration_ps),
        prompt_len=Spread.of(trace.prompt_lens),
        output_len=Spread.of(trace.output_lens),
        prefix_block_tokens=trace.prefix_block_tokens,
        requests_with_hashes=sum(bool(r.prefix_hashes) for r in trace),
        prefix_reuse_frac=reused_tokens(trace) / sum(trace.prompt_lens.tolist())
        if trace.has_prefix_hashes
        else None,
    )


def reused_tokens(trace: RequestTrace) -> int:
    """Prompt tokens in first blocks that an earlier request had too, whatever came between.

    A last, partly filled block counts with the tokens it has.
    """
    block = trace.prefix_block_tokens
    seen: set[int] = set()
    total = 0
    for request in trace:
        matched = 0
        for name in request.prefix_hashes:
            if name not in seen:
                break
            matched += 1
        if matched and block is not None:
            total += min(matched * block, request.prompt_len)
        seen.update(request.prefix_hashes)
    return total


def _dispersion(arrivals_ps: NDArray[np.int64], duration_ps: int) -> float | None:
    """Variance over mean of arrivals per whole window."""
    windows = duration_ps // WINDOW_PS
    if windows < 2:
        return None
    index = (arrivals_ps - arrivals_ps[0]) // WINDOW_PS
    _, counts = np.unique(index[index < windows], return_counts=True)
    mean = float(counts.sum()) / windows  # at least the first request is in a window
    squares = float((counts.astype(np.float64) ** 2).sum()) / windows
    return (squares - mean**2) / mean
