"""A hash of a spec that does not depend on spelling, key order or provenance texts."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from npusim.config.run_spec import PATTERN_KEYS, RunSpec
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig

#: keys younger than the first published hashes, which stay as they are while these are not set
_YOUNG = frozenset({*PATTERN_KEYS, "data_rate_hz"})
_PROVENANCE = {"description", "sources", "calibration"}


def spec_hash(spec: Spec) -> str:
    """SHA-256 of the canonical JSON of a spec.

    Parameters
    ----------
    spec : Spec
        Any configuration model. The texts of a system (``description``, ``sources``,
        ``calibration``) are left out, also inside a `RunSpec`.

    Returns
    -------
    str
        64 hexadecimal digits; equal for equal specs on every platform.
    """
    exclude: set[str] | dict[str, set[str]] | None = None
    if isinstance(spec, SystemConfig):
        exclude = _PROVENANCE
    elif isinstance(spec, RunSpec):
        exclude = {"system": _PROVENANCE}
    data = spec.model_dump(mode="json", exclude=exclude)
    text = json.dumps(_without_unset(data), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_unset(data: Any) -> Any:
    """The data without young keys that are not set."""
    if not isinstance(data, dict):
        return data
    kept = ((key, value) for key, value in data.items() if value is not None or key not in _YOUNG)
    return {key: _without_unset(value) for key, value in kept}
