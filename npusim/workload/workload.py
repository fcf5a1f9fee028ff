"""A model with its run lengths and precision: what one simulation runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from npusim.errors import WorkloadError
from npusim.workload import counts
from npusim.workload.kv_cache import KvCacheLayout, kv_bytes_per_token
from npusim.workload.loading import load_model
from npusim.workload.model_config import ModelConfig
from npusim.workload.operator import Phase
from npusim.workload.quantization import Quantization, parse_quantization, resolve_kv_dtype
from npusim.workload.routing import UNIFORM_ROUTING, ExpertRouting
from npusim.workload.transformer import build_graph, check_length, parse_phase

if TYPE_CHECKING:
    from collections.abc import Hashable

    from npusim.workload.graph import OperatorGraph


class RunLengths(Protocol):
    """The settings of a run that `Workload.of` reads; a `WorkloadConfig` is one."""

    @property
    def prompt_len(self) -> int | None:
        """Tokens of the prefill."""

    @property
    def context_len(self) -> int | None:
        """Tokens already cached."""

    @property
    def generate_len(self) -> int:
        """Tokens generated."""

    @property
    def batch(self) -> int:
        """Sequences."""

    @property
    def quant(self) -> str:
        """Precision of weights and activations."""

    @property
    def kv_dtype(self) -> str | None:
        """Format of the cache."""

    @property
    def kv_prune(self) -> str | None:
        """Pruning policy of the cache."""

    @property
    def expert_routing(self) -> str:
        """Which experts tokens visit."""


@dataclass(frozen=True)
class Workload:
    """A model, lengths and precision; graphs are built when asked for.

    Parameters
    ----------
    model : ModelConfig
        Architecture.
    prompt_len : int, optional
        Tokens of the prefill; excludes `context_len`.
    context_len : int, optional
        Tokens cached before the first decode step of a run without prefill.
    generate_len : int
        Tokens generated; after a prefill the first one comes from it.
    batch : int
        Sequences, all of the same lengths.
    quant : Quantization
        Weight and activation precision.
    kv_dtype : str
        Format of the KV cache.
    routing : ExpertRouting
        Which experts the tokens visit.

    Raises
    ------
    WorkloadError
        If a length is wrong or the context outgrows the model.
    """

    model: ModelConfig
    prompt_len: int | None
    context_len: int | None
    generate_len: int
    batch: int
    quant: Quantization
    kv_dtype: str
    routing: ExpertRouting = UNIFORM_ROUTING

    def __post_init__(self) -> None:
        _check_lengths(self)
        if self.capacity_tokens > self.model.max_positions:
            limit = self.model.max_positions
            rule = f"prompt or context plus generated tokens must fit {self.model.name}'s {limit}"
            raise WorkloadError("context", rule, self.capacity_tokens)

    @classmethod
    def of(cls, model: ModelConfig, settings: RunLengths, seed: int = 0) -> Workload:
        """From run settings and the run's seed.

        Raises
        ------
        WorkloadError
            If lengths or precisions are wrong, or a pruning policy is asked for.
        """
        if settings.kv_prune is not None:
            raise WorkloadError("kv_prune", "KV pruning is not modelled yet", settings.kv_prune)
        return cls(
            model=model,
            prompt_len=settings.prompt_len,
            context_len=settings.context_len,
            generate_len=settings.generate_len,
            batch=settings.batch,
            quant=parse_quantization(settings.quant),
            kv_dtype=resolve_kv_dtype(settings.kv_dtype, model.dtype),
            routing=ExpertRouting(settings.expert_routing, seed),
        )

    @property
    def layer_kinds(self) -> tuple[Hashable, ...]:
        """Per layer what makes its work differ; with a routing trace every layer is its own."""
        kinds = self.model.layer_kinds
        if not self.routing.is_trace:
            return kinds
        return tuple((*kind, i if kind[1] else None) for i, kind in enumerate(kinds))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases that run, in order."""
        prefill = () if self.prompt_len is None else (Phase.PREFILL,)
        decode = (Phase.DECODE,) if self.decode_contexts else ()
        return prefill + decode

    @property
    def decode_contexts(self) -> range:
        """Tokens cached at the start of each decode step."""
        if self.prompt_len is not None:
            return range(self.prompt_len, self.prompt_len + max(0, self.generate_len - 1))
        assert self.context_len is not None
        return range(self.context_len, self.context_len + self.generate_len)

    @property
    def capacity_tokens(self) -> int:
        """Tokens per sequence in the cache when the run ends."""
        steps = self.decode_contexts
        return steps.stop if len(steps) else self.prompt_len or 0

    def prefill_graph(self, num_layers: int | None = None) -> OperatorGraph:
        """Operators of the prefill, over fewer layers if `num_layers` says so.

        Raises
        ------
        WorkloadError
            If the run has no prefill.
        """
        if self.prompt_len is None:
            raise WorkloadError("prompt_len", "a run with context_len has no prefill")
        return self._graph(Phase.PREFILL, self.prompt_len, 0, num_layers)

    def decode_graph(self, context_len: int, num_layers: int | None = None) -> OperatorGraph:
        """Operators of one decode step with `context_len` cached tokens per sequence."""
        return self._graph(Phase.DECODE, 1, context_len, num_layers)

    def kv_layout(self) -> KvCacheLayout:
        """Where the cache of the whole run lies."""
        return KvCacheLayout.of(self.model, self.batch, self.capacity_tokens, self.kv_dtype)

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return counts.parameters(self.model)

    @property
    def weight_bytes(self) -> int:
        """Bytes of stored weights."""
        return counts.weight_bytes(self.model, self.quant)

    @property
    def weight_bytes_by_dtype(self) -> dict[str, int]:
        """Bytes of stored weights by format."""
        return counts.weight_bytes_by_dtype(self.model, self.quant)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token over all layers."""
        return kv_bytes_per_token(self.model, self.kv_dtype)

    def _graph(
        self, phase: Phase, new_tokens: int, context_len: int, num_layers: int | None
    ) -> OperatorGraph:
        return build_graph(
            self.model,
            phase,
            self.batch,
            new_tokens,
            context_len,
            self.quant,
            self.kv_dtype,
            num_layers=num_layers,
            routing=self.routing,
        )


def transformer(
    model: str | ModelConfig,
    phase: Phase | str | None = None,
    prompt_len: int | None = None,
    context_len: int | None = None,
    generate_len: int | None = None,
    batch: int = 1,
    quant: str | Quantization = "w16a16",
    kv_dtype: str | None = None,
    expert_routing: str = "uniform",
    seed: int = 0,
) -> Workload:
    """A workload from a model and lengths.

    Parameters
    ----------
    model : str or ModelConfig
        Name in ``workloads/models``, path of a config.json, or a model.
    phase : Phase or str, optional
        "prefill" (needs `prompt_len`, generates nothing unless asked) or "decode" (needs
        `context_len`, one step unless `generate_len` says more). None: whatever the lengths mean.
    prompt_len, context_len, generate_len, batch : int, optional
        See `Workload`. Without `phase`, `generate_len` is 0 after a prompt and 1 after a context.
    quant : str or Quantization
        `wXaY[_gN]`.
    kv_dtype : str, optional
        Format of the KV cache; None is the model's 16-bit format.
    expert_routing, seed : str, int
        Which experts tokens visit, see `ExpertRouting`, and the seed of the draw.

    Raises
    ------
    WorkloadError
        If the model, a length or a precision is wrong, or the lengths do not suit the phase.
    """
    if phase is not None:
        is_prefill = parse_phase(phase) is Phase.PREFILL
        name = "prompt_len" if is_prefill else "context_len"
        if (prompt_len if is_prefill else context_len) is None:
            raise WorkloadError(name, f"is required for phase={str(phase)!r}")
    config = model if isinstance(model, ModelConfig) else load_model(model)
    default_generate = 0 if context_len is None else 1
    return Workload(
        model=config,
        prompt_len=prompt_len,
        context_len=context_len,
        generate_len=default_generate if generate_len is None else generate_len,
        batch=batch,
        quant=parse_quantization(quant),
        kv_dtype=resolve_kv_dtype(kv_dtype, config.dtype),
        routing=ExpertRouting(expert_routing, seed),
    )


def _check_lengths(workload: Workload) -> None:
    """Refuse lengths that make no run."""
    prompt, context = workload.prompt_len, workload.context_len
    if (prompt is None) == (context is None):
        raise WorkloadError("lengths", "exactly one of prompt_len and context_len is required")
    for where, value, least in (
        ("prompt_len", prompt, 1),
        ("context_len", context, 1),
        ("generate_len", workload.generate_len, 0 if context is None else 1),
        ("batch", workload.batch, 1),
    ):
        if value is not None:
            check_length(where, value, least)
