"""Address maps of a reference, bit by bit, as `BitField`s behind a channel interleave."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError, nearest
from npusim.memory.dram.address_map import FIELDS, BitField, field_bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.memory.dram.timing import DramDevice

XOR = re.compile(r"(\w+)\s*\^=\s*(\w+)\[(\d+)(?::(\d+))?\]")


def reference_map(
    entry: Mapping[str, Any], device: DramDevice, channels: int, ranks: int, where: str
) -> tuple[tuple[BitField, ...], int]:
    """(fields of the address within a channel, channel interleave in bytes) of a map.

    `fields` lists field, lsb and msb; a field may come in several pieces, low bits first. The
    channel is one piece of log2(channels) bits; the bits above it move down to close the gap.

    Raises
    ------
    ConfigError
        If a row is incomplete or the channel bits do not fit; that the map uses every bit once is
        checked where it is used.
    """
    rows = [_row(row, f"{where}.fields[{i}]") for i, row in enumerate(entry.get("fields", ()))]
    if not rows:
        raise ConfigError(f"{where}.fields", "has at least one field", entry.get("fields"))
    if all(field != "Row" for field, _, _ in rows):
        raise ConfigError(f"{where}.fields", "has a Row", [field for field, _, _ in rows])
    cut = [(lsb, bits) for field, lsb, bits in rows if field == "Channel" and bits]
    width = sum(bits for _, bits in cut)
    if len(cut) > 1 or 1 << width != channels:
        rule = f"the channel is one piece of bits for {channels} channels"
        raise ConfigError(f"{where}.fields", rule, cut)
    at = cut[0][0] if cut else 0
    fields, used = [], {"Rank": 0 if ranks == 1 else _sid_bits(device)}
    for field, lsb, bits in sorted(rows, key=lambda row: row[1]):
        if field == "Channel" or bits == 0:
            continue
        if field not in FIELDS and field != "Sid":
            raise ConfigError(f"{where}.fields", "no such field", field, nearest(field, FIELDS))
        place = lsb - width if cut and lsb > at else lsb
        name = "Rank" if field == "Sid" else field
        fields.append(BitField(name, place, bits, used.get(field, 0)))
        used[field] = used.get(field, 0) + bits
    fields += _hashes(entry.get("xor"), field_bits(device, ranks), where)
    return tuple(fields), 1 << at if cut else device.burst_bytes


def _sid_bits(device: DramDevice) -> int:
    """Bits of the stack ID, which lie below those of the rank."""
    return device.stack_ids.bit_length() - 1


def _row(row: Mapping[str, Any], where: str) -> tuple[str, int, int]:
    """(field, lowest bit, bits) of one row."""
    try:
        field, lsb, msb = str(row["field"]), int(row["lsb"]), int(row["msb"])
    except (KeyError, TypeError, ValueError):
        raise ConfigError(where, "has field, lsb and msb", row) from None
    if not 0 <= lsb <= msb + 1:
        raise ConfigError(where, "0 <= lsb <= msb", (lsb, msb))
    return field, lsb, msb - lsb + 1


def _hashes(text: str | None, bits: Mapping[str, int], where: str) -> list[BitField]:
    """XOR hashes of a text such as `Bank ^= Row[1:0]; BankGroup ^= Row[3:2]`."""
    if not text:
        return []
    found = XOR.findall(text)
    if len(found) != text.count("^="):
        raise ConfigError(f"{where}.xor", "hashes read like Bank ^= Row[1:0]", text)
    fields = []
    for target, source, high, low in found:
        if source != "Row":
            raise ConfigError(f"{where}.xor", "only row bits are XORed into a field", text)
        name = "Rank" if target == "Sid" else target
        first, last = int(low or high), int(high)
        if last - first + 1 > bits.get(name, 0):
            rule = f"{target} has {bits.get(name, 0)} bits"
            raise ConfigError(f"{where}.xor", rule, f"Row[{high}:{low}]")
        fields.append(BitField(name, first, last - first + 1, xor_row=True))
    return fields
