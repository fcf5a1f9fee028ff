"""Analysed sweeps: fronts against their definition, shares of variance by hand, budgets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim as ns
from npusim.cli import main
from npusim.errors import ConfigError
from npusim.explore.analysis import analyse, pareto_mask
from npusim.explore.table import SweepResult
from npusim.report.sweep_figure import heatmap_figure, pareto_figure, sweep_html
from npusim.report.sweep_tables import budget_rows, headline, pareto_rows

A, B = "system.devices.npu.cores", "system.devices.npu.clock_hz"


def sweep_of(times, *, goals=None, **columns):
    """A finished sweep of a 2 x 3 grid of A and B, B fastest."""
    count = len(times)
    table = {
        "point": list(range(count)),
        "key": [str(i) for i in range(count)],
        "status": ["done" if time is not None else "failed" for time in times],
        "error": [None if time is not None else "no" for time in times],
        "system": ["edge-npu"] * count,
        "model": ["m"] * count,
        A: [1, 1, 1, 2, 2, 2][:count],
        B: [10, 20, 30, 10, 20, 30][:count],
        "elapsed_ps": times,
        **columns,
    }
    summary = {"name": "t", "axes": [A, B], "objectives": goals or {"elapsed_ps": "min"}}
    return SweepResult(Path(), summary, pa.table(table))


costs = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(costs)
def test_the_front_is_what_nothing_dominates(rows):
    expected = [
        not any(
            all(x <= y for x, y in zip(other, row, strict=True)) and other != row for other in rows
        )
        for row in rows
    ]
    assert pareto_mask(np.array(rows, dtype=float)).tolist() == expected


def test_shares_of_variance_by_hand():
    # about the mean of 6: 25 + 4 + 1 + 9 + 4 + 1 = 44
    # A has means 4 and 8: 6 x 4 = 24; B has means 5, 6 and 7: 2 x 1 + 2 x 1 = 4; the rest is 16
    found = analyse(sweep_of([1, 4, 7, 9, 8, 7]))
    shares = {effect.axis: effect.share_frac for effect in found.effects}
    assert shares == {A: pytest.approx(24 / 44), B: pytest.approx(4 / 44)}
    assert found.interactions[0].share_frac == pytest.approx(16 / 44)


def test_additive_times_have_no_interaction_and_a_product_has_all_of_the_rest():
    additive = analyse(sweep_of([1, 2, 3, 11, 12, 13]))
    assert additive.is_balanced
    assert additive.interactions[0].share_frac == pytest.approx(0)
    assert sum(effect.share_frac for effect in additive.effects) == pytest.approx(1)
    crossed = analyse(sweep_of([-1, 0, 1, 1, 0, -1]))
    assert [effect.share_frac for effect in crossed.effects] == pytest.approx([0, 0])
    assert crossed.interactions[0].share_frac == pytest.approx(1)


def test_levels_have_their_means_in_order():
    effect = analyse(sweep_of([1, 4, 7, 9, 8, 7])).effects[1]
    assert effect.levels == ((10, 5.0, 2), (20, 6.0, 2), (30, 7.0, 2))


def test_more_budget_buys_the_best_point_within_it():
    result = sweep_of([9, 7, 8, 3, 3, 1], cost=[1, 2, 2, 4, 5, 9])
    found = analyse(result, budgets=["cost"])
    steps = [(s.budget, s.best, s.point) for s in found.budgets["elapsed_ps", "cost"]]
    assert steps == [(1, 9, 0), (2, 7, 1), (4, 3, 3), (9, 1, 5)]
    assert len(budget_rows(found.summary())) == 4


def test_an_objective_to_maximise_turns_the_front_around():
    result = sweep_of([1, 2, 3, 4, 5, 6], rate=[1.0, 1.0, 5.0, 2.0, 2.0, 2.0])
    found = analyse(result, {"rate": "max", "elapsed_ps": "min"})
    assert found.pareto == (0, 2)
    assert found.pareto_frame()["point"].tolist() == [2, 0]


def test_failed_points_are_left_out_and_told():
    found = analyse(sweep_of([5, None, 4, 3, 2, 1]))
    assert (len(found.points), found.left_out, found.is_balanced) == (5, 1, False)
    assert "1 left out" in headline(found.summary())[0]


def test_equal_points_of_the_front_are_one_row():
    found = analyse(sweep_of([1, 1, 1, 2, 2, 2]))
    assert found.pareto == (0, 1, 2)
    assert [row[-1] for row in pareto_rows(found.summary())] == ["+2"]


def test_zipped_axes_count_once():
    result = sweep_of([1, 4, 7, 9, 8, 7], zipped=[5, 6, 7, 5, 6, 7])
    result.summary["axes"].append("zipped")
    found = analyse(result)
    assert (found.axes, found.aliases) == ((A, B), {"zipped": B})


@pytest.mark.parametrize(
    ("goals", "told"),
    [
        ({"elapsed": "min"}, "elapsed_ps"),
        ({"elapsed_ps": "least"}, "min or max"),
        ({"system": "min"}, "numbers"),
        ({"nothing": "min"}, "no point"),
    ],
)
def test_wrong_objectives_are_refused(goals, told):
    result = sweep_of([1, 2, 3, 4, 5, 6], nothing=pa.array([None] * 6, pa.float64()))
    with pytest.raises(ConfigError, match=told):
        analyse(result, goals)


def test_a_sweep_without_objectives_asks_for_one():
    result = sweep_of([1, 2, 3, 4, 5, 6])
    result.summary["objectives"] = {}
    with pytest.raises(ConfigError, match="--objective"):
        analyse(result)


def test_figures_show_every_point():
    goals = {"elapsed_ps": "min", "cost": "min"}
    found = analyse(sweep_of([1, 4, 7, 9, 8, 7], cost=[6, 5, 4, 3, 2, 1]), goals)
    summary, rows = found.summary(), found.rows()
    drawn = sum(len(trace.x) for trace in pareto_figure(summary, rows).data)
    assert drawn == 6
    assert heatmap_figure(summary, rows).data[0].z == ([1.0, 4.0, 7.0], [9.0, 8.0, 7.0])
    page = sweep_html(summary, rows)
    assert page.count("<h2>") == 5


def test_the_command_reads_a_real_sweep(tmp_path, capsys):
    spec = {
        "name": "t",
        "systems": ["edge-npu"],
        "models": ["smollm2-135m"],
        "workload": {"prompt_len": 16, "generate_len": 1},
        "simulation": {"fidelity": "analytic"},
        "axes": [{"path": "system.devices.npu.cores", "values": [1, 2]}],
        "derived": {"cores": "system.devices.npu.cores"},
    }
    ns.sweep(spec, out=tmp_path / "s", jobs=1)
    page = tmp_path / "s.html"
    arguments = ["sweep-report", str(tmp_path / "s"), "--objective", "elapsed_ps=min"]
    assert main([*arguments, "--budget", "cores", "--html", str(page)]) == 0
    assert "npu.cores" in capsys.readouterr().out
    assert "Sweep t" in page.read_text()
    assert main(["sweep-report", str(tmp_path / "s")]) == 2
    assert "--objective" in capsys.readouterr().err
    assert main([*arguments[:2], "--objective", "elapsed_ps"]) == 2
    assert main(["sweep-report", str(tmp_path)]) != 0
