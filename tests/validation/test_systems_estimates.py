"""Estimates against what is simulated in full: folding, decode interpolation, fidelities."""

from __future__ import annotations

import logging

import pytest

from tests.validation.test_systems_support import (
    MINI,
    SYSTEMS,
    check_accounts,
    dram_of,
    run_spec,
    simulated,
    some_slow,
    tiny_model,
    workload_of,
)

LOG = logging.getLogger(__name__)

TOLERANCE_FRAC = 0.005
MANY_LAYERS = {**MINI, "num_hidden_layers": 18}
CASES = [("edge-npu", "smollm2-135m"), ("tpu-v6e", "qwen2.5-0.5b-instruct")]
STEP = {"context_len": 64, "generate_len": 1, "quant": "w4a16"}


def counted(result, phase):
    """What an estimate must get exactly right."""
    record, dram = result.phase(phase), dram_of(result, phase)
    stages = {s.stage: (s.macs, s.kernels, s.dram_bytes) for s in record.stages}
    totals = (record.macs, record.kernels, record.commands, record.tokens)
    return totals, dram.read_bytes, dram.write_bytes, dict(dram.bytes_by_role), stages


def difference(estimate_ps, exact_ps):
    return abs(estimate_ps - exact_ps) / exact_ps


def notes(result, phase):
    return {note.kind: note for note in result.phase(phase).approximations}


def check_folding(system, model, fidelity, phase, *, within=TOLERANCE_FRAC, **lengths):
    """Folded and unfolded agree; the folded run says that and how far it may be off.

    `within` None: as far as the folded run itself states.
    """
    folded = simulated(system, model, fidelity=fidelity, **lengths)
    whole = simulated(system, model, fidelity=fidelity, fold=False, **lengths)
    check_accounts(folded)
    check_accounts(whole)
    error = difference(folded.phase(phase).elapsed_ps, whole.phase(phase).elapsed_ps)
    stated = notes(folded, phase)["layer_folding"].estimated_error_frac
    LOG.info(
        "%s %s %s folded: %.4f %%, stated %.4f %%",
        *(system, folded.workload["model"], fidelity, 100 * error, 100 * stated),
    )
    assert counted(folded, phase) == counted(whole, phase)
    assert error <= (max(TOLERANCE_FRAC, stated) if within is None else within)
    assert "layer_folding" not in notes(whole, phase)


@pytest.mark.parametrize("fidelity", ["transfer", "burst"])
@pytest.mark.parametrize("system", ["rk3588", "tpu-v6e"])
def test_folding_layers_of_microseconds_stays_within_half_a_percent_or_its_stated_error(
    system, fidelity
):
    lengths = {"context_len": 16, "generate_len": 1, "quant": "w4a16"}
    model = tiny_model(**MANY_LAYERS)
    check_folding(system, model, fidelity, "decode", within=None, **lengths)


@pytest.mark.slow
@pytest.mark.parametrize("fidelity", ["transfer", "burst"])
@pytest.mark.parametrize(("system", "model"), CASES)
def test_folding_a_model_changes_its_time_by_less_than_half_a_percent(system, model, fidelity):
    check_folding(system, model, fidelity, "decode", **STEP)


@pytest.mark.slow
def test_folding_a_prefill_changes_its_time_by_less_than_half_a_percent():
    check_folding("tpu-v6e", "smollm2-135m", "transfer", "prefill", prompt_len=64)


