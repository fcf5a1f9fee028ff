"""One forward pass: lengths and formats, and the operators made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload import vector_counts
from npusim.workload.operator import MatmulShape, Operator, OperatorKind, Phase
from npusim.workload.routing import UNIFORM_ROUTING, ExpertRouting
from npusim.workload.tensor import DTYPE_BITS, Role, Tensor

if TYPE_CHECKING:
    from npusim.workload.model_config import ModelConfig
    from npusim.workload.quantization import Quantization
    from npusim.workload.vector_counts import OpCounts

#: stage labels, in the order of a decoder; the closed set that results are grouped by
STAGES = (
    "embedding",
    "attn_norm",
    "qkv",
    "q_a",  # latent attention: down and up projections of the query, of keys and values
    "q_b",
    "kv_a",
    "kv_b",
    "latent_norm",
    "q_absorb",
    "qk_norm",
    "rope",
    "kv_append",
    "scores",
    "softmax",
    "context",
    "v_absorb",
    "o_proj",
    "post_attn_norm",
    "residual",
    "mlp_norm",
    "router",
    "dispatch",
    "expert_gate_up",
    "expert_activation",
    "expert_down",
    "combine",
    "shared_gate_up",
    "shared_activation",
    "shared_down",
    "gate_up",
    "up",
    "silu_mul",
    "activation",
    "down",
    "post_mlp_norm",
    "mtp_norm",  # entry of a multi-token-prediction module
    "mtp_proj",
    "final_norm",
    "lm_head",
    "matmul",  # only in the graph of a single matmul
)


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """Tokens of one more sequence's prompt that a step computes beside its own tokens.

    Parameters
    ----------
    tokens : int
        Tokens computed.
    context_len : int
        Tokens of that prompt already cached.
    capacity_tokens : int
        Token rows that its cache reserves.
    """

    tokens: int
    context_len: int
    capacity_tokens: int


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Sequences of one pass that have the same lengths: what attention computes together.

    `prefix` starts the names of their operators and caches; `first_row` is the row of their first
    token among the tokens of the pass; `kv_slot` as in `Operator`.
    """

    prefix: str
    batch: int
    new_tokens: int
    context_len: int
    first_row: int = 0
    kv_slot: tuple[int, int] | None = None

    @property
    def tokens(self) -> int:
        """Tokens computed."""
        return self.batch * self.new_tokens


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What every operator of one pass shares.

    Parameters
    ----------
    model : ModelConfig
        Architecture.
    phase : Phase
        Label of the operators.
    batch : int
        Sequences, all of the same lengths.
    new_tokens : int
        Tokens computed per sequence: the prompt, or 1.
    context_len : int
        Tokens per sequence already in the cache.
    quant : Quantization
        Weight and activation precision.
    kv_dtype : str
        Format of the cache.
    routing : ExpertRouting, optional
        Which experts the tokens visit.
    chunk : PromptChunk, optional
        Part of another prompt, computed in the same step: its rows follow those of the batch.
    """

    model: ModelConfig
    phase: Phase
    batch: int
    new_tokens: int
    context_len: int
    quant: Quantization
    kv_dtype: str
    routing: ExpertRouting = UNIFORM_ROUTING
    chunk: PromptChunk | None = None

    def __post_init__(self) -> None:
        if self.model.cache_shape[2] * DTYPE_BITS[self.kv_dtype] % 8:
            raise WorkloadError("kv_dtype", "a cached head must fill whole bytes", self.kv_dtype)

    @property
    def tokens(self) -> int:
        """Tokens computed: over the batch, and of the chunk."""
        return sum(group.tokens for group in self.groups)

    @property
    def sequences(self) -> int:
        """Sequences of the batch, and the chunk's."""
        return sum(group.batch for group in self.groups)

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """Sequences by their lengths, in the order of their rows."""
        batch = SequenceGroup("", self.batch, self.new_tokens, self.context_len)
        chunk = self.chunk
        if chunk is None:
            return (batch,)
        slot = (chunk.context_len, chunk.capacity_tokens)
        return (
            batch,
            SequenceGroup("chunk_", 1, chunk.tokens, chunk.context_len, batch.tokens, slot),
        )

    def rows_of(self, tensor: Tensor, group: SequenceGroup) -> Tensor:
        """Rows of a group in a tensor with a row per token."""
        if len(self.groups) == 1:
            return tensor
        return tensor.part(group.first_row, group.tokens)

    @property
    def dtype(self) -> str:
        """16-bit format between operators."""
        return self.model.dtype

    @property
    def matmul_dtype(self) -> str:
        """Format of activations entering a linear."""
        return self.quant.activation_dtype(self.dtype)

    @property
    def attention_dtype(self) -> str:
        """Format of the attention matmuls."""
        return self.quant.attention_dtype(self.dtype, self.kv_dtype)

    def attended_tokens(self, layer: int, group: SequenceGroup) -> int:
        """Keys each attention matmul covers: cached ones inside the window, and the new ones."""
        window = self.model.windows[layer]
        cached = group.context_len if window is None else min(group.context_len, window - 1)
        return cached + group.new_tokens

    def activation(self, name: str, *shape: int, dtype: str | None = None) -> Tensor:
        """An activation tensor, 16 bit unless `dtype` says otherwise."""
        return Tensor(name, shape, dtype or self.dtype, Role.ACTIVATION)

    def narrow_ops(self, elems: int, dtype: str) -> OpCounts:
        """Operations that bring a 16-bit vector result to `dtype`."""
        if dtype == self.dtype:
            return ()
        is_cast = DTYPE_BITS[dtype] == DTYPE_BITS[self.dtype]
        return vector_counts.cast(elems) if is_cast else vector_counts.quantize(elems)

    def linear(
        self,
        name: str,
        stage: str,
        layer: int | None,
        operands: tuple[Tensor, Tensor, Tensor | None],
        outputs: tuple[Tensor, ...],
    ) -> Operator:
        """Moving operand times weight, plus bias; a bias adds once per output element."""
        moving, weight, _ = operands
        k, n = weight.shape[-2:]
        shape = MatmulShape(1, moving.elems // k, k, n)
        return self.product(name, stage, layer, operands, outputs, shape)

    def product(
        self,
        name: str,
        stage: str,
        layer: int | None,
        operands: tuple[Tensor, Tensor, Tensor | None],
        outputs: tuple[Tensor, ...],
        shape: MatmulShape,
    ) -> Operator:
        """The same for a given shape: a batch of products, or one per expert."""
        moving, weight, bias = operands
        return Operator(
            name=name,
            kind=OperatorKind.MATMUL,
            stage=stage,
            phase=self.phase,
            layer=layer,
            inputs=(moving, weight) if bias is None else (moving, weight, bias),
            outputs=outputs,
            matmul=shape,
            compute_dtype=self.matmul_dtype,
            vector_ops=() if bias is None else vector_counts.add(shape.rows * shape.n),
            rows=shape.rows,
        )

    def vector(
        self,
        name: str,
        stage: str,
        layer: int | None,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        counts: OpCounts,
        rows: int,
    ) -> Operator:
        """A vector operator computing in the 16-bit format."""
        return Operator(
            name=name,
            kind=OperatorKind.VECTOR,
            stage=stage,
            phase=self.phase,
            layer=layer,
            inputs=inputs,
            outputs=outputs,
            compute_dtype=self.dtype,
            vector_ops=counts,
            rows=rows,
        )

    def norm(
        self,
        name: str,
        stage: str,
        layer: int | None,
        hidden: Tensor,
        weights: tuple[Tensor, Tensor | None],
        dtype: str | None = None,
    ) -> Operator:
        """Norm of rows (a layer norm if there is a bias); its output in the format linears take."""
        out = self.activation(f"{name}.out", *hidden.shape, dtype=dtype or self.matmul_dtype)
        rows, width = hidden.shape
        weight, bias = weights
        of_norm = vector_counts.rms_norm if bias is None else vector_counts.layer_norm
        counts = vector_counts.merge(of_norm(rows, width), self.narrow_ops(out.elems, out.dtype))
        operands = (hidden, weight) if bias is None else (hidden, weight, bias)
        return self.vector(name, stage, layer, operands, (out,), counts, rows)

    def residual(self, name: str, layer: int, hidden: Tensor, *updates: Tensor) -> Operator:
        """Sum of hidden and updates (scaled by a constant where the model says so)."""
        out = self.activation(f"{name}.out", *hidden.shape)
        elems = out.elems * len(updates)
        scaled = vector_counts.scale(elems) if self.model.scaled_residual else ()
        counts = vector_counts.merge(vector_counts.add(elems), scaled)
        return self.vector(name, "residual", layer, (hidden, *updates), (out,), counts, out.elems)
