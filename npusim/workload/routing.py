"""Which experts the tokens of a pass visit: drawn, seeded, or taken from a routing trace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import WorkloadError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Loads = tuple[int, ...]

ROUTINGS = ("uniform", "zipf", "balanced")

DEFAULT_ZIPF_EXPONENT = 1.0

#: tokens drawn at a time, so that a long prompt takes bounded memory
_DRAW_TOKENS = 4096

_MAX_TRACE_BYTES = 1 << 30


@dataclass(frozen=True)
class ExpertRouting:
    """How tokens choose experts.

    Parameters
    ----------
    text : str
        "uniform": every set of `top_k` experts is equally likely. "zipf" or "zipf:S": expert e is
        drawn in proportion to ``(e + 1) ** -S``, without repetition inside a token. "balanced":
        as equal as can be. Anything else is the path of a routing trace: a ``.jsonl`` file with
        ``{"layer": 0, "experts": [3, 7]}`` per token, from which tokens are drawn with repetition.
    seed : int
        Of the draw.

    Notes
    -----
    Drawn loads are the same in every layer and every step with as many tokens: layers stay
    identical, so that they fold. A trace has loads per layer.
    """

    text: str = "uniform"
    seed: int = 0

    def __post_init__(self) -> None:
        kind, _, exponent = self.text.partition(":")
        if kind in ("uniform", "balanced") and not exponent:
            return
        if kind == "zipf":
            _zipf_exponent(self.text)
        elif not Path(self.text).is_file():
            rule = f"must be one of {', '.join(ROUTINGS)}, zipf:S or a routing trace (.jsonl)"
            raise WorkloadError("expert_routing", rule, self.text, nearest(kind, ROUTINGS))

    @property
    def is_trace(self) -> bool:
        """Whether loads differ from layer to layer."""
        return self.text.partition(":")[0] not in ROUTINGS

    def loads(self, num_experts: int, top_k: int, tokens: int, layer: int = 0) -> Loads:
        """Tokens of each expert, shape (num_experts,); they sum to tokens x top_k.

        Raises
        ------
        WorkloadError
            If a trace lacks the layer, or names an expert the model does not have.
        """
        if self.text == "balanced":
            even, more = divmod(tokens * top_k, num_experts)
            return tuple(even + (1 if e < more else 0) for e in range(num_experts))
        if self.is_trace:
            return _trace_loads(self.text, self.seed, num_experts, top_k, tokens, layer)
        return _drawn_loads(self.text, self.seed, num_experts, top_k, tokens)


UNIFORM_ROUTING = ExpertRouting()


def expected_distinct_experts(num_experts: int, top_k: int, tokens: int) -> float:
    """Expected number of experts that `tokens` uniformly routed tokens visit.

    A token misses a given expert with probability ``1 - top_k / num_experts``, so
    ``E (1 - (1 - k / E) ** T)``.
    """
    return expected_distinct([top_k / num_experts] * num_experts, tokens)


def expected_distinct(shares: Sequence[float], tokens: int) -> float:
    """Expected number of experts visited, from the share of tokens that visit each expert.

    Tokens are independent: ``sum of 1 - (1 - share) ** tokens``.
    """
    return sum(1.0 - (1.0 - share) ** tokens for share in shares)


def _zipf_exponent(text: str) -> float:
    """S of "zipf:S"."""
    _, _, tail = text.partition(":")
    try:
        exponent = float(tail) if tail else DEFAULT_ZIPF_EXPONENT
    except ValueError:
        exponent = -1.0
    if not 0.0 < exponent < 100.0:
        raise WorkloadError("expert_routing", "zipf:S needs an S between 0 and 100", text)
    return exponent


@lru_cache(maxsize=256)
def _drawn_loads(text: str, seed: int, num_experts: int, top_k: int, tokens: int) -> Loads:
    """Draw `top_k` distinct experts per token with Gumbel keys (Efraimidis and Spirakis 2006)."""
    rng = np.random.default_rng([seed, num_experts, top_k, tokens])
    weights = np.zeros(num_experts)
    if text != "uniform":
        weights = -_zipf_exponent(text) * np.log(np.arange(1, num_experts + 1))
    loads = np.zeros(num_experts, dtype=np.int64)
    for first in range(0, tokens, _DRAW_TOKENS):
        count = min(_DRAW_TOKENS, tokens - first)
        keys = weights + rng.gumbel(size=(count, num_experts))
        chosen = np.argpartition(keys, num_experts - top_k, axis=1)[:, num_experts - top_k :]
        loads += np.bincount(chosen.ravel(), minlength=num_experts)
    return tuple(loads.tolist())


@lru_cache(maxsize=1024)
def _trace_loads(
    path: str, seed: int, num_experts: int, top_k: int, tokens: int, layer: int
) -> Loads:
    """Draw tokens of a trace's layer with repetition."""
    by_layer = _read_trace(path)
    if layer not in by_layer:
        rule = f"layer {layer} is not in the routing trace, which has {sorted(by_layer)}"
        raise WorkloadError(path, rule)
    choices = by_layer[layer]
    if choices.shape[1] != top_k or choices.max() >= num_experts:
        rule = f"tokens must name {top_k} of {num_experts} experts"
        raise WorkloadError(path, rule, (choices.shape[1], int(choices.max())))
    rng = np.random.default_rng([seed, layer, tokens])
    drawn = choices[rng.integers(0, len(choices), size=tokens)]
    return tuple(np.bincount(drawn.ravel(), minlength=num_experts).tolist())


@lru_cache(maxsize=8)
def _read_trace(path: str) -> dict[int, NDArray[np.int64]]:
    """Chosen experts by layer, shape (tokens, top_k) each."""
    rows: dict[int, list[list[int]]] = {}
    if Path(path).stat().st_size > _MAX_TRACE_BYTES:
        raise WorkloadError(path, f"a routing trace has at most {_MAX_TRACE_BYTES} bytes")
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                layer, experts = _trace_row(f"{path}: line {number}", line)
                rows.setdefault(layer, []).append(experts)
                if len(experts) != len(rows[layer][0]):
                    rule = f"every token of a layer names {len(rows[layer][0])} experts"
                    raise WorkloadError(f"{path}: line {number}", rule, experts)
    if not rows:
        raise WorkloadError(path, "the routing trace is empty")
    return {layer: np.array(tokens, dtype=np.int64) for layer, tokens in rows.items()}


def _trace_row(where: str, line: str) -> tuple[int, list[int]]:
    """Layer and experts of one token."""
    try:
        row = json.loads(line)
        layer, experts = row["layer"], row["experts"]
        numbers = [layer, *experts]
    except (ValueError, KeyError, TypeError, RecursionError):
        rule = 'must be {"layer": int, "experts": [int, ...]}'
        raise WorkloadError(where, rule, line.strip()[:80]) from None
    if not experts or any(type(n) is not int or not 0 <= n < 2**31 for n in numbers):
        raise WorkloadError(where, "layer and experts must be integers of at least 0", numbers[:8])
    if len(set(experts)) != len(experts):
        raise WorkloadError(where, "a token names each expert once", experts[:8])
    return layer, list(experts)
