"""Operator traces: what is exported comes back, and what is wrong is named by line."""

from __future__ import annotations

import json

import pytest

from npusim.errors import WorkloadError
from npusim.workload.trace import OperatorTrace
from npusim.workload.trace_files import read_trace, write_trace
from npusim.workload.trace_workload import TraceWorkload
from npusim.workload.workload import transformer


@pytest.fixture(scope="module")
def trace():
    workload = transformer("smollm2-135m", prompt_len=8, generate_len=3, quant="w4a8_g32")
    return OperatorTrace.of(workload)


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_trace_comes_back_as_it_was_written(trace, tmp_path, ending):
    path = tmp_path / f"t{ending}"
    write_trace(trace, path)
    assert read_trace(path) == trace
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3", "gpt2", "gemma-2-2b", "phi-2"])
def test_every_family_survives_the_trip(model, tmp_path):
    made = OperatorTrace.of(transformer(model, context_len=4))
    write_trace(made, tmp_path / "t.jsonl")
    assert read_trace(tmp_path / "t.jsonl") == made


def test_a_trace_has_the_graphs_of_its_workload(trace):
    workload = transformer("smollm2-135m", prompt_len=8, generate_len=3, quant="w4a8_g32")
    replayed = TraceWorkload(trace)
    assert replayed.decode_contexts == workload.decode_contexts
    assert replayed.decode_graph(9).operators == workload.decode_graph(9).operators
    assert replayed.prefill_graph(4).operators == workload.prefill_graph(4).operators
    assert replayed.weight_bytes == workload.weight_bytes


def test_identical_layers_fold_and_an_edited_one_does_not(trace):
    assert len(set(TraceWorkload(trace).layer_kinds)) == 1
    lines = list(trace.lines())
    at = next(i for i, line in enumerate(lines) if '"layers.7.softmax"' in line)
    record = json.loads(lines[at])
    record["vector_ops"][0][1] += 1
    lines[at] = json.dumps(record)
    edited = OperatorTrace.from_lines(lines, "edited")
    kinds = TraceWorkload(edited).layer_kinds
    assert [i for i, kind in enumerate(kinds) if kind != kinds[0]] == [7]


def _edited(trace, number, **changes):
    """Lines of a trace with keys of one line changed."""
    lines = list(trace.lines())
    record = json.loads(lines[number - 1])
    record.update(changes)
    lines[number - 1] = json.dumps(record)
    return lines


@pytest.mark.parametrize(
    ("number", "changes", "message"),
    [
        (1, {"npusim_trace": 2}, "line 1: npusim_trace"),
        (1, {"stepz": []}, "line 1: stepz: unknown key (got '[]'); did you mean 'steps'?"),
        (1, {"steps": []}, "line 1: steps"),
        (3, {"kind": "matmull"}, "line 3: kind"),
        (3, {"rows": 0}, "line 3: rows: Input should be greater than or equal to 1 (got '0')"),
        (3, {"rows": 1.5}, "line 3: rows"),
        (3, {"step": 7}, "line 3: step must be below the 3 steps of the header (got 7)"),
        (3, {"colour": 1}, "line 3: colour: unknown key"),
        (3, {"vector_ops": [["sqrt", 3]]}, "not 'sqrt'"),
        (3, {"outputs": []}, "outputs needs at least one tensor"),
    ],
)
def test_a_wrong_line_is_named_with_key_and_rule(trace, number, changes, message):
    with pytest.raises(WorkloadError) as error:
        OperatorTrace.from_lines(_edited(trace, number, **changes), "t.jsonl")
    assert message in str(error.value)


def test_operands_must_hold_what_the_matmul_needs(trace):
    lines = list(trace.lines())
    at = next(i for i, line in enumerate(lines) if '"layers.0.qkv_proj"' in line)
    record = json.loads(lines[at])
    record["matmul"]["k"] += 1
    lines[at] = json.dumps(record)
    with pytest.raises(WorkloadError, match=r"inputs\[0\] holds 4608 elements, the matmul needs"):
        OperatorTrace.from_lines(lines, "t.jsonl")


@pytest.fixture(scope="module")
def mixed():
    work = transformer("smollm2-135m", context_len=8, batch=2, chunk_tokens=3)
    return OperatorTrace.of(work)


@pytest.mark.parametrize(
    ("operator", "tensor", "changes", "message"),
    [
        ("chunk_context", "outputs", {"first_row": 4}, "rows 4 to 7 are not among all_rows=5"),
        ("chunk_context", "outputs", {"first_row": 1}, "produces rows that exist"),
        ("chunk_context", "outputs", {"all_rows": 6}, "produces a part of another tensor"),
        ("chunk_context", "outputs", {"all_rows": 0, "first_row": 0}, "a tensor that exists"),
    ],
)
def test_parts_of_a_tensor_must_fit_together(mixed, operator, tensor, changes, message):
    lines = list(mixed.lines())
    at = next(i for i, line in enumerate(lines) if f'"layers.0.{operator}"' in line)
    record = json.loads(lines[at])
    record[tensor][0].update(changes)
    lines[at] = json.dumps(record)
    with pytest.raises(WorkloadError, match=message):
        OperatorTrace.from_lines(lines, "t.jsonl").graph(0)


def test_an_append_must_fit_its_slot(mixed):
    lines = list(mixed.lines())
    at = next(i for i, line in enumerate(lines) if '"layers.0.chunk_k_append"' in line)
    lines[at] = lines[at].replace('"kv_slot":[0,3]', '"kv_slot":[1,3]')
    with pytest.raises(WorkloadError, match=r"kv_slot \[1, 3\] does not hold what is appended"):
        OperatorTrace.from_lines(lines, "t.jsonl")


def test_mixed_and_decode_steps_exclude_each_other(mixed):
    lines = list(mixed.lines())
    header = json.loads(lines[0])
    header["steps"].append({"phase": "decode", "context_len": 9})
    with pytest.raises(WorkloadError, match="decode and mixed steps exclude each other"):
        OperatorTrace.from_lines([json.dumps(header), *lines[1:]], "t.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("{}", "line 1"),
        ("[1]", "line 1"),
        ("{" * 10000, "line 1"),
        ('{"npusim_trace": NaN}', "line 1"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, text, message):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=message):
        read_trace(path)


def test_a_step_without_operators_is_refused(trace):
    with pytest.raises(WorkloadError, match="step 1 has no operators"):
        OperatorTrace.from_lines(
            [line for line in trace.lines() if '"step":1' not in line], "t.jsonl"
        )


@pytest.mark.parametrize("name", ["t.txt", "t"])
def test_an_unknown_ending_is_refused(trace, tmp_path, name):
    with pytest.raises(WorkloadError, match=r"ends in \.jsonl or \.parquet"):
        write_trace(trace, tmp_path / name)
