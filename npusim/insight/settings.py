"""Settings of a run as dotted paths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npusim.config.run_spec import RunSpec


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted paths of everything that is no mapping; lists are values."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, data


def setting_rows(spec: RunSpec) -> dict[str, list[tuple[str, str, str]]]:
    """Dotted path, value in base units and source of every setting, by part of the run."""
    parts: dict[str, list[tuple[str, str, str]]] = {}
    for name, part in spec.model_dump(mode="json").items():
        sources = part.pop("sources", {}) if name == "system" else {}
        parts[name] = [
            (path, value if isinstance(value, str) else json.dumps(value), sources.get(path, ""))
            for path, value in leaves(part)
        ]
    return parts
