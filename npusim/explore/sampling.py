"""Which points of a grid are taken; the same seed takes the same ones on every machine."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ConfigError
from npusim.explore.spec import MAX_POINTS, Method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npusim.explore.spec import Sampling

Levels = tuple[int, ...]


def choose(
    sizes: Sequence[int], sampling: Sampling, is_allowed: Callable[[Levels], bool], where: str
) -> tuple[list[Levels], int]:
    """Level of every axis for each point, and how many points the constraints excluded.

    Raises
    ------
    ConfigError
        If the grid is too large for its method, or too few of its points are allowed.
    """
    total = prod(sizes)
    if total > MAX_POINTS and sampling.method is not Method.LHS:
        rule = f"the grid must have at most {MAX_POINTS} points"
        raise ConfigError(where, rule, total, "use sampling method lhs, or fewer values")
    taken: list[Levels] = []
    excluded = 0
    for levels in _candidates(sizes, sampling):
        if sampling.method is Method.RANDOM and len(taken) == sampling.points:
            break
        if is_allowed(levels):
            taken.append(levels)
        else:
            excluded += 1
    if sampling.method is Method.RANDOM and len(taken) < (sampling.points or 0):
        rule = f"only {len(taken)} points of the grid meet the constraints"
        raise ConfigError(where, rule, sampling.points)
    if not taken:
        raise ConfigError(where, "no point meets the constraints")
    return taken, excluded


def _candidates(sizes: Sequence[int], sampling: Sampling) -> Iterator[Levels]:
    """Points in the order in which they are considered; the last axis changes fastest."""
    generator = np.random.default_rng(sampling.seed)
    if sampling.method is Method.LHS:
        yield from _hypercube(sizes, sampling.points or 1, generator)
        return
    order: Sequence[int] = range(prod(sizes))
    if sampling.method is Method.RANDOM:
        order = [int(i) for i in generator.permutation(len(order))]
    for index in order:
        yield tuple(int(i) for i in np.unravel_index(index, sizes)) if sizes else ()


def _hypercube(sizes: Sequence[int], points: int, generator: np.random.Generator) -> list[Levels]:
    """Every axis cut into `points` equal strata, each used once; levels are evenly used."""
    columns = [(generator.permutation(points) * size // points).tolist() for size in sizes]
    return [tuple(levels) for levels in zip(*columns, strict=True)]
