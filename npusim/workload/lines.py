"""Lines of text files, one at a time and of bounded length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_BYTES = 1 << 24
_MARK = b"\xef\xbb\xbf"  # some editors begin UTF-8 files with it


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file with their ends; never more than one in memory.

    Raises
    ------
    WorkloadError
        If the file cannot be read, or a line is too long or not UTF-8 (with its number).
    """
    where = str(path)
    if path.is_dir():
        raise WorkloadError(where, "is a directory; a file is needed")
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                yield _text(line.removeprefix(_MARK) if number == 1 else line, number, where)
    except OSError as error:
        raise WorkloadError(where, f"cannot be read: {error.strerror}") from None


def _text(line: bytes, number: int, where: str) -> str:
    place = f"{where}: line {number}"
    if len(line) > MAX_LINE_BYTES:
        raise WorkloadError(place, f"a line has at most {MAX_LINE_BYTES} bytes")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WorkloadError(place, f"is not UTF-8 text (byte {error.start})") from None
