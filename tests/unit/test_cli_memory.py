"""``npusim memory``: what it prints, its JSON, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npusim.cli import main
from npusim.memory.dram.timing import dram_device_names

DATA = Path(__file__).parents[1] / "data" / "dram"
FIRST = "DDR4-3200.BGlow.micro_1rd"


def run_cli(capsys, *argv):
    code = main(["memory", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def trace(tmp_path):
    def write(addr=(0, 64), is_write=(0, 0), arrival=(0, 0)):
        path = tmp_path / "trace.npz"
        np.savez(
            path, addr=np.array(addr, np.uint64), is_write=np.array(is_write, np.uint8),
            arrival_cycle=np.array(arrival, np.uint32),
        )  # fmt: skip
        return path

    return write


@pytest.fixture
def folder(tmp_path):
    def write(change):
        data = json.loads((DATA / "results.json").read_text(encoding="utf-8"))
        data["cases"] = [case for case in data["cases"] if case["id"] == FIRST]
        change(data)
        (tmp_path / "results.json").write_text(json.dumps(data), encoding="utf-8")
        return tmp_path

    return write


def test_devices_are_listed_with_source_and_spacings(capsys):
    code, out, _ = run_cli(capsys, "devices", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["name"] for row in rows] == dram_device_names()
    ddr4 = next(row for row in rows if row["name"] == "DDR4-3200")
    assert ddr4["channel_peak_bytes_per_s"] == 25_600_000_000
    assert ddr4["spacings_cycles"]["RC"] == 74
    code, out, _ = run_cli(capsys, "devices")
    assert code == 0
    assert "HBM3-6400" in out


def test_replay_by_name_bit_by_bit_and_from_a_reference_agree(capsys, trace):
    path = trace()
    bits = "BankGroup:6-7,Column:8-14,Bank:15-16,Row:17-32"
    found = []
    for words in (("BGlow",), (bits,), ("BGlow", "--reference", DATA)):
        options = ("--device", "DDR4-3200", "--map", *words, "--json")
        code, out, _ = run_cli(capsys, "replay", path, *options)
        assert code == 0
        found.append(json.loads(out) | {"address_map": ""})
    assert found[0] == found[1] == found[2]
    # ACT 1 and 5, RD 23 and 27, data until 27 + 26
    assert found[0]["total_cycles"] == 53
    assert found[0]["counters"]["read_commands"] == 2


def test_replay_takes_policies_and_channels(capsys, trace):
    path = trace(addr=(0, 64))
    options = ("--device", "DDR4-3200", "--map", "BGlow", "--channels", 2, "--json")
    code, out, _ = run_cli(capsys, "replay", path, *options)
    assert (code, json.loads(out)["total_cycles"]) == (0, 49)  # one read each
    options = ("--device", "DDR4-3200", "--map", "BGlow", "--controller", "bank_round_robin")
    code, out, _ = run_cli(capsys, "replay", path, *options)
    assert code == 0
    assert "bank_round_robin" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "DDR4-320", "--map", "BGlow"), "did you mean 'DDR4-3200'"),
        (("--device", "DDR4-3200", "--map", "BGlw"), "did you mean 'BGlow'"),
        (("--device", "DDR4-3200", "--map", "Bank:6-7,Row:8-31"), "uses every address bit"),
        (("--device", "DDR4-3200", "--map", "Bank:6-7,Row:8-32"), "sets every field bit once"),
        (("--device", "DDR4-3200", "--map", "Bnak:6-7"), "did you mean 'Bank'"),
        (("--device", "DDR4-3200", "--map", "Bank:7-6"), "bits are lowest-highest"),
        (("--device", "DDR4-3200", "--map", "Bank:x"), "reads like Bank:13-14"),
        (("--device", "DDR4-3200", "--map", "BGlow", "--channels", "0"), "at least 1"),
        (("--device", "DDR4-3200", "--map", "BGlow", "--refresh", "per_bank"), "needs nRFCpb"),
        (("--device", "DDR4-3200", "--map", "BGlow", "--page-policy", "shut"), "is one of open"),
        (("--map", "BGlow"), "--device"),
    ],
)
def test_wrong_options_of_replay_are_bad_input(capsys, trace, options, message):
    code, out, err = run_cli(capsys, "replay", trace(), *options)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"addr": (0, 32)}, "addresses are multiples of 64 (got 32)"),
        ({"addr": (0, 1 << 40)}, "addresses lie below 8589934592"),
        ({"addr": (), "is_write": (), "arrival": ()}, "at least one request"),
        ({"is_write": (0,)}, "three equal columns"),
        ({"arrival": (5, 4)}, "never decrease"),
    ],
)
def test_wrong_traces_are_bad_input(capsys, trace, columns, message):
    options = ("--device", "DDR4-3200", "--map", "BGlow")
    code, out, err = run_cli(capsys, "replay", trace(**columns), *options)
    assert (code, out) == (2, "")
    assert message in err


def test_a_file_that_is_no_trace_is_bad_input(capsys, tmp_path):
    path = tmp_path / "x.npz"
    path.write_text("x")
    code, _, err = run_cli(capsys, "replay", path, "--device", "DDR4-3200", "--map", "BGlow")
    assert code == 2
    assert "must be an npz file" in err


def test_validate_prints_exactly_the_promised_json(capsys, folder):
    code, out, _ = run_cli(capsys, "validate", folder(lambda _: None), "--json")
    assert code == 0
    assert json.loads(out) == {
        "devices": {
            "DDR4-3200": {
                "cases": 1,
                "mean_abs_err_frac": 0.0,
                "max_abs_err_frac": 0.0,
                "worst_case": FIRST,
            }
        },
        "cases": [
            {
                "id": FIRST,
                "total_cycles": 49,
                "reference_cycles": 49,
                "err_frac": 0.0,
                "commands_exact": True,
            }
        ],
    }


def test_validate_fails_when_the_target_is_missed(capsys, folder):
    def change(data):
        data["cases"][0]["result"]["total_cycles"] = 60

    code, out, _ = run_cli(capsys, "validate", folder(change))
    assert code == 1
    assert "MISSED" in out
    assert "-18.333 %" in out


def test_validate_tells_which_device_it_cannot_build(capsys, folder):
    def change(data):
        data["devices"]["odd"] = data["devices"]["DDR4-3200"] | {"tool": "simX"}
        data["cases"].append(data["cases"][0] | {"id": "odd.BGlow.one", "device": "odd"})

    code, out, err = run_cli(capsys, "validate", folder(change), "--json")
    assert code == 2
    assert len(json.loads(out)["cases"]) == 1
    assert "not replayed: odd: device odd.tool" in err


def test_validate_refuses_a_folder_without_results(capsys, tmp_path):
    code, out, err = run_cli(capsys, "validate", tmp_path)
    assert (code, out) == (2, "")
    assert "results.json: must be a file" in err
