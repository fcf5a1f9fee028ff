"""A model with its run lengths and precision: what one simulation runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload import counts
from npusim.workload.forward_pass import PromptChunk
from npusim.workload.kv_cache import KvCacheLayout, kv_bytes_per_token
from npusim.workload.loading import load_model
from npusim.workload.model_config import MTP_NOTE, ModelConfig
from npusim.workload.mtp import append_mtp
from npusim.workload.operator import Phase
from npusim.workload.quantization import Quantization, parse_quantization, resolve_kv_dtype
from npusim.workload.routing import UNIFORM_ROUTING, ExpertRouting
from npusim.workload.speculation import MTP_DRAFT, Speculation, speculation_of
from npusim.workload.transformer import build_graph, parse_phase
from npusim.workload.weights import mtp_module
from npusim.workload.workload_checks import check_lengths, check_patterns

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from npusim.workload.graph import OperatorGraph
    from npusim.workload.settings import RunLengths


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
    chunk_tokens, chunk_context_len : int
        Every step also computes `chunk_tokens` tokens of one other sequence's prompt, of which
        `chunk_context_len` are cached before the first step; 0: no chunk.
    speculation : Speculation, optional
        Tokens are proposed, and checked several at a time.
    mtp_layers : int
        Multi-token-prediction layers in use. They draft if the speculation says so; else they
        follow every pass.

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
    chunk_tokens: int = 0
    chunk_context_len: int = 0
    speculation: Speculation | None = None
    mtp_layers: int = 0

    def __post_init__(self) -> None:
        check_lengths(self)
        check_patterns(self)
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
            chunk_tokens=settings.chunk_tokens or 0,
            chunk_context_len=settings.chunk_context_len or 0,
            speculation=speculation_of(
                model, settings.speculate_tokens, settings.accept_frac, settings.draft_model
            ),
            mtp_layers=settings.mtp_layers or 0,
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
        decode = (self.step_phase,) if self.decode_contexts else ()
        has_draft = self.speculation is not None and self.speculation.draft is not None
        draft = (Phase.DRAFT,) if decode and has_draft else ()
        return prefill + decode + draft

    @property
    def step_phase(self) -> Phase:
        """What the steps after the prefill are."""
        return Phase.MIXED if self.chunk_tokens else Phase.DECODE

    @cached_property
    def decode_contexts(self) -> Sequence[int]:
        """Tokens cached at the start of each decode step."""
        first, tokens = self.prompt_len, max(0, self.generate_len - 1)
        if first is None:
            assert self.context_len is not None
            first, tokens = self.context_len, self.generate_len
        if self.speculation is not None:
            return self.speculation.contexts(first, tokens)
        return range(first, first + tokens)

    @property
    def new_tokens(self) -> int:
        """Tokens per sequence that a decode step computes: one, and those it checks."""
        return 1 + (self.speculation.tokens if self.speculation else 0)

    @property
    def capacity_tokens(self) -> int:
        """Tokens per sequence in the cache when the run ends."""
        steps = self.decode_contexts
        return steps[-1] + self.new_tokens if len(steps) else self.prompt_len or 0

    @property
    def chunk_capacity_tokens(self) -> int:
        """Tokens in the cache of the sequence that is prefilled in chunks, when the run ends."""
        chunked = self.chunk_tokens * len(self.decode_contexts)
        return self.chunk_context_len + chunked if chunked else 0

    @property
    def cached_tokens(self) -> int:
        """Tokens of all sequences in the cache when the run ends."""
        return self.batch * self.capacity_tokens + self.chunk_capacity_tokens

    @cached_property
    def draft(self) -> Workload | None:
        """The draft model with the run's lengths; None if nothing drafts with a model."""
        if self.speculation is None or self.speculation.draft is None:
            return None
        model = self.speculation.draft
        kv_dtype = model.dtype if self.kv_dtype == self.model.dtype else self.kv_dtype
        return Workload(
            model=model,
            prompt_len=None if self.capacity_tokens > 1 else 1,
            context_len=self.capacity_tokens - 1 or None,
            generate_len=1 if self.capacity_tokens > 1 else 0,
            batch=self.batch,
            quant=self.quant,
            kv_dtype=kv_dtype,
            routing=self.routing,
        )

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
        return self._graph(self.step_phase, 1, context_len, num_layers)

    def draft_graph(self, context_len: int, num_layers: int | None = None) -> OperatorGraph:
        """Operators of one pass of the draft model with `context_len` cached tokens.

        Raises
        ------
        WorkloadError
            If no model drafts.
        """
        draft = self.draft
        if draft is None:
            raise WorkloadError("draft_model", "this run drafts with no model")
        return draft._graph(Phase.DRAFT, 1, context_len, num_layers)

    def draft_prefill_graph(self, num_layers: int | None = None) -> OperatorGraph:
        """Operators that bring the prompt into the draft's cache."""
        draft = self.draft
        if draft is None or self.prompt_len is None:
            raise WorkloadError("draft_model", "this run has no prompt to draft from")
        return draft._graph(Phase.PREFILL, self.prompt_len, 0, num_layers)

    def kv_layout(self) -> KvCacheLayout:
        """Where the cache of the whole run lies."""
        return KvCacheLayout.of(self.model, self.batch, self.capacity_tokens, self.kv_dtype)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed while reading the model, as far as this run is concerned."""
        return tuple(n for n in self.model.notes if n != MTP_NOTE or not self.mtp_layers)

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return counts.parameters(self.model, self.mtp_layers)

    @property
    def weight_bytes(self) -> int:
        """Bytes of stored weights."""
        return counts.weight_bytes(self.model, self.quant, self.mtp_layers)

    @property
    def weight_bytes_by_dtype(self) -> dict[str, int]:
        """Bytes of stored weights by format."""
        return counts.weight_bytes_by_dtype(self.model, self.quant, self.mtp_layers)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token over all layers."""
        own = kv_bytes_per_token(self.model, self.kv_dtype)
        if not self.mtp_layers:
            return own
        return own + self.mtp_layers * kv_bytes_per_token(mtp_module(self.model), self.kv_dtype)

    def _graph(
        self, phase: Phase, new_tokens: int, context_len: int, num_layers: int | None
    ) -> OperatorGraph:
        def build(model: ModelConfig, layers: int | None) -> OperatorGraph:
            is_checked = phase is Phase.DECODE and self.speculation is not None
            return build_graph(
                model,
                phase,
                self.batch,
                new_tokens,
                context_len,
                self.quant,
                self.kv_dtype,
                num_layers=layers,
                routing=self.routing,
                chunk=self._chunk(context_len) if phase is Phase.MIXED else None,
                speculated_tokens=self.new_tokens - 1 if is_checked else 0,
            )

        graph = build(self.model, num_layers)
        drafts = self.speculation is not None and self.speculation.method == MTP_DRAFT
        if self.mtp_layers and not drafts:
            append_mtp(graph, build(mtp_module(self.model), None), self.mtp_layers)
        return graph

    def _chunk(self, context_len: int) -> PromptChunk:
        """Chunk of the step with so many cached tokens."""
        step = context_len - self.decode_contexts[0]
        first = self.chunk_context_len + step * self.chunk_tokens
        return PromptChunk(self.chunk_tokens, first, self.chunk_capacity_tokens)


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
    chunk_tokens: int | None = None,
    chunk_context_len: int | None = None,
    speculate_tokens: int | None = None,
    accept_frac: float | None = None,
    draft_model: str | ModelConfig | None = None,
    mtp_layers: int | None = None,
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
    chunk_tokens, chunk_context_len, mtp_layers : int, optional
        See `Workload`.
    speculate_tokens, accept_frac, draft_model : int, float, str or ModelConfig, optional
        Tokens proposed per step, the probability that one is accepted, and the model that proposes:
        None looks them up in the prompt, "mtp" takes the model's own multi-token-prediction layers.

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
        chunk_tokens=chunk_tokens or 0,
        chunk_context_len=chunk_context_len or 0,
        speculation=speculation_of(config, speculate_tokens, accept_frac, draft_model),
        mtp_layers=mtp_layers or 0,
    )
