"""Quantities with units to exact numbers and back: ``64 KiB`` is 65536, ``12 ns`` is 12000 ps.

The suffix of a configuration key names its dimension and base unit (``capacity_bytes``,
``latency_ps``). Text becomes an exact ``int`` or ``Fraction`` here, once; no float is involved.
KiB is 2^10 and kB is 10^3. Symbols keep their case: ``MB`` is not ``Mb`` is not ``mb``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor, log10
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DECIMAL = MappingProxyType({"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12})
_BINARY = MappingProxyType({"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40})
_SMALL = MappingProxyType({"p": -12, "n": -9, "u": -6, "m": -3, "": 0})

# Bounded digits and exponent: a typing slip must not build a number with a billion digits.
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,2})?|\d{1,40}/\d{1,40})")
_QUANTITY = re.compile(r"\s*([^\s]*?)\s*([A-Za-zµμ][A-Za-zµμ]*(?:/[A-Za-z]+)?)?\s*")


@dataclass(frozen=True, eq=False)
class Dimension:
    """What a key measures, in which base unit, and how users may write it.

    Attributes
    ----------
    suffix : str
        Ending of the keys that have this dimension.
    base : str
        Symbol of the base unit; its scale is 1.
    scales : Mapping[str, Fraction]
        Base units per unit, by symbol.
    example : str
        A valid quantity for error messages.
    is_integral : bool
        Whether the base unit is indivisible.
    display : tuple[str, ...]
        Symbols used for rounded text, in ascending order.
    aliases : Mapping[str, str]
        Other accepted spellings of symbols in `scales`.
    """

    suffix: str
    base: str
    scales: Mapping[str, Fraction]
    example: str
    is_integral: bool
    display: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)


def _scaled(symbol: str, *prefixes: Mapping[str, int]) -> dict[str, Fraction]:
    """Scales of ``symbol`` under every prefix of the given tables."""
    return {p + symbol: Fraction(scale) for table in prefixes for p, scale in table.items()}


def _small_scaled(symbol: str, base_exponent: int) -> dict[str, Fraction]:
    """Scales of p, n, u, m and plain ``symbol`` relative to 10^``base_exponent``."""
    return {p + symbol: Fraction(10) ** (e - base_exponent) for p, e in _SMALL.items()}


_MICRO = MappingProxyType({"µs": "us", "μs": "us"})  # micro sign and Greek mu
_TIME = ("ps", "ns", "us", "ms", "s")
_BITS_PER_S = {symbol: scale / 8 for symbol, scale in _scaled("bit/s", _DECIMAL).items()}

BYTES = Dimension(
    suffix="_bytes",
    base="B",
    scales=_scaled("B", _DECIMAL, _BINARY),
    example="64 KiB",
    is_integral=True,
    display=("B", "KiB", "MiB", "GiB", "TiB"),
)
BITS = Dimension(
    suffix="_bits",
    base="bit",
    scales=_scaled("bit", _DECIMAL, _BINARY),
    example="64 bit",
    is_integral=True,
    display=("bit", "kbit", "Mbit", "Gbit", "Tbit"),
    aliases={"bits": "bit"},
)
HZ = Dimension(
    suffix="_hz",
    base="Hz",
    scales=_scaled("Hz", _DECIMAL),
    example="1.8 GHz",
    is_integral=True,
    display=("Hz", "kHz", "MHz", "GHz"),
)
TRANSFERS_PER_S = Dimension(
    suffix="_transfers_per_s",
    base="T/s",
    scales=_scaled("T/s", _DECIMAL),
    example="6400 MT/s",
    is_integral=True,
    display=("T/s", "kT/s", "MT/s"),
)
BYTES_PER_S = Dimension(
    suffix="_bytes_per_s",
    base="B/s",
    scales=_scaled("B/s", _DECIMAL, _BINARY) | _BITS_PER_S,
    example="33.8 GB/s",
    is_integral=True,
    display=("B/s", "kB/s", "MB/s", "GB/s", "TB/s"),
)
BYTES_PER_CYCLE = Dimension(
    suffix="_bytes_per_cycle",
    base="B/cycle",
    scales=_scaled("B/cycle", _DECIMAL, _BINARY) | {"bit/cycle": Fraction(1, 8)},
    example="32 B/cycle",
    is_integral=True,
    display=("B/cycle", "KiB/cycle"),
)
PS = Dimension("_ps", "ps", _small_scaled("s", -12), "12 ns", True, _TIME, _MICRO)
NS = Dimension("_ns", "ns", _small_scaled("s", -9), "13.75 ns", False, _TIME, _MICRO)
SECONDS = Dimension("_s", "s", _small_scaled("s", 0), "0.5 s", False, _TIME, _MICRO)
CYCLES = Dimension(
    suffix="_cycles",
    base="cycles",
    scales={"cycles": Fraction(1)},
    example="1.8 cycles",
    is_integral=False,
    display=("cycles",),
    aliases={"cycle": "cycles"},
)
ELEMS = Dimension(
    suffix="_elems",
    base="elems",
    scales={"elems": Fraction(1)},
    example="128 elems",
    is_integral=True,
    display=("elems",),
    aliases={"elem": "elems"},
)
PJ = Dimension(
    suffix="_pj",
    base="pJ",
    scales=_small_scaled("J", -12) | {"fJ": Fraction(1, 1000)},
    example="2.5 pJ",
    is_integral=False,
    display=("fJ", "pJ", "nJ", "uJ", "mJ", "J"),
)
WATTS = Dimension(
    suffix="_w",
    base="W",
    scales=_small_scaled("W", 0) | {"kW": Fraction(1000)},
    example="16 W",
    is_integral=False,
    display=("uW", "mW", "W", "kW"),
)

_DIMENSIONS = (
    *(BYTES, BITS, HZ, TRANSFERS_PER_S, BYTES_PER_S, BYTES_PER_CYCLE),
    *(PS, NS, SECONDS, CYCLES, ELEMS, PJ, WATTS),
)

# Longest suffix first. A DRAM's data rate counts transfers, so that a clock written in MT/s
# (twice the clock of a double-data-rate bus) is refused instead of misread.
_BY_SUFFIX: tuple[tuple[str, Dimension], ...] = tuple(
    sorted(
        [("data_rate_hz", TRANSFERS_PER_S), *((d.suffix, d) for d in _DIMENSIONS)],
        key=lambda entry: (-len(entry[0]), entry[0]),
    )
)


def dimension_of_key(key: str) -> Dimension | None:
    """Dimension that the suffix of a configuration key demands.

    Parameters
    ----------
    key : str
        One key, not a dotted path: an ending such as ``_bytes``, or just ``bytes``.

    Returns
    -------
    Dimension or None
        None for counts, fractions (``_frac``), names, and rates outside the table
        (``tokens_per_s`` is not a number of seconds).

    Examples
    --------
    >>> dimension_of_key("peak_bytes_per_s").base
    'B/s'
    >>> dimension_of_key("banks") is None
    True
    """
    for suffix, dimension in _BY_SUFFIX:
        if key.endswith(suffix):
            return None if key.endswith("per" + suffix) else dimension
        if key == suffix[1:] and len(key) > 1:  # `bytes_per_cycle`; but `s` and `w` are names
            return dimension
    return None


def parse_quantity(text: str, dimension: Dimension) -> int | Fraction:
    """Exact value of a quantity in the base unit of its dimension.

    Parameters
    ----------
    text : str
        A decimal number (``1.8``, ``1e9``) or ratio (``16/15``), and a unit.
    dimension : Dimension
        What the quantity measures.

    Returns
    -------
    int or Fraction
        ``int`` whenever the value is a whole number of base units, which it always is in an
        integral dimension; otherwise a ``Fraction``.

    Raises
    ------
    ValueError
        If the unit is missing, unknown or of another dimension, if the number is malformed,
        negative or not finite, or if an integral base unit would have to be divided.

    Examples
    --------
    >>> parse_quantity("64 KiB", BYTES)
    65536
    >>> parse_quantity("1.8 cycles", CYCLES)
    Fraction(9, 5)
    """
    match = _QUANTITY.fullmatch(text)
    number, symbol = match.groups() if match else (text, None)
    if number.lower().lstrip("+-") in ("nan", "inf", "infinity", ""):
        number, symbol = text.strip(), None
    if not _NUMBER.fullmatch(number):
        raise ValueError(_refusal(text, "does not start with a finite decimal number", dimension))
    if symbol is None:
        raise ValueError(_refusal(text, "has no unit", dimension))
    value = _fraction(number, text, dimension) * _scale(symbol, text, dimension)
    if value < 0:
        raise ValueError(_refusal(text, "is negative", dimension))
    if value.denominator == 1:
        return value.numerator
    if dimension.is_integral:
        reason = f"is not a whole number of {dimension.base}"
        raise ValueError(_refusal(text, reason, dimension))
    return value


def _fraction(number: str, text: str, dimension: Dimension) -> Fraction:
    """Exact value of a matched number."""
    try:
        return Fraction(number)
    except ZeroDivisionError:
        raise ValueError(_refusal(text, "divides by zero", dimension)) from None


def _scale(symbol: str, text: str, dimension: Dimension) -> Fraction:
    """Base units per `symbol`; refuse a symbol that the dimension does not know."""
    canonical = dimension.aliases.get(symbol, symbol)
    if canonical in dimension.scales:
        return dimension.scales[canonical]
    reason = f"has the unit {symbol!r}, which does not measure {dimension.suffix}"
    same = [known for known in dimension.scales if known.lower() == canonical.lower()]
    if same:
        reason += f" (did you mean {' or '.join(map(repr, same))}?)"
    raise ValueError(_refusal(text, reason, dimension))


def _refusal(text: str, reason: str, dimension: Dimension) -> str:
    """One sentence: the text, what is wrong, the allowed units and an example."""
    units = ", ".join(dimension.scales)
    return f"{text!r} {reason}; allowed units: {units}; example: {dimension.example!r}"


def format_quantity(value: int | Fraction, dimension: Dimension, digits: int | None = None) -> str:
    """Text of a quantity in the unit that reads best.

    Parameters
    ----------
    value : int or Fraction
        Not negative, in base units.
    dimension : Dimension
        What the value measures.
    digits : int, optional
        Significant digits for people. None (default) is exact: `parse_quantity` gives the value
        back, in the shortest unit.

    Returns
    -------
    str
        Number, space, unit.

    Raises
    ------
    ValueError
        If the value is negative.

    Examples
    --------
    >>> format_quantity(33_800_000_000, BYTES_PER_S)
    '33.8 GB/s'
    >>> format_quantity(1_234_567, PS, digits=4)
    '1.235 us'
    """
    if value < 0:
        raise ValueError(f"a quantity in {dimension.base} is never negative; got {value}")
    if digits is None:
        return _exact_text(Fraction(value), dimension)
    return _rounded_text(Fraction(value), dimension, digits)


def _exact_text(value: Fraction, dimension: Dimension) -> str:
    """Shortest text that parses back to `value`; the ratio in base units if it is no decimal."""
    texts = [_decimal_text(value, 1, dimension.base)]
    texts += [
        _decimal_text(value, scale, symbol)
        for symbol, scale in dimension.scales.items()
        if value >= scale
    ]
    decimals = [text for text in texts if text is not None]
    return min(decimals, key=len) if decimals else f"{value} {dimension.base}"


def _decimal_text(value: Fraction, scale: Fraction | int, symbol: str) -> str | None:
    """Exact decimal text in units of `scale`, or None beyond twelve decimal places."""
    scaled = value / scale
    for places in range(13):
        if (scaled * 10**places).denominator == 1:
            whole, part = divmod(int(scaled * 10**places), 10**places)
            return f"{whole}.{part:0{places}d} {symbol}" if places else f"{whole} {symbol}"
    return None


def _rounded_text(value: Fraction, dimension: Dimension, digits: int) -> str:
    """Text with `digits` significant digits in the largest display unit not above `value`."""
    fitting = [s for s in dimension.display if dimension.scales[s] <= value]
    symbol = fitting[-1] if fitting else (dimension.base if not value else dimension.display[0])
    scaled = value / dimension.scales[symbol]
    places = max(digits - 1 - floor(log10(scaled)), 0) if scaled else 0
    text = f"{float(round(scaled, places)):.{places}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {symbol}"


def format_bytes(value: int, digits: int | None = 4) -> str:
    """Text of a size, ``64 KiB``; `digits` as in `format_quantity`."""
    return format_quantity(value, BYTES, digits)


def format_bytes_per_s(value: int | Fraction, digits: int | None = 4) -> str:
    """Text of a bandwidth, ``33.8 GB/s``; `digits` as in `format_quantity`."""
    return format_quantity(value, BYTES_PER_S, digits)


def format_hz(value: int | Fraction, digits: int | None = 4) -> str:
    """Text of a frequency, ``1.8 GHz``; `digits` as in `format_quantity`."""
    return format_quantity(value, HZ, digits)


def format_time_ps(value: int | Fraction, digits: int | None = 4) -> str:
    """Text of a time in picoseconds, ``12 ns``; `digits` as in `format_quantity`."""
    return format_quantity(value, PS, digits)
