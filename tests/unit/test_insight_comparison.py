"""Comparison of runs: settings by path, signed differences that sum to the phase."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from npusim.cli import main
from npusim.config.overrides import apply_overrides
from npusim.errors import ResultError
from npusim.insight.comparison import changed_settings, compare
from npusim.report.compare_figure import compare_figure, compare_html
from npusim.report.compare_tables import difference_rows, setting_rows
from tests.unit.insight_samples import real_run
from tests.unit.results_samples import tiny_phase, tiny_run


def slower():
    """The tiny run, its decode 99 ps longer in attention, of them 99 waiting by the DMA engine."""
    record = tiny_phase()
    stages = (replace(record.stages[0], elapsed_ps=799), record.stages[1])
    host, dma, matrix = record.engines
    engines = (
        replace(host, idle_ps=1099),
        replace(dma, stalls_ps={"buffer_full": 399}),
        replace(matrix, busy_ps=600),
    )
    longer = replace(record, elapsed_ps=1100, stages=stages, engines=engines)
    return tiny_run(phases={"prefill": tiny_run().phases["prefill"], "decode": longer})


def test_differences_of_the_tiny_runs_by_hand():
    found = compare({"a": tiny_run(), "b": slower()})
    rows = {d.name: d.deltas[1] for d in found.of("stage", "decode")}
    assert rows == {"attention": 99, "lm_head": 0}
    waits = {d.name: d.deltas[1] for d in found.of("family", "decode") if d.deltas[1]}
    # 99 of three engines each: idle, buffer and busy
    assert waits == {"busy": 33, "buffer": 33, "idle": 33}
    assert [d.deltas for d in found.of("phase", "prefill")] == [(0, 0)]
    assert {d.name: d.values for d in found.of("run")}["TPOT"] == (501, 550)


def test_differences_of_real_runs_sum_to_the_phase():
    base = real_run()
    other = real_run(generate=2)
    found = compare({"a": base, "b": other})
    for phase in ("prefill", "decode"):
        (elapsed,) = found.of("phase", phase)
        for group in ("stage", "family", "cause"):
            parts = found.of(group, phase)
            assert sum(d.deltas[1] for d in parts) == elapsed.deltas[1]
            assert sum(d.values[0] for d in parts) == elapsed.values[0]
    assert [s.path for s in found.settings] == ["workload.generate_len"]
    assert found.settings[0].values == (3, 2)


def test_engines_may_differ_in_number():
    record = tiny_phase()
    fewer = tiny_run(phases={"decode": replace(record, engines=record.engines[1:])})
    found = compare({"a": tiny_run(), "b": fewer})
    values = {d.name: d.values for d in found.of("family", "decode")}
    assert values["buffer"] == (Fraction(300, 3), Fraction(300, 2))
    assert sum(value[1] for value in values.values()) == 1001


def test_settings_are_told_by_dotted_path_without_sources():
    spec = real_run().spec
    texts = ("system.devices.npu.cores=1", "compiler.max_cores=1")
    found = changed_settings([spec, apply_overrides(spec, texts), spec])
    assert [(s.path, s.values) for s in found] == [
        ("system.devices.npu.cores", (3, 1, 3)),
        ("compiler.max_cores", (None, 1, None)),
    ]


def test_a_phase_of_one_run_only_has_no_difference():
    one = tiny_run(phases={"decode": tiny_phase()}, ttft_ps=None)
    found = compare({"a": one, "b": tiny_run()})
    (prefill,) = found.of("phase", "prefill")
    assert (prefill.values, prefill.deltas) == ((None, 1001), (None, None))
    assert difference_rows(found, "phase", "prefill") == [("elapsed", "-", "-")]


def test_a_run_without_specification_says_so():
    found = compare({"a": tiny_run(), "b": real_run()})
    assert found.settings is None
    assert setting_rows(found) == []
    assert "saved without its specification" in compare_html(found)


def test_one_run_is_no_comparison():
    with pytest.raises(ResultError, match="at least two runs"):
        compare({"a": tiny_run()})


def test_the_figure_shows_every_stage_and_difference():
    found = compare({"a": tiny_run(), "b": slower(), "c": tiny_run()})
    figure = compare_figure(found)
    stacked = [bar for bar in figure.data if bar.offsetgroup == "stages"]
    assert [bar.name for bar in stacked] == ["attention", "lm_head"] * 2
    deltas = [bar for bar in figure.data if bar.offsetgroup == "b" and bar.x[0]]
    assert [list(bar.x) for bar in deltas] == [[99e-9, 0], [33e-9, 0, 33e-9, 0, 33e-9]]


def test_rows_are_signed():
    found = compare({"a": tiny_run(), "b": slower()})
    rows = difference_rows(found, "stage", "decode")
    assert rows == [("attention", "700 ps", "+99 ps (+14.1 %)"), ("lm_head", "301 ps", "0")]
    back = difference_rows(compare({"b": slower(), "a": tiny_run()}), "stage", "decode")
    assert back[0] == ("attention", "799 ps", "-99 ps (-12.4 %)")


def test_the_command_prints_writes_a_page_and_gives_json(capsys, tmp_path):
    for name, run in (("a", real_run()), ("b", real_run(generate=2))):
        run.save(tmp_path / name)
    runs = [str(tmp_path / "a"), str(tmp_path / "b")]
    page = tmp_path / "page.html"
    assert main(["compare", *runs, "--html", str(page)]) == 0
    assert "workload.generate_len" in capsys.readouterr().out
    assert "<script src" not in page.read_text("utf-8")
    assert main(["compare", *runs, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == [{"path": "workload.generate_len", "values": [3, 2]}]
    tpot = next(d for d in found["differences"] if d["name"] == "TPOT")
    assert tpot["deltas"] == [0, tpot["values"][1] - tpot["values"][0]]


@pytest.mark.parametrize(
    ("names", "message"), [(["a"], "at least two runs"), (["a", "a"], "every run once")]
)
def test_too_few_runs_are_refused(capsys, names, message):
    assert main(["compare", *names]) == 2
    assert message in capsys.readouterr().err


def test_the_frame_has_a_row_per_quantity_and_run():
    found = compare({"a": tiny_run(), "b": slower()})
    frame = found.to_frame()
    assert len(frame) == 2 * len(found.differences)
    assert list(frame.columns)[:5] == ["phase", "group", "name", "unit", "run"]
