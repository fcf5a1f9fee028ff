"""What each `model_type` implies where its config.json says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError, nearest
from npusim.workload.facts import Facts
from npusim.workload.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    Windows = tuple[int | None, ...]

MAX_LAYERS = 4096

#: 16-bit format by the config's `torch_dtype`
DTYPES: Mapping[str, str] = MappingProxyType(
    {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
)


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
    qk_norm : bool
        Per-head norms of q and k.
    has_window : bool
        The family reads `sliding_window`.
    default_window : int, optional
        Sliding window when the key is absent (null always means none).
    needs_window_flag : bool
        The window counts only where `use_sliding_window` is true, from `max_window_layers` on.
    is_scaled : bool
        Constant multiplications of embedding, residuals and logits.
    """

    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    bias_default: bool = False
    tied_default: bool = False
    qk_norm: bool = False
    has_window: bool = False
    default_window: int | None = None
    needs_window_flag: bool = False
    is_scaled: bool = False


#: sources: the config classes of transformers 4.5x and of the openPangu and MiniCPM repositories
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": Architecture(
            qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"
        ),
        "mistral": Architecture(has_window=True, default_window=4096),
        "qwen2": Architecture(qkv_bias=True, has_window=True, needs_window_flag=True),
        "qwen3": Architecture(
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            qk_norm=True,
            has_window=True,
            needs_window_flag=True,
        ),
        "minicpm": Architecture(tied_default=True, is_scaled=True),
        "PanguEmbedded": Architecture(qkv_bias="bias", o_bias="bias", bias_default=True),
    }
)

#: real types that are not modelled, so that none is taken for a misspelling of another
UNSUPPORTED = (
    "deepseek_v2",
    "deepseek_v3",
    "gemma",
    "gemma2",
    "gpt2",
    "gpt_oss",
    "mixtral",
    "opt",
    "phi",
    "phi3",
    "qwen2_moe",
    "qwen3_moe",
)

_LAYER_TYPES = ("full_attention", "sliding_attention")


def read_model(name: str, facts: Facts) -> ModelConfig:
    """Model of parsed facts.

    Raises
    ------
    WorkloadError
        If the model type is not supported or a key is missing or wrong.
    """
    model_type = _model_type(facts)
    family = ARCHITECTURES[model_type]
    facts.choice("hidden_act", ("silu",), default="silu")
    hidden, heads = facts.size("hidden_size"), facts.size("num_attention_heads")
    num_layers = facts.size("num_hidden_layers", most=MAX_LAYERS)
    dtype, notes = _dtype(facts)
    if facts.is_given("quantization_config"):
        notes += ("quantization_config is not read; the run's quantisation decides",)

    def bias(key: bool | str) -> bool:
        return key if isinstance(key, bool) else facts.flag(key, family.bias_default)

    return ModelConfig(
        name=name,
        model_type=model_type,
        hidden_size=hidden,
        intermediate_size=facts.size("intermediate_size"),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=facts.size("num_key_value_heads", default=heads),
        head_dim=_head_dim(facts, hidden, heads),
        vocab_size=facts.size("vocab_size"),
        max_positions=facts.size("max_position_embeddings"),
        dtype=dtype,
        tie_word_embeddings=facts.flag("tie_word_embeddings", family.tied_default),
        qkv_bias=bias(family.qkv_bias),
        o_bias=bias(family.o_bias),
        mlp_bias=bias(family.mlp_bias),
        qk_norm=family.qk_norm,
        windows=_windows(facts, family, num_layers),
        rope_theta=_rope_theta(facts),
        scaled_embedding=family.is_scaled,
        scaled_residual=family.is_scaled,
        scaled_logits=family.is_scaled,
        notes=notes,
    )


def _model_type(facts: Facts) -> str:
    """The config's model type, refused with the known list if it is not among them."""
    known = ", ".join(ARCHITECTURES)
    if not facts.is_given("model_type"):
        raise WorkloadError(facts.where, f"model_type is missing; it must be one of {known}")
    model_type = facts.text("model_type")
    if model_type in ARCHITECTURES:
        return model_type
    rule = f"model_type is not supported; supported are {known}"
    close = None if model_type in UNSUPPORTED else nearest(model_type, ARCHITECTURES)
    hint = close if close is not None and close.startswith("did you mean") else None
    raise WorkloadError(facts.where, rule, model_type, hint)


def _head_dim(facts: Facts, hidden: int, heads: int) -> int:
    """`head_dim`, or hidden_size / num_attention_heads."""
    if not facts.is_given("head_dim") and hidden % heads:
        rule = f"without head_dim, hidden_size must be a multiple of num_attention_heads={heads}"
        raise WorkloadError(facts.where, rule, hidden)
    head_dim = facts.size("head_dim", default=hidden // heads)
    if head_dim % 2:
        raise WorkloadError(facts.where, "head_dim must be even (rotary pairs)", head_dim)
    return head_dim


def _dtype(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """16-bit format and what was assumed; newer files say `dtype` for `torch_dtype`."""
    key = "torch_dtype" if facts.is_given("torch_dtype") else "dtype"
    if not facts.is_given(key):
        return "bf16", ("torch_dtype is absent: bf16 assumed",)
    name = facts.choice(key, tuple(DTYPES))
    if name == "float32":
        return DTYPES[name], ("torch_dtype float32: the 16-bit format is bf16",)
    return DTYPES[name], ()


def _rope_theta(facts: Facts) -> float:
    """From `rope_theta` or the newer `rope_parameters`."""
    if facts.is_given("rope_theta"):
        return facts.number("rope_theta", 10000.0)
    return facts.inner("rope_parameters").number("rope_theta", 10000.0)


def _windows(facts: Facts, family: Architecture, num_layers: int) -> Windows:
    """Sliding window of each layer; None is full attention."""
    if not family.has_window:
        return (None,) * num_layers
    window = _window(facts, family)
    if facts.is_given("layer_types"):
        types = facts.choices("layer_types", _LAYER_TYPES, num_layers)
        if window is None and "sliding_attention" in types:
            rule = "layer_types names sliding_attention but sliding_window is not in force"
            raise WorkloadError(facts.where, rule)
        return tuple(window if kind == "sliding_attention" else None for kind in types)
    first = 0
    if window is not None and family.needs_window_flag:
        first = facts.count("max_window_layers")
    return tuple(window if layer >= first else None for layer in range(num_layers))


def _window(facts: Facts, family: Architecture) -> int | None:
    """Tokens of the window, None if there is none or it is inert."""
    if family.needs_window_flag and not facts.flag("use_sliding_window", False):
        return None
    if facts.is_given("sliding_window"):
        return facts.size("sliding_window")
    return None if facts.is_null("sliding_window") else family.default_window
