"""Bank conflicts of concurrent streams: how much slower each runs than it would alone.

A banked SRAM stores byte a in bank ``(a // interleave_bytes) mod banks``; a bank serves one word of
`port_bytes` per port and cycle. A stream asks for `width` bytes at ``base + k * stride``, access
after access. All streams of a set advance together, one access a step. The banks of its accesses
repeat after ``banks * interleave / gcd(stride, banks * interleave)`` steps; the set repeats after
the least common multiple T of these: the bank period. A stream that asks in fewer cycles than
every one counts in proportion (`rate`).

Accesses of `queue_depth` steps wait at the banks and are served in any order, those of the next
window after all of them. Window w takes ``max(L, max over b of words(w, b) / ports)`` cycles, L
its length, and an owner of streams is held up by the banks it uses in the window::

    slowdown(o) = sum over w of max(L, max over b used by o of words(w, b) / ports) / T

Requests of an overloaded bank are served alternately, so whoever uses it is held up alike. All of
it is integer arithmetic and depends on nothing but the set.

Left out: the phase of a stream that is under way when the set changes (it counts from its base),
requests of several windows in flight, conflicts of a read and a write of the same word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

#: cycles in which accesses are counted; a stream that asks in every cycle has this rate
RATE_UNIT = 1 << 16
_KNOWN_SETS = 1 << 16


@dataclass(frozen=True, slots=True)
class Banks:
    """Geometry of a banked SRAM; without `queue_depth` requests wait for a whole bank period."""

    banks: int
    port_bytes: int
    interleave_bytes: int
    ports: int = 1
    queue_depth: int | None = None

    def __post_init__(self) -> None:
        for name in ("banks", "port_bytes", "interleave_bytes", "ports"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is below 1")
        if self.interleave_bytes % self.port_bytes:
            raise ValueError(
                f"interleave_bytes={self.interleave_bytes} is no multiple of port_bytes="
                f"{self.port_bytes}"
            )
        if self.queue_depth is not None and self.queue_depth < 1:
            raise ValueError(f"queue_depth={self.queue_depth} is below 1")

    @property
    def round_bytes(self) -> int:
        """Bytes after which the banks repeat."""
        return self.banks * self.interleave_bytes


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """`count` accesses of `width` bytes, `stride` apart, `rate` of them in RATE_UNIT cycles.

    With fewer accesses than a bank period has steps, they are spread over it once.
    """

    owner: int
    base: int
    stride: int
    width: int
    count: int
    rate: int = RATE_UNIT


@dataclass(frozen=True, slots=True)
class Conflict:
    """Slowdown of each owner, ``slow[o] / unit``, and whose requests held it up.

    `blame[o]` are weights by owner: requests of the others in the banks that held up o, or its own
    where nobody else asked.
    """

    unit: int
    slow: tuple[int, ...]
    blame: tuple[tuple[int, ...], ...]

    @property
    def is_free(self) -> bool:
        """Whether nobody is held up."""
        return all(slow == self.unit for slow in self.slow)


def conflict_slowdown(streams: tuple[Stream, ...], banks: Banks) -> Fraction:
    """Slowdown of a set of streams that all use the same banks or belong together: the largest.

    Examples
    --------
    Eight banks of 4 KiB: four accesses a cycle at a stride of 32 KiB share a bank, at 4 KiB none.

    >>> banks = Banks(banks=8, port_bytes=64, interleave_bytes=4096)
    >>> lanes = lambda step: tuple(Stream(0, i * step, 4 * step, 64, 1 << 20) for i in range(4))
    >>> print(conflict_slowdown(lanes(32768), banks), conflict_slowdown(lanes(4096), banks))
    4 1
    """
    found = conflict(streams, banks)
    return Fraction(max(found.slow), found.unit)


def conflict(streams: tuple[Stream, ...], banks: Banks) -> Conflict:
    """Count one bank period of a set; sets that differ by whole rounds of banks are counted once.

    Parameters
    ----------
    streams : tuple of Stream
        At least one; owners are numbered from 0 without gaps.
    banks : Banks
        The SRAM.
    """
    first = min(stream.base for stream in streams)
    shift = first // banks.interleave_bytes * banks.interleave_bytes
    return _count(
        tuple(replace(s, base=(s.base - shift) % banks.round_bytes) for s in streams), banks
    )


@lru_cache(maxsize=_KNOWN_SETS)
def _count(streams: tuple[Stream, ...], banks: Banks) -> Conflict:
    period = lcm(*(steps_of(stream, banks) for stream in streams))
    window = period if banks.queue_depth is None else banks.queue_depth
    steps = lcm(period, window)
    owners = 1 + max(stream.owner for stream in streams)
    asked = np.zeros((owners, period, banks.banks), dtype=np.int64)
    for stream in streams:
        asked[stream.owner] += words(stream, banks, period) * stream.rate
    repeated = np.tile(asked, (1, steps // period, 1))
    asked = repeated.reshape(owners, steps // window, window, banks.banks).sum(axis=2)
    return _held_up(asked, window * banks.ports * RATE_UNIT)


def _held_up(asked: Ints, capacity: int) -> Conflict:
    """From requests (owner, window, bank) and what one bank serves in a window."""
    load = asked.sum(axis=0)
    window = np.arange(load.shape[0])
    slow, blame = [], []
    for owner in range(len(asked)):
        used = np.where(asked[owner] > 0, load, 0)
        worst = used.argmax(axis=1)
        cost = used[window, worst]
        slow.append(int(np.maximum(cost, capacity).sum()))
        late = np.flatnonzero(cost > capacity)
        others = asked[:, late, worst[late]].sum(axis=1)
        if others.sum() > others[owner]:
            others[owner] = 0
        blame.append(tuple(others.tolist()))
    return Conflict(capacity * load.shape[0], tuple(slow), tuple(blame))


def steps_of(stream: Stream, banks: Banks) -> int:
    """Steps after which the banks of a stream's accesses repeat."""
    return banks.round_bytes // gcd(stream.stride, banks.round_bytes)


def words(stream: Stream, banks: Banks, period: int) -> Ints:
    """Words asked of each bank at each step of a period, shape (period, banks)."""
    step = np.arange(period, dtype=np.int64)
    if stream.count < period:
        step = step * stream.count // period
    start = stream.base + step * stream.stride
    first = start // banks.port_bytes
    number = (start + stream.width - 1) // banks.port_bytes - first + 1
    row = np.repeat(np.arange(period), number)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    bank = (first[row] + nth) * banks.port_bytes // banks.interleave_bytes % banks.banks
    counts = np.bincount(row * banks.banks + bank, minlength=period * banks.banks)
    result: Ints = counts.reshape(period, banks.banks)
    return result
