"""Ways to deal a matmul to cores: a grid along (batch, m, n), in whole granules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.config.compiler import SplitPolicy
from npusim.config.compute import MatrixKind

if TYPE_CHECKING:
    from npusim.compiler.matmul_traits import MatmulTraits
    from npusim.config.compute import MatrixSpec
    from npusim.workload.operator import MatmulShape

Triple = tuple[int, int, int]


def granule_of(spec: MatrixSpec, traits: MatmulTraits) -> Triple:
    """Smallest useful (m, k, n) of a tile: the array's or cube's own size."""
    if spec.kind is MatrixKind.CUBE:
        assert spec.cube is not None
        cube = spec.cube[traits.compute_dtype]
        m, k, n = cube.m, cube.k, cube.n
    else:
        assert spec.rows is not None and spec.cols is not None
        m, k, n = spec.rows, spec.rows, spec.cols
    return max(m, 1), max(k, traits.k_group), max(n, 2)


def core_grids(
    shape: MatmulShape, cores: int, split: SplitPolicy, granule: Triple
) -> list[tuple[Triple, Triple]]:
    """Every grid of at most `cores` cores that all get work, with the largest core's extents.

    More cores only add grids.

    Returns
    -------
    list of ((batch, m, n), (batch, m, n))
        Cores along each dimension; extents of one core's share.
    """
    along_batch = _parts(shape.batch, 1, cores)
    along_m = _parts(shape.m, granule[0], cores) if split is not SplitPolicy.N else {1: shape.m}
    along_n = _parts(shape.n, granule[2], cores) if split is not SplitPolicy.M else {1: shape.n}
    return [
        ((gb, gm, gn), (batch, m, n))
        for gb, batch in along_batch.items()
        for gm, m in along_m.items()
        if gb * gm <= cores
        for gn, n in along_n.items()
        if gb * gm * gn <= cores
    ]


def tile_extents(extent: int, granule: int) -> list[int]:
    """Tile extents tried along one dimension: the whole, and even parts of it in whole granules.

    Parts are 2, 3, 4, 6, 8, 12, ... in number, down to one granule.
    """
    blocks = -(-extent // granule)
    sizes = {extent, min(granule, extent)}
    parts = 2
    while parts < 2 * blocks:
        for count in (parts, parts + parts // 2):
            sizes.add(min(-(-blocks // count) * granule, extent))
        parts *= 2
    return sorted(sizes)


def _parts(extent: int, granule: int, cores: int) -> dict[int, int]:
    """Cores that get work and the largest share, for every distinct share."""
    blocks = -(-extent // granule)
    result: dict[int, int] = {}
    for parts in range(1, min(cores, blocks) + 1):
        share = -(-blocks // parts)
        result.setdefault(-(-blocks // share), min(share * granule, extent))
    return result
