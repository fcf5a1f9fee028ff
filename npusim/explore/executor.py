"""Who computes points: one small protocol, and a pool of worker processes that live long."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections import deque
from typing import IO, TYPE_CHECKING, Protocol

from npusim.explore.worker import Outcome, Task, receive, send

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_S = 1.0
MAX_CHUNK = 64
MAX_ATTEMPTS = 3


class Executor(Protocol):
    """Computes tasks in any order."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """Outcomes as they become known, one per task."""

    def close(self) -> None:
        """End everything that was started."""


class _Worker:
    """One process and the tasks it has not answered yet."""

    def __init__(self) -> None:
        folders = [entry or str(os.path.abspath("")) for entry in sys.path]  # noqa: PTH100
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from npusim.explore.worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what is read is exactly one answer: nothing hides from the selector
            env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
            process_group=0,  # Ctrl-C reaches the parent only
        )
        self.tasks: deque[Task] = deque()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:  # tasks that it never read
                continue


class ProcessPool:
    """Workers in processes of their own; a lost worker is replaced and its point tried again.

    Parameters
    ----------
    jobs : int
        Number of processes.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._workers: list[_Worker] = []
        self._attempts: dict[str, int] = {}
        self._cpu_s = 0.0
        self._answered = 0

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """Outcomes as they arrive; see `Executor`."""
        waiting = deque(tasks)
        self._workers = [_Worker() for _ in range(min(self._jobs, len(waiting)))]
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(_stdout(worker), selectors.EVENT_READ, worker)
            while waiting or any(worker.tasks for worker in self._workers):
                for worker in [w for w in self._workers if not w.tasks and waiting]:
                    self._hand_out(worker, waiting)
                for ready, _ in selector.select():
                    worker = ready.data
                    try:
                        outcome: Outcome = receive(_stdout(worker))
                    except EOFError:
                        selector.unregister(_stdout(worker))
                        yield from self._lost(worker, waiting)
                        fresh = self._replaced(worker)
                        selector.register(_stdout(fresh), selectors.EVENT_READ, fresh)
                        continue
                    worker.tasks.popleft()
                    self._cpu_s += outcome.cpu_s
                    self._answered += 1
                    yield outcome
        self.close()

    def close(self) -> None:
        """End all workers, also in the middle of a point."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _hand_out(self, worker: _Worker, waiting: deque[Task]) -> None:
        """Give a worker about a second of work, and never more than its share of the rest."""
        mean_s = self._cpu_s / self._answered if self._answered else CHUNK_S
        share = -(-len(waiting) // self._jobs)
        size = max(1, min(MAX_CHUNK, share, int(CHUNK_S / max(mean_s, 1e-6))))
        chunk = [waiting.popleft() for _ in range(min(size, len(waiting)))]
        worker.tasks.extend(chunk)
        assert worker.process.stdin is not None
        try:
            send(worker.process.stdin, chunk)
        except BrokenPipeError:
            return  # its end of file follows, and there the chunk is taken back

    def _lost(self, worker: _Worker, waiting: deque[Task]) -> Iterator[Outcome]:
        """Take tasks back; a point that lost too many workers is a failure."""
        code = worker.process.wait()
        if worker.tasks:
            first = worker.tasks[0].key
            self._attempts[first] = self._attempts.get(first, 0) + 1
            if self._attempts[first] >= MAX_ATTEMPTS:
                worker.tasks.popleft()
                yield Outcome(first, {}, f"its worker died {MAX_ATTEMPTS} times (exit {code})")
        waiting.extendleft(reversed(worker.tasks))

    def _replaced(self, worker: _Worker) -> _Worker:
        """A new worker in the place of a lost one."""
        worker.close()
        fresh = _Worker()
        self._workers[self._workers.index(worker)] = fresh
        return fresh


def _stdout(worker: _Worker) -> IO[bytes]:
    """Pipe that a worker answers on."""
    assert worker.process.stdout is not None
    return worker.process.stdout
