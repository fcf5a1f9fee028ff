"""What-if: one step of every number, bounds of the same program, and what a rate does to a DRAM."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from math import log
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

import npusim as ns
from npusim.cli import main
from npusim.config.check import number_paths
from npusim.config.dram_rate import dram_entry, standard_rate_hz
from npusim.config.dram_table import dram_table
from npusim.config.overrides import apply_system_overrides
from npusim.config.run_spec import RunSpec, SimulationConfig, WorkloadConfig
from npusim.errors import ConfigError, SimulationError
from npusim.explore.parameters import parameters
from npusim.explore.whatif import whatif_run
from npusim.explore.worker import compute
from npusim.paths import find_named
from npusim.program import END, EngineKind, Opcode
from npusim.report.whatif_figure import whatif_figure, whatif_html
from npusim.simulation.arguments import spec_of
from npusim.simulation.execute import execute
from npusim.simulation.ideal import IDEALS, ideal_of
from npusim.simulation.memo import Memo
from npusim.simulation.run import compile_run

SYSTEMS = ("edge-npu", "rk3588", "tpu-v6e", "ascend-910b", "jetson-agx-orin")


class InProcess:
    """Computes tasks here, in order."""

    def run(self, tasks):
        """Outcomes."""
        return map(compute, tasks)

    def close(self):
        """Nothing to end."""


@cache
def small_model():
    """Two layers of SmolLM2-135M with a small vocabulary, as a file."""
    config = json.loads(find_named("model", "smollm2-135m").read_text("utf-8"))
    file = Path(mkdtemp()) / "small.json"
    file.write_text(json.dumps(config | {"num_hidden_layers": 2, "vocab_size": 1024}), "utf-8")
    return str(file)


def toy(system="edge-npu", fidelity="transfer"):
    """A decode step of a small model."""
    return RunSpec(
        system=ns.load_system(system),
        workload=WorkloadConfig(model=small_model(), context_len=32, generate_len=1),
        simulation=SimulationConfig(fidelity=fidelity),
    )


@pytest.fixture(scope="module")
def closed():
    return whatif_run(toy("rk3588", "analytic"), executor=InProcess())


@pytest.fixture(scope="module")
def program():
    return compile_run(toy(), "decode")


def test_every_number_of_a_system_has_an_effect_or_a_reason(closed):
    spec = toy("rk3588", "analytic")
    names = {effect.name for effect in closed.effects}
    assert names == {
        "system.memories.dram.data_rate_hz",
        *(f"system.{path}" for path in number_paths(spec.system)),
    }
    for effect in closed.effects:
        assert (effect.change_frac is None) == (effect.error is not None)


def test_the_data_rate_has_most_of_the_closed_form_of_a_decode_step(closed):
    rate = next(e for e in closed.effects if e.name.endswith("data_rate_hz"))
    assert (rate.base, rate.value) == ("4224 MT/s", "4646 MT/s")
    ratio = rate.elapsed_ps / closed.elapsed_ps
    assert rate.change_frac == pytest.approx(ratio - 1)
    assert rate.elasticity == pytest.approx(log(ratio) / log(4646.4 / 4224))
    assert -1 <= rate.elasticity < -0.5


def test_effects_are_ranked_and_the_figure_shows_them(closed):
    done = [e for e in closed.of("parameter", "recompiled") if e.change_frac is not None]
    sizes = [abs(effect.change_frac) for effect in done]
    assert sizes == sorted(sizes, reverse=True)
    summary = closed.summary()
    assert len(closed.to_frame()) == len(summary["effects"])
    drawn = [x for trace in whatif_figure(summary).data for x in trace.x]
    assert sorted(drawn) == sorted(100 * effect.change_frac for effect in done[:20])
    assert "http" not in whatif_html(summary).split("<body>")[1].split("<script")[0]


def test_steps_follow_the_rules_of_the_configuration():
    found = {p.path.removeprefix("system."): p for p in parameters(toy("rk3588"), 0.1)}
    steps = {path: (p.base, p.value) for path, p in found.items()}
    assert steps["devices.npu.clock_hz"] == (10**9, 11 * 10**8)  # a tenth more
    assert steps["devices.npu.core.matrix.units"] == (1, 2)  # counts: one more
    assert steps["memories.dram.channels"] == (4, 8)  # a power of two: doubled
    assert steps["devices.npu.core.dma.dram_bytes_per_cycle"] == (16, 15)  # at its limit: less
    assert steps["memories.dram.write_high_frac"] == (0.8, pytest.approx(0.88))
    assert all(p.run is not None for p in found.values() if p.error is None)


@pytest.mark.parametrize("name", IDEALS)
def test_a_bound_takes_one_cost_from_the_same_program(name, program):
    changed = IDEALS[name].change(program)
    assert np.array_equal(changed.opcode, program.opcode)
    assert np.array_equal(changed.engine, program.engine)
    assert np.array_equal(changed.edge_producer, program.edge_producer)
    assert np.array_equal(changed.macs, program.macs)
    assert (changed.duration_ticks <= program.duration_ticks).all()
    inside = changed.edge_offset != END
    assert (changed.edge_offset[inside] <= program.edge_offset[inside]).all()


def test_without_launches_only_the_front_end_is_free(program):
    changed = IDEALS["zero_launch"].change(program)
    front = np.isin(program.opcode, (Opcode.LAUNCH, Opcode.DISPATCH, Opcode.SYNC))
    assert (changed.duration_ticks[front] == 0).all()
    assert np.array_equal(changed.duration_ticks[~front], program.duration_ticks[~front])
    kinds = {program.engines[e].kind for e in np.unique(program.engine[front])}
    assert kinds <= {EngineKind.HOST, EngineKind.DISPATCH}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_bounds_of_every_system_are_at_most_its_time(system):
    spec = toy(system)
    base = ns.simulate_run(spec)
    for name in IDEALS:
        found = ns.simulate_run(spec, run=ideal_of(name))
        assert found.hashes["program"] == base.hashes["program"]
        assert found.elapsed_ps <= 1.005 * base.elapsed_ps, name  # else the effect has a note
        macs = {phase: record.macs for phase, record in base.phases.items()}
        assert {phase: record.macs for phase, record in found.phases.items()} == macs


def test_a_bound_that_simulates_slower_is_the_run_itself_with_a_note(monkeypatch):
    class Slower(InProcess):
        """Every bound takes one per cent longer."""

        def run(self, tasks):
            """Outcomes of the unchanged run."""
            for task in tasks:
                outcome = compute(task.__class__(task.key, task.run))
                if task.ideal is not None:
                    outcome.metrics["elapsed_ps"] += outcome.metrics["elapsed_ps"] // 100
                yield outcome

    monkeypatch.setattr("npusim.explore.whatif.parameters", lambda *_: [])
    found = whatif_run(toy(), executor=Slower())
    bounds = found.of("ideal")
    assert len(bounds) == len(IDEALS)
    for effect in bounds:
        assert (effect.elapsed_ps, effect.change_frac) == (found.elapsed_ps, 0.0)
        assert "+1.00%" in effect.note


def test_the_memo_gives_the_same_execution_and_runs_what_differs():
    memo = Memo()
    spec = toy()
    first = ns.simulate_run(spec, run=memo)
    runs = len(memo)
    again = ns.simulate_run(spec, run=memo)
    assert (memo.hits, len(memo)) == (runs, runs)
    plain = ns.simulate_run(spec, run=execute)
    for result in (again, plain):
        assert result.summary() | {"wall_s": 0} == first.summary() | {"wall_s": 0}
    other = apply_system_overrides(spec.system, ["system.memories.dram.refresh=none"])
    changed = ns.simulate_run(spec.model_copy(update={"system": other}), run=memo)
    assert memo.hits == runs
    assert changed.elapsed_ps < first.elapsed_ps


def test_the_memo_forgets_the_oldest():
    memo = Memo(max_commands=1)
    ns.simulate_run(toy(), run=memo)
    ns.simulate_run(toy("rk3588"), run=memo)
    assert len(memo) == 1


@pytest.mark.parametrize(("step", "jobs", "place"), [(0, 1, "step_frac"), (0.1, 0, "jobs")])
def test_wrong_arguments_are_refused(step, jobs, place):
    with pytest.raises(ConfigError, match=place):
        whatif_run(toy(), step_frac=step, jobs=jobs)


def test_a_run_that_fails_is_told_as_itself():
    small = ["system.memories.dram.capacity_bytes=1 GiB", "system.memories.dram.channels=1"]
    system = apply_system_overrides(toy().system, small)
    workload = ns.transformer("llama-3.1-8b", phase="decode", context_len=32, quant="w16a16")
    spec = spec_of(system, workload, None, {"fidelity": "transfer"})
    with pytest.raises(SimulationError, match="the unchanged run"):
        whatif_run(spec, executor=InProcess())


def test_an_unknown_bound_is_refused():
    with pytest.raises(ConfigError, match="zero_launch"):
        ideal_of("zero_lunch")


@pytest.mark.parametrize("standard", dram_table()["devices"])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(9, 10), Fraction(11, 10), 2])
def test_a_rate_scales_the_peak_and_keeps_times(standard, scale):
    table = dram_table()
    entry = table["devices"][standard]
    memory = toy().system.memories["dram"]
    rate_hz = round(standard_rate_hz(entry, table["commands"]) * scale)
    changed = dram_entry(memory.model_copy(update={"standard": standard, "data_rate_hz": rate_hz}))
    assert standard_rate_hz(changed, table["commands"]) == rate_hz
    old_ps, new_ps = (Fraction(str(e["cycle_ps"])) for e in (entry, changed))
    for name in ("nRCD", "nRP", "nRAS", "nRFC"):
        old, new = entry["timing_nCK"][name] * old_ps, changed["timing_nCK"][name] * new_ps
        assert old <= new < old + new_ps, name
    refresh = changed["timing_nCK"]["nREFI"] * new_ps
    assert refresh <= entry["timing_nCK"]["nREFI"] * old_ps < refresh + new_ps
    assert changed["timing_nCK"]["nBL"] == entry["timing_nCK"]["nBL"]


def test_the_rate_of_the_standard_is_the_standard():
    base = toy("rk3588")
    same = apply_system_overrides(base.system, ["system.memories.dram.data_rate_hz=4224 MT/s"])
    found = ns.simulate_run(base.model_copy(update={"system": same}))
    assert found.elapsed_ps == ns.simulate_run(base).elapsed_ps


def test_faster_pins_never_cost_more():
    times = []
    for rate in (3200, 4224, 4646, 6400, 8448):
        system = apply_system_overrides(
            toy("rk3588").system, [f"system.memories.dram.data_rate_hz={rate} MT/s"]
        )
        found = ns.simulate_operator(
            system, "matmul", "1x1024x1024", quant="w8a8", simulation={"fidelity": "burst"}
        )
        times.append(found.phase.elapsed_ps)
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.1 * times[-1]


def test_the_command_prints_tables_and_writes_a_page(tmp_path, capsys):
    page = tmp_path / "w.html"
    arguments = ["whatif", "rk3588", "smollm2-135m", "--context", "16", "--fidelity", "analytic"]
    assert main([*arguments, "--jobs", "1", "--rows", "5", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "memories.dram.data_rate_hz" in text
    assert "parameters with less effect" in text
    assert "smollm2-135m on rk3588" in page.read_text()
    assert main([*arguments, "--step", "-1"]) == 2
    assert "step" in capsys.readouterr().err
