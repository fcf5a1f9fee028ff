"""Files of a result: a folder proved writable beforehand, files replaced in one step."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from npusim.errors import ResultError


def prepare_directory(directory: Path | str) -> Path:
    """Create the folder of a result and prove that it can be written, before time is spent.

    Parameters
    ----------
    directory : Path or str
        Parents are created; other files in it stay.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ResultError
        If it is a file or cannot be created or written.
    """
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise ResultError("output folder", "must be a folder, not a file", str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ResultError("output folder", _rule(error), str(folder)) from None
    return folder


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part.

    Parameters
    ----------
    path : Path
        The file.
    content : bytes
        All of it.

    Raises
    ------
    ResultError
        If it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise ResultError("output file", _rule(error), str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file if it exists; ResultError if that is not allowed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ResultError("output file", _rule(error), str(path)) from None


def _rule(error: OSError) -> str:
    """What must hold, with the system's reason."""
    return f"must be writable: {error.strerror or error}"
