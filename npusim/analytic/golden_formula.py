"""The published "golden formula" of latency, as printed and corrected.

As printed, ``latency_ms = 12.8 * (1 / bw_gbps) * (1 - alpha) * beta``. In base units the constant
12.8 ms x GB/s is 12.8e6 bytes. Two defects are kept apart, not hidden: beta is called a speed-up
yet multiplies, so that a faster instruction set is slower; and (1 - alpha) shrinks the whole
latency although pruning the KV cache shrinks KV bytes only.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: 12.8 ms x 1 GB/s
PUBLISHED_BYTES = 12_800_000

#: instruction-set factor of the article, ARM SVE2 = 1
PUBLISHED_BETA: Mapping[str, float] = MappingProxyType(
    {"arm_sve2": 1.0, "ascend_910b": 1.83, "mlu370_x8": 2.11, "horizon_j5": 1.42}
)


class Variant(StrEnum):
    """What beta does."""

    AS_PUBLISHED = "as_published"  # multiplies
    CORRECTED = "corrected"  # divides


class Mean(StrEnum):
    """How rates of tiers are blended."""

    ARITHMETIC = "arithmetic"
    HARMONIC = "harmonic"


def golden_latency_s(
    bandwidth_bytes_per_s: Any,
    pruned_frac: Any = 0.0,
    beta: Any = 1.0,
    variant: Variant | str = Variant.AS_PUBLISHED,
) -> Any:
    """Latency in seconds.

    Parameters
    ----------
    bandwidth_bytes_per_s : float or array
        Effective memory bandwidth.
    pruned_frac : float or array, optional
        Share of the KV cache that is pruned, 0 to below 1.
    beta : float or array, optional
        Instruction-set factor, see `PUBLISHED_BETA`.
    variant : Variant or str, optional
        Whether beta multiplies (as published) or divides (corrected).

    Raises
    ------
    ConfigError
        If a scalar is out of range or the variant unknown. Arrays are not checked.

    Examples
    --------
    >>> golden_latency_s(128e9)
    0.0001
    """
    _check("bandwidth_bytes_per_s", bandwidth_bytes_per_s, 0.0, None)
    _check("pruned_frac", pruned_frac, None, 1.0)
    _check("beta", beta, 0.0, None)
    try:
        kind = Variant(variant)
    except ValueError:
        rule = f"must be one of {', '.join(Variant)}"
        raise ConfigError("variant", rule, variant) from None
    base_s = PUBLISHED_BYTES / bandwidth_bytes_per_s * (1 - pruned_frac)
    return base_s * beta if kind is Variant.AS_PUBLISHED else base_s / beta


def fitted_latency_s(
    fixed_s: Any,
    weight_bytes: Any,
    kv_bytes: Any,
    bandwidth_bytes_per_s: Any,
    pruned_frac: Any = 0.0,
) -> Any:
    """General form: a fixed time, weights once, and the KV bytes that pruning leaves.

    ``fixed_s + weight_bytes / bw + (1 - pruned_frac) * kv_bytes / bw``; arguments broadcast.
    """
    _check("bandwidth_bytes_per_s", bandwidth_bytes_per_s, 0.0, None)
    _check("pruned_frac", pruned_frac, None, 1.0)
    return fixed_s + (weight_bytes + (1 - pruned_frac) * kv_bytes) / bandwidth_bytes_per_s


def blended_bandwidth(
    sram_bytes_per_s: Any, dram_bytes_per_s: Any, hit_frac: Any, mean: Mean | str = "arithmetic"
) -> Any:
    """Effective bandwidth of two tiers when `hit_frac` of the bytes come from SRAM.

    Parameters
    ----------
    sram_bytes_per_s, dram_bytes_per_s : float or array
        Rates of the tiers.
    hit_frac : float or array
        Share of the bytes that SRAM supplies, 0 to 1.
    mean : Mean or str, optional
        ``arithmetic`` weighs the rates, as published: right if a share of the time, not of the
        bytes, belongs to each tier. ``harmonic`` weighs the times: right for bytes that come one
        after the other.

    Raises
    ------
    ConfigError
        If a scalar is out of range or the mean unknown. Arrays are not checked.

    Notes
    -----
    The article prints 682.9 GB/s for (768, 176, 0.82); its own formula gives 661.44.

    Examples
    --------
    >>> round(blended_bandwidth(768, 176, 0.82), 2)
    661.44
    >>> round(blended_bandwidth(768, 176, 0.82, "harmonic"), 2)
    478.37
    """
    _check("sram_bytes_per_s", sram_bytes_per_s, 0.0, None)
    _check("dram_bytes_per_s", dram_bytes_per_s, 0.0, None)
    if isinstance(hit_frac, (int, float)) and not 0 <= hit_frac <= 1:
        raise ConfigError("hit_frac", "must lie in 0..1", hit_frac)
    try:
        kind = Mean(mean)
    except ValueError:
        raise ConfigError("mean", f"must be one of {', '.join(Mean)}", mean) from None
    if kind is Mean.ARITHMETIC:
        return sram_bytes_per_s * hit_frac + dram_bytes_per_s * (1 - hit_frac)
    return 1 / (hit_frac / sram_bytes_per_s + (1 - hit_frac) / dram_bytes_per_s)


def _check(where: str, value: Any, above: float | None, below: float | None) -> None:
    """Refuse a scalar outside (above, below); without `above`, below 0."""
    if not isinstance(value, (int, float)):
        return
    is_low = value < 0 if above is None else value <= above
    if value != value or is_low or (below is not None and value >= below):
        low = "at least 0" if above is None else f"above {above:g}"
        high = "" if below is None else f" and below {below:g}"
        raise ConfigError(where, f"must be {low}{high}", value)
