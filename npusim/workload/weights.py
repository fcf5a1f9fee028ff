"""Every weight tensor of a decoder: the one list that counting and graph building share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.model_config import Norm, Positions
from npusim.workload.tensor import Role, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.workload.model_config import LatentAttention, ModelConfig
    from npusim.workload.quantization import Quantization

    #: weights of one layer by part, absent where the model has none
    LayerWeights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Embeddings, final norm and lm_head.

    With 16-bit weights a tied `lm_head` is the embedding under another shape: same tensor name.
    """

    embedding: Tensor
    positions: Tensor | None
    final_norm: Tensor
    final_norm_bias: Tensor | None
    lm_head: Tensor
    lm_head_bias: Tensor | None
    embedding_norm: Tensor | None = None  # these three: of a multi-token-prediction module
    hidden_norm: Tensor | None = None
    mtp_proj: Tensor | None = None

    def __iter__(self) -> Iterator[Tensor]:
        names = set()
        for slot in self.__slots__:
            tensor = getattr(self, slot)
            if tensor is not None and tensor.name not in names:
                names.add(tensor.name)
                yield tensor


class _LayerBuilder:
    """Collects the weights of one layer, named ``layers.<layer>.<part>.weight``."""

    def __init__(self, model: ModelConfig, quant: Quantization, layer: int) -> None:
        self.model, self.quant, self.layer = model, quant, layer
        self.weights: LayerWeights = {}

    def linear(
        self, part: str, k: int, n: int, *, has_bias: bool = False, stack: tuple[int, ...] = ()
    ) -> None:
        """A (k x n) matrix, or a stack of them, and its bias."""
        name = f"layers.{self.layer}.{part}"
        weight = self.quant.weight(f"{name}.weight", k, n, self.model.dtype, stack)
        self.weights[part] = weight
        if has_bias:
            self.weights[f"{part}.bias"] = self._tensor(f"{name}.bias", *stack, n)

    def vector(self, part: str, width: int) -> None:
        """A vector that is not quantised."""
        self.weights[part] = self._tensor(f"layers.{self.layer}.{part}", width)

    def norm(self, part: str, width: int, *, kind: Norm | None = None) -> None:
        """A norm's weight, and its bias where the norm has one."""
        name = f"layers.{self.layer}.{part}"
        self.weights[part] = self._tensor(f"{name}.weight", width)
        if (kind or self.model.norm) is Norm.LAYER:
            self.weights[f"{part}.bias"] = self._tensor(f"{name}.bias", width)

    def _tensor(self, name: str, *shape: int) -> Tensor:
        return Tensor(name, shape, self.model.dtype, Role.WEIGHT)


def layer_weights(model: ModelConfig, quant: Quantization, layer: int) -> LayerWeights:
    """Weights of one layer by part.

    q, k and v are one (hidden x (q + 2 kv)) matrix, gate and up another. Joining them changes no
    byte: scales are per column, groups run along the shared K.
    """
    build = _LayerBuilder(model, quant, layer)
    build.norm("attn_norm", model.hidden_size)
    if model.latent is None:
        _attention(build)
    else:
        _latent_attention(build, model.latent)
    if model.has_post_norms:
        build.norm("post_attn_norm", model.hidden_size)
    if not model.is_parallel:
        build.norm("mlp_norm", model.hidden_size)
    if model.has_experts(layer):
        _experts(build)
    else:
        _mlp(build, "", model.intermediate_size, has_bias=model.mlp_bias)
    if model.has_post_norms:
        build.norm("post_mlp_norm", model.hidden_size)
    return build.weights


def _attention(build: _LayerBuilder) -> None:
    """Projections, per-head norms and sinks."""
    model = build.model
    width = model.q_width + 2 * model.kv_width
    build.linear("qkv_proj", model.hidden_size, width, has_bias=model.qkv_bias)
    if model.qk_norm:
        build.norm("q_norm", model.head_dim)
        build.norm("k_norm", model.head_dim)
    if model.has_sinks:
        build.vector("sinks", model.num_heads)
    build.linear("o_proj", model.q_width, model.hidden_size, has_bias=model.o_bias)


def _latent_attention(build: _LayerBuilder, latent: LatentAttention) -> None:
    """Compressed query and key-value projections; `w_uk` and `w_uv` are the halves of kv_b."""
    model, heads = build.model, build.model.num_heads
    hidden, q_width = model.hidden_size, heads * latent.qk_dim
    if latent.q_rank is None:
        build.linear("q_proj", hidden, q_width)
    else:
        build.linear("q_a_proj", hidden, latent.q_rank, has_bias=model.qkv_bias)
        build.norm("q_a_norm", latent.q_rank, kind=Norm.RMS)
        build.linear("q_b_proj", latent.q_rank, q_width)
    build.linear("kv_a_proj", hidden, latent.cache_width, has_bias=model.qkv_bias)
    build.norm("kv_a_norm", latent.kv_rank, kind=Norm.RMS)
    build.linear("w_uk", latent.nope_dim, latent.kv_rank, stack=(heads,))
    build.linear("w_uv", latent.kv_rank, latent.v_dim, stack=(heads,))
    build.linear("o_proj", model.context_width, hidden, has_bias=model.o_bias)


