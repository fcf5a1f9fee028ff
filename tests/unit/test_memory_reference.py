"""Devices and maps of a reference folder: built from what it states, refused when it is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from npusim.errors import ConfigError
from npusim.memory.dram.timing import spacings
from npusim.memory.reference.cases import ReferenceFolder, read_trace, validate_folder
from npusim.memory.reference.device import reference_device
from npusim.memory.reference.maps import reference_map

DATA = Path(__file__).parents[1] / "data" / "dram"
RESULTS = json.loads((DATA / "results.json").read_text(encoding="utf-8"))


def entry(name, **changes):
    return copy.deepcopy(RESULTS["devices"][name]) | changes


def built(name, **changes):
    return reference_device(name, entry(name, **changes))


def test_stated_spacings_come_before_derived_ones():
    device = entry("DDR4-3200")
    for row in device["command_constraints_cycles"]:
        if row["level"] == "Bank" and row["prev"] == ["ACT"] and "RD" in row["next"]:
            row["min_cycles"] = 31
    found = spacings(reference_device("new", device).device)
    assert (found["RCDRD"], found["RCDWR"], found["RP"]) == (31, 31, 22)
    del device["command_constraints_cycles"]
    assert spacings(reference_device("new", device).device)["RCDRD"] == 22


@pytest.mark.parametrize("name", ["DDR4-3200", "HBM2-2000", "HBM3-6400", "LPDDR5-6400"])
def test_derived_spacings_equal_the_stated_ones(name):
    """Our rule for multi-cycle commands against the tool's list; two differ on purpose."""
    device = entry(name)
    stated = spacings(reference_device(name, device).device)
    del device["command_constraints_cycles"]
    derived = spacings(reference_device(name, device).device)
    differ = {key for key in stated if stated[key] != derived[key]}
    assert differ <= {"CSW", "PBR2PBR"}  # rank switch of one rank; a list of its own in HBM3


def test_two_cycle_commands_are_read_from_the_list():
    # a DDR5 as Ramulator 2.1 prints it: every two-cycle command keeps the only bus for 2 cycles
    device = entry("DDR4-3200", standard="DDR5")
    two, every = ["ACT", "RD", "WR"], ["ACT", "RD", "WR", "PREpb", "PREab", "REFab"]
    device["command_constraints_cycles"].append(
        {"level": "Channel", "prev": two, "next": every, "min_cycles": 2, "window": 1,
         "other_siblings": False}
    )  # fmt: skip
    found = spacings(reference_device("DDR5-x", device).device)
    assert (found["ACT_LEN"], found["COL_LEN"], found["PRE_LEN"]) == (2, 2, 1)
    assert found["RL"] == 26  # read_latency_cycles


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("X-1-q8", {"read_queue_depth": 8, "write_queue_depth": 8}),
        ("X-1-closed", {"page_policy": "closed_cap", "page_cap": 1}),
        ("X-1-frfcfs", {"scheduler": "frfcfs"}),
        ("X-1-norefresh", {"refresh": "none"}),
        ("X-1-q64-perbankref", {"refresh": "per_bank", "read_queue_depth": 64}),
    ],
)
def test_suffixes_count_where_the_entry_states_no_controller(name, settings):
    device = entry("LPDDR5-6400")
    stated = reference_device(name, device).settings  # the controller block wins
    assert (stated["refresh"], stated["read_queue_depth"]) == ("all_bank", 32)
    del device["controller"]
    found = reference_device(name, device).settings
    assert {key: found[key] for key in settings} == settings


def test_wck_always_on_needs_no_cas():
    assert built("LPDDR5-6400").device.wck_sync
    assert not built("LPDDR5-6400-wckon").device.wck_sync


def test_the_other_tool_brings_its_controller():
    found = built("HBM2-2000-d3")
    assert found.settings["controller"] == "bank_round_robin"
    assert found.settings["row_hit_limit"] == 4
    device = found.device
    assert (device.dual_command_bus, device.burst_bytes) == (True, 64)
    # burst 2; CCD max(2, 1) and max(2, 2); read to write 14 + 2 - 4 + 2; write to read 4 + 2 + 6
    s = spacings(device)
    assert (s["CCDS"], s["CCDL"], s["RTW"], s["WTRS"], s["PPD"]) == (2, 2, 14, 12, 0)
    assert spacings(built("LPDDR4X-4266").device)["RRDL"] == 22  # one bank group: _S everywhere


