"""The process that computes points: tasks in on stdin, one outcome out per point at once."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from npusim.errors import NpusimError

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.simulation.memo import Memo
    from npusim.workload.workload import Workload

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Task:
    """One point to compute.

    Attributes
    ----------
    ideal : str or None
        Cost to take away, by its name in `npusim.simulation.ideal`.
    workload : Workload, optional
        What `run.workload` describes, where files do not.
    """

    key: str
    run: RunSpec
    ideal: str | None = None
    workload: Workload | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a point: its metrics and the hash of its programs, or why there are none."""

    key: str
    metrics: dict[str, int | float | None] = field(default_factory=dict)
    error: str | None = None
    cpu_s: float = 0.0
    program: str | None = None


def send(stream: IO[bytes], message: object) -> None:
    """Write one message, whole."""
    content = pickle.dumps(message)
    left = memoryview(_LENGTH.pack(len(content)) + content)
    while left:  # an unbuffered pipe may take a part
        left = left[stream.write(left) :]
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; EOFError when the other side is gone."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, length))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes of a pipe; EOFError if it ends before."""
    content = b""
    while len(content) < size:
        part = stream.read(size - len(content))
        if not part:
            raise EOFError
        content += part
    return content


def compute(task: Task) -> Outcome:
    """Simulate one point; an error of any kind is its outcome."""
    # numba and pandas are slow to load, and only workers need them
    from npusim.explore.metrics import metrics_of
    from npusim.simulation import simulate_run
    from npusim.simulation.ideal import ideal_of

    started = time.process_time()
    try:
        run = _memo() if task.ideal is None else ideal_of(task.ideal)
        result = simulate_run(task.run, run=run, workload=task.workload)
        metrics = metrics_of(result)
    except NpusimError as error:
        return Outcome(task.key, {}, str(error), time.process_time() - started)
    except Exception as error:  # noqa: BLE001 - one broken point must not stop the others
        text = f"{type(error).__name__}: {error}"
        return Outcome(task.key, {}, text, time.process_time() - started)
    seconds = time.process_time() - started
    return Outcome(task.key, metrics, None, seconds, result.hashes["program"])


@cache
def _memo() -> Memo:
    """Executions of this process."""
    from npusim.simulation.memo import Memo  # numba is slow to load

    return Memo()


def serve() -> None:
    """Answer chunks of tasks until the parent is gone; then end at once, also inside a point."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    chunks: queue.SimpleQueue[list[Task]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(chunks,), daemon=True).start()
    while True:
        for task in chunks.get():
            send(answers, compute(task))


def _listen(chunks: queue.SimpleQueue[list[Task]]) -> None:
    """Pass chunks on; end the process when the parent closes the pipe or dies."""
    with os.fdopen(os.dup(0), "rb") as requests:
        while True:
            try:
                chunks.put(receive(requests))
            except EOFError:
                os.kill(os.getpid(), signal.SIGKILL)
