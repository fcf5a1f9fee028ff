"""A small real run and helpers, for the tests of insight."""

from __future__ import annotations

from functools import cache

import npusim as ns


@cache
def real_run(generate=3, **simulation):
    """SmolLM2-135M on RK3588: prompt of 16, two decode steps; simulated once per process."""
    workload = ns.transformer("smollm2-135m", prompt_len=16, generate_len=generate)
    return ns.simulate("rk3588", workload, simulation={"fidelity": "transfer", **simulation})
