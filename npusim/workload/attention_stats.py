"""Statistics of attention probabilities, and what pruning a cache does to them.

Arrays are ``(heads, queries, keys)`` (`pruned_attention`: one head's q, k, v). Rows of a causal map
are zero after the query's own position. `r_max` follows the published rule (article's form
"alpha (1 - H / log L)"); logarithms are natural, and its result does not depend on the base as long
as both logarithms share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import WorkloadError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Masks = NDArray[np.bool_]


def head_sparsity(attention: ArrayLike, threshold: float = 0.0) -> Floats:
    """Share of entries at or below a threshold: ``1 - nnz(A_h) / (queries * keys)`` per head.

    The masked half of a causal map counts as zeros, as the formula prints it.
    """
    maps = _maps(attention)
    result: Floats = 1.0 - np.count_nonzero(maps > threshold, axis=(1, 2)) / maps[0].size
    return result


def position_mass(attention: ArrayLike) -> Floats:
    """Share of all attention that each key receives, over heads and queries; sums to 1.

    The printed form divides by L only and sums to the number of heads.
    """
    mass: Floats = _maps(attention).sum(axis=(0, 1))
    shares: Floats = mass / mass.sum()
    return shares


def positional_entropy(attention: ArrayLike) -> float:
    """Entropy of `position_mass` in nats."""
    return float(entropy_nats(position_mass(attention)))


def r_max(attention: ArrayLike, threshold: float = 0.0) -> float:
    """Largest share of tokens that may be pruned by the published rule.

    `safe_fraction` of the mean head sparsity and of the positional entropy.
    """
    maps = _maps(attention)
    mean = float(head_sparsity(maps, threshold).mean())
    return safe_fraction(mean, positional_entropy(maps), maps.shape[2])


def safe_fraction(sparsity_frac: float, entropy: float, length: int) -> float:
    """``sparsity * (1 - H / ln L)``.

    Parameters
    ----------
    sparsity_frac : float
        Mean head sparsity, 0 to 1.
    entropy : float
        Positional entropy in nats, 0 to ln L.
    length : int
        Keys, at least 2.

    Raises
    ------
    WorkloadError
        If a value is outside its range; nothing is clamped.

    Examples
    --------
    >>> round(safe_fraction(0.6, 2.0, 2048), 3)
    0.443
    """
    if length < 2:
        raise WorkloadError("r_max", "needs at least 2 keys", length)
    if not 0.0 <= sparsity_frac <= 1.0:
        raise WorkloadError("r_max", "sparsity must be 0 to 1", sparsity_frac)
    longest = float(np.log(length))
    if not 0.0 <= entropy <= longest * (1 + 1e-12):
        raise WorkloadError("r_max", f"entropy must be 0 to ln {length} nats", entropy)
    return sparsity_frac * (1.0 - min(entropy, longest) / longest)


def entropy_nats(shares: ArrayLike) -> Floats:
    """Entropy along the last axis, with 0 log 0 = 0."""
    p = np.asarray(shares, dtype=np.float64)
    result: Floats = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(axis=-1)
    return result


def retained_mass(attention: ArrayLike, kept: ArrayLike) -> Floats:
    """Share of each head's attention that falls on kept keys, mean over its rows.

    Parameters
    ----------
    attention : (heads, queries, keys)
        Probabilities.
    kept : bool, (keys,) or (heads, keys)
        Kept keys, of all heads or of each.
    """
    maps = _maps(attention)
    mask = np.broadcast_to(np.asarray(kept, dtype=np.bool_), (maps.shape[0], maps.shape[2]))
    rows = np.where(mask[:, None, :], maps, 0.0).sum(axis=2)
    result: Floats = (rows / maps.sum(axis=2)).mean(axis=1)
    return result


def causal_attention(query: ArrayLike, key: ArrayLike) -> Floats:
    """Probabilities of one head: softmax of ``q k^T / sqrt(d)``, the last query at the last key.

    Query and key are already rotated, ``(queries, d)`` and ``(keys, d)`` with queries <= keys.
    """
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    scores = q @ k.T / np.sqrt(q.shape[1])
    own = np.arange(len(k) - len(q), len(k))
    return _softmax(np.where(np.arange(len(k)) <= own[:, None], scores, -np.inf))


def pruned_attention(query: ArrayLike, key: ArrayLike, value: ArrayLike, kept: ArrayLike) -> Floats:
    """Outputs of queries that see every kept key (a decode step): softmax over those alone.

    Raises
    ------
    WorkloadError
        If no key is kept.
    """
    mask = np.asarray(kept, dtype=np.bool_)
    if not mask.any():
        raise WorkloadError("kept", "at least one key must be kept")
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (query, key, value))
    return _softmax(q @ k[mask].T / np.sqrt(q.shape[1])) @ v[mask]


def output_error(query: ArrayLike, key: ArrayLike, value: ArrayLike, kept: ArrayLike) -> float:
    """Relative error of pruned against full attention: ``||pruned - full|| / ||full||``."""
    everything = np.ones(len(np.asarray(key)), dtype=np.bool_)
    full = pruned_attention(query, key, value, everything)
    pruned = pruned_attention(query, key, value, kept)
    return float(np.linalg.norm(pruned - full) / np.linalg.norm(full))


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return result


def _maps(attention: ArrayLike) -> Floats:
    """As float64 heads x queries x keys; refuse what is no probability map."""
    maps = np.asarray(attention, dtype=np.float64)
    if maps.ndim == 2:
        maps = maps[None]
    if maps.ndim != 3 or maps.size == 0:
        raise WorkloadError("attention", "must be (heads, queries, keys)", maps.shape)
    if not np.isfinite(maps).all() or (maps < 0).any():
        raise WorkloadError("attention", "probabilities must be finite and not negative")
    return maps
