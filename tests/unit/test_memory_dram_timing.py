from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import pytest

from npusim.errors import ConfigError
from npusim.memory.dram.address_map import BitField, named_map, segments
from npusim.memory.dram.timing import (
    check_device,
    dram_device_names,
    load_dram_device,
    spacings,
)


@pytest.mark.parametrize("name", dram_device_names())
def test_every_preset_checks_itself_and_names_its_source(name):
    device = load_dram_device(name)
    check_device(device)
    assert len(device.source) > 20
    for label in ("BGlow", "RowLinear", "BankLow", "BGlowXOR"):
        segments(label, device, 1)
        segments(label, device, 2)


@pytest.mark.parametrize(
    ("name", "channels", "gb_per_s", "gib"),
    [
        ("LPDDR4X-4224", 4, 33.792, 8),  # RK3588: 64 bit x 4224 MT/s
        ("LPDDR5-6400", 16, 204.8, 16),  # Jetson AGX Orin: 256 bit
        ("LPDDR5X-8533", 8, 136.528, 16),
        ("DDR4-3200", 1, 25.6, 8),
        ("DDR5-5600", 4, 89.6, 32),
        ("HBM2-2000", 8, 256.0, 16),
        ("HBM2E-3200", 32, 1638.4, 64),  # Ascend 910B class
        ("HBM3-6400", 32, 1638.4, 32),  # TPU v6e class
    ],
)
def test_peak_and_capacity(name, channels, gb_per_s, gib):
    device = load_dram_device(name)
    assert float(device.channel_peak_bytes_per_s * channels) / 1e9 == pytest.approx(gb_per_s, 1e-6)
    assert device.channel_bytes * channels == gib << 30


def test_spacings_fold_command_lengths_in():
    # HBM3: 2 ticks per CK; ACT 3, column 2, PRE 1 ticks. Values of the reference's constraint list
    s = spacings(load_dram_device("HBM3-6400"))
    assert (s["RCDRD"], s["RAS"], s["RP"], s["WR"], s["RFC"]) == (63, 92, 50, 91, 1118)
    s = spacings(load_dram_device("LPDDR5-6400"))
    assert (s["RL"], s["RTW"], s["WTRS"], s["WTRL"], s["WR"]) == (19, 12, 16, 23, 39)
    s = spacings(load_dram_device("DDR4-3200"))
    assert (s["RTW"], s["WTRS"], s["WTRL"], s["WR"], s["RCREF"]) == (12, 24, 32, 44, 74)


def test_clock_of_lpddr5x_is_not_a_whole_number_of_picoseconds():
    assert load_dram_device("LPDDR5X-8533").cycle_ps == Fraction(8_000_000, 8533)


def test_an_unknown_device_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'LPDDR5-6400'"):
        load_dram_device("LPDR5-6400")


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("nRC", 60, "nRC >= nRAS"),
        ("nCCDL", 2, "nCCDL >= nCCDS"),
        ("nFAW", 8, "nFAW >= 3"),
        ("nREFI", 576 + 74, "nRFC . nRC < nREFI"),
        ("nRP", -1, "at least 0"),
        ("nXYZ", 1, "unknown"),
    ],
)
def test_contradicting_timings_are_refused(key, value, rule):
    device = load_dram_device("DDR4-3200")
    wrong = replace(device, timing=MappingProxyType({**device.timing, key: value}))
    with pytest.raises(ConfigError, match=rule):
        check_device(wrong)


def test_wrong_density_is_refused():
    with pytest.raises(ConfigError, match="density = rows x columns x banks x width"):
        check_device(replace(load_dram_device("DDR4-3200"), rows=32768))


def test_a_map_must_be_a_bijection():
    device = load_dram_device("LPDDR5-6400")
    fields = named_map("BGlow", device, 1)
    assert segments(fields, device, 1) == segments("BGlow", device, 1)
    lost = tuple(f for f in fields if f.field != "Bank")
    with pytest.raises(ConfigError, match="every address bit above the burst once"):
        segments(lost, device, 1)
    twice = (*lost, BitField("Bank", 5, 2))
    with pytest.raises(ConfigError, match="every address bit above the burst once"):
        segments(twice, device, 1)
    with pytest.raises(ConfigError, match="did you mean 'Bank'"):
        segments((*lost, BitField("Bnak", 13, 2)), device, 1)
    split = (*lost, BitField("Bank", 13, 1), BitField("Bank", 14, 1, to=0))
    with pytest.raises(ConfigError, match="every field bit once"):
        segments(split, device, 1)
