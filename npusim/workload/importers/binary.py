"""Bounded reading of binary headers: every length is checked before memory is taken."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NoReturn

from npusim.errors import WorkloadError

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE_BYTES = 1 << 28  # of what is read into memory


def read_bytes(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """The first `most` bytes of a file.

    Raises
    ------
    WorkloadError
        If it is missing, a directory, empty or unreadable.
    """
    if path.is_dir():
        raise WorkloadError(str(path), "is a directory; a file is needed")
    try:
        with path.open("rb") as file:
            data = file.read(most)
    except OSError as error:
        raise WorkloadError(str(path), f"cannot be read: {error.strerror}") from None
    if not data:
        raise WorkloadError(str(path), "the file is empty")
    return data


class Reader:
    """A cursor over bytes; running out of them is an error that names the offset."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.at = data, where, 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count < 0 or self.at + count > len(self.data):
            self.fail(f"is cut off or damaged: {count} bytes are missing")
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def number(self, code: str) -> int | float | bool:
        """One little-endian number, `code` as in `struct`."""
        size = struct.calcsize(f"<{code}")
        value: int | float | bool = struct.unpack(f"<{code}", self.take(size))[0]
        return value

    def size(self, code: str, most: int, what: str) -> int:
        """A count of at most `most`."""
        value = int(self.number(code))
        if not 0 <= value <= most:
            self.fail(f"{what} must be 0 to {most}, found {value}")
        return value

    def varint(self) -> int:
        """A protobuf varint of at most ten bytes."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        return self.fail("holds a number of more than ten bytes")

    def fail(self, rule: str) -> NoReturn:
        """Refuse the file."""
        raise WorkloadError(self.where, f"byte {self.at}: {rule}")
