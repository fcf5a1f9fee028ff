"""Reproductions: what every one of them has, and what a changed file is told."""

from __future__ import annotations

import json
import re

import pytest

import npusim as ns
from npusim.cli.app import main
from npusim.errors import ConfigError
from npusim.paths import find_named, named_files
from npusim.studies.reproduction import Figure
from npusim.studies.reproductions import STUDIES, load_reproduction

NAMES = tuple(STUDIES)


def test_every_reproduction_has_a_file_and_every_file_a_reproduction():
    assert NAMES
    assert set(named_files("reproduction")) == set(NAMES)
    assert all(load_reproduction(name).name == name for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_reproduction_holds_and_says_how_free_its_configuration_is(name):
    result = ns.reproduce(name)
    assert result.holds
    assert 0 < result.num_published == result.num_reproduced
    assert result.free_parameters
    assert len(result.table.to_frame()) == len(result.figures)


def test_a_reproduction_is_the_same_bytes_each_time():
    first, second = (json.dumps(ns.reproduce("a4-fusion").summary()) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("published", "ours", "tolerance", "difference", "holds"),
    [
        (10.0, 10.5, 0.05, 0.05, True),
        (10.0, 10.51, 0.05, 0.051, False),
        (10.0, 9.49, 0.05, -0.051, False),
        (0.0, 0.0, 0.0, 0.0, True),
        (0.0, 1.0, 0.05, None, False),
        (None, 1.0, 0.0, None, True),
    ],
)
def test_a_figure_holds_within_its_tolerance(published, ours, tolerance, difference, holds):
    figure = Figure("f", published, ours, tolerance)
    assert figure.difference_frac == (None if difference is None else pytest.approx(difference))
    assert figure.holds is holds


@pytest.mark.parametrize(
    ("ours", "holds"), [(40.0, True), (65.0, True), (39.9, False), (66.0, False)]
)
def test_a_published_range_holds_what_lies_in_it(ours, holds):
    figure = Figure("f", None, ours, published_range=(40.0, 65.0))
    assert figure.is_published
    assert figure.holds is holds


def changed(tmp_path, old, new, name="a4-fusion"):
    text = find_named("reproduction", name).read_text("utf-8")
    assert old in text
    path = tmp_path / "changed.yaml"
    path.write_text(text.replace(old, new, 1), "utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: a4-fusion", "name: a4-fusio", "yaml:3: name: no reproduction.*a4-fusion"),
        ("all_cycles: {", "al_cycles: {", "published.al_cycles: is no figure here.*'all_cycles'"),
        ('  block: "chosen', '  blok: "chosen', "config.block.m: every number of config needs"),
        ('  block: "chosen', '  bloc: "x"\n  block: "chosen', "sources.bloc: is no key"),
        ("{value: 42.6, ", "{low: 42.6, ", "published.separate_cycles: must have a value, or low"),
        ("clock_hz: 1 GHz", "clock_hz: 1", "yaml:18: config.clock_hz: needs a unit"),
        ("softmax_passes: 4", "softmax_pases: 4", "softmax_passes"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(tmp_path, old, new, message):
    with pytest.raises(ConfigError, match=message):
        ns.reproduce(changed(tmp_path, old, new))


def test_a_changed_copy_of_the_file_runs(tmp_path):
    path = changed(tmp_path, "register_file_bytes: 32 KiB", "register_file_bytes: 64 KiB")
    by_file = ns.reproduce(path)
    by_set = ns.reproduce("a4-fusion", ["config.register_file_bytes=64 KiB"])
    assert by_file.figures == by_set.figures
    assert by_file.config_hash == by_set.config_hash


def test_the_command_prints_both_figures_and_the_freedom(capsys):
    assert main(["reproduce", "a8-mixed-precision"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"end_cycles +21 +21 +\+0.0 %", out)
    assert "without bf16_align: bf16 #" in out
    assert "ends at 18000 ps" in out.replace("\n", " ")
    assert re.search(r"7 of 7 published figures reproduced with \d+ free numbers: ", out)


def test_the_command_speaks_json_and_lists(capsys):
    assert main(["reproduce", "a8-mixed-precision", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"] is True
    assert main(["reproduce", "--list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(NAMES)
    assert main(["reproduce", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(NAMES)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "NAME: is required"),
        (["a4-fusoin"], 2, "did you mean 'a4-fusion'"),
        (["a4-fusion", "--list"], 2, "--list: stands alone"),
        (["a4-fusion", "--set", "shape=1"], 2, "must start with config."),
        (["a4-fusion", "--set", "config.shap=1"], 2, "did you mean 'config.shape'"),
        (["a4-fusion", "--set", "config.clock_hz=1"], 2, "needs a unit"),
        (["a4-fusion", "--set", "config.register_bytes=500 B"], 2, "multiple of register_bytes"),
        (["a8-mixed-precision", "--set", "config.without=[bf16_align]"], 1, "a read waits for"),
        (["a8-mixed-precision", "--set", "config.tiles=5"], 2, "multiple of tiles=5"),
        (["a8-qk-dispatch", "--set", "config.heads=17"], 2, "config.heads: has one core each"),
        (["a8-qk-dispatch", "--set", "config.staging_bytes=4 KiB"], 2, "4352 bytes"),
        (["a8-qk-dispatch", "--set", "config.element_bits=4 bit"], 2, "must be a multiple of 8"),
        (["a8-qk-dispatch", "--set", "config.system=edge-np"], 2, "did you mean 'edge-npu'"),
        (["a2-bandwidth", "--set", "config.system=rk3588"], 2, "config.system: must have a shared"),
        (["a2-bandwidth", "--set", "config.total_bytes=1 KiB"], 2, "a piece for each of 4 cores"),
        (["a2-bandwidth", "--set", "config.hit_frac=1.1"], 2, "hit_frac"),
    ],
)
def test_bad_input_is_one_line_and_a_refused_program_is_a_failure(words, code, message, capsys):
    assert main(["reproduce", *words]) == code
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert message in err


def test_a_figure_that_is_off_is_exit_code_1(capsys):
    changes = ["--set", "config.spill_cycles=0 cycles"]
    assert main(["reproduce", "a4-fusion", *changes]) == 1
    assert "off" in capsys.readouterr().out


def test_a_reproduction_file_can_be_checked_without_running_it(capsys, tmp_path):
    path = find_named("reproduction", "a8-qk-dispatch")
    assert main(["check", str(path)]) == 0
    assert "5 published figures, 13 free numbers" in capsys.readouterr().out
    bad = changed(tmp_path, '  block: "chosen', '  blok: "chosen')
    assert main(["check", str(bad)]) == 2
    assert "config.block.m: every number of config" in capsys.readouterr().err
