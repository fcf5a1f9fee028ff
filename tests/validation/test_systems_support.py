"""Runs shared by the system tests, each simulated once per session, and what keeps them honest."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from npusim import paths
from npusim.config.loader import load_system
from npusim.config.overrides import apply_overrides
from npusim.config.run_spec import RunSpec, SimulationConfig, WorkloadConfig
from npusim.simulation import simulate_operator, simulate_run
from npusim.workload.workload import Workload

SYSTEMS = ("ascend-910b", "edge-npu", "jetson-agx-orin", "rk3588", "tpu-v6e")

#: a decoder of the Llama family with shapes that keep a run below a second
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 2048,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 1024,
}

#: one layer, small enough to run hundreds of times
MINI = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 256,
}


#: their many cores make every compilation take long
MANY_CORES = ("ascend-910b", "jetson-agx-orin")


def some_slow(systems):
    """Parameters for `systems`, those of many cores marked slow."""
    marks = dict.fromkeys(MANY_CORES, pytest.mark.slow)
    return [pytest.param(name, marks=marks.get(name, ())) for name in systems]


@cache
def system_named(name):
    return load_system(name)


@cache
def tiny_model(**changes):
    """Path of a config.json like `TINY` with some keys changed; one file per set of changes."""
    directory = Path(mkdtemp(prefix="npusim-")) / "tiny"
    directory.mkdir()
    path = directory / "config.json"
    path.write_text(json.dumps({**TINY, **changes}), encoding="utf-8")
    return str(path)


def run_spec(system, model, *, sets=(), fidelity="transfer", fold=True, **workload):
    """A run of a shipped system, with ``path=value`` texts applied."""
    executor = "auto" if fidelity == "analytic" else "simpy"
    spec = RunSpec(
        system=system_named(system),
        workload=WorkloadConfig(model=model, **workload),
        simulation=SimulationConfig.model_validate(
            {"fidelity": fidelity, "executor": executor, "fold": fold}, strict=False
        ),
    )
    return apply_overrides(spec, list(sets))


@cache
def simulated(system, model, **settings):
    """Result of `run_spec`, simulated once per session."""
    return simulate_run(run_spec(system, model, **settings))


@cache
def simulated_operator(system, shape, *, sets=(), fidelity="transfer", quant="w16a16"):
    """Result of one matmul on a shipped system."""
    spec = run_spec(system, "smollm2-135m", sets=sets, fidelity=fidelity, prompt_len=1, quant=quant)
    return simulate_operator(
        spec.system,
        "matmul",
        shape,
        quant=quant,
        compiler=spec.compiler,
        simulation=spec.simulation,
    )


def workload_of(spec):
    """The workload object of a run, for closed forms."""
    from npusim.workload.loading import load_model

    return Workload.of(load_model(spec.workload.model), spec.workload)


def dram_of(result, phase):
    """The DRAM record of a phase."""
    (record,) = [m for m in result.phase(phase).memories if m.kind == "dram"]
    return record


def check_accounts(result):
    """What issue 2 promises of every result, from the outside; constructors check it again."""
    for phase in result.phases.values():
        assert phase.elapsed_ps >= phase.bound_ps > 0
        assert sum(stage.elapsed_ps for stage in phase.stages) == phase.elapsed_ps
        assert sum(stage.macs for stage in phase.stages) == phase.macs
        assert sum(stage.kernels for stage in phase.stages) == phase.kernels
        for engine in phase.engines:
            spent_ps = engine.busy_ps + engine.idle_ps + sum(engine.stalls_ps.values())
            assert spent_ps == phase.elapsed_ps, engine.engine
        for memory in phase.memories:
            moved = memory.read_bytes + memory.write_bytes
            assert sum(memory.bytes_by_role.values()) == moved, memory.name


def test_every_shipped_system_is_tested():
    assert tuple(sorted(paths.named_files("system"))) == SYSTEMS


def test_a_result_is_simulated_once_per_session():
    settings = {"context_len": 4, "generate_len": 1}
    first = simulated("tpu-v6e", tiny_model(), **settings)
    assert simulated("tpu-v6e", tiny_model(), **settings) is first


def test_accounts_that_do_not_balance_are_noticed():
    result = simulated("tpu-v6e", tiny_model(), context_len=4, generate_len=1)
    stage = result.phase("decode").stages[0]
    original = stage.elapsed_ps
    object.__setattr__(stage, "elapsed_ps", original + 1)
    try:
        with pytest.raises(AssertionError):
            check_accounts(result)
    finally:
        object.__setattr__(stage, "elapsed_ps", original)
