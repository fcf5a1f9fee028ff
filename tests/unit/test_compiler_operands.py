"""Tiles partition the bytes of an operand, whatever its layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.compiler.operands import RowMajorWeight, TiledWeight
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


@pytest.mark.parametrize("layout", [TiledWeight, RowMajorWeight])
@given(
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 7),
    st.integers(2, 7),
    st.sampled_from((4, 8, 16)),
    st.integers(0, 9),
)
def test_weight_tiles_share_the_bytes_exactly(
    layout: type[TiledWeight | RowMajorWeight],
    batch: int,
    k: int,
    n: int,
    tile_k: int,
    tile_n: int,
    bits: int,
    scales: int,
) -> None:
    nbytes = -(-batch * k * n * bits // 8) + scales
    weight = layout(0, 100, nbytes, batch, k, n)
    tiles = [
        (b, *rows, *columns)
        for b in range(batch)
        for columns in _cuts(n, tile_n)
        for rows in _cuts(k, tile_k)
    ]
    runs, owner = weight.tile_runs(*np.array(tiles).T)
    assert sorted(_addresses(runs)) == list(range(100, 100 + nbytes))
    assert owner.tolist() == sorted(owner.tolist())


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
