"""Grouped products of unequal rows: every row computed once, on one core or many."""

from __future__ import annotations

import pytest

from npusim.compiler.operands import RaggedView
from npusim.workload.loading import load_model
from npusim.workload.transformer import build_graph
from tests.unit.compiler_samples import bytes_moved, compiled, system_with


@pytest.mark.parametrize("system", ["tpu-v6e", "ascend-910b", "rk3588"])
def test_macs_and_weight_bytes_are_those_of_the_graph(system):
    model = load_model("qwen3-30b-a3b")
    graph = build_graph(model, "prefill", new_tokens=24, num_layers=1)
    roomy = system_with(system)
    result = compiled(graph, roomy)
    program = result.program
    assert int(program.macs.sum()) == graph.macs
    expert = graph["layers.0.experts.gate_up_proj"]
    assert expert.matmul.group_rows
    weights = sum(t.nbytes for t in graph.weights if "embedding" not in t.name)
    embedding_rows = 24 * 2048 * 2
    assert bytes_moved(program, "weight", is_write=False) >= weights + embedding_rows


def test_rows_of_the_second_product_follow_those_of_the_first():
    # 16 columns of 2 bytes; product 1 starts after the 3 rows of product 0
    view = RaggedView(space=0, base=1000, columns=16, row_bytes=32, starts=(0, 3))
    runs, owner = view.tile_runs(*([1], [0], [2], [4], [8]))
    assert owner.tolist() == [0]
    assert runs.tolist() == [[1000 + 3 * 32 + 8, 8, 32, 2]]
