"""Every weight tensor of a decoder: the one list that counting and graph building share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.workload.tensor import Role, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.workload.model_config import ModelConfig
    from npusim.workload.quantization import Quantization


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights of one layer; q, k and v are one (hidden x (q + 2 kv)) matrix, gate and up another.

    Joining them changes no byte: scales are per column, groups run along the shared K.
    """

    attn_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Tensor
    o_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None

    def __iter__(self) -> Iterator[Tensor]:
        for slot in self.__slots__:
            tensor = getattr(self, slot)
            if tensor is not None:
                yield tensor


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Embedding, final norm and lm_head.

    With 16-bit weights a tied `lm_head` is the embedding under another shape: same tensor name.
    """

    embedding: Tensor
    final_norm: Tensor
    lm_head: Tensor


def layer_weights(model: ModelConfig, quant: Quantization, layer: int) -> LayerWeights:
    """Weights of layer `layer`, named ``layers.<layer>.<part>``."""
    hidden, qkv_width = model.hidden_size, model.q_width + 2 * model.kv_width

    def linear(part: str, k: int, n: int) -> Tensor:
        return quant.weight(f"layers.{layer}.{part}.weight", k, n, model.dtype)

    def vector(part: str, width: int, exists: bool) -> Tensor | None:
        name = f"layers.{layer}.{part}"
        return Tensor(name, (width,), model.dtype, Role.WEIGHT) if exists else None

    def norm(part: str) -> Tensor:
        return Tensor(f"layers.{layer}.{part}.weight", (hidden,), model.dtype, Role.WEIGHT)

    return LayerWeights(
        attn_norm=norm("attn_norm"),
        qkv=linear("qkv_proj", hidden, qkv_width),
        qkv_bias=vector("qkv_proj.bias", qkv_width, model.qkv_bias),
        q_norm=vector("q_norm.weight", model.head_dim, model.qk_norm),
        k_norm=vector("k_norm.weight", model.head_dim, model.qk_norm),
        o=linear("o_proj", model.q_width, hidden),
        o_bias=vector("o_proj.bias", hidden, model.o_bias),
        mlp_norm=norm("mlp_norm"),
        gate_up=linear("gate_up_proj", hidden, 2 * model.intermediate_size),
        gate_up_bias=vector("gate_up_proj.bias", 2 * model.intermediate_size, model.mlp_bias),
        down=linear("down_proj", model.intermediate_size, hidden),
        down_bias=vector("down_proj.bias", hidden, model.mlp_bias),
    )


def model_weights(model: ModelConfig, quant: Quantization) -> ModelWeights:
    """Weights outside the layers."""
    hidden, vocab = model.hidden_size, model.vocab_size
    is_shared = model.tie_word_embeddings and quant.weight_bits == 16
    head_name = "embedding.weight" if is_shared else "lm_head.weight"
    return ModelWeights(
        embedding=Tensor("embedding.weight", (vocab, hidden), model.dtype, Role.WEIGHT),
        final_norm=Tensor("final_norm.weight", (hidden,), model.dtype, Role.WEIGHT),
        lm_head=quant.weight(head_name, hidden, vocab, model.dtype),
    )


def stored_weights(model: ModelConfig, quant: Quantization) -> Iterator[Tensor]:
    """Every weight tensor the device memory holds, each once."""
    shared = model_weights(model, quant)
    yield shared.embedding
    for layer in range(model.num_layers):
        yield from layer_weights(model, quant, layer)
    yield shared.final_norm
    if shared.lm_head.name != shared.embedding.name:
        yield shared.lm_head
