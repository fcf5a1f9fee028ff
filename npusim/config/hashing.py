"""A hash of a spec that does not depend on spelling, key order or provenance texts."""

from __future__ import annotations

import hashlib
import json

from npusim.config.run_spec import RunSpec, WorkloadConfig
from npusim.config.spec import Spec
from npusim.config.system import SystemConfig

#: keys younger than the first published hashes: a workload that does not set them keeps its hash
_UNHASHED_WHILE_UNSET = (
    *("chunk_tokens", "chunk_context_len", "speculate_tokens", "accept_frac", "draft_model"),
    "mtp_layers",
)
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
        for key in _UNHASHED_WHILE_UNSET:
            if workload[key] is None:
                del workload[key]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
