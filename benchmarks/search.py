"""Search against chance at an equal budget: ``python benchmarks/search.py [SEEDS [POINTS]]``.

The measure is the area between a front and a corner worse than every point (hypervolume of the
logarithms of both objectives), relative to that of the points of all searches together.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import npusim as ns
from npusim.explore.analysis import pareto_mask
from npusim.explore.plan import load_space
from npusim.paths import find_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHODS = ("nsga2", "nsga3", "tpe", "random")


def hypervolume(rows: NDArray[np.float64], worst: NDArray[np.float64]) -> float:
    """Area of what a front of two objectives dominates."""
    front = rows[pareto_mask(rows)]
    front = front[np.argsort(front[:, 0])]
    right = np.append(front[1:, 0], worst[0])
    return float(((right - front[:, 0]) * (worst[1] - front[:, 1])).sum())


def main(seeds: int = 3, points: int = 200) -> None:
    """Print mean and spread of every method."""
    spec = load_space(find_named("sweep", "edge-search")).spec
    found: dict[str, list[Any]] = {method: [] for method in METHODS}
    assert spec.search is not None
    for method in METHODS:
        for seed in range(seeds):
            settings = {"method": method, "seed": seed, "points": points, "batch": 20}
            own = spec.model_copy(
                update={"search": type(spec.search).model_validate(settings, strict=False)}
            )
            with tempfile.TemporaryDirectory() as folder:
                table = ns.search(own, out=Path(folder) / "s").to_frame()
            found[method].append(np.log(table[list(spec.objectives)].to_numpy(dtype=float)))
    everything = np.concatenate([rows for runs in found.values() for rows in runs])
    worst = everything.max(axis=0) + 0.01
    best = hypervolume(everything, worst)
    print(f"{seeds} seeds, {points} points")
    for method, runs in found.items():
        areas = [hypervolume(rows, worst) / best for rows in runs]
        print(f"{method:8s} {np.mean(areas):.4f}  ({min(areas):.4f} to {max(areas):.4f})")


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