@pytest.mark.parametrize("fidelity", ["transfer", "burst"])
def test_decode_interpolation_is_within_half_a_percent_of_every_step_simulated(fidelity):
    first, steps = 200, 12
    model, quant = tiny_model(**MINI), "w4a16"
    run = simulated(
        "tpu-v6e", model, fidelity=fidelity, context_len=first, generate_len=steps, quant=quant
    )
    single = [
        simulated(
            *("tpu-v6e", model),
            fidelity=fidelity,
            context_len=first + step,
            generate_len=1,
            quant=quant,
        )
        for step in range(steps)
    ]
    note = notes(run, "decode")["decode_interpolation"]
    assert note.estimated_error_frac <= TOLERANCE_FRAC
    exact_ps = sum(result.phase("decode").elapsed_ps for result in single)
    error = difference(run.phase("decode").elapsed_ps, exact_ps)
    LOG.info("decode interpolation at %s: %.4f %%", fidelity, 100 * error)
    assert error <= TOLERANCE_FRAC
    # bytes and MACs of a step are linear in the context, so their sums are exact
    assert run.phase("decode").macs == sum(r.phase("decode").macs for r in single)
    assert run.phase("decode").kernels == sum(r.phase("decode").kernels for r in single)
    roles = [dram_of(r, "decode").bytes_by_role for r in single]
    for role, nbytes in dram_of(run, "decode").bytes_by_role.items():
        assert nbytes == sum(step[role] for step in roles), role


def test_three_steps_are_all_simulated_and_not_interpolated():
    run = simulated("tpu-v6e", tiny_model(**MINI), context_len=8, generate_len=3)
    single = [
        simulated("tpu-v6e", tiny_model(**MINI), context_len=8 + step, generate_len=1)
        for step in range(3)
    ]
    assert "decode_interpolation" not in notes(run, "decode")
    # the whole run reserves three rows of cache more, which moves no address of what is read first
    exact_ps = sum(result.phase("decode").elapsed_ps for result in single)
    assert difference(run.phase("decode").elapsed_ps, exact_ps) <= TOLERANCE_FRAC


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("system", some_slow(SYSTEMS))
def test_the_closed_form_is_no_slower_than_what_is_simulated(system, phase):
    lengths = {"prompt_len": 24} if phase == "prefill" else {"context_len": 24, "generate_len": 1}
    by_fidelity = {
        fidelity: simulated(
            system, tiny_model(**MINI), fidelity=fidelity, quant="w4a16", **lengths
        ).phase(phase)
        for fidelity in ("analytic", "transfer", "burst")
    }
    closed = by_fidelity.pop("analytic")
    for fidelity, record in by_fidelity.items():
        assert record.bound_ps == closed.bound_ps
        assert record.macs == closed.macs
        # the closed form fuses nothing
        assert record.kernels <= closed.kernels
        assert closed.bound_ps <= closed.elapsed_ps <= record.elapsed_ps, fidelity
    burst, transfer = by_fidelity["burst"], by_fidelity["transfer"]
    log_differences(system, phase, burst, transfer)
    assert [s.dram_bytes for s in burst.stages] == [s.dram_bytes for s in transfer.stages]


def log_differences(system, phase, burst, transfer):
    """Transfer against burst, per stage."""
    pairs = zip(burst.stages, transfer.stages, strict=True)
    parts = [
        f"{one.stage} {100 * (other.elapsed_ps / one.elapsed_ps - 1):+.1f} %"
        for one, other in pairs
        if one.elapsed_ps
    ]
    total = 100 * (transfer.elapsed_ps / burst.elapsed_ps - 1)
    LOG.info("%s %s transfer against burst: %+.1f %% (%s)", system, phase, total, ", ".join(parts))


def test_the_closed_form_counts_the_launches_that_the_simulation_executes():
    settings = {"context_len": 24, "generate_len": 1, "quant": "w4a16"}
    spec = run_spec("ascend-910b", tiny_model(**MINI), fidelity="analytic", **settings)
    kernels = len(workload_of(spec).decode_graph(24))
    result = simulated("ascend-910b", tiny_model(**MINI), fidelity="analytic", **settings)
    assert result.executor == "closed_form"
    host = spec.system.host
    launches_ps = kernels * host.host_issue_ps + host.sync_ps
    assert result.phase("decode").elapsed_ps >= launches_ps
