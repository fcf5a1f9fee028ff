"""The timeline: what is drawn, how it is summed, and that the page needs no network."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import npusim
from npusim.errors import ResultError
from npusim.report.lanes import MAX_EXACT_SPANS
from npusim.report.palette import STYLES, style_of
from npusim.report.timeline import result_figure, timeline_figure
from npusim.report.timeline_html import timeline_html, write_timeline_html
from npusim.results.binning import bin_edges, engine_bins, span_categories, stage_bins
from npusim.results.records import SpanTable
from tests.unit.results_samples import tiny_phase, tiny_run, tiny_spans


def table(rows, stages=("a", "b")):
    """Span table from rows (engine, start, end, label, stage, is_stall)."""
    columns = list(zip(*rows, strict=True))
    return SpanTable(
        engines=("e0", "e1"),
        labels=("op", "dram_data", "launch"),
        stages=stages,
        engine=np.array(columns[0], dtype=np.int32),
        start_ps=np.array(columns[1], dtype=np.int64),
        end_ps=np.array(columns[2], dtype=np.int64),
        label=np.array(columns[3], dtype=np.int32),
        stage=np.array(columns[4], dtype=np.int32),
        is_stall=np.array(columns[5], dtype=np.bool_),
        queue=np.zeros(len(rows), dtype=np.int32),
        truncated=False,
    )


def test_bins_show_what_fills_most_of_them():
    # e0: busy 0-30, waits 30-100; e1: nothing. Bins of 50: busy 30 of 50, then stall 50 of 50.
    spans = table([(0, 0, 30, 0, 0, False), (0, 30, 100, 1, -1, True)])
    bins = engine_bins(spans, 100, 2)
    assert bins.names == ("busy", "dram_data")
    assert bins.dominant.tolist() == [[0, 1], [-1, -1]]
    assert bins.share_frac.tolist() == [[0.6, 1.0], [0.0, 0.0]]


def test_stage_lane_ignores_stalls():
    spans = table([(0, 0, 60, 0, 0, False), (1, 60, 100, 0, 1, False), (0, 60, 100, 1, -1, True)])
    assert stage_bins(spans, 100, 5).dominant.tolist() == [[0, 0, 0, 1, 1]]


def test_binned_time_equals_the_plain_sum():
    generator = np.random.default_rng(1)
    start = generator.integers(0, 900, 300)
    rows = [(0, int(s), int(s + d), 0, 0, False) for s, d in zip(start, start % 97, strict=True)]
    edges = bin_edges(1000, 7)
    expected = [
        sum(max(0, min(end, high) - max(start, low)) for _, start, end, *_ in rows)
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    bins = engine_bins(table(rows), 1000, 7)
    shares = [min(1.0, e / w) for e, w in zip(expected, np.diff(edges).tolist(), strict=True)]
    assert bins.share_frac[0].tolist() == pytest.approx(shares)


def test_long_runs_do_not_overflow():
    hour_ps = 3600 * 10**12
    rows = [(0, hour_ps + i, hour_ps + i + 1, 0, 0, False) for i in range(5000)]
    bins = engine_bins(table(rows), hour_ps + 5000, 3)
    assert bins.dominant[0].tolist() == [-1, -1, 0]
    assert bins.share_frac[0, 2] == pytest.approx(5000 / (hour_ps // 3), rel=0.01)


def test_categories_are_busy_and_the_causes_that_occur():
    names, category = span_categories(table([(0, 0, 1, 0, 0, False), (0, 1, 2, 2, -1, True)]))
    assert names == ("busy", "launch")
    assert category.tolist() == [0, 1]


def test_few_spans_are_drawn_one_by_one():
    figure = timeline_figure(tiny_phase())
    bars = [trace for trace in figure.data if trace.type == "bar" and trace.yaxis == "y2"]
    assert {bar.name: len(bar.x) for bar in bars} == {"busy": 3, "dram_data": 1}
    assert bars[0].customdata[0] == ["q_proj", "attention", 0.5, 0.25]
    assert {trace.name for trace in figure.data if trace.yaxis == "y"} == {"attention", "lm_head"}
    assert {trace.name for trace in figure.data if trace.yaxis == "y3"} == {
        "dram GB/s",
        "dram peak",
    }


def test_many_spans_become_one_heatmap():
    spans = tiny_spans(MAX_EXACT_SPANS + 1)
    figure = timeline_figure(replace(tiny_phase(), spans=spans))
    (heatmap,) = [trace for trace in figure.data if trace.type == "heatmap"]
    assert list(heatmap.y) == ["npu.c0.dma", "npu.c0.matrix"]
    assert len(heatmap.x) == len(heatmap.z[0]) + 1
    assert list(heatmap.colorbar.ticktext) == ["busy", "dram_data"]
    assert sum(len(trace.x) for trace in figure.data if trace.type == "bar") <= 800


def test_queue_slots_get_tracks_of_their_own():
    spans = replace(tiny_spans(), queue=np.array([0, 0, 1, 0], dtype=np.int32))
    figure = timeline_figure(replace(tiny_phase(), spans=spans))
    tracks = {y for trace in figure.data if trace.yaxis == "y2" for y in trace.y}
    assert tracks == {"npu.c0.dma #0", "npu.c0.dma #1", "npu.c0.matrix"}


def test_phases_are_chosen_by_buttons():
    figure = result_figure(tiny_run())
    buttons = figure.layout.updatemenus[0].buttons
    assert [button.label for button in buttons] == ["prefill", "decode"]
    shown = [button.args[0]["visible"] for button in buttons]
    assert [a or b for a, b in zip(*shown, strict=True)] == [True] * len(figure.data)
    assert not any(a and b for a, b in zip(*shown, strict=True))
    assert [trace.visible for trace in figure.data] == shown[0]


def test_result_draws_itself():
    assert npusim.__version__
    figure = tiny_run().timeline("decode")
    assert type(figure).__module__.startswith("plotly")
    assert not figure.layout.updatemenus


def test_a_run_without_spans_has_no_timeline():
    run = tiny_run(phases={"decode": tiny_phase(spans=False)})
    for phase in (None, "decode"):
        with pytest.raises(ResultError, match=r"needs recorded spans.*max_spans"):
            run.timeline(phase)


def test_a_cut_recording_ends_where_spans_are_missing():
    # starts 0, 250, 500, 750: a span that starts after 750 may be missing
    record = replace(tiny_phase(), spans=tiny_spans(truncated=True))
    figure = timeline_figure(record)
    assert "recording stops at the end of the axis" in figure.layout.title.text
    assert list(figure.layout.xaxis.range) == [0, 0.75]
    assert [len(t.x) for t in figure.data if t.name == "dram GB/s"] == [3]  # 2 bins of 500 ps


def test_the_page_is_whole_and_offline(tmp_path):
    write_timeline_html(tiny_run(), tmp_path / "timeline.html")
    text = (tmp_path / "timeline.html").read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert len(text) > 1_000_000  # the library is inside
    markup = re.sub(r"(<script[^>]*>).*?(</script>)", r"\1\2", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=""", markup)
    assert "@import" not in markup
    assert "url(" not in markup


def test_the_page_escapes_names_and_repeats_byte_for_byte():
    workload = {**tiny_run().workload, "model": "<script>"}
    pages = {timeline_html(tiny_run(workload=workload)) for _ in range(2)}
    assert len(pages) == 1
    assert "<title>&lt;script&gt; on tiny-npu" in pages.pop()


def test_styles_of_causes_are_distinct():
    looks = [(style.color, style.pattern) for style in STYLES.values()]
    assert len(set(looks)) == len(looks)
    assert style_of("unheard of").color not in {style.color for style in STYLES.values()}


def test_every_stall_cause_has_a_style():
    stall = pytest.importorskip("npusim.engine.stall")
    assert {cause.value for cause in stall.StallCause} <= set(STYLES)


def test_figure_is_valid_json():
    assert json.loads(result_figure(tiny_run()).to_json())["data"]


def test_tracks_stand_in_the_order_of_the_engines():
    spans = replace(tiny_spans(), engine=np.array([1, 1, 0, 0], dtype=np.int32))
    figure = timeline_figure(replace(tiny_phase(), spans=spans))
    assert list(figure.layout.yaxis2.categoryarray) == ["npu.c0.dma", "npu.c0.matrix"]
