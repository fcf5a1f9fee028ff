"""A model from the facts of its config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.errors import WorkloadError, nearest
from npusim.workload.architectures import (
    ACTIVATIONS,
    ARCHITECTURES,
    DTYPES,
    UNSUPPORTED,
    Architecture,
    WindowRule,
)
from npusim.workload.expert_reader import read_experts, read_latent
from npusim.workload.model_config import (
    MTP_NOTE,
    Activation,
    LatentAttention,
    ModelConfig,
    Positions,
)

if TYPE_CHECKING:
    from npusim.workload.facts import Facts

    Windows = tuple[int | None, ...]

MAX_LAYERS = 4096

_LAYER_TYPES = ("full_attention", "sliding_attention")

#: layers per full one where `sliding_window_pattern` is absent (Gemma-3)
_DEFAULT_PATTERN = 6


def read_model(name: str, facts: Facts) -> ModelConfig:
    """Model of parsed facts.

    Raises
    ------
    WorkloadError
        If the model type is not supported or a key is missing or wrong.
    """
    model_type, type_notes = _model_type(facts)
    family = ARCHITECTURES[model_type]
    _refuse_variants(facts, model_type)
    hidden = facts.size(family.key("hidden_size"))
    heads = facts.size(family.key("num_attention_heads"))
    num_layers = facts.size(family.key("num_hidden_layers"), most=MAX_LAYERS)
    latent = read_latent(facts, family)
    head_dim = _head_dim(facts, family, hidden, heads, latent)
    max_positions = facts.size(family.key("max_position_embeddings"))
    is_learned = family.positions is Positions.LEARNED
    dtype, notes = _dtype(facts)

    def flag(key: bool | str) -> bool:
        return key if isinstance(key, bool) else facts.flag(key, family.bias_default)

    return ModelConfig(
        name=name,
        model_type=model_type,
        hidden_size=hidden,
        intermediate_size=_intermediate_size(facts, family, hidden),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=facts.size("num_key_value_heads", default=heads),
        head_dim=head_dim,
        vocab_size=facts.size("vocab_size"),
        max_positions=max_positions,
        dtype=dtype,
        tie_word_embeddings=facts.flag("tie_word_embeddings", family.tied_default),
        qkv_bias=flag(family.qkv_bias),
        o_bias=flag(family.o_bias),
        mlp_bias=flag(family.mlp_bias),
        qk_norm=flag(family.qk_norm),
        windows=_windows(facts, family, num_layers),
        rope_theta=_rope_theta(facts),
        scaled_embedding=family.scaled_embedding,
        scaled_residual=family.scaled_residual,
        scaled_logits=family.scaled_logits,
        notes=type_notes + notes + _notes(facts),
        norm=family.norm,
        activation=_activation(facts, family),
        positions=family.positions,
        is_gated=family.is_gated,
        rotary_dim=None if is_learned else _rotary_dim(facts, family, head_dim, latent),
        position_rows=max_positions + family.position_offset if is_learned else 0,
        is_parallel=family.is_parallel,
        has_post_norms=family.has_post_norms,
        attention_softcap=family.has_softcaps and not facts.is_null("attn_logit_softcapping"),
        logit_softcap=family.has_softcaps and not facts.is_null("final_logit_softcapping"),
        has_sinks=family.has_sinks,
        lm_head_bias=family.lm_head_bias,
        experts=read_experts(facts, family, num_layers),
        latent=latent,
        mtp_layers=facts.size("num_nextn_predict_layers", default=0, least=0),
    )


def _model_type(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """The config's model type and what was assumed; refused with the known list if unknown."""
    known = ", ".join(ARCHITECTURES)
    if not facts.is_given("model_type"):
        keys = ARCHITECTURES["gpt2"].keys
        required = [keys[k] for k in ("hidden_size", "num_attention_heads", "num_hidden_layers")]
        if all(facts.is_given(key) for key in required):
            return "gpt2", (f"model_type is absent: gpt2 read from {', '.join(required)}",)
        raise WorkloadError(facts.where, f"model_type is missing; it must be one of {known}")
    model_type = facts.text("model_type")
    if model_type in ARCHITECTURES:
        return model_type, ()
    rule = f"model_type is not supported; supported are {known}"
    close = None if model_type in UNSUPPORTED else nearest(model_type, ARCHITECTURES)
    hint = close if close is not None and close.startswith("did you mean") else None
    raise WorkloadError(facts.where, rule, model_type, hint)


def _refuse_variants(facts: Facts, model_type: str) -> None:
    """Refuse settings of a family that change the computation in ways not modelled."""
    if model_type == "opt":
        hidden = facts.size("hidden_size")
        if facts.size("word_embed_proj_dim", default=hidden) != hidden:
            rule = f"word_embed_proj_dim must equal hidden_size={hidden}"
            raise WorkloadError(facts.where, rule, facts.size("word_embed_proj_dim"))
        if not facts.flag("do_layer_norm_before", True):
            raise WorkloadError(facts.where, "do_layer_norm_before must be true", False)
    if model_type == "gpt2" and facts.flag("add_cross_attention", False):
        raise WorkloadError(facts.where, "add_cross_attention must be false", True)


