"""More of any resource never raises the predicted time of a matmul."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.compiler.matmul_traits import MatmulTraits
from npusim.compiler.target import Target
from npusim.compiler.tiling import MatmulPlan, plan_matmul
from npusim.config.compiler import SplitPolicy
from npusim.config.compute import ComputeDtype
from npusim.errors import MappingError
from npusim.simulation.memories import peak_bytes_per_s
from npusim.workload.operator import MatmulShape
from tests.unit.compiler_samples import CORE, DEVICE, system_with

SYSTEMS = ("rk3588", "ascend-910b", "tpu-v6e", "jetson-agx-orin", "edge-npu")
#: path below the system, and how it is written
RESOURCES = (
    "cores",
    "clock_hz",
    "core.matrix.units",
    "core.scratchpad.capacity_bytes",
    "core.matrix.operand_buffer_bytes",
    "core.matrix.accumulator_buffer_bytes",
    "core.matrix.operand_bytes_per_cycle",
    "core.matrix.accumulator_bytes_per_cycle",
    "core.dma.load_engines",
    "core.dma.queue_depth",
    "core.vector.bytes_per_cycle",
    "dram",
)
shapes = st.builds(
    MatmulShape, st.integers(1, 4), st.integers(1, 600), st.integers(1, 3000), st.integers(1, 3000)
)


def _seconds(name: str, shape: MatmulShape, resource: str, factor: int) -> float:
    """Predicted time with one resource multiplied."""
    system = system_with(name)
    device = system.devices["npu"]
    peaks = peak_bytes_per_s(system)
    if resource == "dram":
        peaks = {memory: rate * factor for memory, rate in peaks.items()}
    else:
        *parents, leaf = resource.split(".")
        chain = [device]
        for parent in parents:
            chain.append(getattr(chain[-1], parent))
        changed = chain[-1].model_copy(update={leaf: getattr(chain[-1], leaf) * factor})
        for parent, owner in zip(parents[::-1], chain[-2::-1], strict=True):
            changed = owner.model_copy(update={parent: changed})
        device = changed
        system = system.model_copy(update={"devices": {"npu": device}})
    return _plan(Target(system, peaks), shape).predicted_cycles / device.clock_hz


def _plan(target: Target, shape: MatmulShape, buffers: int = 2) -> MatmulPlan:
    path = target.core.dma.dram_bytes_per_cycle
    traits = MatmulTraits(
        a_bits=16,
        w_bits=16,
        w_dram_bits=16,
        out_bits=16,
        compute_dtype=ComputeDtype.BF16,
        a_bytes_per_cycle=path,
        w_bytes_per_cycle=path,
        c_bytes_per_cycle=path,
    )
    budget = target.core.scratchpad.capacity_bytes
    return plan_matmul(
        "op", shape, traits, target, budget_bytes=budget, buffers=buffers, split=SplitPolicy.AUTO
    )


@settings(max_examples=40)
@given(st.sampled_from(SYSTEMS), shapes, st.sampled_from(RESOURCES), st.integers(2, 4))
def test_predicted_time_never_rises_with_a_resource(
    name: str, shape: MatmulShape, resource: str, factor: int
) -> None:
    before = _seconds(name, shape, resource, 1)
    assert _seconds(name, shape, resource, factor) <= before * (1 + 1e-12)


@settings(max_examples=30)
@given(st.sampled_from(SYSTEMS), shapes, st.integers(1, 3))
def test_a_plan_covers_the_product_with_the_cores_there_are(
    name: str, shape: MatmulShape, buffers: int
) -> None:
    system = system_with(name, f"{DEVICE}.cores=8", f"{CORE}.dma.load_engines=1")
    target = Target(system, peak_bytes_per_s(system))
    try:
        plan = _plan(target, shape, buffers)
    except MappingError:
        return
    assert plan.cores <= 8
    for parts, share, extent in zip(
        plan.grid, plan.chunk, (shape.batch, shape.m, shape.n), strict=True
    ):
        assert (parts - 1) * share < extent <= parts * share
    assert plan.predicted_dram_bytes >= 2 * shape.batch * shape.k * shape.n
