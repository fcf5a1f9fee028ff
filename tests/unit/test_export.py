"""Exports: every span, counter and flow is in the trace once, in order; tables come out equal."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow.parquet as pq
import pytest

import npusim as ns
from npusim.cli import main
from npusim.errors import ResultError
from npusim.program import EdgeKind
from npusim.report import protobuf
from npusim.report.perfetto import perfetto_trace
from npusim.report.trace_model import QUEUED_KINDS, trace_model
from npusim.results.exporting import EXPORTED
from npusim.results.loading import load_result
from npusim.results.records import FLOW_KINDS, FlowTable
from tests.unit.insight_samples import real_run
from tests.unit.perfetto_reader import flow_counts, read_trace
from tests.unit.results_samples import tiny_phase, tiny_run


def with_flows(record, pairs=((0, 1, 0), (0, 3, 1), (1, 3, 0))):
    """The phase with edges between its spans."""
    producer, consumer, kind = (np.array(column) for column in zip(*pairs, strict=True))
    flows = FlowTable(producer.astype(np.int32), consumer.astype(np.int32), kind.astype(np.int8))
    occupancy = (("npu.c0.scratchpad", 500, np.array([64, 512, 0], dtype=np.int64)),)
    return replace(record, flows=flows, occupancy=occupancy)


def flowing_run(**changes):
    """The tiny run with flows and occupancy."""
    phases = {name: with_flows(record) for name, record in tiny_run().phases.items()}
    return tiny_run(**{"phases": phases, **changes})


def span_rows(record, shift_ps=0):
    """(track, name, category, start, duration, stage) of every span of a phase, from its table."""
    spans, kinds = record.spans, {e.engine: e.kind for e in record.engines}
    for i in range(len(spans)):
        engine, stall = spans.engines[spans.engine[i]], bool(spans.is_stall[i])
        queued = kinds[engine] in QUEUED_KINDS and not stall
        yield (
            f"{engine} queue {spans.queue[i]}" if queued else engine,
            spans.labels[spans.label[i]],
            "stall" if stall else "busy",
            int(spans.start_ps[i]) + shift_ps,
            int(spans.end_ps[i] - spans.start_ps[i]),
            spans.stages[spans.stage[i]] if spans.stage[i] >= 0 else None,
        )


def check_whole(result, found):
    """Every span, counter and flow of a run is in a trace once, and nothing else is."""
    assert found.faults == []
    slices, flows, samples = Counter(), Counter(), Counter()
    phases = {row[1]: row[3] for row in found.slices if row[0] == "phase"}
    assert list(phases) == list(result.phases)
    for name, record in result.phases.items():
        rows = list(span_rows(record, phases[name]))
        slices.update(rows)
        flows.update(
            (rows[a], rows[b])
            for a, b in zip(record.flows.producer, record.flows.consumer, strict=True)
        )
        for track, series in (("bandwidth", record.bandwidth), ("occupancy", record.occupancy)):
            for whose, bin_ps, values in series:
                for i, value in enumerate([*values.tolist(), 0]):
                    shown = value * 10**12 // bin_ps if track == "bandwidth" else value
                    time_ns = (phases[name] + i * bin_ps) // 1000
                    samples[f"{whose} {track}", time_ns, shown] += 1
    engines = [row for row in found.slices if row[2] in ("busy", "stall")]
    assert Counter(engines) == slices
    assert flow_counts(found) == flows
    others = [row for row in found.samples if not row[0].endswith("outstanding")]
    assert Counter(others) == samples


def test_the_wire_format_is_that_of_its_documentation():
    # "Encoding": field 1 of value 150 is 08 96 01, field 2 of "testing" is 12 07 and the text;
    # -2 is ten bytes, fe, eight times ff, 01
    assert protobuf.integer(1, 150).hex() == "089601"
    assert protobuf.text(2, "testing").hex() == "120774657374696e67"
    assert protobuf.varint(-2 % 2**64).hex() == "fe" + "ff" * 8 + "01"
    assert protobuf.fixed64(1, 1).hex() == "09" + "01" + "00" * 7


def test_a_perfetto_trace_holds_everything_once():
    run = flowing_run()
    check_whole(run, read_trace(perfetto_trace(trace_model(run))))


def test_a_perfetto_trace_of_a_real_decode_step_holds_everything_once():
    workload = ns.transformer("smollm2-135m", phase="decode", context_len=16)
    run = ns.simulate("tpu-v6e", workload, simulation={"fidelity": "transfer"})
    assert len(run.flows) > 100
    check_whole(run, read_trace(perfetto_trace(trace_model(run))))


@pytest.mark.slow
def test_a_perfetto_trace_of_a_real_run_holds_everything_once():
    run = real_run()
    found = read_trace(perfetto_trace(trace_model(run)))
    check_whole(run, found)
    parents = {
        t.name: found.tracks[t.parent_uuid].name for t in found.tracks.values() if t.parent_uuid
    }
    assert parents["npu.core0.load0 queue 1"] == "npu.core0.load0"
    assert parents["npu.core0.load0"] == "npu core 0"
    assert parents["npu core 0"] == "npu"
    starts = {row: row[3] for row in found.slices}
    assert all(starts[a] <= starts[b] for a, b in flow_counts(found))


@pytest.mark.parametrize("part", ["slices", "samples", "flows"])
def test_a_lost_or_doubled_part_is_noticed(part):
    for change in (lambda items: items.pop(3), lambda items: items.append(items[3])):
        model = trace_model(flowing_run())
        change(getattr(model, part))
        with pytest.raises((AssertionError, KeyError)):
            check_whole(flowing_run(), read_trace(perfetto_trace(model)))


def test_transfers_in_flight_are_counted():
    # tiny spans 0 and 2 are on the DMA engine, of which 2 is a stall: one transfer, 0 to 250 ps
    samples = trace_model(flowing_run(), "decode")
    track = next(t.number for t in samples.tracks if t.name == "npu.c0.dma outstanding")
    assert [s[1:] for s in samples.samples if s.track == track] == [(0, 1), (250, 0)]


def test_overlapping_transfers_are_counted_together():
    record = tiny_phase()
    start, end = np.array([0, 100, 200]), np.array([300, 250, 250])
    spans = replace(
        record.spans,
        engine=np.zeros(3, np.int32),
        start_ps=start,
        end_ps=end,
        label=np.zeros(3, np.int32),
        stage=np.zeros(3, np.int32),
        is_stall=np.zeros(3, np.bool_),
        queue=np.arange(3, dtype=np.int32),
    )
    model = trace_model(tiny_run(phases={"decode": replace(record, spans=spans)}))
    track = next(t.number for t in model.tracks if t.name == "npu.c0.dma outstanding")
    levels = [s[1:] for s in model.samples if s.track == track]
    assert levels == [(0, 1), (100, 2), (200, 3), (250, 1), (300, 0)]


def test_a_chrome_trace_holds_everything_once(tmp_path):
    run = flowing_run()
    assert run.export("chrome", tmp_path / "t.json") == ()
    trace = json.loads((tmp_path / "t.json").read_text(), parse_float=Decimal)
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X"]
    phases = {e["name"]: int(e["ts"] * 10**6) for e in slices if e["cat"] == "phase"}
    rows = Counter(
        (names[e["tid"]], e["name"], e["cat"], e["ts"] * 10**6, e["dur"] * 10**6)
        for e in slices
        if e["cat"] in ("busy", "stall")
    )
    spans = {name: list(span_rows(record, phases[name])) for name, record in run.phases.items()}
    assert rows == Counter(row[:5] for of_phase in spans.values() for row in of_phase)
    times = [e["ts"] for e in events if "ts" in e]
    assert times == sorted(times)
    arrows = {e["ph"]: {} for e in events if e["ph"] in "sf"}
    for e in events:
        if e["ph"] in arrows:
            assert e["id"] not in arrows[e["ph"]]
            arrows[e["ph"]][e["id"]] = (names[e["tid"]], e["name"], e["ts"] * 10**6)
    expected = Counter(
        ((rows[a][0], kind, rows[a][3]), (rows[b][0], kind, rows[b][3]))
        for name, rows in spans.items()
        for a, b, kind in (
            (f["producer"], f["consumer"], f["kind"])
            for f in run.flows.rows()
            if f["phase"] == name
        )
    )
    assert Counter((arrows["s"][i], arrows["f"][i]) for i in arrows["s"]) == expected
    assert len([e for e in events if e["ph"] == "C"]) == len(trace_model(run).samples)


def test_equal_runs_export_equal_bytes(tmp_path):
    for name in ("perfetto", "chrome"):
        for path in ("a", "b"):
            flowing_run().export(name, tmp_path / path)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_flow_kinds_are_the_edge_kinds():
    assert [kind.name.lower() for kind in EdgeKind] == list(FLOW_KINDS)


def test_flows_and_occupancy_come_back_from_a_saved_run(tmp_path):
    run = flowing_run()
    run.save(tmp_path)
    loaded = load_result(tmp_path)
    for name in ("flows", "occupancy"):
        assert getattr(loaded, name).rows() == getattr(run, name).rows()
        assert len(getattr(run, name))
    assert loaded.phases["decode"].flows.kind.dtype == np.int8


def test_tables_come_out_as_csv_and_parquet(tmp_path):
    run = flowing_run()
    for suffix in ("csv", "parquet"):
        assert run.export(suffix, tmp_path / suffix) == ()
        names = {path.name for path in (tmp_path / suffix).iterdir()}
        assert names == {f"{name}.{suffix}" for name in EXPORTED}
    rows = pq.read_table(tmp_path / "parquet/stages.parquet").to_pylist()
    assert rows == run.stages.rows()
    with (tmp_path / "csv/stages.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [{k: str(v) for k, v in row.items()} for row in run.stages.rows()] == found


def test_tables_of_one_phase(tmp_path):
    flowing_run().export("parquet", tmp_path / "p", phase="decode")
    found = pq.read_table(tmp_path / "p/flows.parquet").to_pylist()
    assert {row["phase"] for row in found} == {"decode"}
    assert len(found) == 3


def test_the_files_of_a_run_are_not_overwritten_by_tables(tmp_path):
    flowing_run().save(tmp_path)
    with pytest.raises(ResultError, match="must not be the folder of a run"):
        flowing_run().export("parquet", tmp_path)


def test_a_cut_recording_says_so(tmp_path):
    record = tiny_phase()
    cut = replace(record, spans=replace(record.spans, truncated=True))
    run = tiny_run(phases={"prefill": tiny_phase("prefill", 1, spans=False), "decode": cut})
    assert run.export("perfetto", tmp_path / "t") == (
        "prefill: no spans were recorded",
        "decode: only the first 4 spans were recorded (simulation.max_spans)",
    )
    found = read_trace((tmp_path / "t").read_bytes())
    assert found.tracks[1].description.endswith("(simulation.max_spans)")


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        (tiny_run, ("--format", "perfeto"), "mean 'perfetto'?"),
        (tiny_run, ("--phase", "prefil"), "mean 'prefill'?"),
        (
            lambda: tiny_run(phases={"decode": tiny_phase(spans=False)}),
            (),
            "run with simulation.max_spans above 0",
        ),
        (
            lambda: tiny_run(phases={"decode": tiny_phase(spans=False)}, fidelity="analytic"),
            (),
            "run at 'burst' or 'transfer'",
        ),
    ],
)
def test_what_cannot_be_exported_is_bad_input(capsys, tmp_path, run, words, message):
    run().save(tmp_path)
    assert main(["export", str(tmp_path), *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


def test_the_command_writes_into_the_run_or_where_it_is_told(capsys, tmp_path):
    flowing_run().save(tmp_path)
    assert main(["export", str(tmp_path), "--format", "chrome", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["path"] == str(tmp_path / "trace.json")
    assert answer["missing"] == []
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "other")]) == 0
    check_whole(flowing_run(), read_trace((tmp_path / "other").read_bytes()))
