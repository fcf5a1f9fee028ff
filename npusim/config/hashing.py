"""A hash of a spec that does not depend on spelling, key order or provenance texts."""

from __future__ import annotations

import hashlib
import json

from npusim.config.run_spec import PATTERN_KEYS, RunSpec, WorkloadConfig
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig

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
    if isinstance(spec, (WorkloadConfig, RunSpec)):
        workload = data["workload"] if isinstance(spec, RunSpec) else data
        for key in PATTERN_KEYS:  # younger than the first hashes, which stay while none is set
            if workload[key] is None:
                del workload[key]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
