"""The journal of a search: what a study logs, in memory, written to its file batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna.storages.journal import BaseJournalBackend, JournalFileBackend

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class BatchedJournal(BaseJournalBackend):
    """Journal of one process; `flush` makes everything logged so far durable with one write.

    Optuna's own file backend waits for the disk at every suggestion and reads the file back.
    """

    def __init__(self, path: Path) -> None:
        self._file = JournalFileBackend(str(path))
        self._logs: list[dict[str, Any]] = []
        self._written = 0

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Logs from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Keep logs until the next `flush`."""
        self._logs += logs

    def flush(self) -> None:
        """Write what the file lacks."""
        self._file.append_logs(self._logs[self._written :])
        self._written = len(self._logs)
