"""Experts and latent attention, as the config.json of each family describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.architectures import Architecture, ExpertRule
from npusim.workload.model_config import Experts, LatentAttention

if TYPE_CHECKING:
    from npusim.workload.facts import Facts

#: layers of one model; more are a typing error
MAX_EXPERTS = 65536


def read_experts(facts: Facts, family: Architecture, num_layers: int) -> Experts | None:
    """The mixture of experts, None for a dense model.

    Raises
    ------
    WorkloadError
        If a key is missing or wrong.
    """
    reader = {
        ExpertRule.MIXTRAL: _mixtral,
        ExpertRule.QWEN: _qwen,
        ExpertRule.DEEPSEEK: _deepseek,
        ExpertRule.GPT_OSS: _gpt_oss,
    }.get(family.experts)
    experts = reader(facts, num_layers) if reader else None
    if experts is None or not any(experts.layers):
        return None
    if experts.top_k > experts.num_experts:
        rule = f"num_experts_per_tok must be at most the {experts.num_experts} experts"
        raise WorkloadError(facts.where, rule, experts.top_k)
    return experts


def _mixtral(facts: Facts, num_layers: int) -> Experts:
    """Every layer; an expert is as wide as `intermediate_size`."""
    return Experts(
        num_experts=facts.size("num_local_experts", most=MAX_EXPERTS),
        top_k=facts.size("num_experts_per_tok"),
        width=facts.size("intermediate_size"),
        layers=(True,) * num_layers,
    )


def _qwen(facts: Facts, num_layers: int) -> Experts:
    """Every `decoder_sparse_step`-th layer that is not in `mlp_only_layers`."""
    step = facts.size("decoder_sparse_step", default=1)
    dense = facts.counts("mlp_only_layers")
    shared = facts.size("shared_expert_intermediate_size", default=0, least=0)
    return Experts(
        num_experts=facts.size("num_experts", most=MAX_EXPERTS),
        top_k=facts.size("num_experts_per_tok"),
        width=facts.size("moe_intermediate_size"),
        layers=tuple(i not in dense and (i + 1) % step == 0 for i in range(num_layers)),
        shared_width=shared,
        has_shared_gate=shared > 0,
    )


def _deepseek(facts: Facts, num_layers: int) -> Experts | None:
    """From `first_k_dense_replace` on, every `moe_layer_freq`-th layer."""
    if not facts.is_given("n_routed_experts"):
        return None
    first = facts.size("first_k_dense_replace", default=0, least=0)
    step = facts.size("moe_layer_freq", default=1)
    width = facts.size("moe_intermediate_size")
    return Experts(
        num_experts=facts.size("n_routed_experts", most=MAX_EXPERTS),
        top_k=facts.size("num_experts_per_tok"),
        width=width,
        layers=tuple(i >= first and i % step == 0 for i in range(num_layers)),
        shared_width=facts.size("n_shared_experts", default=0, least=0) * width,
        # the correction bias of DeepSeek-V3's loss-free balancing
        has_router_bias=facts.is_text("topk_method", "noaux_tc"),
    )


def _gpt_oss(facts: Facts, num_layers: int) -> Experts:
    """Every layer; router and experts have biases."""
    return Experts(
        num_experts=facts.size("num_local_experts", most=MAX_EXPERTS),
        top_k=facts.size("num_experts_per_tok"),
        width=facts.size("intermediate_size"),
        layers=(True,) * num_layers,
        has_router_bias=True,
        has_bias=True,
    )


def read_latent(facts: Facts, family: Architecture) -> LatentAttention | None:
    """Latent attention, None for every other kind."""
    if not family.is_latent:
        return None
    return LatentAttention(
        q_rank=facts.size("q_lora_rank") if facts.is_given("q_lora_rank") else None,
        kv_rank=facts.size("kv_lora_rank"),
        nope_dim=facts.size("qk_nope_head_dim"),
        rope_dim=facts.size("qk_rope_head_dim"),
        v_dim=facts.size("v_head_dim"),
    )
