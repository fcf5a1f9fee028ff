"""Parameters and weight bytes of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.workload.quantization import Quantization, parse_quantization
from npusim.workload.weights import stored_weights

if TYPE_CHECKING:
    from npusim.workload.model_config import ModelConfig


def parameters(model: ModelConfig, mtp_layers: int = 0) -> int:
    """Weights of the model; a tied embedding counts once, whatever the precision."""
    quant = parse_quantization("w16a16")
    return sum(tensor.elems for tensor in stored_weights(model, quant, mtp_layers))


def weight_bytes_by_dtype(
    model: ModelConfig, quant: str | Quantization, mtp_layers: int = 0
) -> dict[str, int]:
    """Bytes of stored weights by format, scales and zero points included, sorted by format.

    A tied lm_head counts once with 16-bit weights and as a copy of its own when quantised.
    """
    split: dict[str, int] = {}
    for tensor in stored_weights(model, parse_quantization(quant), mtp_layers):
        for dtype, nbytes in tensor.bytes_by_dtype.items():
            split[dtype] = split.get(dtype, 0) + nbytes
    return dict(sorted(split.items()))


def weight_bytes(model: ModelConfig, quant: str | Quantization, mtp_layers: int = 0) -> int:
    """Bytes of stored weights."""
    return sum(weight_bytes_by_dtype(model, quant, mtp_layers).values())
