"""Precision of weights, activations and KV cache: `wXaY[_gN]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError, nearest
from npusim.workload.tensor import Role, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

#: every pair of weight and activation bits that is modelled
PRECISIONS = ("w16a16", "w8a8", "w8a16", "w4a16", "w4a8")

#: formats the KV cache may have; `None` means the model's own 16-bit format
KV_DTYPES = ("fp16", "bf16", "int8", "int4", "fp8")

#: rows of K that share a scale when no `_gN` is given: 16 bit has none, -1 is one per column
DEFAULT_GROUP: Mapping[int, int] = MappingProxyType({16: 0, 8: -1, 4: 128})

SCALE_DTYPE = "fp16"

#: zero points by weight bits: 4-bit weights are asymmetric, 8-bit weights symmetric
ZERO_POINT_DTYPE: Mapping[int, str | None] = MappingProxyType({16: None, 8: None, 4: "int4"})

_PATTERN = re.compile(r"(w\d{1,3}a\d{1,3})(?:_g(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Quantization:
    """What `wXaY[_gN]` means for a decoder.

    Decoder linears and lm_head have `weight_bits` with scales per `group` rows of K; a tied lm_head
    is a quantised copy of its own unless the weights stay at 16 bits. Embedding, norms and biases
    stay at 16 bits. Activations have `activation_bits` where they enter a matmul with a weight and
    16 bits elsewhere; their scales are static, one per tensor, and cost no bytes.

    Parameters
    ----------
    name : str
        As given, for example ``"w4a16_g64"``.
    weight_bits, activation_bits : int
        Bits per element.
    group : int
        Rows of K per scale; -1 one scale per column, 0 no scales.
    """

    name: str
    weight_bits: int
    activation_bits: int
    group: int

    def weight_dtype(self, model_dtype: str) -> str:
        """Storage format of quantised weights; `model_dtype` is the 16-bit format."""
        return model_dtype if self.weight_bits == 16 else f"int{self.weight_bits}"

    def activation_dtype(self, model_dtype: str) -> str:
        """Format of activations that enter a matmul with a weight, and of that matmul."""
        return model_dtype if self.activation_bits == 16 else f"int{self.activation_bits}"

    def attention_dtype(self, model_dtype: str, kv_dtype: str) -> str:
        """Format of the two attention matmuls: int8 if activations and KV are, else 16 bit."""
        activation = self.activation_dtype(model_dtype)
        return "int8" if activation == kv_dtype == "int8" else model_dtype

    def weight(
        self, name: str, k: int, n: int, model_dtype: str, stack: tuple[int, ...] = ()
    ) -> Tensor:
        """The (k x n) weight of a linear, or a stack of them, with scales and zero points."""
        return Tensor(
            name=name,
            shape=(*stack, k, n),
            dtype=self.weight_dtype(model_dtype),
            role=Role.WEIGHT,
            scale_group=self.group,
            scale_dtype=SCALE_DTYPE if self.group else None,
            zero_point_dtype=ZERO_POINT_DTYPE[self.weight_bits],
        )


def parse_quantization(text: str | Quantization) -> Quantization:
    """Read `wXaY[_gN]`.

    Parameters
    ----------
    text : str or Quantization
        One of `PRECISIONS`, with ``_gN`` for one scale per N rows of K. Without it 8-bit weights
        have one scale per column and 4-bit weights one per 128 rows.

    Raises
    ------
    WorkloadError
        If the precision is unknown, or groups are given for 16-bit weights or are zero.
    """
    if isinstance(text, Quantization):
        return text
    match = _PATTERN.fullmatch(text)
    if match is None or match.group(1) not in PRECISIONS:
        rule = f"must be one of {', '.join(PRECISIONS)}, optionally with _gN"
        raise WorkloadError("quant", rule, text, nearest(text.lower(), PRECISIONS))
    weight_bits, activation_bits = (int(bits) for bits in re.findall(r"\d+", match.group(1)))
    group = DEFAULT_GROUP[weight_bits] if match.group(2) is None else int(match.group(2))
    if match.group(2) is not None and (weight_bits == 16 or group == 0):
        rule = "groups need quantised weights and at least 1 row"
        raise WorkloadError("quant", rule, text, f"use {match.group(1)!r}")
    return Quantization(text, weight_bits, activation_bits, group)


def resolve_kv_dtype(kv_dtype: str | None, model_dtype: str) -> str:
    """Format of the KV cache; `None` is the model's 16-bit format.

    Raises
    ------
    WorkloadError
        If the format is none of `KV_DTYPES`.
    """
    if kv_dtype is None:
        return model_dtype
    if kv_dtype not in KV_DTYPES:
        rule = f"must be one of {', '.join(KV_DTYPES)}"
        raise WorkloadError("kv_dtype", rule, kv_dtype, nearest(kv_dtype, KV_DTYPES))
    return kv_dtype