def _mlp(
    build: _LayerBuilder,
    prefix: str,
    width: int,
    *,
    has_bias: bool = False,
    stack: tuple[int, ...] = (),
) -> None:
    """Two or three matrices, gate and up side by side."""
    hidden, is_gated = build.model.hidden_size, build.model.is_gated
    up, columns = ("gate_up_proj", 2 * width) if is_gated else ("up_proj", width)
    build.linear(f"{prefix}{up}", hidden, columns, has_bias=has_bias, stack=stack)
    build.linear(f"{prefix}down_proj", width, hidden, has_bias=has_bias, stack=stack)


def _experts(build: _LayerBuilder) -> None:
    """Router, routed experts as stacks, shared experts side by side."""
    experts, hidden = build.model.experts, build.model.hidden_size
    assert experts is not None
    build.linear("router", hidden, experts.num_experts, has_bias=experts.has_router_bias)
    stack = (experts.num_experts,)
    _mlp(build, "experts.", experts.width, has_bias=experts.has_bias, stack=stack)
    if experts.shared_width:
        _mlp(build, "shared.", experts.shared_width)
    if experts.has_shared_gate:
        build.linear("shared_gate", hidden, 1)


def model_weights(model: ModelConfig, quant: Quantization) -> ModelWeights:
    """Weights outside the layers."""
    hidden, vocab = model.hidden_size, model.vocab_size
    is_shared = model.tie_word_embeddings and quant.weight_bits == 16
    head_name = "embedding.weight" if is_shared else "lm_head.weight"

    def plain(name: str, *shape: int, exists: bool = True) -> Tensor | None:
        return Tensor(name, shape, model.dtype, Role.WEIGHT) if exists else None

    is_learned = model.positions is Positions.LEARNED
    return ModelWeights(
        embedding=Tensor("embedding.weight", (vocab, hidden), model.dtype, Role.WEIGHT),
        positions=plain("positions.weight", model.position_rows, hidden, exists=is_learned),
        final_norm=Tensor("final_norm.weight", (hidden,), model.dtype, Role.WEIGHT),
        final_norm_bias=plain("final_norm.bias", hidden, exists=model.norm is Norm.LAYER),
        lm_head=quant.weight(head_name, hidden, vocab, model.dtype),
        lm_head_bias=plain("lm_head.bias", vocab, exists=model.lm_head_bias),
        embedding_norm=plain("embedding_norm.weight", hidden, exists=model.is_mtp),
        hidden_norm=plain("hidden_norm.weight", hidden, exists=model.is_mtp),
        mtp_proj=quant.weight("mtp_proj.weight", 2 * hidden, hidden, model.dtype)
        if model.is_mtp
        else None,
    )


def stored_weights(
    model: ModelConfig, quant: Quantization, mtp_layers: int = 0
) -> Iterator[Tensor]:
    """Every weight tensor the device memory holds, each once."""
    yield from model_weights(model, quant)
    for layer in range(model.num_layers):
        yield from layer_weights(model, quant, layer).values()
    for index in range(mtp_layers):
        for tensor in stored_weights(mtp_module(model), quant):
            if tensor.name not in SHARED_BY_MTP:
                yield replace(tensor, name=f"mtp.{index}.{tensor.name}")


#: weights that a multi-token-prediction module has in common with its model
SHARED_BY_MTP = frozenset({"embedding.weight", "lm_head.weight", "lm_head.bias"})


def mtp_module(model: ModelConfig) -> ModelConfig:
    """A multi-token-prediction layer as a model of one layer, like the last one of its model.

    Two norms and a projection join the next token's embedding with the hidden state; then a layer,
    a final norm, and the model's own embedding and head. Source: DeepSeek-V3, section 2.2
    (arXiv 2412.19437).

    Raises
    ------
    WorkloadError
        If the model describes none.
    """
    if not model.mtp_layers:
        rule = f"{model.name} states no multi-token-prediction layers"
        raise WorkloadError("mtp_layers", rule, None, "num_nextn_predict_layers is absent or 0")
    experts = model.experts
    return replace(
        model,
        name=f"{model.name}:mtp",
        num_layers=1,
        windows=model.windows[-1:],
        experts=experts and replace(experts, layers=experts.layers[-1:]),
        mtp_layers=0,
        is_mtp=True,
        first_layer=model.num_layers,
    )
