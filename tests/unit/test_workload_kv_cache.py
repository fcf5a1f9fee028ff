"""Where keys and values lie."""

from __future__ import annotations

import pytest

from npusim.errors import WorkloadError
from npusim.workload import KvCacheLayout, Runs, load_model

# Two heads of 64 16-bit elements, 10 tokens: 128 bytes per token, 1,280 per head, 2 sequences x 2
# heads = 5,120 per region, rounded up to two pages = 8,192.
LAYOUT = KvCacheLayout(
    num_layers=3, batch=2, kv_heads=2, head_dim=64, capacity_tokens=10, dtype="fp16"
)


def test_regions_alternate_k_and_v_on_page_boundaries():
    assert (LAYOUT.token_bytes, LAYOUT.head_bytes, LAYOUT.region_bytes) == (128, 1280, 8192)
    assert [LAYOUT.region_base(0, "k"), LAYOUT.region_base(0, "v")] == [0, 8192]
    assert LAYOUT.region_base(2, "v") == 5 * 8192
    assert LAYOUT.nbytes == 6 * 8192


def test_an_append_is_one_run_per_sequence_and_head():
    assert LAYOUT.runs(1, "k", 7, 1) == Runs(2 * 8192 + 7 * 128, 128, 1280, 4)
    assert LAYOUT.runs(1, "v", 0, 10).total_bytes == 4 * 10 * 128


def test_a_head_reads_one_contiguous_run():
    assert LAYOUT.head_run(0, "v", 3, 2, 8) == Runs(8192 + 3 * 1280 + 256, 1024, 1280, 1)


# 64 elements of 4 bits are 32 bytes; 5 tokens 160, 2 heads 320, one page.
def test_sub_byte_heads_are_packed():
    layout = KvCacheLayout(1, 1, 2, 64, 5, "int4")
    assert (layout.token_bytes, layout.head_bytes, layout.region_bytes) == (32, 160, 4096)


def test_the_layout_of_a_model_uses_its_kv_heads():
    layout = KvCacheLayout.of(load_model("qwen2-1.5b"), batch=1, capacity_tokens=512)
    assert (layout.kv_heads, layout.head_dim, layout.dtype) == (2, 128, "bf16")
    assert layout.nbytes == 512 * 28_672  # already aligned


@pytest.mark.parametrize(("first", "count"), [(10, 1), (0, 11), (-1, 2), (3, 0)])
def test_tokens_outside_the_cache_are_refused_not_wrapped(first, count):
    with pytest.raises(WorkloadError, match="must lie in a cache of 10"):
        LAYOUT.runs(0, "k", first, count)


def test_a_head_outside_the_cache_is_refused():
    with pytest.raises(WorkloadError, match="must be below 4"):
        LAYOUT.head_run(0, "k", 4, 0, 1)
