"""The command line: exit codes, messages, clean JSON; the simulator is a stand-in here."""

from __future__ import annotations

import json
import signal
import sys
import time
from fractions import Fraction
from types import ModuleType

import pytest

from npusim.cli import main
from npusim.errors import DeadlockError, SimulationError, WorkloadError
from npusim.program import Command, Engine, EngineKind, Kernel, Opcode, Program
from npusim.results.loading import load_result
from npusim.results.operator import OperatorResult
from tests.unit.results_samples import tiny_phase, tiny_run

RUN = ("run", "rk3588", "qwen2-1.5b")


@pytest.fixture
def simulator(monkeypatch):
    """A stand-in for `npusim.simulation` that remembers what it was asked."""
    module = ModuleType("npusim.simulation")
    module.asked = []
    module.error = None

    def simulate_run(spec, progress=None):
        module.asked.append(spec)
        if module.error:
            raise module.error
        progress.update("decode", 0.5, "layer 1")
        return tiny_run(spec=spec)

    def simulate_operator(system, op, shape, **settings):
        module.asked.append((system.name, op, shape, settings))
        phase = tiny_phase("operator", 1)
        return OperatorResult(phase=phase, compute_cycles=3, folds=1, macs=60, bound_ps=900)

    module.simulate_run, module.simulate_operator = simulate_run, simulate_operator
    monkeypatch.setitem(sys.modules, "npusim.simulation", module)
    return module


def run_cli(capsys, *argv):
    """Exit code, stdout and stderr of a command."""
    code = main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_run_prints_tables_and_says_where_files_went(capsys, simulator, tmp_path):
    out = tmp_path / "deep" / "run"
    code, text, _ = run_cli(capsys, *RUN, "--prompt", 5, "--generate", 3, "--out", out)
    assert code == 0
    for part in ("TTFT", "TPOT", "tokens/s", "bound 900 ps", "lm_head", "buffer_full 30.0 %"):
        assert part in text
    assert "fold (prefill, decode: layers), error about 0.1 %; spread of 3 layers" in text
    assert {"result.json", "timeline.html", "stages.parquet"} <= {p.name for p in out.iterdir()}
    assert load_result(out).spec == simulator.asked[0]


def test_json_is_the_summary_and_nothing_else(capsys, simulator, tmp_path):
    argv = (*RUN, "--context", 5, "--json", "--out", tmp_path, "--set", "workload.batch=2")
    code, text, messages = run_cli(capsys, *argv)
    assert code == 0
    assert json.loads(text) == json.loads((tmp_path / "result.json").read_text())
    assert json.loads(text)["overrides"] == ["workload.batch=2"]
    assert "decode" in messages  # progress goes to stderr
    assert simulator.asked[0].workload.batch == 2


def test_every_option_of_run_reaches_the_specification(capsys, simulator):
    options = {
        "--context": 9,
        "--generate": 2,
        "--batch": 3,
        "--quant": "w4a8_g64",
        "--kv-dtype": "int8",
        "--kv-prune": "none",
        "--fidelity": "transfer",
        "--executor": "simpy",
        "--seed": 5,
        "--set": "system.devices.npu.cores=1",
    }
    words = [word for pair in options.items() for word in pair]
    assert run_cli(capsys, *RUN, *words, "--no-fold")[0] == 0
    spec = simulator.asked[0]
    assert spec.workload.model_dump() == {
        "model": "qwen2-1.5b",
        "prompt_len": None,
        "context_len": 9,
        "generate_len": 2,
        "batch": 3,
        "quant": "w4a8_g64",
        "kv_dtype": "int8",
        "kv_prune": None,
        "expert_routing": "uniform",
        "chunk_tokens": None,
        "chunk_context_len": None,
        "speculate_tokens": None,
        "accept_frac": None,
        "draft_model": None,
        "mtp_layers": None,
    }
    settings = spec.simulation
    assert (settings.fidelity, settings.executor, settings.seed) == ("transfer", "simpy", 5)
    assert not settings.fold
    assert spec.system.devices["npu"].cores == 1


def test_a_context_alone_means_one_token(capsys, simulator):
    assert run_cli(capsys, *RUN, "--context", 9)[0] == 0
    assert simulator.asked[0].workload.generate_len == 1


def test_a_workload_file_brings_lengths_and_options_win(capsys, simulator, tmp_path):
    file = tmp_path / "w.yaml"
    file.write_text("model: qwen2-1.5b\nprompt_len: 8\ngenerate_len: 4\nbatch: 2\n")
    assert run_cli(capsys, "run", "rk3588", file)[0] == 0
    assert run_cli(capsys, "run", "rk3588", file, "--context", 7, "--batch", 1)[0] == 0
    first, second = (spec.workload for spec in simulator.asked)
    assert (first.prompt_len, first.generate_len, first.batch) == (8, 4, 2)
    assert (second.prompt_len, second.context_len, second.batch) == (None, 7, 1)


