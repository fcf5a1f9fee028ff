"""Attention statistics: hand-made maps, and a piece of a real model against one-liners."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npusim.errors import WorkloadError
from npusim.workload import attention_stats as stats
from npusim.workload.head_statistics import head_statistics, keys_for_mass

DATA = Path(__file__).resolve().parents[1] / "data" / "attention"


@pytest.fixture(scope="module")
def real():
    with np.load(DATA / "smollm2_135m_L96.npz") as file:
        return {name: file[name].astype(np.float64) for name in file.files}


def test_the_shortest_safe_and_the_longest_entropy_end_the_rule():
    one_key, even = np.zeros((1, 4, 4)), np.full((1, 4, 4), 0.25)
    one_key[..., 0] = 1.0
    assert stats.head_sparsity(one_key).tolist() == [0.75]  # 4 of 16 are not zero
    assert stats.positional_entropy(one_key) == 0.0
    assert stats.r_max(one_key) == 0.75  # H = 0 gives the sparsity
    assert stats.r_max(even) == 0.0  # H = ln L gives nothing
    assert stats.positional_entropy(np.full((3, 4, 4), 0.25)) == pytest.approx(np.log(4))


@pytest.mark.parametrize(
    ("sparsity", "entropy", "printed", "ours"), [(0.6, 2.0, 0.57, 0.443), (0.4, 4.5, 0.19, 0.164)]
)
def test_the_printed_examples_fit_no_base_of_the_logarithm(sparsity, entropy, printed, ours):
    assert stats.safe_fraction(sparsity, entropy, 2048) == pytest.approx(ours, abs=5e-4)
    by_base = {b: sparsity * (1 - entropy / (np.log(2048) / np.log(b))) for b in (2, np.e, 10)}
    assert all(abs(value - printed) > 0.02 for value in by_base.values())


def test_the_two_printed_examples_need_different_bases():
    # sparsity (1 - H ln b / ln L) = printed, solved for ln b
    needed = [
        (1 - printed / sparsity) / entropy * np.log(2048)
        for sparsity, entropy, printed in ((0.6, 2.0, 0.57), (0.4, 4.5, 0.19))
    ]
    assert needed == pytest.approx([0.1906, 0.8895], abs=1e-3)


def test_figures_of_a_real_map_match_one_liners(real):
    maps = real["attn"][1]
    p = maps.sum((0, 1)) / maps.sum()
    entropy = float(-(p[p > 0] * np.log(p[p > 0])).sum())
    zeros = float((maps == 0).mean())
    assert stats.head_sparsity(maps) == pytest.approx((maps == 0).mean((1, 2)))
    assert stats.positional_entropy(maps) == pytest.approx(entropy)
    assert stats.r_max(maps) == pytest.approx(zeros * (1 - entropy / np.log(96)))
    nine = head_statistics(maps[4])
    half = maps[4, 48:]
    assert nine.sink4_mass == pytest.approx(half[:, :4].sum() / 48)
    logs = np.log2(half, where=half > 0, out=np.zeros_like(half))
    assert nine.mean_row_entropy_bits == pytest.approx(-(half * logs).sum() / 48)
    seen = [half[i, : 49 + i] for i in range(48)]
    assert nine.local32_mass == pytest.approx(np.mean([row[-32:].sum() for row in seen]))
    assert nine.frac_probs_below_1e3 == pytest.approx((np.concatenate(seen) < 1e-3).mean())
    columns = np.sort(maps[4].sum(0))
    assert nine.top10pct_columns_mass == pytest.approx(columns[-9:].sum() / columns.sum())
    last = np.sort(half[-1])[::-1].cumsum()
    assert keys_for_mass(half[-1], 0.9) == np.searchsorted(last, 0.9 * last[-1]) + 1


def test_layers_of_a_short_text_have_the_sink_and_entropy_of_the_long_one(real):
    """Other text and length: layers keep their character, figures their order of size."""
    table = json.loads((DATA / "smollm2_135m_L1024_layers.json").read_text("utf-8"))["layers"]
    ours = [[head_statistics(head).as_dict() for head in layer] for layer in real["attn"]]
    for name, tolerance in {"sink4_mass": 0.1, "mean_norm_entropy": 0.1}.items():
        for mine, layer in zip(ours, (0, 17), strict=True):
            mean = np.mean([head[name] for head in mine])
            assert mean == pytest.approx(table[layer][name], abs=tolerance), name


def test_probabilities_from_q_and_k_are_the_stored_ones(real):
    for layer in (0, 1):
        for head in (0, 8):
            own = stats.causal_attention(real["q"][layer, head], real["k"][layer, head // 3])
            assert np.abs(own - real["attn"][layer, head]).max() < 4e-3  # 16-bit storage


def test_pruning_keeps_the_mass_of_kept_keys_and_the_output_of_all(real):
    q, k, v = real["q"][1, 0, -1:], real["k"][1, 0], real["v"][1, 0]
    everything, none = np.ones(96, dtype=bool), np.zeros(96, dtype=bool)
    assert stats.output_error(q, k, v, everything) == 0.0
    kept = everything.copy()
    kept[40:60] = False
    row = real["attn"][1, 0, -1:]
    expected = row[0, kept].sum() / row.sum()
    assert stats.retained_mass(row[None], kept) == pytest.approx([expected])
    logits = np.exp(k @ q[0] / 8)
    full, part = logits @ v / logits.sum(), logits[kept] @ v[kept] / logits[kept].sum()
    expected = np.linalg.norm(part - full) / np.linalg.norm(full)
    assert stats.output_error(q, k, v, kept) == pytest.approx(expected)
    with pytest.raises(WorkloadError, match="at least one key"):
        stats.pruned_attention(q, k, v, none)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: stats.r_max(np.zeros(3)), "heads, queries, keys"),
        (lambda: stats.r_max(np.full((1, 2, 2), -1.0)), "not negative"),
        (lambda: stats.safe_fraction(0.5, 9.0, 8), "entropy must be 0 to ln 8"),
        (lambda: stats.safe_fraction(1.5, 1.0, 8), "sparsity must be 0 to 1"),
        (lambda: stats.safe_fraction(0.5, 0.0, 1), "at least 2 keys"),
        (lambda: head_statistics(np.zeros((3, 4))), "must be L x L"),
    ],
)
def test_what_is_no_attention_is_refused(call, rule):
    with pytest.raises(WorkloadError, match=rule):
        call()
