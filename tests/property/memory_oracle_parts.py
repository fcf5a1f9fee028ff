"""What the plain DRAM controllers of `memory_oracle` are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

INFINITY = float("inf")


def edge(period: Fraction, cycle: int) -> int:
    return math.floor(cycle * period)


def cycle_from(period: Fraction, ps: float) -> int:
    return math.ceil(Fraction(ps) / period)


@dataclass(eq=False)
class Request:
    bank: int
    row: int
    address: int
    is_write: bool
    accepted: int
    number: int
    axi: Any
    merged: list[Request] = field(default_factory=list)


@dataclass
class Bank:
    group: int
    rank: int
    row: int | None = None
    act_ok: int = 0
    pre_ok: int = 0
    rd_ok: int = 0
    wr_ok: int = 0
    served: int = 0
    is_listed: bool = False


@dataclass
class Rank:
    pc: int
    banks: list[int]
    act_ok: int = 0
    pre_ok: int = 0
    rd_ok: int = 0
    wr_ok: int = 0
    ref_ok: int = 0
    refpb_ok: int = 0
    wck_end: int = 0
    preab_ok: int = 0
    activates: list[int] = field(default_factory=list)
