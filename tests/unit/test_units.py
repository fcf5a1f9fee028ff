"""Text with units becomes exact numbers and comes back unchanged."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim import units
from npusim.units import Dimension, dimension_of_key, format_quantity, parse_quantity

INTEGRAL = [
    units.BYTES,
    units.BITS,
    units.HZ,
    units.TRANSFERS_PER_S,
    units.BYTES_PER_S,
    units.BYTES_PER_CYCLE,
    units.PS,
    units.ELEMS,
]
FRACTIONAL = [units.NS, units.SECONDS, units.CYCLES, units.PJ, units.WATTS]


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("64 KiB", units.BYTES, 65_536),  # 64 * 1024
        ("64 kB", units.BYTES, 64_000),
        ("24 GiB", units.BYTES, 25_769_803_776),  # 24 * 2^30
        ("1.5 MiB", units.BYTES, 1_572_864),  # 1.5 * 2^20
        ("0.1 kB", units.BYTES, 100),  # exact, though 0.1 is no binary fraction
        ("1e9 B", units.BYTES, 1_000_000_000),
        ("0 B", units.BYTES, 0),
        ("64 bit", units.BITS, 64),
        ("16 Gibit", units.BITS, 17_179_869_184),  # 16 * 2^30
        ("1.8 GHz", units.HZ, 1_800_000_000),
        ("6400 MT/s", units.TRANSFERS_PER_S, 6_400_000_000),
        ("33.8 GB/s", units.BYTES_PER_S, 33_800_000_000),
        ("8 Gbit/s", units.BYTES_PER_S, 1_000_000_000),
        ("32 B/cycle", units.BYTES_PER_CYCLE, 32),
        ("256 bit/cycle", units.BYTES_PER_CYCLE, 32),
        ("12 ns", units.PS, 12_000),
        ("312.5 ns", units.PS, 312_500),
        ("5 us", units.PS, 5_000_000),
        ("5 µs", units.PS, 5_000_000),  # micro sign
        ("5 μs", units.PS, 5_000_000),  # Greek mu
        ("13.75 ns", units.NS, Fraction(55, 4)),
        ("12 ns", units.NS, 12),
        ("500 ms", units.SECONDS, Fraction(1, 2)),
        ("1.8 cycles", units.CYCLES, Fraction(9, 5)),
        ("1 cycle", units.CYCLES, 1),
        ("16/15 cycles", units.CYCLES, Fraction(16, 15)),
        ("128 elems", units.ELEMS, 128),
        ("2.5 pJ", units.PJ, Fraction(5, 2)),
        ("40 fJ", units.PJ, Fraction(1, 25)),
        ("16 W", units.WATTS, 16),
        ("250 mW", units.WATTS, Fraction(1, 4)),
        ("  33.8GB/s ", units.BYTES_PER_S, 33_800_000_000),
    ],
)
def test_a_quantity_becomes_its_exact_value(text, dimension, expected):
    value = parse_quantity(text, dimension)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "dimension", "reason"),
    [
        ("10", units.BYTES_PER_S, "has no unit"),
        ("1e3", units.CYCLES, "has no unit"),
        ("", units.BYTES, "finite decimal number"),
        ("GB", units.BYTES, "finite decimal number"),
        ("NaN", units.PS, "finite decimal number"),
        ("nan ns", units.PS, "finite decimal number"),
        ("inf ns", units.PS, "finite decimal number"),
        ("1,000 B", units.BYTES, "finite decimal number"),
        ("1 B B", units.BYTES, "finite decimal number"),
        ("0x10 B", units.BYTES, "finite decimal number"),
        ("1e999999999 B", units.BYTES, "finite decimal number"),
        ("1/0 cycles", units.CYCLES, "divides by zero"),
        ("-1 B", units.BYTES, "is negative"),
        ("0.3 B", units.BYTES, "is not a whole number of B"),
        ("0.0005 ns", units.PS, "is not a whole number of ps"),
        ("12 ns", units.BYTES, "has the unit 'ns', which does not measure _bytes"),
        ("64 B", units.BITS, "has the unit 'B', which does not measure _bits"),
        ("6400 MT/s", units.HZ, "has the unit 'MT/s', which does not measure _hz"),
        ("3.2 GHz", units.TRANSFERS_PER_S, "which does not measure _transfers_per_s"),
        ("10 gb/s", units.BYTES_PER_S, "did you mean 'GB/s'?"),
        ("64 KB", units.BYTES, "did you mean 'kB'?"),
    ],
)
def test_a_bad_quantity_is_refused_with_text_reason_units_and_example(text, dimension, reason):
    with pytest.raises(ValueError, match="allowed units") as refusal:
        parse_quantity(text, dimension)
    message = str(refusal.value)
    assert message.startswith(repr(text))
    assert reason in message
    assert dimension.base in message
    assert message.endswith(f"example: {dimension.example!r}")


@pytest.mark.parametrize(
    ("key", "dimension"),
    [
        ("capacity_bytes", units.BYTES),
        ("peak_bytes_per_s", units.BYTES_PER_S),
        ("port_bytes_per_cycle", units.BYTES_PER_CYCLE),
        ("bytes_per_cycle", units.BYTES_PER_CYCLE),
        ("width_bits", units.BITS),
        ("clock_hz", units.HZ),
        ("data_rate_hz", units.TRANSFERS_PER_S),
        ("pin_transfers_per_s", units.TRANSFERS_PER_S),
        ("latency_ps", units.PS),
        ("tRFC_ns", units.NS),
        ("window_s", units.SECONDS),
        ("convert_cycles", units.CYCLES),
        ("lane_elems", units.ELEMS),
        ("access_pj", units.PJ),
        ("idle_w", units.WATTS),
        ("banks", None),
        ("efficiency_frac", None),
        ("nRCD", None),
        ("tokens_per_s", None),  # a rate, not seconds
        ("w", None),  # a name, not watts
        ("arrays", None),
    ],
)
def test_the_suffix_of_a_key_names_its_dimension(key, dimension):
    assert dimension_of_key(key) is dimension


@pytest.mark.parametrize("dimension", INTEGRAL + FRACTIONAL, ids=lambda d: d.suffix)
def test_the_example_in_error_messages_is_valid(dimension):
    assert parse_quantity(dimension.example, dimension) > 0


@pytest.mark.parametrize("dimension", INTEGRAL + FRACTIONAL, ids=lambda d: d.suffix)
def test_base_and_display_units_are_known_and_ascend(dimension):
    assert dimension.scales[dimension.base] == 1
    scales = [dimension.scales[symbol] for symbol in dimension.display]
    assert scales == sorted(scales)
    assert set(dimension.aliases.values()) <= set(dimension.scales)


@given(st.sampled_from(INTEGRAL + FRACTIONAL), st.integers(0, 10**24))
def test_whole_numbers_survive_text_and_back(dimension: Dimension, value: int):
    assert parse_quantity(format_quantity(value, dimension), dimension) == value


@given(
    st.sampled_from(FRACTIONAL),
    st.fractions(min_value=0, max_value=10**9, max_denominator=10**6),
)
def test_fractions_survive_text_and_back(dimension: Dimension, value: Fraction):
    assert parse_quantity(format_quantity(value, dimension), dimension) == value


@given(st.sampled_from(INTEGRAL), st.integers(1, 10**18))
def test_rounded_text_is_within_half_a_unit_of_the_fourth_digit(dimension: Dimension, value: int):
    text = format_quantity(value, dimension, digits=4)
    number, symbol = text.split()
    read_back = Fraction(number) * dimension.scales[symbol]
    assert abs(read_back - value) * 2000 <= value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_bytes(65_536), "64 KiB"),
        (units.format_bytes(123_456_789), "117.7 MiB"),  # / 2^20 = 117.738
        (units.format_bytes(0), "0 B"),
        (units.format_bytes_per_s(33_800_000_000), "33.8 GB/s"),
        (units.format_hz(1_800_000_000), "1.8 GHz"),
        (units.format_time_ps(1_234_567), "1.235 us"),
        (units.format_time_ps(1_234_567, digits=None), "1234567 ps"),
        (units.format_time_ps(Fraction(625, 2)), "312.5 ps"),
        (units.format_bytes(1_000_000_000, digits=None), "1 GB"),
        (units.format_bytes(1025, digits=None), "1025 B"),
        (format_quantity(Fraction(16, 15), units.CYCLES), "16/15 cycles"),
        (format_quantity(Fraction(1, 4000), units.PJ, digits=2), "0.25 fJ"),
    ],
)
def test_values_are_written_in_the_unit_that_reads_best(text, expected):
    assert text == expected


def test_a_negative_value_is_never_written():
    with pytest.raises(ValueError, match="never negative; got -1"):
        units.format_time_ps(-1)
