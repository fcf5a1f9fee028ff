"""Architecture facts of a decoder, as its config.json states them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from npusim.errors import WorkloadError

#: note of a model that states layers which a run leaves out
MTP_NOTE = "multi-token-prediction layers are left out unless asked for"


class Activation(StrEnum):
    """Nonlinearity of the MLP."""

    SILU = "silu"
    GELU = "gelu"  # with erf
    GELU_TANH = "gelu_tanh"
    RELU = "relu"


class Norm(StrEnum):
    """Kind of norm."""

    RMS = "rms"
    LAYER = "layer"  # subtracts the mean; weight and bias


class Positions(StrEnum):
    """How a model knows the order of tokens."""

    ROTARY = "rotary"
    LEARNED = "learned"  # a second embedding table, added


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts in place of the MLP of some layers.

    Parameters
    ----------
    num_experts, top_k : int
        Routed experts of a layer; how many each token visits.
    width : int
        Hidden width of one routed expert.
    shared_width : int
        Hidden width of the experts every token visits, side by side; 0 without.
    has_shared_gate : bool
        The shared part is scaled by a sigmoid gate per token (Qwen2-MoE).
    has_router_bias, has_bias : bool
        A bias per expert on the router's scores; biases in the experts (GPT-OSS).
    layers : tuple[bool, ...]
        Which layers have experts; the others keep the dense MLP.
    """

    num_experts: int
    top_k: int
    width: int
    layers: tuple[bool, ...]
    shared_width: int = 0
    has_shared_gate: bool = False
    has_router_bias: bool = False
    has_bias: bool = False


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).

    The cache holds one latent row of `kv_rank` and one rotary key of `rope_dim` per token and
    layer, whatever the number of heads.

    Parameters
    ----------
    q_rank : int, optional
        Rank of the query's compression; None is a plain query projection.
    kv_rank : int
        Width of the latent.
    nope_dim, rope_dim, v_dim : int
        Parts of a query head without and with rotation; width of a value head.
    """

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int

    @property
    def cache_width(self) -> int:
        """Elements cached per token and layer."""
        return self.kv_rank + self.rope_dim

    @property
    def qk_dim(self) -> int:
        """Width of a query head."""
        return self.nope_dim + self.rope_dim


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One decoder.

    Parameters
    ----------
    name, model_type : str
        Name for reports; the config's `model_type`.
    hidden_size, intermediate_size, vocab_size : int
        Widths, in elements.
    num_layers, num_heads, num_kv_heads, head_dim : int
        `head_dim` need not be hidden_size / num_heads.
    max_positions : int
        Longest context, in tokens.
    dtype : str
        16-bit format of everything that is not quantised, "bf16" or "fp16".
    tie_word_embeddings : bool
        lm_head is the transposed embedding.
    qkv_bias, o_bias, mlp_bias, qk_norm : bool
        Which linears have biases; per-head norms of q and k.
    windows : tuple[int | None, ...]
        Per layer, tokens a query sees including itself; None is full attention.
    rope_theta : float
        Recorded only; it changes no cost.
    scaled_embedding, scaled_residual, scaled_logits : bool
        Multiplications by constants (MiniCPM).
    notes : tuple[str, ...]
        What was assumed while reading the config.
    norm, activation, positions : Norm, Activation, Positions
        Kinds of norm, of nonlinearity and of position.
    is_gated : bool
        The MLP has three matrices, act(gate) * up, instead of two.
    rotary_dim : int, optional
        Elements of each head that are rotated; None is all.
    position_rows : int
        Rows of the learned position table.
    is_parallel : bool
        Attention and MLP read one norm and are added together (Phi).
    has_post_norms : bool
        Norms after attention and after the MLP, before the residual sums (Gemma-2).
    attention_softcap, logit_softcap : bool
        cap * tanh(x / cap) on scores and logits.
    has_sinks : bool
        One learned logit per head joins the softmax (GPT-OSS).
    lm_head_bias : bool
        lm_head has a bias.
    experts : Experts, optional
        Mixture of experts.
    latent : LatentAttention, optional
        Latent attention; `head_dim` is then the width of a query head.
    mtp_layers : int
        Multi-token-prediction layers the file describes; built only when asked for.
    is_mtp : bool
        This is such a layer with its embedding and head, see `mtp_module`.
    first_layer : int
        Number of layer 0 in a routing trace.
    """

    name: str
    model_type: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    dtype: str
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    rope_theta: float = 10000.0
    scaled_embedding: bool = False
    scaled_residual: bool = False
    scaled_logits: bool = False
    notes: tuple[str, ...] = ()
    norm: Norm = Norm.RMS
    activation: Activation = Activation.SILU
    positions: Positions = Positions.ROTARY
    is_gated: bool = True
    rotary_dim: int | None = None
    position_rows: int = 0
    is_parallel: bool = False
    has_post_norms: bool = False
    attention_softcap: bool = False
    logit_softcap: bool = False
    has_sinks: bool = False
    lm_head_bias: bool = False
    experts: Experts | None = None
    latent: LatentAttention | None = None
    mtp_layers: int = 0
    is_mtp: bool = False
    first_layer: int = 0

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            rule = f"num_attention_heads={self.num_heads} must be a multiple of num_key_value_heads"
            raise WorkloadError(self.name, rule, self.num_kv_heads)
        if len(self.windows) != self.num_layers:
            rule = f"needs one window per layer, num_hidden_layers={self.num_layers}"
            raise WorkloadError(self.name, rule, len(self.windows))
        experts = self.experts
        if experts is not None and not 1 <= experts.top_k <= experts.num_experts:
            rule = f"experts per token must be 1 to num_experts={experts.num_experts}"
            raise WorkloadError(self.name, rule, experts.top_k)

    @property
    def q_width(self) -> int:
        """Columns of the query projection."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of the key projection, and of the value projection."""
        return self.num_kv_heads * self.head_dim

    @property
    def context_width(self) -> int:
        """Columns that enter the output projection."""
        return self.num_heads * (self.latent.v_dim if self.latent else self.head_dim)

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Of one layer's cache: (parts, heads, elements): K and V per KV head, or one latent."""
        if self.latent is not None:
            return 1, 1, self.latent.cache_width
        return 2, self.num_kv_heads, self.head_dim

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's MLP is a mixture of experts."""
        return self.experts is not None and self.experts.layers[layer]

    @property
    def layer_kinds(self) -> tuple[tuple[int | None, bool], ...]:
        """Per layer what makes its work differ from other layers': window and experts."""
        return tuple((window, self.has_experts(i)) for i, window in enumerate(self.windows))

    @property
    def has_uniform_layers(self) -> bool:
        """Whether every layer is the same, so that identical layers may fold."""
        return len(set(self.layer_kinds)) == 1
