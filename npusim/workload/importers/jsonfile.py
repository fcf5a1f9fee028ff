"""JSON files, plain or gzipped, with bounded size."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

from npusim.errors import WorkloadError
from npusim.workload.importers.binary import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

MAX_TEXT_BYTES = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"


def read_json(path: Path) -> Any:
    """Parse a JSON file.

    Raises
    ------
    WorkloadError
        If it is unreadable, too large, too deep or malformed (with line and column).
    """
    where = str(path)
    data = read_bytes(path, MAX_TEXT_BYTES)
    if data[:2] == _GZIP_MAGIC:
        data = _unzipped(data, where)
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        rule = f"line {error.lineno} column {error.colno}: not valid JSON: {error.msg}"
        raise WorkloadError(where, rule) from None
    except UnicodeDecodeError as error:
        raise WorkloadError(where, f"is not UTF-8 text (byte {error.start})") from None
    except (RecursionError, ValueError) as error:
        raise WorkloadError(where, f"cannot be read as JSON: {error}"[:200]) from None


def _unzipped(data: bytes, where: str) -> bytes:
    """Contents of a gzip file, refused when they are absurdly large."""
    try:
        unpack = zlib.decompressobj(wbits=31)
        text = unpack.decompress(data, MAX_TEXT_BYTES)
        if unpack.unconsumed_tail:
            raise WorkloadError(where, f"unpacks to more than {MAX_TEXT_BYTES} bytes")
        if not unpack.eof:
            raise WorkloadError(where, "is a gzip file that is cut off")
    except (zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(where, f"is a damaged gzip file: {error}") from None
    return text
