"""One run: system, workload, compiler and simulation settings."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from npusim.config.compiler import BY_NAME, CompilerConfig
from npusim.config.rules import RuleError
from npusim.config.spec import NonNegativeInt, PositiveInt, Spec
from npusim.config.system import SystemConfig
from npusim.paths import IMPORT_ENDINGS, TRACE_ENDINGS

_QUANT = re.compile(r"w\d{1,2}a\d{1,2}(_g\d{1,5})?")


class Fidelity(StrEnum):
    """How memory is simulated."""

    BURST = "burst"
    TRANSFER = "transfer"
    ANALYTIC = "analytic"


class Executor(StrEnum):
    """What runs the program; `auto` takes the fastest one that gives the same spans."""

    AUTO = "auto"
    SIMPY = "simpy"
    COMPILED = "compiled"


class HazardCheck(StrEnum):
    """Whether the times of a finished run are checked for hazards."""

    AUTO = "auto"  # programs of up to 100 000 commands
    ON = "on"
    OFF = "off"


#: keys of `WorkloadConfig` that put more into a step than one pass of the model for its tokens
PATTERN_KEYS = (
    *("chunk_tokens", "chunk_context_len", "speculate_tokens", "accept_frac", "draft_model"),
    "mtp_layers",
)


class WorkloadConfig(Spec):
    """Model and lengths. `prompt_len` excludes `context_len`."""

    model: str
    """Name in workloads/models, or a path."""
    prompt_len: PositiveInt | None = None
    """Prefill of so many tokens; None: no prefill."""
    context_len: PositiveInt | None = None
    """Cached tokens at the start of a run without prefill."""
    generate_len: NonNegativeInt = 0
    """Tokens to generate; after a prefill the first one comes from it."""
    batch: PositiveInt = 1
    """Sequences computed together."""
    quant: str = "w16a16"
    """Bits of weights and activations, `wXaY` or `wXaY_gN` with a scale per N weights."""
    kv_dtype: str | None = None
    """Format of the KV cache; None: the activation format."""
    kv_prune: str | None = None
    """Pruning policy of the KV cache; None: all tokens stay."""
    expert_routing: str = "uniform"
    """Which experts tokens visit: `uniform`, `zipf:S`, `balanced` or a routing trace."""
    chunk_tokens: PositiveInt | None = None
    """Mixed steps: tokens of another sequence's prompt that every decode step also computes."""
    chunk_context_len: NonNegativeInt | None = None
    """Tokens of that prompt already cached before the first step; None: none."""
    speculate_tokens: PositiveInt | None = None
    """Speculative decoding: tokens proposed per step, all checked in one pass."""
    accept_frac: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Probability that a proposed token is accepted; required with `speculate_tokens`."""
    draft_model: str | None = None
    """What proposes: a model's name or path, `mtp`, or None: lookup in the prompt, at no cost."""
    mtp_layers: PositiveInt | None = None
    """Multi-token-prediction layers in use, as many as the model states at most; None: none."""

    @model_validator(mode="after")
    def _lengths_make_a_run(self) -> Self:
        if self.prompt_len is not None and self.context_len is not None:
            raise RuleError("context_len", "excludes prompt_len", self.context_len)
        is_trace = self.model.endswith((*TRACE_ENDINGS, *IMPORT_ENDINGS))
        if self.prompt_len is None and self.context_len is None and not is_trace:
            raise RuleError("prompt_len", "one of prompt_len and context_len is required")
        if self.context_len is not None and self.generate_len == 0:
            raise RuleError("generate_len", "must be positive with context_len: nothing to run", 0)
        return self

    @model_validator(mode="after")
    def _patterns_are_complete(self) -> Self:
        for key, needs in (
            ("chunk_tokens", "context_len"),
            ("chunk_context_len", "chunk_tokens"),
            ("speculate_tokens", "accept_frac"),
            ("accept_frac", "speculate_tokens"),
            ("draft_model", "speculate_tokens"),
        ):
            if getattr(self, key) is not None and getattr(self, needs) is None:
                raise RuleError(key, f"needs {needs}", getattr(self, key))
        if self.chunk_tokens is not None and self.speculate_tokens is not None:
            raise RuleError("chunk_tokens", "excludes speculate_tokens", self.chunk_tokens)
        return self

    @model_validator(mode="after")
    def _quant_is_spelled_right(self) -> Self:
        if not _QUANT.fullmatch(self.quant):
            rule = "must be wXaY or wXaY_gN"
            raise RuleError("quant", rule, self.quant, "for example w16a16, w8a8 or w4a16_g128")
        return self


class SimulationConfig(Spec):
    """How to simulate."""

    fidelity: Annotated[Fidelity, BY_NAME] = Fidelity.BURST
    """How memory is simulated."""
    executor: Annotated[Executor, BY_NAME] = Executor.AUTO
    """What runs the program; `auto` takes the fastest one that gives the same spans."""
    fold: bool = True
    """Simulate a repeated layer pattern once; an estimate, named in the result."""
    fold_tolerance_frac: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-3
    """Largest relative spread of the mean layer time when folding."""
    fold_max_units: Annotated[int, Field(ge=2)] = 8
    """Most repeat units averaged when folding, whether or not the tolerance is met by then."""
    decode_tolerance_frac: Annotated[float, Field(gt=0.0, lt=1.0)] = 5e-3
    """Largest relative error at context lengths between the simulated ones."""
    jumps: bool = True
    """Let the memory kernel repeat stretches of a stream it has stepped before; same result."""
    seed: NonNegativeInt = 0
    """Seed of every random choice."""
    check_hazards: Annotated[HazardCheck, BY_NAME] = HazardCheck.AUTO
    """Check finished runs for data used before it was there; `auto`: up to 100 000 commands."""
    max_spans: NonNegativeInt = 200_000
    """Spans recorded for the timeline; totals stay exact."""


class RunSpec(Spec):
    """Everything that determines a run."""

    system: SystemConfig
    """Hardware."""
    workload: WorkloadConfig
    """Model and lengths."""
    compiler: CompilerConfig = CompilerConfig()
    """Choices of the compiler."""
    simulation: SimulationConfig = SimulationConfig()
    """How to simulate."""
