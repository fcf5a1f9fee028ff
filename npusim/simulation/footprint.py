"""Whether a whole model fits, before anything is simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.config.compiler import WeightResidency
from npusim.errors import WorkloadError

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.simulation.workloads import AnyWorkload


def footprint_bytes(workload: AnyWorkload, spec: RunSpec) -> int:
    """Bytes of weights and KV cache of the whole model in DRAM."""
    kv_bytes = workload.kv_bytes_per_token * workload.cached_tokens
    is_cold = spec.compiler.weight_residency is WeightResidency.COLD
    own = kv_bytes + (workload.weight_bytes if is_cold else 0)
    draft = workload.draft
    if draft is None or draft.model.is_mtp:  # the model's own layers are counted with it
        return own
    return own + footprint_bytes(draft, spec)


def check_footprint(spec: RunSpec, workload: AnyWorkload) -> None:
    """Refuse a model that the memory or the device's address space does not hold.

    Raises
    ------
    WorkloadError
        With need, limit and what sets it.
    """
    residency = spec.compiler.weight_residency
    if workload.draft is not None and residency is not WeightResidency.COLD:
        rule = "the weights of a model and its draft do not stay on chip together"
        hint = "use compiler.weight_residency=cold"
        raise WorkloadError("draft_model", rule, residency.value, hint)
    need = footprint_bytes(workload, spec)
    for name, device in spec.system.devices.items():
        memory = spec.system.buses[device.bus].memory
        limits = [
            (f"memories.{memory}.capacity_bytes", spec.system.memories[memory].capacity_bytes)
        ]
        if device.address_limit_bytes is not None:
            limits.append((f"devices.{name}.address_limit_bytes", device.address_limit_bytes))
        where, limit = min(limits, key=lambda item: item[1])
        if need > limit:
            raise WorkloadError(
                workload.model.name,
                f"{_parts(workload, need)} exceed {where}={limit}",
                need,
                "use a narrower --quant, a shorter context, a smaller batch or a larger memory",
            )


def _parts(workload: AnyWorkload, need: int) -> str:
    """Weights and the rest of a footprint, in words."""
    weights, what = workload.weight_bytes, "weights and a KV cache of"
    draft = workload.draft
    if draft is not None and not draft.model.is_mtp:
        weights, what = weights + draft.weight_bytes, "weights, draft model included, and caches of"
    return f"{weights} bytes of {what} {need - weights} bytes"
