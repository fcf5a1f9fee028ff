"""The report: whole, offline, escaped, and every figure in it says what the tables say."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import npusim as ns
from npusim.cli import main
from npusim.errors import ResultError
from npusim.insight.explain import explain
from npusim.insight.settings import setting_rows
from npusim.report.run_figures import (
    bandwidth_figure,
    occupancy_figure,
    stages_figure,
    stall_tree_figure,
)
from npusim.report.run_page import report_html
from npusim.results.records import StageTimeRecord
from tests.unit.insight_samples import real_run
from tests.unit.results_samples import tiny_phase, tiny_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class _Page(HTMLParser):
    """Tags with their attributes, and text, outside scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.stack = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.stack.append(tag)

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self.stack):
            self.texts.append(data)


def split_phase():
    """The tiny phase with the stage times of its matrix engine only."""
    rows = (
        ("attention", "busy", 300),
        ("attention", "dram_data", 400),
        ("lm_head", "busy", 201),
        ("lm_head", "launch", 100),
    )
    stalls = {"launch": 100, "dram_data": 400}
    engine = replace(tiny_phase().engines[2], busy_ps=501, idle_ps=0, stalls_ps=stalls)
    times = tuple(StageTimeRecord(stage, "matrix", cause, ps) for stage, cause, ps in rows)
    occupancy = (("npu.c0.scratchpad", 500, np.array([64, 512, 0], dtype=np.int64)),)
    return replace(tiny_phase(), engines=(engine,), stage_times=times, occupancy=occupancy)


def test_the_page_has_every_part_and_needs_no_network():
    page = _Page(report_html(tiny_run(phases={"decode": split_phase()}), "timeline.html"))
    text = "\n".join(page.texts)
    for part in (
        *("decode: stages", "where the time of all engines went", "roofline", "memory"),
        *("bandwidth over time", "scratchpad occupancy over time", "longest operators"),
        *("What was estimated", "Configuration", "spread of 3 layers", "hash of program"),
        "wait most for DRAM",
    ):
        assert part in text, part
    links = [a.get("href") or a.get("src") for _, a in page.tags if {"href", "src"} & set(a)]
    assert links == ["timeline.html"]
    assert [tag for tag, _ in page.tags if tag in ("link", "img", "iframe")] == []
    figures = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(figures) == len(set(figures)) == 5


def test_the_library_comes_once():
    page = report_html(tiny_run())
    assert page.count("Plotly.newPlot(") >= 6
    assert 4_000_000 < len(page) < 8_000_000


def test_names_from_outside_are_escaped():
    record = tiny_phase()
    stages = (replace(record.stages[0], stage=HOSTILE), record.stages[1])
    operators = (replace(record.operators[0], name=HOSTILE, stage=HOSTILE),)
    memories = (replace(record.memories[0], name=HOSTILE),)
    note = replace(record.approximations[0], scope=HOSTILE, basis=HOSTILE)
    record = replace(
        record,
        stages=stages,
        operators=operators,
        memories=memories,
        approximations=(note,),
        bandwidth=((HOSTILE, *record.bandwidth[0][1:]),),
    )
    workload = {**tiny_run().workload, "model": HOSTILE}
    run = tiny_run(
        phases={"decode": record}, workload=workload, system=HOSTILE, overrides=(HOSTILE,)
    )
    plain = tiny_run(phases={"decode": tiny_phase()}, overrides=("x",))
    hostile_page, plain_page = report_html(run), report_html(plain)
    for needle in ("<script", "</script"):
        assert hostile_page.count(needle) == plain_page.count(needle)
    page = _Page(hostile_page)
    assert not [tag for tag, a in page.tags if tag == "img" or "onerror" in a]
    # the page shows the name itself, in many places
    assert sum(HOSTILE in text for text in page.texts) >= 8
    # in a script "<" is \\u003c; Plotly draws markup that it finds in a text, so it gets entities
    assert "&lt;img src=x" in hostile_page
    assert r"\u003cimg" not in hostile_page


