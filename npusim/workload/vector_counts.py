"""Closed-form element operations of the vector operators; derived in docs/modelling/workload.md."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.workload.model_config import Activation

if TYPE_CHECKING:
    from collections.abc import Mapping

OpCounts = tuple[tuple[str, int], ...]

#: per element: silu x / (1 + exp(-x)); gelu 0.5 x (1 + tanh(c (x + a x^3)))
_ACTIVATION_OPS: Mapping[Activation, OpCounts] = MappingProxyType(
    {
        Activation.SILU: (("exp", 1), ("add", 1), ("div", 1)),
        Activation.GELU: (("tanh", 1), ("mul", 3), ("add", 1)),
        Activation.GELU_TANH: (("tanh", 1), ("mul", 6), ("add", 2)),
        Activation.RELU: (("max", 1),),
    }
)


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


def layer_norm(rows: int, width: int) -> OpCounts:
    """Mean, centre, variance, epsilon, rsqrt, then scale, weight and bias."""
    return (("add", rows * 4 * width), ("mul", rows * (3 * width + 2)), ("rsqrt", rows))


def activation(kind: Activation, elems: int) -> OpCounts:
    """The nonlinearity alone; the error function is charged as a tanh."""
    return tuple((name, n * elems) for name, n in _ACTIVATION_OPS[kind])


def gated_activation(kind: Activation, elems: int) -> OpCounts:
    """act(gate) * up."""
    return merge(activation(kind, elems), (("mul", elems),))


def soft_cap(elems: int) -> OpCounts:
    """Soft cap, cap * tanh(x / cap)."""
    return (("mul", 2 * elems), ("tanh", elems))


def sinks(rows: int) -> OpCounts:
    """One more logit in the maximum and in the sum of every softmax row."""
    return (("max", rows), ("add", 2 * rows), ("exp", rows))


def top_k(rows: int, width: int, k: int) -> OpCounts:
    """Take k passes of a maximum over what is left; normalise the winners' weights."""
    left = k * width - k * (k - 1) // 2
    return (("max", rows * left), ("add", rows * (k - 1)), ("div", rows * k))


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
