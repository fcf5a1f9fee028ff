"""Tiles partition the bytes of an operand, whatever its layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.compiler.operands import RowMajorWeight, TiledWeight, WeightTiles
from npusim.compiler.views import View


def _addresses(runs: np.ndarray) -> list[int]:
    return [
        base + i * stride + byte
        for base, nbytes, stride, count in runs.tolist()
        for i in range(count)
        for byte in range(nbytes)
    ]


def _cuts(extent: int, tile: int) -> list[tuple[int, int]]:
    return [(low, min(low + tile, extent)) for low in range(0, extent, tile)]


@pytest.mark.parametrize("is_tiled", [True, False])
@given(
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 7),
    st.integers(2, 7),
    st.integers(2, 20),
    st.sampled_from((4, 8, 16)),
    st.integers(0, 9),
)
def test_weight_tiles_share_the_bytes_exactly(
    is_tiled: bool,
    batch: int,
    k: int,
    n: int,
    tile_k: int,
    tile_n: int,
    core_n: int,
    bits: int,
    scales: int,
) -> None:
    nbytes = -(-batch * k * n * bits // 8) + scales
    weight: TiledWeight | RowMajorWeight = RowMajorWeight(0, 100, nbytes, batch, k, n)
    if is_tiled:
        weight = TiledWeight(0, 100, nbytes, batch, k, n, WeightTiles(core_n, tile_k, tile_n))
    tiles = [
        (b, *rows, low + left, low + right)
        for b in range(batch)
        for low, high in _cuts(n, core_n)
        for left, right in _cuts(high - low, tile_n)
        for rows in _cuts(k, tile_k)
    ]
    runs, owner = weight.tile_runs(*np.array(tiles).T)
    assert sorted(_addresses(runs)) == list(range(100, 100 + nbytes))
    assert owner.tolist() == sorted(owner.tolist())


def test_cores_read_a_tiled_weight_side_by_side() -> None:
    """Two cores of four columns, tiles of two: a.0 b.0 a.1 b.1, 2 x 3 one-byte elements each."""
    weight = TiledWeight(0, 0, 24, 1, 3, 8, WeightTiles(core_n=4, tile_k=3, tile_n=2))
    lefts = np.array([0, 4, 2, 6])
    zeros = np.zeros(4, dtype=np.int64)
    runs, _ = weight.tile_runs(zeros, zeros, zeros + 3, lefts, lefts + 2)
    assert runs[:, 0].tolist() == [0, 6, 12, 18]
    assert runs[:, 1].tolist() == [6, 6, 6, 6]


@given(st.integers(1, 9), st.integers(1, 16), st.integers(1, 5), st.integers(1, 16))
def test_tiles_of_a_sub_byte_matrix_share_its_bytes(
    rows: int, columns: int, tile_rows: int, tile_columns: int
) -> None:
    row_bytes = -(-columns * 4 // 8)
    view = View(0, 7, columns, row_bytes, row_div=rows, row_inner=row_bytes)
    tiles = [(*r, *c) for r in _cuts(rows, tile_rows) for c in _cuts(columns, tile_columns)]
    r0, r1, c0, c1 = np.array(tiles).T
    runs, _ = view.tile_runs(0, r0, r1, c0, c1)
    assert sorted(_addresses(runs)) == list(range(7, 7 + rows * row_bytes))


def test_interleaved_heads_map_to_their_token_rows() -> None:
    # 2 sequences x 3 tokens of 2 KV heads x 2 query heads x 4 bytes: a token row is 16 bytes
    tokens, group, head_bytes, kv_heads = 3, 2, 4, 2
    pitch = kv_heads * group * head_bytes
    view = View(
        0,
        0,
        columns=4,
        row_bytes=head_bytes,
        row_div=tokens,
        row_inner=pitch,
        row_outer=head_bytes,
        batch_div=kv_heads,
        batch_outer=tokens * pitch,
        batch_inner=group * head_bytes,
    )
    for b in range(4):
        sequence, kv_head = divmod(b, kv_heads)
        for row in range(tokens * group):
            head, token = divmod(row, tokens)
            want = sequence * tokens * pitch + token * pitch + (kv_head * group + head) * head_bytes
            runs, _ = view.tile_runs(b, row, row + 1, 0, 4)
            assert _addresses(runs) == list(range(want, want + 4))
    runs, _ = view.tile_runs(np.arange(4), 0, tokens * group, 0, 4)
    assert sorted(_addresses(runs)) == list(range(2 * tokens * pitch))
