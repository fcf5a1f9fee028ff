"""Request traces: readers, distributions and synthesis."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npusim.cli import main
from npusim.errors import WorkloadError
from npusim.workload.importers import import_file
from npusim.workload.request_files import write_requests
from npusim.workload.request_readers import read_lengths, read_requests
from npusim.workload.request_statistics import request_statistics, reused_tokens
from npusim.workload.request_synthesis import (
    EmpiricalLengths,
    Lognormal,
    LognormalLengths,
    synthesize_requests,
)
from npusim.workload.requests import Request, RequestTrace

DATA = Path(__file__).parents[1] / "data" / "traces"
AZURE = DATA / "AzureLLMInferenceTrace_conv_first200.csv"
MOONCAKE = DATA / "mooncake_conversation_first100.jsonl"
OWN = "arrival_ps,prompt_len,output_len\n"


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_azure_times_count_exactly_from_the_first_arrival():
    trace = read_requests(AZURE).trace
    # 18:15:46.6805900 and 18:15:50.9951690
    assert trace.requests[:2] == (Request(0, 374, 44), Request(4_314_579_000_000, 396, 109))
    assert len(trace) == 200


def test_mooncake_requests_keep_their_prefix_hashes():
    trace = read_requests(MOONCAKE).trace
    assert trace.requests[0] == Request(0, 6758, 500, tuple(range(14)))
    assert (len(trace), trace.prefix_block_tokens) == (100, 512)


@pytest.mark.parametrize("source", [AZURE, MOONCAKE])
def test_a_trace_survives_its_own_form(tmp_path, source):
    trace = read_requests(source).trace
    write_requests(trace, tmp_path / "r.jsonl")
    assert read_requests(tmp_path / "r.jsonl").trace == trace


def test_seconds_of_a_csv_are_exact_and_late_lines_are_sorted(tmp_path):
    path = written(tmp_path, "r.csv", "arrival_s,prompt_len,output_len\n0.3,5,1\n0.1,6,0,\n")
    trace = read_requests(path).trace
    assert trace.requests == (Request(10**11, 6, 0), Request(3 * 10**11, 5, 1))
    assert trace.notes == ("1 requests stood behind a later one: sorted by arrival",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.csv", OWN + "0,0,1\n", "line 2: prompt_len must be an integer 1 to"),
        ("r.csv", OWN + "0,1\n", "line 2: has 2 columns, the heading 3"),
        ("r.csv", OWN, "no requests"),
        ("r.csv", "prompt_len,output_len\n1,1\n", "no arrival_ps or arrival_s; draw some"),
        ("r.csv", "arrival_s,prompt_len,output_len\nnan,1,1\n", "arrival_s must be a number"),
        ("r.csv", "arrival_s,prompt_len,output_len\n1e99999999,1,1\n", "line 2: arrival_s"),
        ("r.csv", "arrival_s,prompt_len,outputs,output_len\n", "unknown column (got 'outputs')"),
        ("r.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", "line 2: TIMESTAMP must"),
        ("r.jsonl", '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": '
         '[1, 2, 3]}', "line 1: a prompt of 513 tokens has at most 2 blocks of 512"),
        ("r.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": NaN}', "none of"),
        ("r.jsonl", '{"timestamp": -1, "input_length": 5, "output_length": 1}', "timestamp must"),
        ("r.jsonl", '{"npusim_requests": 1, "name": "x"}\n{"arrival_ps": 0, "prompt_len": 1, '
         '"output": 2}', "line 2: output: unknown key"),
    ],
)  # fmt: skip
def test_a_broken_request_trace_is_named_by_line(tmp_path, name, text, message):
    path = written(tmp_path, name, text)
    with pytest.raises(WorkloadError) as error:
        read_requests(path)
    assert message.replace("none of", "is no request trace") in str(error.value)


# blocks of 4 tokens: the second request shares [1, 2] (8 tokens), the third only [1] (4), and the
# fourth all of a prompt of 6, whose last block is partly filled
def test_reuse_counts_the_longest_common_beginning():
    hashes = [(1, 2, 3), (1, 2, 4), (1, 9, 2), (1, 2)]
    lens = [12, 12, 12, 6]
    requests = [Request(i, n, 1, h) for i, (n, h) in enumerate(zip(lens, hashes, strict=True))]
    trace = RequestTrace("t", tuple(requests), 4)
    assert reused_tokens(trace) == 8 + 4 + 6
    assert request_statistics(trace).prefix_reuse_frac == 18 / 42


def test_statistics_by_hand():
    # arrivals at 0, 1, 3 s: gaps 1 and 2 s, mean 1.5, deviation 0.5
    second = 10**12
    requests = (Request(0, 1, 5), Request(second, 3, 5), Request(3 * second, 2, 5))
    found = request_statistics(RequestTrace("t", requests))
    assert (found.rate_per_s, found.interarrival_cv) == (2 / 3, 0.5 / 1.5)
    assert (found.prompt_len.p50, found.prompt_len.p99, found.prompt_len.mean) == (2, 3, 2.0)
    assert found.index_of_dispersion is None


def test_dispersion_counts_empty_windows():
    # windows of 10 s with 2, 0 and 1 arrivals: mean 1, variance 2/3; the one at 30 s is outside
    times = (0, 1, 20, 30)
    requests = tuple(Request(t * 10**12, 1, 1) for t in times)
    found = request_statistics(RequestTrace("t", requests)).index_of_dispersion
    assert found == pytest.approx(2 / 3)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_synthetic_arrivals_have_the_rate_and_the_burstiness_asked_for(cv):
    lengths = EmpiricalLengths("one", ((7, 3),))
    trace = synthesize_requests(40_000, 5.0, lengths, np.random.default_rng(3), cv=cv)
    found = request_statistics(trace)
    assert found.rate_per_s == pytest.approx(5.0, rel=0.05)
    assert found.interarrival_cv == pytest.approx(cv, rel=0.05)


def test_equal_seeds_give_equal_traces_and_pairs_stay_together():
    lengths = read_lengths(AZURE)
    made = [synthesize_requests(50, 2.0, lengths, np.random.default_rng(s)) for s in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    assert {(r.prompt_len, r.output_len) for r in made[0]} <= set(lengths.pairs)


def test_lognormal_lengths_have_their_median_and_limit():
    lengths = LognormalLengths(Lognormal(800, 1.0, 2000), Lognormal(100, 0))
    trace = synthesize_requests(5000, 2.0, lengths, np.random.default_rng(0))
    assert trace.prompt_lens.max() <= 2000
    assert set(trace.output_lens.tolist()) == {100}
    free = Lognormal(800, 1.0).draw(20_000, np.random.default_rng(0))
    assert np.median(free) == pytest.approx(800, rel=0.05)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Lognormal(float("nan"), 1),
        lambda: Lognormal(10, -1),
        lambda: Lognormal(10, 1, 5),
        lambda: EmpiricalLengths("x", ()),
        lambda: synthesize_requests(0, 1, EmpiricalLengths("x", ((1, 1),)), None),
        lambda: synthesize_requests(1, 0, EmpiricalLengths("x", ((1, 1),)), None),
        lambda: RequestTrace("x", ()),
        lambda: RequestTrace("x", (Request(5, 1, 1), Request(4, 1, 1))),
        lambda: RequestTrace("x", (Request(0, 1, 1, (3,)),)),
    ],
)
def test_impossible_settings_are_refused(call):
    with pytest.raises(WorkloadError):
        call()


def test_a_request_trace_is_no_operator_trace():
    with pytest.raises(WorkloadError, match="arrivals and lengths, no operators"):
        import_file(AZURE)


def test_the_command_line_shows_converts_and_synthesises(tmp_path, capsys):
    out = tmp_path / "r.jsonl"
    assert main(["inspect", str(MOONCAKE), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["requests"], facts["prefix_block_tokens"]) == (100, 512)
    assert main(["import", str(AZURE), "-o", str(out)]) == 0
    assert read_requests(out).trace.requests == read_requests(AZURE).trace.requests
    arguments = ["requests", "synthesize", "--count", "9", "--rate", "2", "-o", str(out)]
    assert main([*arguments, "--lengths", str(AZURE)]) == 0
    assert len(read_requests(out).trace) == 9
    assert main(arguments) == 2
    assert "either --lengths FILE, or both" in capsys.readouterr().err
    assert main([*arguments, "--prompt", "a,1", "--generate", "5,1"]) == 2
    assert main(["inspect", str(AZURE), "--batch", "2"]) == 2
    assert main(["inspect", str(AZURE), "--set", "workload.batch=2"]) == 2
    assert "--set" in capsys.readouterr().err
