"""The table of DRAM standards, `dram_standards.yaml`, as plain data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from npusim.config.document import read_document

DRAM_STANDARDS = Path(__file__).parent / "dram_standards.yaml"


@cache
def dram_table() -> dict[str, Any]:
    """Blocks ``commands`` (per standard) and ``devices`` (per name); read once, not to be changed.

    Returns
    -------
    dict
        Nested dictionaries and scalars as the file has them.

    Raises
    ------
    ConfigError
        If the file is no valid YAML.
    """
    return read_document(DRAM_STANDARDS).data
