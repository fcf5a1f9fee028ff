"""Architecture facts of a decoder, as its config.json states them."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.errors import WorkloadError


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One dense decoder with gated MLP.

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

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            rule = f"num_attention_heads={self.num_heads} must be a multiple of num_key_value_heads"
            raise WorkloadError(self.name, rule, self.num_kv_heads)
        if len(self.windows) != self.num_layers:
            rule = f"needs one window per layer, num_hidden_layers={self.num_layers}"
            raise WorkloadError(self.name, rule, len(self.windows))

    @property
    def q_width(self) -> int:
        """Columns of the query projection."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of the key projection, and of the value projection."""
        return self.num_kv_heads * self.head_dim

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def has_uniform_layers(self) -> bool:
        """Whether every layer is the same, so that identical layers may fold."""
        return len(set(self.windows)) == 1
