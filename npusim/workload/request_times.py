"""Times of request traces as whole picoseconds, exactly as written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from npusim.errors import WorkloadError
from npusim.workload.request_statistics import PS_PER_S

_MAX_S = 10**12  # 31,000 years; keeps the exact arithmetic small
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,12}))?\s*(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def number_ps(value: object, unit_ps: int, where: str, key: str) -> int:
    """A time given as a number, or the text of one, in units of `unit_ps`; rounded to 1 ps.

    Raises
    ------
    WorkloadError
        If it is no finite number of at least 0.
    """
    rule = f"{key} must be a number of at least 0"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise WorkloadError(where, rule, str(value)[:80])
    try:
        number = Decimal(str(value))  # the shortest text of a float is what the file says
    except (InvalidOperation, ValueError):
        raise WorkloadError(where, rule, str(value)[:80]) from None
    if not number.is_finite() or not 0 <= number <= _MAX_S * PS_PER_S // unit_ps:
        raise WorkloadError(where, f"{rule} and at most {_MAX_S} s", str(value)[:80])
    return int((number * unit_ps).to_integral_value())


def date_ps(text: str, where: str, key: str) -> int:
    """A date and time such as ``2023-11-16 18:17:03.9799600``, since 1970.

    Up to twelve digits of a second; without an offset it is UTC.

    Raises
    ------
    WorkloadError
        If it is no such date.
    """
    match = _DATE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        whole = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4] or '+00:00'}")
        seconds = (whole - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        rule = f"{key} must be a date and time such as 2023-11-16 18:17:03.9799600"
        raise WorkloadError(where, rule, text[:80]) from None
    return seconds * PS_PER_S + int((match[3] or "0").ljust(12, "0"))