def test_a_bar_is_as_long_as_its_stage_and_split_by_the_mean_of_the_engines():
    figure = stages_figure(explain(tiny_run(phases={"decode": split_phase()}))[0])
    bars = {bar.name: list(bar.x) for bar in figure.data}
    # one engine: attention 300 busy and 400 waiting of 700 ps; in us
    assert bars["busy"] == pytest.approx([300e-6, 201e-6])
    assert bars["dram_data"] == pytest.approx([400e-6, 0])
    assert bars["launch"] == pytest.approx([0, 100e-6])
    assert sum(map(sum, bars.values())) == pytest.approx(1001e-6)


def test_without_engines_a_bar_is_whole():
    record = replace(tiny_phase(), engines=(), stage_times=())
    run = tiny_run(phases={"decode": record})
    (bar,) = stages_figure(explain(run)[0]).data
    assert list(bar.x) == pytest.approx([700e-6, 301e-6])
    assert "No engines were simulated" in report_html(run)


def test_blocks_of_the_stall_tree_sum():
    tree = explain(tiny_run(phases={"decode": split_phase()}))[0].tree
    (blocks,) = stall_tree_figure(tree).data
    sizes = dict(zip(blocks.ids, blocks.values, strict=True))
    assert sizes["all"] == 1001
    below = [i for i, parent in zip(blocks.ids, blocks.parents, strict=True) if parent == "all"]
    assert sum(sizes[name] for name in below) == 1001
    assert sizes["all/dram/dram_data"] == 400


def test_series_show_their_limits():
    lines = {trace.name: trace for trace in bandwidth_figure(split_phase()).data}
    assert list(lines["dram GB/s"].y) == [96.0, 64.0, 32.0, 32.0]  # 48 bytes in 500 ps
    assert list(lines["dram peak"].y) == [100.0, 100.0]
    lines = {trace.name: trace for trace in occupancy_figure(split_phase()).data}
    assert list(lines["npu.c0.scratchpad"].y) == [0.0625, 0.5, 0.0, 0.0]
    assert list(lines["capacity"].y) == [1.0, 1.0]
    assert occupancy_figure(tiny_phase()) is None


def test_settings_stand_beside_their_sources():
    spec = ns.RunSpec(
        system=ns.load_system("rk3588"), workload={"model": "smollm2-135m", "prompt_len": 4}
    )
    rows = {path: (value, source) for path, value, source in setting_rows(spec)["system"]}
    value, source = rows["memories.dram.capacity_bytes"]
    assert int(value) == spec.system.memories["dram"].capacity_bytes
    assert source == spec.system.sources["memories.dram.capacity_bytes"]
    assert not [path for path in rows if path.startswith("sources")]
    assert {"workload", "compiler", "simulation"} < set(setting_rows(spec))


def test_equal_runs_make_equal_pages():
    assert report_html(tiny_run()) == report_html(tiny_run())


@pytest.mark.slow
def test_a_real_run_is_reported(tmp_path):
    real_run().report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "memories.dram.capacity_bytes" in text
    assert "Timeline of every engine" not in text


def test_the_command_links_to_the_timeline_from_where_the_page_is(capsys, tmp_path):
    run, pages = tmp_path / "a run", tmp_path / "pages"
    tiny_run().save(run)
    pages.mkdir()
    (run / "timeline.html").write_text("<p>timeline</p>")
    assert main(["report", str(run), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"run": str(run), "path": str(run / "report.html")}
    assert 'href="timeline.html"' in (run / "report.html").read_text("utf-8")
    assert main(["report", str(run), "--html", str(pages / "r.html")]) == 0
    assert 'href="../a%20run/timeline.html"' in (pages / "r.html").read_text("utf-8")


def test_what_cannot_be_reported_is_bad_input(capsys, tmp_path):
    assert main(["report", str(tmp_path)]) == 2
    assert "must hold a finished run" in capsys.readouterr().err
    with pytest.raises(ResultError, match="must be writable"):
        tiny_run().report(tmp_path / "none" / "r.html")
