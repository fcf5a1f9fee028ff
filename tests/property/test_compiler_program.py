"""What holds for the program of any graph on any system."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase as Stage
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.config.compiler import (
    ActivationResidency,
    CompilerConfig,
    Fusion,
    Gemv,
    Launch,
    SplitPolicy,
    WeightLayout,
)
from npusim.config.system import SystemConfig
from npusim.errors import MappingError
from npusim.program.check import check_program
from npusim.workload import ModelConfig, OperatorGraph, Phase, Role, build_graph
from npusim.workload.quantization import parse_quantization
from tests.unit.compiler_samples import CORE, DEVICE, bytes_moved, compiled, consumers, system_with

SYSTEMS = ("rk3588", "ascend-910b", "tpu-v6e", "jetson-agx-orin", "edge-npu")
CORES = (1, 2, 3, 4, 8, 16, 24, 32, 64)


@st.composite
def systems(draw: st.DrawFn) -> SystemConfig:
    """Shipped systems with other core counts, scratchpads and DMA engines."""
    name = draw(st.sampled_from(SYSTEMS))
    overrides = [
        f"{DEVICE}.cores={draw(st.sampled_from(CORES))}",
        f"{CORE}.dma.load_engines={draw(st.integers(1, 3))}",
        f"{CORE}.dma.store_engines={draw(st.integers(1, 2))}",
    ]
    return system_with(name, *overrides)


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    """Small decoders."""
    flags = st.booleans()
    layers = draw(st.integers(1, 2))
    kv_heads = draw(st.integers(1, 3))
    return ModelConfig(
        name="drawn",
        model_type="drawn",
        hidden_size=8 * draw(st.integers(1, 40)),
        intermediate_size=8 * draw(st.integers(1, 60)),
        num_layers=layers,
        num_heads=kv_heads * draw(st.integers(1, 3)),
        num_kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 40)),
        vocab_size=draw(st.integers(1, 500)),
        max_positions=10_000,
        dtype="bf16",
        tie_word_embeddings=draw(flags),
        qkv_bias=draw(flags),
        o_bias=draw(flags),
        mlp_bias=draw(flags),
        qk_norm=draw(flags),
        windows=(None,) * layers,
    )


compilers = st.fixed_dictionaries(
    {
        "launch": st.sampled_from(list(Launch)),
        "activation_residency": st.sampled_from(
            [ActivationResidency.AUTO, ActivationResidency.DRAM]
        ),
        "weight_layout": st.sampled_from(list(WeightLayout)),
        "split": st.sampled_from(list(SplitPolicy)),
        "buffers": st.integers(1, 3),
        "prefetch": st.booleans(),
        "fusion": st.sampled_from(list(Fusion)),
        "fuse_attention": st.booleans(),
        "fuse_activation": st.booleans(),
        "gemv": st.sampled_from(list(Gemv)),
    }
)
phases = st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(0, 70))
precisions = st.sampled_from(("w16a16", "w8a8", "w4a16", "w4a16_g32", "w8a16", "w4a8"))


def _graph(model: ModelConfig, lengths: tuple[int, int, int], quant: str) -> OperatorGraph:
    batch, new_tokens, context = lengths
    phase = Phase.DECODE if context else Phase.PREFILL
    tokens = 1 if context else new_tokens
    precision = parse_quantization(quant)
    return build_graph(model, phase, batch, tokens, context, precision, "bf16")


@pytest.mark.slow
# shrinking compiles hundreds of programs; the drawn case is readable enough
@settings(max_examples=30, phases=(Stage.explicit, Stage.generate))
@given(systems(), models(), phases, precisions, compilers)
def test_every_program_is_legal_complete_and_in_order(
    system: SystemConfig,
    model: ModelConfig,
    lengths: tuple[int, int, int],
    quant: str,
    compiler: dict[str, object],
) -> None:
    graph = _graph(model, lengths, quant)
    _, new_tokens, context = lengths
    capacity = new_tokens + context + 3
    try:
        program = compiled(
            graph, system, kv_capacity_tokens=capacity, cached_tokens=context, **compiler
        ).program
    except MappingError:
        return  # a unit lacks the format; that message is tested elsewhere
    check_program(program)
    assert int(program.macs.sum()) == graph.macs
    assert bool((program.edge_producer < consumers(program)).all())
    written = bytes_moved(program, "kv", is_write=True)
    assert written == graph.compulsory_write_bytes(Role.KV)
    read = bytes_moved(program, "weight", is_write=False)
    assert read >= graph.compulsory_read_bytes(Role.WEIGHT)
    again = compiled(graph, system, kv_capacity_tokens=capacity, cached_tokens=context, **compiler)
    assert again.program.digest() == program.digest()


@pytest.mark.parametrize("name", SYSTEMS)
def test_producers_precede_consumers_in_program_order(name: str) -> None:
    quant = "w4a16" if name == "edge-npu" else "w8a8"
    model = ModelConfig(
        name="wide",
        model_type="wide",
        hidden_size=512,
        intermediate_size=1536,
        num_layers=1,
        num_heads=4,
        num_kv_heads=2,
        head_dim=128,
        vocab_size=2000,
        max_positions=10_000,
        dtype="bf16",
        tie_word_embeddings=True,
        qkv_bias=True,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        windows=(None,),
    )
    system = system_with(name)
    for lengths in ((1, 512, 0), (1, 1, 512)):
        program = compiled(
            _graph(model, lengths, quant),
            system,
            kv_capacity_tokens=1024,
            cached_tokens=lengths[2],
        ).program
        assert np.all(program.edge_producer < consumers(program))
        check_program(program)


def test_settings_are_all_drawn() -> None:
    untested = {"max_cores", "weight_residency", "staging"}  # have tests of their own
    drawn = {"launch", "activation_residency", "weight_layout", "split", "buffers", "prefetch"}
    drawn |= {"fusion", "fuse_attention", "fuse_activation", "gemv"}
    assert drawn | untested == set(CompilerConfig.model_fields)
