"""Parameters and weight bytes of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.workload.quantization import Quantization, parse_quantization
from npusim.workload.weights import stored_weights

if TYPE_CHECKING:
    from npusim.workload.model_config import ModelConfig


def parameters(model: ModelConfig) -> int:
    """Weights of the model; a tied embedding counts once, whatever the precision."""
    return sum(tensor.elems for tensor in stored_weights(model, parse_quantization("w16a16")))


def weight_bytes_by_dtype(model: ModelConfig, quant: str | Quantization) -> dict[str, int]:
    """Bytes of stored weights by format, scales and zero points included, sorted by format.

    A tied lm_head counts once with 16-bit weights and as a copy of its own when quantised.
    """
    split: dict[str, int] = {}
    for tensor in stored_weights(model, parse_quantization(quant)):
        for dtype, nbytes in tensor.bytes_by_dtype.items():
            split[dtype] = split.get(dtype, 0) + nbytes
    return dict(sorted(split.items()))


def weight_bytes(model: ModelConfig, quant: str | Quantization) -> int:
    """Bytes of stored weights."""
    return sum(weight_bytes_by_dtype(model, quant).values())