@pytest.mark.parametrize(
    ("name", "path", "value", "rule"),
    [
        ("DDR4-3200", "tool", "simX", "tool: is ramulator2.1 or dramsim3"),
        ("DDR4-3200", "standard", "DDR9", "standard: is unknown .*DDR9.*did you mean"),
        ("DDR4-3200", "transaction_bytes", 48, "transaction_bytes: is a power of two"),
        ("DDR4-3200", "channels", 0, "channels: is a whole number above 0"),
        ("DDR4-3200", "cycle_ps", 0, "cycle_ps: is above 0"),
        ("DDR4-3200", "timing_in_tCK.nRCD", -1, "nRCD: is at least 0"),
        ("DDR4-3200", "timing_in_tCK.nRCD", 2.5, "nRCD: is a whole number"),
        ("DDR4-3200", "organisation.bank", 8, "address_field_bits.Bank: has as many bits"),
        ("DDR4-3200", "controller.scheduler", "FIFO", "controller.scheduler: is one of"),
        ("DDR4-3200", "controller.refresh", "Odd", "controller.refresh: is one of AllBank"),
        ("DDR4-3200", "controller.page_policy", "Timeout", "page_policy: is Open or ClosedCAP"),
        ("LPDDR4-2400", "controller.page_policy", "CLOSE_PAGE", "OPEN_PAGE; others are not"),
        ("LPDDR4-2400", "controller.unified_read_write_queue", False, "separate ones are not"),
        ("LPDDR4-2400", "controller.refresh", "per-bank", "refresh: is all-bank or none"),
    ],
)
def test_a_wrong_device_is_refused(name, path, value, rule):
    device = entry(name)
    *blocks, key = path.split(".")
    place = device
    for block in blocks:
        place = place[block]
    place[key] = value
    with pytest.raises(ConfigError, match=rule):
        reference_device(name, device)


def test_missing_timing_and_broken_constraints_are_refused():
    device = entry("DDR4-3200")
    del device["timing_in_tCK"]["nFAW"]
    with pytest.raises(ConfigError, match=r"parameters are required .*nFAW"):
        reference_device("DDR4-3200", device)
    device = entry("DDR4-3200")
    del device["command_constraints_cycles"][3]["window"]
    with pytest.raises(ConfigError, match=r"command_constraints_cycles\[3\]: keys are required"):
        reference_device("DDR4-3200", device)


def a_map(*rows, xor=None):
    fields = [{"field": f, "lsb": lsb, "msb": msb} for f, lsb, msb in rows]
    return {"fields": fields, "xor": xor}


LPDDR5 = (("BankGroup", 5, 6), ("Column", 7, 12), ("Bank", 13, 14), ("Row", 15, 29))


