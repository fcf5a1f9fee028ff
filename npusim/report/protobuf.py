"""The protobuf wire format, as much as a trace needs: a message is the join of its fields.

Source: Protocol Buffers documentation, "Encoding". A field is a key, ``number << 3 | wire type``,
and a value; wire type 0 is a varint, 1 eight bytes, 2 a length and as many bytes.
"""

from __future__ import annotations

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_UINT64 = 1 << 64


def varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; all but the last byte have the top bit set.

    Examples
    --------
    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(number: int, value: int) -> bytes:
    """Field of an unsigned or signed integer or an enum; negative ones in two's complement."""
    return varint(number << 3 | _VARINT) + varint(value % _UINT64)


def fixed64(number: int, value: int) -> bytes:
    """Field of eight bytes."""
    return varint(number << 3 | _FIXED64) + value.to_bytes(8, "little")


def message(number: int, content: bytes) -> bytes:
    """Field of an inner message or of bytes."""
    return varint(number << 3 | _LENGTH) + varint(len(content)) + content


def text(number: int, value: str) -> bytes:
    """Field of a string."""
    return message(number, value.encode())
