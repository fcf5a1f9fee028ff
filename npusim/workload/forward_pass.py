"""One forward pass: lengths and formats, and the operators made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload import vector_counts
from npusim.workload.operator import MatmulShape, Operator, OperatorKind, Phase
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
    "qk_norm",
    "rope",
    "kv_append",
    "scores",
    "softmax",
    "context",
    "o_proj",
    "residual",
    "mlp_norm",
    "gate_up",
    "silu_mul",
    "down",
    "final_norm",
    "lm_head",
    "matmul",  # only in the graph of a single matmul
)


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
    """

    model: ModelConfig
    phase: Phase
    batch: int
    new_tokens: int
    context_len: int
    quant: Quantization
    kv_dtype: str

    def __post_init__(self) -> None:
        if self.model.head_dim * DTYPE_BITS[self.kv_dtype] % 8:
            raise WorkloadError("kv_dtype", "a cached head must fill whole bytes", self.kv_dtype)

    @property
    def tokens(self) -> int:
        """Tokens computed over the batch."""
        return self.batch * self.new_tokens

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

    def attended_tokens(self, layer: int) -> int:
        """Keys each attention matmul covers: cached ones inside the window, and the new ones."""
        window = self.model.windows[layer]
        cached = self.context_len if window is None else min(self.context_len, window - 1)
        return cached + self.new_tokens

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
        moving, weight, bias = operands
        k, n = weight.shape
        m = moving.elems // k
        return Operator(
            name=name,
            kind=OperatorKind.MATMUL,
            stage=stage,
            phase=self.phase,
            layer=layer,
            inputs=(moving, weight) if bias is None else (moving, weight, bias),
            outputs=outputs,
            matmul=MatmulShape(1, m, k, n),
            compute_dtype=self.matmul_dtype,
            vector_ops=() if bias is None else vector_counts.add(m * n),
            rows=m,
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
        self, name: str, stage: str, layer: int | None, hidden: Tensor, weight: Tensor
    ) -> Operator:
        """RMS norm of rows, its output in the format linears take."""
        out = self.activation(f"{name}.out", *hidden.shape, dtype=self.matmul_dtype)
        rows, width = hidden.shape
        counts = vector_counts.merge(
            vector_counts.rms_norm(rows, width), self.narrow_ops(out.elems, out.dtype)
        )
        return self.vector(name, stage, layer, (hidden, weight), (out,), counts, rows)

    def residual(self, name: str, layer: int, hidden: Tensor, update: Tensor) -> Operator:
        """Sum of hidden and update (update scaled by a constant where the model says so)."""
        out = self.activation(f"{name}.out", *hidden.shape)
        scaled = vector_counts.scale(out.elems) if self.model.scaled_residual else ()
        counts = vector_counts.merge(vector_counts.add(out.elems), scaled)
        return self.vector(name, "residual", layer, (hidden, update), (out,), counts, out.elems)
