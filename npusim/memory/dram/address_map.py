"""Address maps: which bits of a local address select pseudo-channel, rank, bank and row.

A map is a tuple of `BitField`s above the burst offset; together they must use every address bit
of the channel exactly once. `named_map` builds the four named ones:

=========  ===========================================================
BGlow      [PseudoChannel] BankGroup, Column, Bank, [Rank], Row
RowLinear  [PseudoChannel] Column, BankGroup, Bank, [Rank], Row
BankLow    [PseudoChannel] BankGroup, Bank, [Rank], Column, Row
BGlowXOR   BGlow, then Bank ^= low row bits, BankGroup ^= the row bits above those
=========  ===========================================================

(low to high). The channel is chosen before, by interleaving blocks over channels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.errors import ConfigError, nearest
from npusim.memory.layout import (
    TARGET_BANK,
    TARGET_BANK_XOR_ROW,
    TARGET_ROW,
)

if TYPE_CHECKING:
    from npusim.memory.dram.timing import DramDevice

FIELDS = ("PseudoChannel", "Rank", "BankGroup", "Bank", "Row", "Column")
ORDERS = {
    "BGlow": ("PseudoChannel", "BankGroup", "Column", "Bank", "Rank", "Row"),
    "RowLinear": ("PseudoChannel", "Column", "BankGroup", "Bank", "Rank", "Row"),
    "BankLow": ("PseudoChannel", "BankGroup", "Bank", "Rank", "Column", "Row"),
    "BGlowXOR": ("PseudoChannel", "BankGroup", "Column", "Bank", "Rank", "Row"),
}


@dataclass(frozen=True)
class BitField:
    """Address bits `lsb` .. `lsb + bits - 1` become bits `to` .. of `field`.

    `xor_row` adds a hash: this field's bits from `to` on are XORed with the row bits from `lsb`
    on (then `lsb` counts in the row, not in the address).
    """

    field: str
    lsb: int
    bits: int
    to: int = 0
    xor_row: bool = False


def log2_exact(value: int, where: str) -> int:
    """Exponent of a power of two."""
    if value < 1 or value & (value - 1):
        raise ConfigError(where, "is a power of two", value)
    return value.bit_length() - 1


def field_bits(device: DramDevice, ranks: int) -> dict[str, int]:
    """Bits of each field of one channel; columns count whole bursts, a rank is also a stack ID."""
    where = f"DRAM device {device.name}"
    return {
        "PseudoChannel": log2_exact(device.pseudo_channels, f"{where}.pseudo_channels"),
        "Rank": log2_exact(ranks * device.stack_ids, f"{where}.ranks x stack_ids"),
        "BankGroup": log2_exact(device.bank_groups, f"{where}.bank_groups"),
        "Bank": log2_exact(device.banks_per_group, f"{where}.banks_per_group"),
        "Row": (device.rows - 1).bit_length(),
        "Column": log2_exact(device.columns // device.burst_length, f"{where}.columns"),
    }


PIECE = re.compile(r"(\w+):(\d+)(?:-(\d+))?")
HASH = re.compile(r"(\w+)\^=Row\[(\d+)(?::(\d+))?\]")


def parse_map(text: str, device: DramDevice, ranks: int) -> tuple[BitField, ...]:
    """A map by name or bit by bit.

    Bit by bit it lists every field with its lowest and highest bit, low bits first where a field
    comes in pieces, then hashes: ``BankGroup:5-6,Column:7-12,Bank:13-14,Row:15-29;Bank^=Row[1:0]``.
    """
    if ":" not in text:
        return named_map(text, device, ranks)
    pieces, *hashes = text.replace(" ", "").split(";")
    fields, used = [], dict.fromkeys(FIELDS, 0)
    for piece in pieces.split(","):
        match = PIECE.fullmatch(piece)
        if match is None:
            raise ConfigError("address_map", "reads like Bank:13-14,Row:15-29", piece)
        name, lsb, msb = match[1], int(match[2]), int(match[3] or match[2])
        if name not in FIELDS:
            raise ConfigError("address_map", "no such field", name, nearest(name, FIELDS))
        if msb < lsb:
            raise ConfigError("address_map", "bits are lowest-highest", piece)
        fields.append(BitField(name, lsb, msb - lsb + 1, used[name]))
        used[name] += msb - lsb + 1
    for item in filter(None, hashes):
        match = HASH.fullmatch(item)
        if match is None:
            raise ConfigError("address_map", "hashes read like Bank^=Row[1:0]", item)
        first = int(match[3] or match[2])
        fields.append(BitField(match[1], first, int(match[2]) - first + 1, xor_row=True))
    return tuple(fields)


def named_map(name: str, device: DramDevice, ranks: int) -> tuple[BitField, ...]:
    """One of the named maps for this device."""
    if name not in ORDERS:
        raise ConfigError("address_map", "no such map", name, nearest(name, ORDERS))
    bits = field_bits(device, ranks)
    lsb = log2_exact(device.burst_bytes, "burst bytes")
    fields = []
    for label in ORDERS[name]:
        fields.append(BitField(label, lsb, bits[label]))
        lsb += bits[label]
    if name == "BGlowXOR":
        fields.append(BitField("Bank", 0, bits["Bank"], xor_row=True))
        fields.append(BitField("BankGroup", bits["Bank"], bits["BankGroup"], xor_row=True))
    return tuple(fields)


def check_bijection(fields: tuple[BitField, ...], device: DramDevice, ranks: int) -> None:
    """Refuse a map that loses or repeats an address bit or a field bit."""
    bits = field_bits(device, ranks)
    offset = log2_exact(device.burst_bytes, "burst bytes")
    source: list[int] = []
    target: list[tuple[str, int]] = []
    for item in fields:
        if item.field not in FIELDS:
            raise ConfigError(
                "address_map", "no such field", item.field, nearest(item.field, FIELDS)
            )
        if item.xor_row:
            is_wrong = item.field in ("Row", "Column") or item.lsb + item.bits > bits["Row"]
            if is_wrong or item.bits < 0 or item.to + item.bits > bits[item.field]:
                rule = "row bits are XORed into bits of the bank fields"
                raise ConfigError("address_map", rule, item)
            continue
        source += range(item.lsb, item.lsb + item.bits)
        target += [(item.field, item.to + i) for i in range(item.bits)]
    if sorted(source) != list(range(offset, offset + sum(bits.values()))):
        last = offset + sum(bits.values()) - 1
        rule = f"uses every address bit above the burst once, {offset} to {last}"
        raise ConfigError("address_map", rule, sorted(source))
    if sorted(target) != sorted((name, i) for name, n in bits.items() for i in range(n)):
        raise ConfigError("address_map", "sets every field bit once", sorted(target))


def segments(
    address_map: str | tuple[BitField, ...], device: DramDevice, ranks: int
) -> list[tuple[int, int, int, int]]:
    """(source bit, mask, destination bit, target) rows for `decode`, fields of a bank packed."""
    fields = parse_map(address_map, device, ranks) if isinstance(address_map, str) else address_map
    check_bijection(fields, device, ranks)
    bits = field_bits(device, ranks)
    place, base = {}, 0
    for label in ("Bank", "BankGroup", "Rank", "PseudoChannel"):
        place[label] = base
        base += bits[label]
    rows = []
    for item in sorted(fields, key=lambda f: f.xor_row):
        if item.bits == 0 or item.field == "Column":
            continue
        mask = (1 << item.bits) - 1
        if item.field == "Row":
            rows.append((item.lsb, mask, item.to, TARGET_ROW))
        else:
            kind = TARGET_BANK_XOR_ROW if item.xor_row else TARGET_BANK
            rows.append((item.lsb, mask, place[item.field] + item.to, kind))
    return rows
