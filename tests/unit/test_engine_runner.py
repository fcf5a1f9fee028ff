"""Co-simulation steps and run-until-done."""

from __future__ import annotations

import numpy as np
import pytest

from npusim.engine import CoSimEnvironment, FixedLatencyMemory, run_until_done
from npusim.errors import DeadlockError, SimulationError

RUNS = np.array([[0, 64, 0, 1]], dtype=np.int64)


class Recorder(FixedLatencyMemory):
    """Notes every horizon it is given."""

    def __init__(self, latency_ps):
        super().__init__(latency_ps)
        self.horizons = []

    def advance(self, horizon_ps):
        self.horizons.append(horizon_ps)
        return super().advance(horizon_ps)


class Stuck(FixedLatencyMemory):
    """Never completes anything."""

    def advance(self, horizon_ps):
        return []


class Waiting:
    """A component that waits for something named."""

    def __init__(self, text):
        self._text = text

    def waiting_for(self):
        return self._text


def submit_and_wait(env, times):
    done = env.event()
    env.submit(0, 0, False, RUNS, lambda _: (times.append(env.now_ps), done.succeed()))
    return done


def test_memory_is_asked_only_up_to_the_next_event():
    memory = Recorder(500)
    env = CoSimEnvironment(memory)
    times = []
    env.timeout(300)
    done = submit_and_wait(env, times)
    run_until_done(env, done, [])
    assert memory.horizons == [300]  # committed at once; nothing left to ask for
    assert times == [500]
    assert type(env.now) is int


def test_without_events_memory_runs_to_its_next_completion():
    memory = Recorder(500)
    env = CoSimEnvironment(memory)
    times = []
    run_until_done(env, submit_and_wait(env, times), [])
    assert memory.horizons == [None]
    assert times == [500]


def test_a_completion_in_the_past_is_refused():
    class Late(FixedLatencyMemory):
        def advance(self, horizon_ps):
            return [(at - 1000, tid) for at, tid in super().advance(horizon_ps)]

    env = CoSimEnvironment(Late(500))
    with pytest.raises(SimulationError, match="not in the past"):
        run_until_done(env, submit_and_wait(env, []), [])


def test_a_deadlock_lists_who_waits_for_what_and_not_who_has_finished():
    env = CoSimEnvironment(FixedLatencyMemory())
    env.timeout(70)
    with pytest.raises(DeadlockError, match="at 70 ps") as caught:
        run_until_done(env, env.event(), [Waiting("a: #1 awaits b"), Waiting(None)])
    assert caught.value.value == ("a: #1 awaits b",)


def test_a_memory_that_never_completes_is_part_of_the_report():
    env = CoSimEnvironment(Stuck())
    with pytest.raises(DeadlockError, match="1 transfers never complete"):
        run_until_done(env, submit_and_wait(env, []), [])


def test_errors_survive_simpys_copy_of_them():
    env = CoSimEnvironment(FixedLatencyMemory())

    def broken():
        yield env.timeout(1)
        raise SimulationError("place", "rule", 3, "hint")

    with pytest.raises(SimulationError) as caught:
        run_until_done(env, env.process(broken()), [])
    assert str(caught.value) == "place: rule (got 3); hint"
