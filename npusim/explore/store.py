"""Results of finished points, durable one by one.

SQLite with a write-ahead log and full synchronisation: a point is on disk before the next one is
asked for, and a process that dies at any moment leaves a store that opens. One process at a time.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

from npusim._version import __version__
from npusim.errors import ResultError
from npusim.explore.worker import Outcome

if TYPE_CHECKING:
    from pathlib import Path

STORE_FILE = "sweep.sqlite"
FORMAT = "1"
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS points (
    key TEXT PRIMARY KEY, metrics TEXT NOT NULL, error TEXT, cpu_s REAL NOT NULL
);
"""


class Store:
    """The store of one sweep in a folder.

    Parameters
    ----------
    folder : Path
        Folder of the sweep; it exists.
    digest : str
        Identity of the plan.
    resume : bool
        Whether to go on with a store that has points.

    Raises
    ------
    ResultError
        If the store is another sweep's or version's, in use, damaged, not writable, or has points
        and `resume` is false.
    """

    def __init__(self, folder: Path, digest: str, *, resume: bool) -> None:
        self._path = folder / STORE_FILE
        self._connection = self._opened()
        try:
            self._check({"format": FORMAT, "npusim_version": __version__, "plan": digest}, resume)
        except BaseException:
            self.close()
            raise

    def outcomes(self) -> dict[str, Outcome]:
        """Every finished point by its key."""
        rows = self._do("SELECT key, metrics, error, cpu_s FROM points")
        return {key: Outcome(key, json.loads(m), e, s) for key, m, e, s in rows}

    def add(self, outcome: Outcome) -> None:
        """Keep a finished point; it is on disk when this returns."""
        row = (outcome.key, json.dumps(outcome.metrics), outcome.error, outcome.cpu_s)
        self._do("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", row)

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def _opened(self) -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(self._path, timeout=0.2, isolation_level=None)
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(_TABLES)
            (state,) = connection.execute("PRAGMA quick_check").fetchone()
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise self._refusal(error) from None
        if state != "ok":
            connection.close()
            raise ResultError(str(self._path), "is damaged", state, "move it away to start over")
        return connection

    def _check(self, wanted: dict[str, str], resume: bool) -> None:
        """Refuse a store that is not this sweep's; mark a new one."""
        found: dict[str, str] = dict(self._do("SELECT name, value FROM facts"))
        if not found:
            self._do("BEGIN")
            for item in wanted.items():
                self._do("INSERT INTO facts VALUES (?, ?)", item)
            self._do("COMMIT")
            return
        for name, value in wanted.items():
            if found.get(name) != value:
                words = {"plan": "the points of another sweep"}
                text = words.get(name, f"{name} {found.get(name)}, this is {value}")
                hint = "use another --out, or the file and version it was made with"
                raise ResultError(str(self._path), f"holds {text}", hint=hint)
        ((count,),) = self._do("SELECT count(*) FROM points")
        if count and not resume:
            hint = "go on with --resume, or use another --out"
            raise ResultError(str(self._path), "already has finished points", count, hint)

    def _do(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._refusal(error) from None

    def _refusal(self, error: sqlite3.Error) -> ResultError:
        hint = None
        if "locked" in str(error):
            hint = "another sweep is using it"
        elif isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        ):
            hint = "it is damaged; move it away to start over"
        return ResultError(str(self._path), f"must be a usable store: {error}", hint=hint)