def test_a_folder_of_the_user_is_searched_first(capsys, simulator, tmp_path, monkeypatch):
    monkeypatch.delenv("NPUSIM_CONFIG_PATH", raising=False)
    (tmp_path / "mine.yaml").write_text("extends: rk3588\nname: mine\n")
    argv = ("--config-path", tmp_path, "run", "mine", "qwen2-1.5b", "--prompt", 5)
    assert run_cli(capsys, *argv)[0] == 0
    assert simulator.asked[0].system.name == "mine"
    monkeypatch.delenv("NPUSIM_CONFIG_PATH")


BAD_INPUT = [
    ((*RUN,), "run length: needs --prompt N or --context N"),
    ((*RUN, "--prompt", 0), "'--prompt': must be an integer of at least 1 (got '0')"),
    ((*RUN, "--prompt", -3), "'--prompt': must be an integer of at least 1 (got '-3')"),
    ((*RUN, "--prompt", "4k"), "'--prompt': must be an integer of at least 1 (got '4k')"),
    ((*RUN, "--context", 0), "'--context': must be an integer of at least 1"),
    ((*RUN, "--prompt", 4, "--generate", -1), "'--generate': must be an integer of at least 0"),
    ((*RUN, "--prompt", 4, "--batch", 0), "'--batch': must be an integer of at least 1"),
    ((*RUN, "--prompt", 4, "--seed", -1), "'--seed': must be an integer of at least 0"),
    ((*RUN, "--prompt", 4, "--context", 4), "--prompt and --context: exclude each other"),
    ((*RUN, "--context", 4, "--generate", 0), "--generate: must be at least 1 with --context"),
    ((*RUN, "--prompt", 4, "--kv-prune", "h2o"), "not in this version (got 'h2o')"),
    ((*RUN, "--prompt", 4, "--fidelity", "brst"), "did you mean 'burst'?"),
    ((*RUN, "--prompt", 4, "--executor", "simpi"), "did you mean 'simpy'?"),
    ((*RUN, "--prompt", 4, "--set", "workload.btch=2"), "did you mean 'workload.batch'?"),
    ((*RUN, "--prompt", 4, "--set", "workload.batch"), "must be path=value"),
    ((*RUN, "--prompt", 4, "--set", "system.devices.npu.clock_hz=1"), "needs a unit"),
    ((*RUN, "--prompt", 4, "--quant", "w8"), "--quant: must be wXaY or wXaY_gN (got 'w8')"),
    ((*RUN, "--prompt", 10**25), "--prompt: must be at most 1152921504606846976 (got"),
    ((*RUN, "--prompt", 4, "--seed", 10**25), "--seed: must be"),
    (("op", "rk3588", "matmul", "4x4x4", "--quant", ""), "--quant: must be wXaY or wXaY_gN"),
    ((*RUN, "--prompt", 4, "--set", "system.devices.npu.clock_hz=2 THz"), "must be at most 10000"),
    ((*RUN, "--prompt", 4, "--set", "system.buses.axi.clock_hz=2 THz"), "must be at most 10000"),
    (("run", "rk3558", "qwen2-1.5b", "--prompt", 4), "did you mean 'rk3588'?"),
    (("run", "rk3588", "qwen2-1.5", "--prompt", 4), "did you mean 'qwen2-1.5b'?"),
    (("run", "rk3588", "none/config.json", "--prompt", 4), "MODEL: no such file"),
    (("run", "rk3588"), "Missing argument 'MODEL'"),
    (("run", "rk3588", "qwen2-1.5b", "--prmpt", 4), "No such option: --prmpt"),
    (("rnu",), "No such command 'rnu'"),
    (("--config-path", "no/such/folder", "systems"), "--config-path: must name an existing"),
    (("systems", "rk3558"), "did you mean 'rk3588'?"),
    (("models", "qwen2"), "no model has this name"),
    (("schema", "sytem"), "did you mean 'system'?"),
    (("check", "no-such.yaml"), "no-such.yaml: no such file"),
    (("check", "pyproject.toml"), "must end in .yaml, .yml or .json"),
    (("op", "rk3588", "matmul", "4x4x4", "--batch", 0), "'--batch': must be an integer"),
    (("op", "rk3588", "matmul", "4x4x4", "--set", "workload.batch=2"), "use --batch and --quant"),
    (("explain-program", *RUN[1:], "--prompt", 4, "--phase", "prefil"), "mean 'prefill'?"),
]


