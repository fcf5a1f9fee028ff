"""Closed-form element operations of the vector operators; derived in docs/modelling/workload.md."""

from __future__ import annotations

OpCounts = tuple[tuple[str, int], ...]


def merge(*counts: OpCounts) -> OpCounts:
    """Sum counts by operation name, in order of first appearance; zeros are dropped."""
    total: dict[str, int] = {}
    for part in counts:
        for name, elems in part:
            total[name] = total.get(name, 0) + elems
    return tuple((name, elems) for name, elems in total.items() if elems)


def rms_norm(rows: int, width: int) -> OpCounts:
    """Root-mean-square norm: square, sum, mean, epsilon, rsqrt, then scale and weight."""
    return (("mul", rows * (3 * width + 1)), ("add", rows * width), ("rsqrt", rows))


def rope(elems: int) -> OpCounts:
    """Rotary embedding: x * cos + rotate(x) * sin; cos and sin are given."""
    return (("mul", 2 * elems), ("add", elems))


def softmax(rows: int, width: int, *, scaled_and_masked: bool) -> OpCounts:
    """Softmax over rows; optionally times 1/sqrt(d) and plus a mask before it."""
    extra = rows * width if scaled_and_masked else 0
    return merge(
        (("mul", extra), ("add", extra)),
        (("max", rows * (width - 1)), ("add", rows * width), ("exp", rows * width)),
        (("add", rows * (width - 1)), ("div", rows), ("mul", rows * width)),
    )


def silu_mul(elems: int) -> OpCounts:
    """Gated activation: g / (1 + exp(-g)) * u."""
    return (("exp", elems), ("add", elems), ("div", elems), ("mul", elems))


def add(elems: int) -> OpCounts:
    """Elementwise sum."""
    return (("add", elems),)


def scale(elems: int) -> OpCounts:
    """Times a constant."""
    return (("mul", elems),)


def cast(elems: int) -> OpCounts:
    """Change between two formats of the same width."""
    return (("convert", elems),)


def quantize(elems: int) -> OpCounts:
    """Static quantisation of a 16-bit value: times 1/scale, then round to the narrow format."""
    return (("mul", elems), ("convert", elems))
