"""The key of a point: everything that can change its result."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim import paths
from npusim._version import __version__
from npusim.config.hashing import spec_hash
from npusim.errors import ConfigError
from npusim.workload.routing import ExpertRouting
from npusim.workload.speculation import MTP_DRAFT

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec, WorkloadConfig


class Identity:
    """Keys of the points of one plan; every file is read once."""

    def __init__(self) -> None:
        self._contents: dict[Path, str] = {}

    def key(self, run: RunSpec) -> str:
        """Hash of a configuration, the bytes of the files it reads and the version.

        Raises
        ------
        NpusimError
            If a file is missing.
        """
        contents = [self._content(file) for file in _files(run.workload)]
        return _hash("\n".join((__version__, spec_hash(run), *contents)).encode())

    def _content(self, file: Path) -> str:
        """Hash of a file's bytes; ConfigError if it cannot be read."""
        if file not in self._contents:
            try:
                self._contents[file] = _hash(file.read_bytes())
            except OSError as error:
                raise ConfigError(str(file), "cannot be read", error.strerror) from None
        return self._contents[file]


def refused_key(data: dict[str, Any]) -> str:
    """Hash of values that make no configuration."""
    return _hash(repr((__version__, data)).encode())


def _files(workload: WorkloadConfig) -> list[Path]:
    """Files that a workload reads: its model, its draft model, its routing trace."""
    files = [paths.model_file(workload.model)]
    if workload.draft_model not in (None, MTP_DRAFT):
        files.append(paths.model_file(workload.draft_model))
    if ExpertRouting(workload.expert_routing).is_trace:
        files.append(Path(workload.expert_routing))
    return files


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
