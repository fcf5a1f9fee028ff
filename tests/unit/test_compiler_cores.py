"""Cores left idle, addresses of folded programs, shared tiles led in turn, DRAM patterns."""

from __future__ import annotations

import numpy as np
import pytest

from npusim.compiler.dram_pattern import DramPattern
from npusim.compiler.layout import Layout
from npusim.compiler.target import Target
from npusim.config.compiler import CompilerConfig
from npusim.config.host import LaunchMode
from npusim.simulation.memories import peak_bytes_per_s
from npusim.workload.workload import transformer
from tests.unit.compiler_samples import DEVICE, compiled, system_with

PATTERN = DramPattern(
    channels=8,
    interleave_bytes=256,
    burst_bytes=32,
    row_bytes=2048,
    activate_ps=4000.0,
    bytes_per_ps=0.064,
)


def decode_graph(layers=None):
    return transformer("smollm2-135m", phase="decode", context_len=16).decode_graph(16, layers)


def test_small_activations_keep_to_one_core_of_several():
    """Two cores would pass every activation through DRAM."""
    one = compiled(decode_graph(1), system_with("tpu-v6e"), kv_capacity_tokens=17)
    two = compiled(
        decode_graph(1), system_with("tpu-v6e", f"{DEVICE}.cores=2"), kv_capacity_tokens=17
    )
    assert two.activation_space == one.activation_space == "npu.core0.scratchpad"
    assert two.predicted_cycles == one.predicted_cycles
    assert len(two.program.engines) > len(one.program.engines)  # the other core is there, idle


def test_weights_of_the_first_layers_lie_where_the_whole_model_has_them():
    system = system_with("edge-npu")
    target = Target(system, peak_bytes_per_s(system))
    whole, part = decode_graph(), decode_graph(2)

    def layout(graph, whole=None):
        return Layout(graph, target, CompilerConfig(), LaunchMode.GRAPH, 17, whole)

    full, folded = layout(whole), layout(part, whole)
    tensors = {t.name: t for op in part for t in op.inputs if t.role.value != "activation"}
    assert {t.role.value for t in tensors.values()} == {"weight", "kv"}
    assert all(folded.home(t) == full.home(t) for t in tensors.values())
    assert layout(part).footprint_bytes() < full.footprint_bytes()  # it makes a difference


@pytest.mark.parametrize(
    ("rows", "run_bytes", "pitch_bytes", "factor"),
    [
        (16, 512, 512, 1.0),  # whole rows: contiguous
        (1, 64, 4096, 1.0),  # one run
        # every 2048 B is channel 0 again: 1 of 8 channels, 256 B as 8 bursts: 8 x 256 / 256
        (16, 256, 2048, 8.0),
        # every 1024 B: channels 0 and 4: 8 / 2 x 128 / 128
        (16, 128, 1024, 4.0),
        # 2000 B is no multiple of 256: all channels; 16 B of a 32 B burst: 32 / 16
        (16, 16, 2000, 2.0),
    ],
)
def test_dram_pattern_counts_channels_and_whole_bursts(rows, run_bytes, pitch_bytes, factor):
    """Opening rows costs 4000 ps x 0.064 / 8 = 32 bytes' time at most, so it never shows here."""
    found = PATTERN.factor(np.array([rows]), np.array([float(run_bytes)]), pitch_bytes, 1)
    assert found.tolist() == [factor]


def test_rows_opened_for_every_short_run_bound_it():
    """Runs of 32 B at a pitch of 16384 + 32 B, all rows new: 64000 ps x 0.064 / 8 = 512 B each."""
    slow = DramPattern(8, 256, 32, 2048, 64_000.0, 0.064)
    found = slow.factor(np.array([100]), np.array([32.0]), 16_384 + 32, 1)
    assert found.tolist() == [512 / 32]
