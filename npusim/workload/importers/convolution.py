"""Convolutions as products of their im2col matrix.

``m = batch x out height x out width``, ``k = channels / groups x filter height x filter width`` and
``n = filters / groups``, one product per group. The im2col matrix is made by a copy unless the
filter has one element and reads every input element once. Source: Chellapilla et al. 2006.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from npusim.workload.operator import MatmulShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npusim.workload.importers.builder import TraceBuilder
    from npusim.workload.tensor import Tensor


def convolution(
    build: TraceBuilder,
    name: str,
    image: Tensor,
    weight: Tensor,
    out: Tensor,
    bias: Sequence[Tensor] = (),
) -> None:
    """Append a convolution of (batch, channels, ...) by (filters, channels / groups, ...)."""
    if len(image.shape) < 3 or len(weight.shape) != len(image.shape):
        build.fallback(name, name, (image, weight), (out,))
        return
    channels, filters = image.shape[1], weight.shape[0]
    groups, rest = divmod(channels, weight.shape[1])
    if rest or filters % groups or out.shape[1] != filters:
        build.fallback(name, name, (image, weight), (out,))
        return
    m = image.shape[0] * prod(out.shape[2:])
    k, n = prod(weight.shape[1:]), filters // groups
    shape = MatmulShape(groups, m, k, n)
    label = f"{name}.{len(build.operators)}"
    matrix = replace(image, shape=(groups, m, k))
    if prod(weight.shape[2:]) > 1 or m * channels != image.elems:
        matrix = build.tensor(f"{label}.im2col", (groups, m, k), image.dtype)
        build.copy(f"{label}.im2col", (image,), matrix, "im2col")
    weight = build.weight(replace(weight, shape=(groups, k, n)))
    added = build.weight(bias[0]) if bias else None
    build.matmul(
        name, matrix, weight, out, shape, bias=added,
        stage="conv",
    )  # fmt: skip
