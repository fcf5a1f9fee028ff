"""What each `model_type` implies where its config.json says nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.workload.model_config import Activation, Norm, Positions

if TYPE_CHECKING:
    from collections.abc import Mapping

#: 16-bit format by the config's `torch_dtype`
DTYPES: Mapping[str, str] = MappingProxyType(
    {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
)

#: nonlinearity by the name a config gives it
ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "silu": Activation.SILU,
        "swish": Activation.SILU,
        "gelu": Activation.GELU,
        "gelu_new": Activation.GELU_TANH,
        "gelu_fast": Activation.GELU_TANH,
        "gelu_pytorch_tanh": Activation.GELU_TANH,
        "relu": Activation.RELU,
    }
)


class WindowRule(StrEnum):
    """Which layers a window covers where the file has no `layer_types`."""

    NONE = "none"  # the family has no window
    EVERY = "every"
    FLAGGED = "flagged"  # where `use_sliding_window` is true, from `max_window_layers` on
    EVEN = "even"  # layers 0, 2, 4 ...
    PATTERN = "pattern"  # all but every `sliding_window_pattern`-th


class ExpertRule(StrEnum):
    """How a family's file describes its experts; see `expert_reader`."""

    NONE = "none"
    MIXTRAL = "mixtral"
    QWEN = "qwen"
    DEEPSEEK = "deepseek"
    GPT_OSS = "gpt_oss"


@dataclass(frozen=True, slots=True)
class Architecture:
    """Class defaults of one family.

    Parameters
    ----------
    qkv_bias, o_bias, mlp_bias : bool or str
        Fixed, or the key that says so.
    bias_default : bool
        What an absent bias key means.
    tied_default : bool
        What an absent `tie_word_embeddings` means.
    qk_norm : bool or str
        Per-head norms of q and k.
    window, default_window : WindowRule, int
        Where a sliding window holds, and its length when the key is absent (null means none).
    scaled_embedding, scaled_residual, scaled_logits : bool
        Constant multiplications.
    keys : Mapping[str, str]
        This family's name of a key, where it is not the usual one.
    norm, activation, positions, is_gated, is_parallel, has_post_norms, has_sinks : object
        As in `ModelConfig`.
    rotary_factor : float
        Share of a head that is rotated when `partial_rotary_factor` is absent.
    position_offset : int
        Rows of the position table beyond the longest context.
    has_softcaps : bool
        Reads `attn_logit_softcapping` and `final_logit_softcapping`.
    lm_head_bias : bool
        lm_head has a bias.
    intermediate_factor : int
        Width of the MLP over the hidden size when its key is absent; 0: required.
    experts : ExpertRule
        How experts are described.
    is_latent : bool
        Multi-head latent attention.
    """

    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    bias_default: bool = False
    tied_default: bool = False
    qk_norm: bool | str = False
    window: WindowRule = WindowRule.NONE
    default_window: int | None = None
    scaled_embedding: bool = False
    scaled_residual: bool = False
    scaled_logits: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    norm: Norm = Norm.RMS
    activation: str = "silu"
    positions: Positions = Positions.ROTARY
    is_gated: bool = True
    is_parallel: bool = False
    has_post_norms: bool = False
    has_sinks: bool = False
    rotary_factor: float = 1.0
    position_offset: int = 0
    has_softcaps: bool = False
    lm_head_bias: bool = False
    intermediate_factor: int = 0
    experts: ExpertRule = ExpertRule.NONE
    is_latent: bool = False

    def key(self, name: str) -> str:
        """Name the family gives a key."""
        return self.keys.get(name, name)


_GPT2_KEYS = MappingProxyType(
    {
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
        "hidden_act": "activation_function",
    }
)

_OPT_KEYS = MappingProxyType({"intermediate_size": "ffn_dim", "hidden_act": "activation_function"})

_DEEPSEEK = Architecture(
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    experts=ExpertRule.DEEPSEEK,
    is_latent=True,
)

#: sources: the config and model classes of transformers 4.5x and of the openPangu and MiniCPM
#: repositories
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": Architecture(
            qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"
        ),
        "mistral": Architecture(window=WindowRule.EVERY, default_window=4096),
        "qwen2": Architecture(qkv_bias=True, window=WindowRule.FLAGGED),
        "qwen3": Architecture(
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            qk_norm=True,
            window=WindowRule.FLAGGED,
        ),
        "minicpm": Architecture(
            tied_default=True, scaled_embedding=True, scaled_residual=True, scaled_logits=True
        ),
        "PanguEmbedded": Architecture(qkv_bias="bias", o_bias="bias", bias_default=True),
        "gemma": Architecture(
            tied_default=True, scaled_embedding=True, activation="gelu_pytorch_tanh"
        ),
        "gemma2": Architecture(
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            tied_default=True,
            scaled_embedding=True,
            activation="gelu_pytorch_tanh",
            has_post_norms=True,
            has_softcaps=True,
            window=WindowRule.EVEN,
            default_window=4096,
        ),
        "gemma3_text": Architecture(
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            tied_default=True,
            scaled_embedding=True,
            activation="gelu_pytorch_tanh",
            has_post_norms=True,
            qk_norm=True,
            window=WindowRule.PATTERN,
            default_window=4096,
        ),
        "phi": Architecture(
            qkv_bias=True,
            o_bias=True,
            mlp_bias=True,
            qk_norm="qk_layernorm",
            norm=Norm.LAYER,
            activation="gelu_new",
            is_gated=False,
            is_parallel=True,
            rotary_factor=0.5,
            lm_head_bias=True,
        ),
        "phi3": Architecture(window=WindowRule.EVERY),
        "gpt2": Architecture(
            qkv_bias=True,
            o_bias=True,
            mlp_bias=True,
            tied_default=True,
            keys=_GPT2_KEYS,
            norm=Norm.LAYER,
            activation="gelu_new",
            is_gated=False,
            positions=Positions.LEARNED,
            intermediate_factor=4,
        ),
        "opt": Architecture(
            qkv_bias="enable_bias",
            o_bias="enable_bias",
            mlp_bias="enable_bias",
            bias_default=True,
            tied_default=True,
            keys=_OPT_KEYS,
            norm=Norm.LAYER,
            activation="relu",
            is_gated=False,
            positions=Positions.LEARNED,
            position_offset=2,
        ),
        "mixtral": Architecture(window=WindowRule.EVERY, experts=ExpertRule.MIXTRAL),
        "qwen2_moe": Architecture(
            qkv_bias=True, window=WindowRule.FLAGGED, experts=ExpertRule.QWEN
        ),
        "qwen3_moe": Architecture(
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            qk_norm=True,
            window=WindowRule.FLAGGED,
            experts=ExpertRule.QWEN,
        ),
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
        "gpt_oss": Architecture(
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            bias_default=True,
            window=WindowRule.EVEN,
            default_window=128,
            has_sinks=True,
            experts=ExpertRule.GPT_OSS,
        ),
    }
)

#: real types that are not modelled, so that none is taken for a misspelling of another
UNSUPPORTED = (
    "bert",
    "bloom",
    "cohere",
    "falcon",
    "gpt_bigcode",
    "gpt_neox",
    "llama4",
    "mamba",
    "mpt",
    "olmo2",
    "qwen2_vl",
    "qwen3_next",
    "starcoder2",
    "t5",
)