@pytest.mark.parametrize(("argv", "message"), BAD_INPUT)
def test_bad_input_gives_one_line_and_exit_code_2(capsys, simulator, argv, message):
    code, out, err = run_cli(capsys, *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not simulator.asked


def test_an_unusable_output_folder_is_refused_before_simulating(capsys, simulator, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        code, _, err = run_cli(capsys, *RUN, "--prompt", 4, "--out", out)
        assert code == 2
        assert "output folder" in err
    assert not simulator.asked


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SimulationError("engine x", "sums must match", 3), 1),
        (DeadlockError("machine", "nothing can move", ["a waits for b"]), 1),
        (WorkloadError("context", "must fit", 9), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_failures_map_to_exit_codes_without_traceback(capsys, simulator, error, code):
    simulator.error = error
    found, out, err = run_cli(capsys, *RUN, "--prompt", 4)
    assert (found, out) == (code, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("npusim: ")


class RaisesWhenDropped:
    """What a library's destructor does when Ctrl-C arrives in it: Python drops the exception."""

    def __del__(self):
        raise KeyboardInterrupt


@pytest.fixture
def heeds_interrupts():
    """A background job may have been started with interrupts ignored."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_that_falls_into_a_destructor_still_stops(capsys, simulator, monkeypatch):
    def simulate_run(spec, _progress):
        RaisesWhenDropped()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.01)
        return tiny_run(spec=spec)

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # main sets its own
    simulator.simulate_run = simulate_run
    code, out, err = run_cli(capsys, *RUN, "--prompt", 4)
    assert (code, out) == (130, "")
    assert err == "npusim: interrupted\n"


RUN_FILE = """\
system: rk3588
workload: {{model: {model}, prompt_len: {prompt_len}, quant: {quant}}}
"""


@pytest.mark.parametrize(
    ("model", "prompt_len", "quant", "message"),
    [
        ("qwen2-1.5b", 9, "w8a8", ""),
        ("qwen2-1", 9, "w8a8", "did you mean 'qwen2-1.5b'?"),
        ("qwen2-1.5b", 10**6, "w8a8", "must fit qwen2-1.5b's"),
        ("qwen2-1.5b", 9, "w3a3", "did you mean 'w8a8'?"),
    ],
)
def test_check_of_a_run_looks_at_its_workload(capsys, tmp_path, model, prompt_len, quant, message):
    file = tmp_path / "run.yaml"
    file.write_text(RUN_FILE.format(model=model, prompt_len=prompt_len, quant=quant))
    code, out, err = run_cli(capsys, "check", file)
    assert code == (2 if message else 0)
    assert message in err
    assert ("qwen2-1.5b on rk3588, w8a8, prefill" in out) == (not message)


def test_a_quantity_left_empty_is_told_to_need_a_unit(capsys, tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("extends: rk3588\nname: mine\ndevices:\n  other: {clock_hz: }\n")
    code, _, err = run_cli(capsys, "check", file)
    assert code == 2
    assert "s.yaml:4: devices.other.clock_hz: must be a quantity with a unit" in err


def test_a_failed_run_leaves_no_result(capsys, simulator, tmp_path):
    simulator.error = SimulationError("engine x", "sums must match")
    run_cli(capsys, *RUN, "--prompt", 4, "--out", tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_op_passes_its_settings_and_prints_the_phase_with_folds(capsys, simulator):
    argv = ("op", "rk3588", "matmul", "4x5x6", "--batch", 2, "--quant", "w8a8", "--ideal-memory")
    code, text, _ = run_cli(capsys, *argv, "--json", "--set", "compiler.max_cores=1")
    assert code == 0
    assert {"elapsed_ps", "stages", "compute_cycles", "folds", "bound_ps"} <= set(json.loads(text))
    name, op, shape, settings = simulator.asked[0]
    assert (name, op, shape) == ("rk3588", "matmul", "4x5x6")
    assert (settings["batch"], settings["quant"], settings["ideal_memory"]) == (2, "w8a8", True)
    assert settings["compiler"].max_cores == 1
    code, text, _ = run_cli(capsys, *argv)
    assert code == 0
    assert "matrix unit alone: 3 cycles in 1 folds" in text


def tiny_program(spec, phase):
    """Two commands of one kernel."""
    assert (spec.system.name, phase) == ("rk3588", "decode")
    engine = Engine("npu.matrix", EngineKind.MATRIX, "npu", 0, Fraction(1000))
    commands = [Command(0, Opcode.MATMUL, cycles=3), Command(0, Opcode.MATMUL, cycles=5)]
    kernels = [Kernel("layers.0.q_proj", "q_proj", "qkv", 0)]
    return Program.from_commands(commands, [engine], kernels=kernels)


def test_explain_program_shows_commands_up_to_the_limit(capsys, simulator):
    simulator.compile_run = tiny_program
    argv = ("explain-program", *RUN[1:], "--context", 4, "--limit", 1)
    code, text, _ = run_cli(capsys, *argv, "--kernel", "layers.0.q_proj")
    assert code == 0
    assert "MATMUL  layers.0.q_proj" in text
    assert "1 more command" in text
    code, text, _ = run_cli(capsys, *argv, "--json")
    assert code == 0
    assert json.loads(text)["phase"] == "decode"


def test_explain_program_of_an_unknown_kernel_names_the_nearest(capsys, simulator):
    simulator.compile_run = tiny_program
    argv = ("explain-program", *RUN[1:], "--context", 4, "--kernel", "layers.0.qproj")
    code, out, err = run_cli(capsys, *argv)
    assert (code, out) == (2, "")
    assert "did you mean 'layers.0.q_proj'?" in err


def test_no_arguments_show_the_help(capsys):
    code, out, err = run_cli(capsys)
    assert (code, out) == (2, "")
    assert err.startswith("npusim: a command is needed\n\nUsage: npusim")
    assert "\n  explain-program " in err
