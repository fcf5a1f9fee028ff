"""Speculative decoding: a pattern of checks and drafts with an acceptance rate."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from npusim.config.compiler import CompilerConfig
from npusim.errors import WorkloadError
from npusim.results.loading import load_result
from npusim.simulation import compile_run, simulate
from npusim.simulation.footprint import check_footprint, footprint_bytes
from npusim.workload import Phase, Role, transformer
from npusim.workload.speculation import Speculation, expected_tokens_per_step
from npusim.workload.trace import OperatorTrace
from tests.unit.workload_samples import run_spec

DRAFT_135M = "smollm2-135m"
MODEL, DRAFT = "qwen2.5-7b-instruct", "qwen2.5-0.5b-instruct"


def run(system: str = "tpu-v6e", **lengths: object):
    work = transformer(lengths.pop("model", "llama-3.2-1b"), **lengths)
    return simulate(system, work, simulation={"fidelity": "analytic"})


# (1 - a^(k+1)) / (1 - a): 1 + 4/5 + 16/25; by Leviathan et al. k = 4 at 0.8 gives 3.36
@pytest.mark.parametrize(
    ("proposed", "accept_frac", "tokens"),
    [
        (2, 0.8, Fraction(61, 25)),
        (4, 0.8, Fraction(2101, 625)),
        (3, 0.5, Fraction(15, 8)),
        (4, 1.0, Fraction(5)),
        (4, 0.0, Fraction(1)),
    ],
)
def test_a_step_yields_the_closed_form(proposed, accept_frac, tokens):
    assert expected_tokens_per_step(proposed, accept_frac) == tokens


def test_the_closed_form_is_the_mean_of_sampled_steps():
    # accepted proposals up to the first wrong one, and the token of the check; 3 standard errors
    rng = np.random.default_rng(5)
    right = rng.random((40_000, 4)) < 0.7
    tokens = 1 + np.cumprod(right, axis=1).sum(axis=1)
    error = 3 * tokens.std() / len(tokens) ** 0.5
    assert abs(tokens.mean() - float(expected_tokens_per_step(4, 0.7))) <= error


def test_steps_advance_by_the_mean_until_all_tokens_are_there():
    # 2.44 tokens per step: 0, 2.44, 4.88, 7.32, 9.76; five steps yield 12.2 of 10 tokens
    assert Speculation(2, 0.8).contexts(100, 10) == (100, 102, 104, 107, 109)
    work = transformer(
        "llama-3.2-1b", prompt_len=100, generate_len=11, speculate_tokens=2, accept_frac=0.8
    )
    assert work.decode_contexts == (100, 102, 104, 107, 109)
    assert work.capacity_tokens == 109 + 3
    assert work.phases == (Phase.PREFILL, Phase.DECODE)


def test_a_check_multiplies_all_tokens_and_reads_the_weights_once():
    # SmolLM2-135M, one layer: linears 3,538,944 and lm_head 28,311,552 MACs a token, 5 tokens;
    # attention 9 heads x 5 tokens x 105 keys x 64 x 2
    work = transformer("smollm2-135m", context_len=100, speculate_tokens=4, accept_frac=0.7)
    graph = work.decode_graph(100, 1)
    assert graph.macs == 5 * (3_538_944 + 28_311_552) + 604_800
    plain = transformer("smollm2-135m", context_len=100).decode_graph(100, 1)
    assert sum(w.nbytes for w in graph.weights) == sum(w.nbytes for w in plain.weights)
    # embedding rows are gathered per token; every other weight is read as often as before
    embedding = graph["embedding"].read_bytes(Role.WEIGHT)
    assert embedding == 5 * plain["embedding"].read_bytes(Role.WEIGHT) == 5 * 576 * 2
    assert graph["layers.0.k_append"].outputs[0].shape == (1, 3, 5, 64)


def test_lookup_that_never_misses_divides_the_time_of_a_step():
    always = run(context_len=512, generate_len=10, speculate_tokens=4, accept_frac=1.0)
    record = always.phase("decode")
    assert (record.steps, record.tokens) == (2, 10)
    assert always.tpot_ps == ceil(record.elapsed_ps / 10)
    assert always.tokens_per_s == pytest.approx(10e12 / record.elapsed_ps)
    plain = run(context_len=512, generate_len=10)
    assert always.tpot_ps < plain.tpot_ps / 4


def test_lookup_that_never_hits_gains_nothing():
    never = run(context_len=512, generate_len=10, speculate_tokens=4, accept_frac=0.0)
    plain = run(context_len=512, generate_len=10)
    assert never.phase("decode").steps == 10
    assert never.tpot_ps >= plain.tpot_ps


def test_more_accepted_tokens_are_never_slower():
    tpots = [
        run(context_len=512, generate_len=64, speculate_tokens=4, accept_frac=a).tpot_ps
        for a in (0.2, 0.5, 0.8)
    ]
    assert tpots == sorted(tpots, reverse=True)
    assert len(set(tpots)) == 3


def test_the_rate_is_named_an_estimate_with_its_source():
    found = run(context_len=512, generate_len=4, speculate_tokens=4, accept_frac=0.7)
    notes = {a.kind: a.basis for a in found.phase("decode").approximations}
    assert "2.7731 tokens per step" in notes["speculative_acceptance"]
    assert "Leviathan et al. 2023" in notes["speculative_acceptance"]


def test_a_draft_model_runs_as_its_own_phases(tmp_path):
    found = run(
        model=MODEL, prompt_len=64, generate_len=10, speculate_tokens=3, accept_frac=0.5,
        draft_model=DRAFT,
    )  # fmt: skip
    assert list(found.phases) == ["prefill", "draft_prefill", "decode", "draft"]
    # 15/8 tokens a step: five steps for nine tokens, three passes of the draft each
    decode, draft = found.phase("decode"), found.phase("draft")
    assert (decode.steps, draft.steps, draft.tokens) == (5, 15, 15)
    assert decode.tokens == 9  # 9.375 rounded down
    both = decode.elapsed_ps + draft.elapsed_ps
    assert found.tpot_ps == ceil(Fraction(both) / (5 * Fraction(15, 8)))
    assert found.tokens_per_s == pytest.approx(9.375e12 / both)
    assert found.ttft_ps == found.phase("prefill").elapsed_ps
    assert found.workload["speculation"] == {
        "method": "draft_model",
        "speculate_tokens": 3,
        "accept_frac": 0.5,
        "draft_model": DRAFT,
        "tokens_per_step": 1.875,
    }
    assert load_result(found.save(tmp_path)) == found


def test_the_draft_has_the_macs_of_its_own_model():
    lengths = {"context_len": 64, "generate_len": 1}
    work = transformer(
        MODEL, **lengths, speculate_tokens=2, accept_frac=0.5, draft_model=DRAFT, batch=3
    )
    alone = transformer(DRAFT, **lengths, batch=3)
    assert work.draft_graph(64).macs == alone.decode_graph(64).macs
    found = run(
        model=MODEL, **lengths, speculate_tokens=2, accept_frac=0.5, draft_model=DRAFT, batch=3
    )
    expected = alone.decode_graph(64).macs + alone.decode_graph(65).macs
    assert found.phase("draft").macs == expected


def test_weights_and_cache_of_the_draft_must_fit_too():
    lengths = {"context_len": 64, "generate_len": 1, "speculate_tokens": 2, "accept_frac": 0.5}
    spec = run_spec("rk3588", model=MODEL, **lengths)
    lookup = transformer(MODEL, **lengths)
    drafted = transformer(MODEL, **lengths, draft_model=DRAFT)
    draft = transformer(DRAFT, context_len=64)
    # cache of the draft: 64 tokens and the three of the step
    more = draft.weight_bytes + 67 * draft.kv_bytes_per_token
    assert footprint_bytes(drafted, spec) - footprint_bytes(lookup, spec) == more
    with pytest.raises(WorkloadError, match="draft model included"):
        check_footprint(spec, drafted)


def test_weights_of_two_models_do_not_stay_on_chip():
    work = transformer(
        "smollm2-135m", context_len=8, speculate_tokens=1, accept_frac=0.5, draft_model=DRAFT_135M
    )
    with pytest.raises(WorkloadError, match="draft_model: the weights of a model and its draft"):
        simulate("tpu-v6e", work, compiler={"weight_residency": "resident"})


def test_the_program_of_a_check_is_compiled_and_a_trace_of_it_refused():
    lengths = {"context_len": 16, "generate_len": 1, "speculate_tokens": 2, "accept_frac": 0.5}
    spec = run_spec("edge-npu", model="smollm2-135m", **lengths, draft_model="smollm2-135m")
    assert CompilerConfig() == spec.compiler
    assert len(compile_run(spec, "draft")) > 0
    with pytest.raises(WorkloadError, match="speculate_tokens: a trace holds passes of one model"):
        OperatorTrace.of(transformer("smollm2-135m", **lengths))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speculate_tokens": 2}, "accept_frac: is required with speculate_tokens"),
        ({"accept_frac": 0.5}, "accept_frac: needs speculate_tokens"),
        ({"draft_model": "smollm2-135m"}, "draft_model: needs speculate_tokens"),
        ({"speculate_tokens": 2, "accept_frac": 1.5}, "accept_frac: must be 0 to 1"),
        ({"speculate_tokens": -2, "accept_frac": 0.5}, "speculate_tokens: must be an integer"),
        (
            {"speculate_tokens": 2, "accept_frac": 0.5, "draft_model": "qwen2-1.5b"},
            "draft_model: must have a vocabulary of at most smollm2-135m's 49152",
        ),
        (
            {"speculate_tokens": 2, "accept_frac": 0.5, "draft_model": "mtp"},
            "mtp_layers: smollm2-135m states no multi-token-prediction layers",
        ),
        (
            {"speculate_tokens": 2, "accept_frac": 0.5, "draft_model": "smolm2-135m"},
            "did you mean 'smollm2-135m'",
        ),
    ],
)
def test_settings_that_make_no_step_are_refused(settings, message):
    with pytest.raises(WorkloadError, match=message):
        transformer("smollm2-135m", context_len=8, **settings)


def test_a_prompt_without_decode_has_nothing_to_speculate_on():
    with pytest.raises(WorkloadError, match="speculate_tokens: needs tokens to generate"):
        transformer("smollm2-135m", prompt_len=8, speculate_tokens=2, accept_frac=0.5)
