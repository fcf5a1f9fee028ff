"""Commands that look and validate: systems, models, check, schema, help."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from npusim.cli import main
from npusim.config.loader import load_system
from npusim.paths import named_files

COMMANDS = ("run", "op", "systems", "models", "check", "schema", "explain-program")
HEAVY = ("numba", "numpy", "pandas", "plotly", "networkx", "pyarrow", "pydantic", "simpy")


def run_cli(capsys, *argv):
    """Stdout of a command that succeeds."""
    assert main([str(word) for word in argv]) == 0
    return capsys.readouterr().out


def test_systems_and_models_list_everything_shipped(capsys):
    for command, kind in (("systems", "system"), ("models", "model")):
        names = [row["name"] for row in json.loads(run_cli(capsys, command, "--json"))]
        assert sorted(names) == list(named_files(kind))
        text = run_cli(capsys, command)
        assert all(name in text for name in names)


def test_a_shown_system_is_a_file_that_loads_equal(capsys, tmp_path):
    file = tmp_path / "copy.yaml"
    file.write_text(run_cli(capsys, "systems", "rk3588"))
    assert load_system(file) == load_system("rk3588")
    assert json.loads(run_cli(capsys, "systems", "rk3588", "--json"))["name"] == "rk3588"


def test_folded_descriptions_hold_no_marks_of_the_parser(capsys):
    shown = json.loads(run_cli(capsys, "systems", "--json"))
    assert all(row["description"].isprintable() for row in shown)


def test_a_shown_model_has_its_hand_derived_size(capsys):
    facts = json.loads(run_cli(capsys, "models", "qwen2-1.5b", "--json"))
    assert facts["parameters"] == 1_543_714_304
    assert facts["kv_bytes_per_token"] == 2 * 28 * 2 * 128 * 2  # K and V, layers, KV heads, 16 bit
    assert "1,543,714,304" in run_cli(capsys, "models", "qwen2-1.5b")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("s.yaml", "extends: rk3588\nname: s\n", "system"),
        ("w.yaml", "model: qwen2-1.5b\nprompt_len: 8\n", "workload"),
        ("r.yaml", "system: rk3588\nworkload: {model: qwen2-1.5b, prompt_len: 8}\n", "run"),
    ],
)
def test_check_says_what_a_file_is(capsys, tmp_path, name, content, kind):
    file = tmp_path / name
    file.write_text(content)
    assert json.loads(run_cli(capsys, "check", file, "--json"))["kind"] == kind
    assert f"a valid {kind}" in run_cli(capsys, "check", file)


def test_check_reads_a_config_json(capsys):
    path = named_files("model")["qwen2-1.5b"]
    assert json.loads(run_cli(capsys, "check", path, "--json"))["name"] == "qwen2-1.5b"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.yaml", "extends: rk3588\nname: s\nhst: {}\n", "s.yaml:3"),
        ("w.yaml", "model: qwen2-1.5b\nprompt_len: 0\n", "w.yaml:2"),
        ("w.yaml", "model: nope\nprompt_len: 3\n", "no model has this name"),
        ("w.yaml", "model: qwen2-1.5b\nprompt_len: 99999\n", "32768"),
        ("e.yaml", "", "e.yaml"),
        ("m.json", "{", "m.json"),
        ("m.json", "[]", "m.json"),
    ],
)
def test_check_refuses_a_wrong_file_with_its_place(capsys, tmp_path, name, content, message):
    file = tmp_path / name
    file.write_text(content)
    assert main(["check", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


@pytest.mark.parametrize("part", ["run", "system", "workload", "compiler", "simulation"])
def test_schema_describes_every_part(capsys, part):
    assert "$schema" in json.loads(run_cli(capsys, "schema", part, "--json"))
    assert "meaning" in run_cli(capsys, "schema", part)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(capsys, command):
    text = run_cli(capsys, command, "--help")
    assert "For example" in text
    assert f"npusim {command}" in text


def test_version_is_one_line(capsys):
    assert run_cli(capsys, "--version").count("\n") == 1


@pytest.mark.parametrize(
    "code", ["import npusim", "from npusim.cli import main; assert main(['--help']) == 0"]
)
def test_start_up_loads_nothing_heavy(code):
    check = f"import sys\n{code}\nprint([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_closed_pipe_is_no_failure():
    code = "import sys; from npusim.cli import main; sys.exit(main(['schema', 'run', '--json']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
