"""Nine figures per attention head that say how concentrated it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import WorkloadError
from npusim.workload.attention_stats import entropy_nats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

SINK_KEYS, LOCAL_KEYS = 4, 32


@dataclass(frozen=True)
class HeadStatistics:
    """Means over the second half of the query rows; column figures over all rows.

    `mean_norm_entropy` divides a row's entropy by the logarithm of its visible keys,
    `frac_keys_for_90pct` is the smallest share of a row's visible keys that holds 90 % of it,
    `sink4_mass` lies on keys 0 to 3, `local32_mass` on the last 32 keys up to the query itself,
    `frac_probs_below_1e3` is a share of the visible probabilities.
    `column_sum_norm_entropy` is the entropy of the keys' accumulated attention over log L,
    `top10pct_columns_mass` the mass on the 10 % heaviest keys (by hindsight) in the same rows.
    """

    mean_row_entropy_bits: float
    mean_norm_entropy: float
    frac_keys_for_90pct: float
    frac_keys_for_95pct: float
    sink4_mass: float
    local32_mass: float
    frac_probs_below_1e3: float
    column_sum_norm_entropy: float
    top10pct_columns_mass: float

    def as_dict(self) -> dict[str, float]:
        """Figures by name."""
        return asdict(self)


def head_statistics(attention: ArrayLike) -> HeadStatistics:
    """Statistics of one head's causal map ``(L, L)``.

    Raises
    ------
    WorkloadError
        If the map is not square, or smaller than 4 x 4.
    """
    full = np.asarray(attention, dtype=np.float64)
    if full.ndim != 2 or full.shape[0] != full.shape[1] or len(full) < SINK_KEYS:
        raise WorkloadError("attention", "one head's map must be L x L, L >= 4", full.shape)
    length = len(full)
    first = length // 2
    rows, visible = full[first:], np.arange(first, length) + 1
    bits = entropy_nats(rows) / np.log(2)
    columns = full.sum(axis=0)
    heaviest = np.argsort(-columns, kind="stable")[: max(length // 10, 1)]
    is_visible = np.arange(length) < visible[:, None]
    is_local = is_visible & (np.arange(length) >= visible[:, None] - LOCAL_KEYS)
    return HeadStatistics(
        mean_row_entropy_bits=float(bits.mean()),
        mean_norm_entropy=float((bits / np.log2(visible)).mean()),
        frac_keys_for_90pct=float((keys_for_mass(rows, 0.90) / visible).mean()),
        frac_keys_for_95pct=float((keys_for_mass(rows, 0.95) / visible).mean()),
        sink4_mass=float(rows[:, :SINK_KEYS].sum(axis=1).mean()),
        local32_mass=float(np.where(is_local, rows, 0.0).sum(axis=1).mean()),
        frac_probs_below_1e3=float((rows[is_visible] < 1e-3).mean()),
        column_sum_norm_entropy=float(entropy_nats(columns / columns.sum()) / np.log(length)),
        top10pct_columns_mass=float(columns[heaviest].sum() / columns.sum()),
    )


def keys_for_mass(rows: ArrayLike, mass_frac: float) -> NDArray[np.int64]:
    """Fewest keys of each row whose probabilities reach a share of the row's sum."""
    ordered = -np.sort(-np.asarray(rows, dtype=np.float64), axis=-1)
    totals = np.cumsum(ordered, axis=-1)
    short = totals < mass_frac * totals[..., -1:]
    count: NDArray[np.int64] = short.sum(axis=-1).astype(np.int64) + 1
    return count
