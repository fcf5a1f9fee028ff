"""Agreement of the fidelities per stage: `python benchmarks/fidelity.py SYSTEM MODEL QUANT LENGTH`.

Prints, for prefill and decode, every stage's time at `burst` and the error of `transfer` against
it; phases also at `analytic` and beside the closed-form bound.
"""

from __future__ import annotations

import sys
import time

import npusim as ns
from npusim.config.run_spec import Fidelity, SimulationConfig

FIDELITIES = (Fidelity.BURST, Fidelity.TRANSFER, Fidelity.ANALYTIC)


def main() -> None:
    """Compare one system and model."""
    system, model, quant, length = sys.argv[1:5]
    for phase, key in (("decode", "context_len"), ("prefill", "prompt_len")):
        workload = ns.transformer(model, phase=phase, quant=quant, **{key: int(length)})
        records, cpu_s = {}, {}
        for fidelity in FIDELITIES:
            started = time.process_time()
            settings = SimulationConfig(fidelity=fidelity)
            records[fidelity] = ns.simulate(system, workload, simulation=settings).phases[phase]
            cpu_s[fidelity] = time.process_time() - started
        report(f"{system} {model} {quant} {phase} {length}", records, cpu_s)


def report(title: str, records: dict, cpu_s: dict) -> None:
    """Print one phase."""
    exact = records[Fidelity.BURST]
    print(f"\n{title}: bound {exact.bound_ps / 1e9:.3f} ms")
    for fidelity, record in records.items():
        error = 100 * (record.elapsed_ps / exact.elapsed_ps - 1)
        text = f"{record.elapsed_ps / 1e9:.3f} ms {error:+.2f} %, {cpu_s[fidelity]:.1f} s CPU"
        print(f"  {fidelity.value:10s} {text}")
    others = {stage.stage: stage for stage in records[Fidelity.TRANSFER].stages}
    for stage in exact.stages:
        share = 100 * stage.elapsed_ps / exact.elapsed_ps
        error = 100 * (others[stage.stage].elapsed_ps / max(stage.elapsed_ps, 1) - 1)
        time_us = stage.elapsed_ps / 1e6
        print(f"    {stage.stage:14s} {time_us:12.2f} us {share:5.1f} % {error:+8.2f} %")


if __name__ == "__main__":
    main()