def _intermediate_size(facts: Facts, family: Architecture, hidden: int) -> int:
    """Width of the dense MLP; a model whose layers all have experts may not state it."""
    default = family.intermediate_factor * hidden or None
    return facts.size(family.key("intermediate_size"), default=default)


def _head_dim(
    facts: Facts, family: Architecture, hidden: int, heads: int, latent: LatentAttention | None
) -> int:
    """Width of a query head: `head_dim`, or hidden_size / num_attention_heads."""
    if latent is not None:
        return latent.qk_dim
    if not facts.is_given("head_dim") and hidden % heads:
        rule = (
            f"without head_dim, {family.key('hidden_size')} must be a multiple of "
            f"{family.key('num_attention_heads')}={heads}"
        )
        raise WorkloadError(facts.where, rule, hidden)
    head_dim = facts.size("head_dim", default=hidden // heads)
    if head_dim % 2 and family.positions is Positions.ROTARY:
        raise WorkloadError(facts.where, "head_dim must be even (rotary pairs)", head_dim)
    return head_dim


def _rotary_dim(
    facts: Facts, family: Architecture, head_dim: int, latent: LatentAttention | None
) -> int | None:
    """Rotated elements of a head; None is all."""
    if latent is not None:
        return latent.rope_dim
    key = "partial_rotary_factor"
    source = facts if facts.is_given(key) else facts.inner("rope_parameters")
    factor = source.number(key, family.rotary_factor)
    if factor > 1:
        raise WorkloadError(facts.where, f"{key} must be at most 1", factor)
    rotary = int(head_dim * factor)
    if rotary % 2:
        raise WorkloadError(facts.where, f"{key} must rotate pairs of {head_dim}", factor)
    return None if rotary == head_dim else rotary


def _activation(facts: Facts, family: Architecture) -> Activation:
    """Nonlinearity; Gemma files state it twice, and `hidden_activation` is the one that counts."""
    key = "hidden_activation" if facts.is_given("hidden_activation") else family.key("hidden_act")
    return ACTIVATIONS[facts.choice(key, tuple(ACTIVATIONS), default=family.activation)]


def _dtype(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """16-bit format and what was assumed; newer files say `dtype` for `torch_dtype`."""
    key = "torch_dtype" if facts.is_given("torch_dtype") else "dtype"
    if not facts.is_given(key):
        return "bf16", ("torch_dtype is absent: bf16 assumed",)
    name = facts.choice(key, tuple(DTYPES))
    if name == "float32":
        return DTYPES[name], ("torch_dtype float32: the 16-bit format is bf16",)
    return DTYPES[name], ()


def _notes(facts: Facts) -> tuple[str, ...]:
    """What is read but not modelled."""
    notes = []
    if facts.is_given("quantization_config"):
        notes.append("quantization_config is not read; the run's quantisation decides")
    if facts.is_given("num_nextn_predict_layers"):
        notes.append(MTP_NOTE)
    return tuple(notes)


def _rope_theta(facts: Facts) -> float:
    """From `rope_theta` or the newer `rope_parameters`."""
    if facts.is_given("rope_theta"):
        return facts.number("rope_theta", 10000.0)
    rope = facts.inner("rope_parameters")
    if rope.is_given("full_attention"):  # one set per layer type
        rope = rope.inner("full_attention")
    return rope.number("rope_theta", 10000.0)


def _windows(facts: Facts, family: Architecture, num_layers: int) -> Windows:
    """Sliding window of each layer; None is full attention."""
    if family.window is WindowRule.NONE:
        return (None,) * num_layers
    window = _window(facts, family)
    if facts.is_given("layer_types"):
        types = facts.choices("layer_types", _LAYER_TYPES, num_layers)
        if window is None and "sliding_attention" in types:
            rule = "layer_types names sliding_attention but sliding_window is not in force"
            raise WorkloadError(facts.where, rule)
        return tuple(window if kind == "sliding_attention" else None for kind in types)
    if window is None:
        return (None,) * num_layers
    first, pattern = 0, 0
    if family.window is WindowRule.FLAGGED:
        first = facts.count("max_window_layers")
    elif family.window is WindowRule.EVEN:
        pattern = 2
    elif family.window is WindowRule.PATTERN:
        pattern = facts.size("sliding_window_pattern", default=_DEFAULT_PATTERN)
    return tuple(
        window if layer >= first and not (pattern and (layer + 1) % pattern == 0) else None
        for layer in range(num_layers)
    )


def _window(facts: Facts, family: Architecture) -> int | None:
    """Tokens of the window, None if there is none or it is inert."""
    if family.window is WindowRule.FLAGGED and not facts.flag("use_sliding_window", False):
        return None
    if facts.is_given("sliding_window"):
        return facts.size("sliding_window")
    return None if facts.is_null("sliding_window") else family.default_window