def test_the_channel_may_lie_between_other_fields():
    device = built("LPDDR5-6400").device
    rows = (("BankGroup", 5, 6), ("Column", 7, 9), ("Channel", 10, 11), ("Column", 12, 14),
            ("Bank", 15, 16), ("Row", 17, 31))  # fmt: skip
    fields, interleave = reference_map(a_map(*rows), device, 4, 1, "map")
    assert interleave == 1 << 10
    # bits above the channel move down by its two bits; the column's second piece starts at bit 3
    assert [(f.field, f.lsb, f.bits, f.to) for f in fields] == [
        ("BankGroup", 5, 2, 0), ("Column", 7, 3, 0), ("Column", 10, 3, 3), ("Bank", 13, 2, 0),
        ("Row", 15, 15, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("address_map", "channels", "rule"),
    [
        (a_map(), 1, "has at least one field"),
        (a_map(*LPDDR5[:3]), 1, "has a Row"),
        (a_map(*LPDDR5, ("Channel", 30, 30)), 4, "one piece of bits for 4 channels"),
        (a_map(*LPDDR5[:3], ("Rwo", 15, 15), ("Row", 16, 29)), 1, "did you mean 'Row'"),
        (a_map(("Bank", 9, 5), *LPDDR5), 1, "0 <= lsb <= msb"),
        (a_map(*LPDDR5, xor="Bank ^= Column[1:0]"), 1, "only row bits"),
        (a_map(*LPDDR5, xor="Bank ^= Row[1:0]; BankGroup ^= ?"), 1, "read like"),
        (a_map(*LPDDR5, xor="Bank ^= Row[2:0]"), 1, "Bank has 2 bits"),
    ],
)
def test_a_wrong_map_is_refused(address_map, channels, rule):
    with pytest.raises(ConfigError, match=rule):
        reference_map(address_map, built("LPDDR5-6400").device, channels, 1, "map")


@pytest.fixture
def small(tmp_path):
    """A folder of one device with a micro and a trace case; a function that changes it."""
    data = copy.deepcopy(RESULTS)
    data["devices"] = {"DDR4-3200": data["devices"]["DDR4-3200"]}
    wanted = ("DDR4-3200.BGlow.micro_1rd", "DDR4-3200.BGlow.paced_rand25")
    data["cases"] = [case for case in data["cases"] if case["id"] in wanted]
    (tmp_path / "traces").mkdir()
    trace = DATA / "traces" / f"{wanted[1]}.npz"
    (tmp_path / "traces" / trace.name).write_bytes(trace.read_bytes())

    def write(change=None):
        if change is not None:
            change(data)
        (tmp_path / "results.json").write_text(json.dumps(data), encoding="utf-8")
        return tmp_path

    return write


def test_a_small_folder_is_exact(small):
    found = validate_folder(small())
    assert [(c.err_frac, c.commands_exact) for c in found.cases] == [(0.0, True), (0.0, None)]
    assert found.devices["DDR4-3200"].cases == 2
    assert found.meets_target


def test_a_wrong_reference_misses_the_target(small):
    def change(data):
        data["cases"][0]["result"]["total_cycles"] *= 2
        data["cases"][0]["result"]["commands"]["rows"][0][0] += 1

    found = validate_folder(small(change))
    assert found.cases[0].err_frac == pytest.approx(-0.5)
    assert found.cases[0].commands_exact is False
    assert found.devices["DDR4-3200"].worst_case == "DDR4-3200.BGlow.micro_1rd"
    assert not found.meets_target


def test_a_device_that_cannot_be_built_is_told_and_the_others_run(small):
    def change(data):
        data["devices"]["odd"] = data["devices"]["DDR4-3200"] | {"tool": "simX"}
        data["cases"].append(data["cases"][0] | {"id": "odd.BGlow.one", "device": "odd"})

    found = validate_folder(small(change))
    assert len(found.cases) == 2
    assert "tool: is ramulator2.1 or dramsim3" in found.refused["odd"]
    assert not found.meets_target


def lost_bit(data):
    data["address_maps"]["DDR4-3200.BGlow"]["fields"][1]["lsb"] += 1


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lost_bit, "uses every address bit above the burst once, 6 to 32"),
        (lambda d: d.pop("devices"), "devices: must be there"),
        (lambda d: d["cases"].clear(), "has at least one case"),
        (lambda d: d["cases"][0].pop("device"), r"cases\[0\]: needs .*device"),
        (lambda d: d["cases"][0].update(address_map="BGlw"), "no such map .*did you mean"),
        (lambda d: d["cases"][0].update(requests=[[0, 0]]), "requests are rows of"),
        (lambda d: d["cases"][0].update(requests=[[32, 0, 0]]), "addresses are multiples of 64"),
        (lambda d: d["cases"][0].update(requests=[[1 << 40, 0, 0]]), "addresses lie below"),
        (lambda d: d["cases"][0].update(requests=[[0, 0, 5], [0, 0, 4]]), "never decrease"),
    ],
)
def test_a_wrong_folder_is_refused(small, change, rule):
    with pytest.raises(ConfigError, match=rule):
        validate_folder(small(change))


def test_a_missing_or_broken_results_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"results\.json: must be a file"):
        ReferenceFolder(tmp_path)
    (tmp_path / "results.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="must be JSON"):
        ReferenceFolder(tmp_path)


def test_a_wrong_trace_file_is_refused(tmp_path):
    path = tmp_path / "t.npz"
    with pytest.raises(ConfigError, match="must be a file"):
        read_trace(path)
    path.write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="must be an npz file"):
        read_trace(path)
    np.savez(path, addr=np.zeros(2, np.uint64), is_write=np.zeros(2, np.uint8))
    with pytest.raises(ConfigError, match=r"needs the arrays .*arrival_cycle"):
        read_trace(path)
    three = {"is_write": np.zeros(2, np.uint8), "arrival_cycle": np.zeros(2, np.uint32)}
    np.savez(path, addr=np.zeros(2), **three)
    with pytest.raises(ConfigError, match="addr: holds whole numbers"):
        read_trace(path)
    np.savez(path, addr=np.array([0, 1 << 63], np.uint64), **three)
    with pytest.raises(ConfigError, match=r"addr: is below 2\^62"):
        read_trace(path)
    np.savez(path, addr=np.array([0, 64], np.uint64), **three)
    assert read_trace(path)[0].tolist() == [0, 64]
