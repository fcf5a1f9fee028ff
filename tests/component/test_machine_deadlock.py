"""A hang is an error that says who waits for what."""

from __future__ import annotations

import pytest

from npusim.engine import FixedLatencyMemory
from npusim.errors import DeadlockError
from npusim.program import EdgeKind
from tests.component.test_machine_support import compute, dma, load, matmul, run, wait_for


class Silent(FixedLatencyMemory):
    """Completes the first `count` transfers only."""

    def __init__(self, count):
        super().__init__(1000)
        self._count = count

    def advance(self, horizon_ps):
        return [(at, tid) for at, tid in super().advance(horizon_ps) if tid < self._count]


def report(commands, engines, memory=None):
    with pytest.raises(DeadlockError) as caught:
        run(commands, engines, memory)
    return caught.value


def test_a_circular_wait_names_both_sides():
    engines = [compute("matrix"), compute("vector"), compute("done")]
    commands = [
        matmul(0, 5, wait_for(1)),
        matmul(1, 5, wait_for(0, EdgeKind.BUFFER_FREE)),
        matmul(2, 7),
    ]
    error = report(commands, engines)
    assert error.value == (
        "matrix: #0 awaits vector #1 MATMUL (data)",
        "vector: #1 awaits matrix #0 MATMUL (buffer_free)",
    )
    assert "nothing can move any more at 7000 ps" in str(error)


def test_only_unresolved_edges_are_listed_and_long_lists_are_cut():
    engines = [compute("ok"), compute("stuck"), compute("waiter")]
    stuck = [matmul(1, 1, wait_for(1 + i)) for i in range(1, 7)]  # each waits for the next
    waits = [wait_for(0), *(wait_for(1 + i) for i in range(6))]
    commands = [matmul(0, 1), *stuck, matmul(2, 1, *waits)]
    waiter = report(commands, engines).value[1]
    assert waiter.startswith("waiter: #7 awaits stuck #1 MATMUL (data), stuck #2 MATMUL (data), ")
    assert waiter.endswith(" and 2 more")
    assert "ok #0" not in waiter


def test_an_unfinished_transfer_shows_as_full_queue_and_in_the_memory():
    engines = [dma(queue_depth=2), compute()]
    commands = [load(0), load(0), load(0), load(0), matmul(1, 1, wait_for(3))]
    assert report(commands, engines, Silent(1)).value == (
        "load: #3 awaits a free queue entry (2 of 2 in flight: #1, #2)",
        "matrix: #4 awaits load #3 LOAD (data)",
        "memory: 2 transfers never complete",
    )


def test_a_dma_engine_that_has_issued_everything_waits_for_its_transfers():
    assert report([load(0)], [dma()], Silent(0)).value == (
        "load: #0 in flight",
        "memory: 1 transfers never complete",
    )


def test_a_wait_on_an_offset_that_never_comes():
    engines = [compute("a"), compute("b")]
    commands = [matmul(0, 5, wait_for(1)), matmul(1, 5, wait_for(0, at=2))]
    assert report(commands, engines).value[1] == "b: #1 awaits a #0 MATMUL (data)"
