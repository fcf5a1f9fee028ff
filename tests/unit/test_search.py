"""Search: the same points for one seed however it runs, budgets, refusals, better than chance."""

from __future__ import annotations

import json

import numpy as np
import pytest

import npusim as ns
from npusim.cli import main
from npusim.errors import ConfigError, ResultError
from npusim.explore.analysis import pareto_mask
from npusim.explore.executor import ProcessPool
from npusim.explore.metrics import METRICS
from npusim.explore.search import JOURNAL_FILE
from npusim.explore.worker import Outcome

CORES, CLOCK, UNITS = (
    f"system.devices.npu.{key}" for key in ("cores", "clock_hz", "core.matrix.units")
)
SPEC = {
    "name": "t",
    "systems": ["edge-npu"],
    "models": ["smollm2-135m"],
    "workload": {"prompt_len": 16, "generate_len": 1},
    "simulation": {"fidelity": "analytic"},
    "axes": [
        {"path": CORES, "values": list(range(1, 17))},
        {"path": CLOCK, "lin": {"start": 10**9, "stop": 2 * 10**9, "steps": 41}},
        {"path": UNITS, "values": list(range(1, 9))},
    ],
    "derived": {"cost": f"{CORES} * {UNITS}"},
    "objectives": {"elapsed_ps": "min", "cost": "min"},
    "search": {"method": "nsga2", "points": 60, "batch": 12, "seed": 1},
}


class Formula:
    """Computes points by a formula: time falls with cores, units and clock; some fail."""

    def __init__(self, *, backwards=False, fails=False):
        self.backwards, self.fails, self.computed = backwards, fails, []

    def run(self, tasks):
        """Outcomes, in the other order if asked."""
        for task in reversed(tasks) if self.backwards else tasks:
            self.computed.append(task.key)
            npu = task.run.system.devices["npu"]
            if self.fails and npu.cores % 2:
                yield Outcome(task.key, {}, "odd")
                continue
            work = npu.cores**0.5 * npu.core.matrix.units * npu.clock_hz / 1e9
            yield Outcome(task.key, dict.fromkeys(METRICS) | {"elapsed_ps": int(1e9 / work)})

    def close(self):
        """Nothing to end."""


def settings(**search):
    return SPEC | {"search": SPEC["search"] | search}


@pytest.mark.parametrize("method", ["nsga2", "tpe"])
def test_a_search_depends_on_its_seed_alone(tmp_path, method):
    runs = [
        ns.search(settings(method=method), out=tmp_path / str(i), executor=executor)
        for i, executor in enumerate((Formula(), Formula(backwards=True)))
    ]
    assert runs[0].table.equals(runs[1].table)
    other = ns.search(settings(method=method, seed=2), out=tmp_path / "2", executor=Formula())
    assert not runs[0].table.equals(other.table)
    assert (tmp_path / "0" / JOURNAL_FILE).stat().st_size > 1000


def test_the_budget_counts_different_points(tmp_path):
    executor = Formula()
    found = ns.search(SPEC, out=tmp_path, executor=executor)
    assert found.summary["points"] == len(set(executor.computed)) == len(executor.computed) == 60
    assert found.summary["proposals"] >= 60
    assert ns.load_sweep(tmp_path).table.equals(found.table)


def test_a_grid_smaller_than_the_budget_ends(tmp_path):
    small = settings(points=15) | {"axes": [{"path": CORES, "values": [1, 2, 3]}]}
    spec = small | {"derived": {"cost": CORES}}
    found = ns.search(spec, out=tmp_path, executor=Formula())
    assert found.summary["points"] == 3
    assert found.summary["proposals"] == 300


def test_an_interrupted_search_goes_on_as_if_it_had_not_been(tmp_path):
    class Dies(Formula):
        """Stops in the middle of the third batch."""

        def run(self, tasks):
            """Outcomes until it dies."""
            for outcome in super().run(tasks):
                if len(self.computed) > 30:
                    raise KeyboardInterrupt
                yield outcome

    whole = ns.search(SPEC, out=tmp_path / "whole", executor=Formula())
    with pytest.raises(KeyboardInterrupt):
        ns.search(SPEC, out=tmp_path / "cut", executor=Dies())
    with pytest.raises(ResultError, match="--resume"):
        ns.search(SPEC, out=tmp_path / "cut", executor=Formula())
    executor = Formula()
    resumed = ns.search(SPEC, out=tmp_path / "cut", resume=True, executor=executor)
    assert resumed.table.equals(whole.table)
    assert len(executor.computed) == 60 - 30


def test_constraints_hold_and_failures_are_rows(tmp_path):
    spec = SPEC | {"constraints": [f"{CORES} * {UNITS} <= 32"]}
    found = ns.search(spec, out=tmp_path, executor=Formula(fails=True)).to_frame()
    assert (found["cost"] <= 32).all()
    failed = found[CORES] % 2 == 1
    assert (found["status"] == "failed").tolist() == failed.tolist()
    assert 0 < failed.sum() < len(found)


def hypervolume(rows, worst):
    """Area between the front and a corner that is worse than every point."""
    front = rows[pareto_mask(rows)]
    front = front[np.argsort(front[:, 0])]
    right = np.append(front[1:, 0], worst[0])
    return float(((right - front[:, 0]) * (worst[1] - front[:, 1])).sum())


@pytest.mark.slow
def test_a_genetic_search_beats_chance_at_an_equal_budget(tmp_path):
    areas = {}
    for method in ("nsga2", "random"):
        found = []
        for seed in range(5):
            spec = settings(method=method, seed=seed, points=120)
            out = tmp_path / f"{method}{seed}"
            rows = ns.search(spec, out=out, executor=Formula()).to_frame()
            rows = np.log(rows[["elapsed_ps", "cost"]].to_numpy(dtype=float))
            found.append(hypervolume(rows, np.log([1.1e9, 130.0])))
        areas[method] = np.array(found)
    assert areas["nsga2"].mean() > areas["random"].mean()
    assert (areas["nsga2"] > areas["random"]).sum() >= 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"search": None}, "search"),
        ({"objectives": {}}, "objectives"),
        ({"search": {"method": "nsga4", "points": 3}}, "nsga2"),
        ({"search": {"method": "tpe"}}, "points"),
    ],
)
def test_what_a_search_lacks_is_told(tmp_path, change, told):
    with pytest.raises(ConfigError, match=told):
        ns.search(SPEC | change, out=tmp_path / "s", executor=Formula())
    assert not (tmp_path / "s").exists()


def test_a_search_without_optuna_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("npusim.explore.search.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"npusim\[explore\]"):
        ns.search(SPEC, out=tmp_path, executor=Formula())


@pytest.mark.slow
def test_the_shipped_search_runs_on_one_and_two_workers(tmp_path, capsys):
    file = tmp_path / "few.json"
    arguments = ["search", "edge-search", "--out", str(tmp_path / "a"), "--jobs", "2", "--json"]
    assert main(arguments) == 0
    file.write_text(capsys.readouterr().out)
    assert json.loads(file.read_text())["points"] == 200
    one = ns.search("edge-search", out=tmp_path / "b", executor=ProcessPool(1))
    assert one.table.equals(ns.load_sweep(tmp_path / "a").table)
