"""A graph under construction from the operators of a foreign file.

Names of tensors are those of the file. A view (reshape, transpose) gives a second name to the same
bytes and costs nothing; what must move bytes is a `copy`. Floating-point tensors take the 16-bit
format the import asks for: files that were recorded in fp32 on a host are run in 16 bits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload import vector_counts
from npusim.workload.operator import MatmulShape, Operator, OperatorKind, Phase
from npusim.workload.tensor import Role, Tensor
from npusim.workload.trace import OperatorTrace
from npusim.workload.trace_records import StepRecord, TraceHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from npusim.workload.vector_counts import OpCounts

MAX_OPERATORS = 2_000_000
MAX_ELEMENTS = 1 << 50

#: 16-bit format of imported floating-point tensors
DEFAULT_DTYPE = "bf16"


class TraceBuilder:
    """Collects operators; `finish` makes the trace.

    Parameters
    ----------
    where : str
        File, for messages.
    model : str
        Name for results.
    phase : Phase, optional
        What the pass is called.
    dtype : str, optional
        The 16-bit format.
    """

    def __init__(
        self, where: str, model: str, phase: Phase = Phase.PREFILL, dtype: str = DEFAULT_DTYPE
    ) -> None:
        self.where, self.model, self.phase, self.dtype = where, model, phase, dtype
        self.operators: list[Operator] = []
        self.fallbacks: Counter[str] = Counter()
        self.notes: list[str] = []
        self._names: Counter[str] = Counter()
        self._weights: dict[str, Tensor] = {}
        self._produced: set[str] = set()

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str | None = None,
        role: Role = Role.ACTIVATION,
    ) -> Tensor:
        """A tensor of the file; a scalar has one element.

        Raises
        ------
        WorkloadError
            If an extent is not positive or there are too many elements.
        """
        extents = tuple(int(n) for n in shape) or (1,)
        if any(n < 1 for n in extents):
            raise WorkloadError(self.where, f"tensor {name!r} needs positive extents", extents)
        if prod(extents) > MAX_ELEMENTS:
            raise WorkloadError(self.where, f"tensor {name!r} has too many elements", extents)
        made = Tensor(name or "unnamed", extents, dtype or self.dtype, role)
        if role is Role.WEIGHT:
            self._weights.setdefault(made.name, made)
        return made

    def weight(self, tensor: Tensor) -> Tensor:
        """The tensor as a weight, if no operator makes it."""
        if self.is_produced(tensor.name):
            return tensor
        made = replace(tensor, role=Role.WEIGHT)
        self._weights.setdefault(made.name, made)
        return made

    def is_produced(self, name: str) -> bool:
        """Whether an operator so far makes the tensor."""
        return name in self._produced

    def unique(self, name: str) -> str:
        """A name no operator has yet."""
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else self.unique(f"{name}#{count}")

    def matmul(
        self,
        name: str,
        moving: Tensor,
        stationary: Tensor,
        out: Tensor,
        shape: MatmulShape,
        *,
        bias: Tensor | None = None,
        stage: str = "matmul",
        transposed: bool = False,
        dtype: str | None = None,
    ) -> Tensor:
        """`batch` products of (m x k) by (k x n).

        A bias that is not one value per column of a single product is added by an operator of its
        own.
        """
        if bias is not None and (bias.elems != shape.n or shape.batch > 1):
            product = replace(out, name=f"{out.name}.product")
            self.matmul(
                name, moving, stationary, product, shape, stage=stage, transposed=transposed,
                dtype=dtype,
            )  # fmt: skip
            counts = vector_counts.add(out.elems)
            self.vector(f"{name}.bias", "add", (product, bias), (out,), counts, out.elems)
            return out
        lead = () if shape.batch == 1 else (shape.batch,)
        b_rows, b_columns = (shape.n, shape.k) if transposed else (shape.k, shape.n)
        operands = [
            replace(moving, shape=(*lead, shape.m, shape.k)),
            replace(stationary, shape=(*lead, b_rows, b_columns)),
        ]
        if bias is not None:
            operands.append(bias)
        outputs = [replace(out, shape=(*lead, shape.m, shape.n))]
        self._add(
            name, OperatorKind.MATMUL, stage, operands, outputs,
            matmul=shape, compute_dtype=dtype or self._compute_dtype(moving), rows=shape.rows,
            vector_ops=() if bias is None else vector_counts.add(shape.rows * shape.n),
            b_is_transposed=transposed and stationary.role is not Role.WEIGHT,
        )  # fmt: skip
        return out

    def vector(
        self, name: str, stage: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor],
        counts: OpCounts, rows: int,
    ) -> None:  # fmt: skip
        """Elementwise work, norms, softmax, copies: `rows` independent rows."""
        self._add(
            name, OperatorKind.VECTOR, stage, inputs, outputs,
            vector_ops=vector_counts.merge(counts), rows=rows, compute_dtype=self.dtype,
        )  # fmt: skip

    def gather(self, name: str, stage: str, ids: Tensor, table: Tensor, out: Tensor) -> None:
        """Rows of a two-dimensional table."""
        self._add(
            name, OperatorKind.GATHER, stage, [ids, table], [out], rows=ids.elems,
            compute_dtype=self.dtype,
        )  # fmt: skip

    def copy(self, name: str, inputs: Sequence[Tensor], out: Tensor, stage: str = "copy") -> None:
        """Move bytes."""
        self.vector(name, stage, inputs, [out], (("copy", out.elems),), out.elems)

    def fallback(
        self, name: str, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        """What the device cannot compute."""
        self.fallbacks[kind] += 1
        self._add(name, OperatorKind.FALLBACK, f"fallback {kind}", inputs, outputs)

    def _compute_dtype(self, moving: Tensor) -> str:
        return moving.dtype if moving.dtype in ("int4", "int8", "fp8") else self.dtype

    def _add(
        self, name: str, kind: OperatorKind, stage: str, inputs: Iterable[Tensor],
        outputs: Iterable[Tensor], **more: object,
    ) -> None:  # fmt: skip
        if len(self.operators) >= MAX_OPERATORS:
            raise WorkloadError(self.where, f"has more than {MAX_OPERATORS} operators")
        outputs = tuple(outputs)
        self._produced.update(t.name for t in outputs)
        self.operators.append(
            Operator(
                name=self.unique(name),
                kind=kind,
                stage=stage,
                phase=self.phase,
                layer=None,
                inputs=tuple(inputs),
                outputs=outputs,
                **more,  # type: ignore[arg-type]
            )
        )

    def finish(self, *, tokens: int = 1, strict: bool = False, batch: int = 1) -> OperatorTrace:
        """The trace of one pass.

        Raises
        ------
        WorkloadError
            If there is nothing to run, or `strict` and something falls back to the host.
        """
        if not self.operators:
            raise WorkloadError(self.where, "holds no operator that computes anything")
        if strict and self.fallbacks:
            names = ", ".join(f"{k} x {n}" for k, n in sorted(self.fallbacks.items()))
            raise WorkloadError(self.where, f"has operators the device cannot compute: {names}")
        split: Counter[str] = Counter()
        for weight in self._weights.values():
            split.update(weight.bytes_by_dtype)
        is_prefill = self.phase is Phase.PREFILL
        header = TraceHeader(
            npusim_trace=1,
            model=self.model,
            dtype=self.dtype,  # type: ignore[arg-type]
            steps=[StepRecord(phase="prefill" if is_prefill else "decode", tokens=tokens)],
            batch=batch,
            prompt_len=max(tokens // batch, 1) if is_prefill else None,
            generate_len=0 if is_prefill else 1,
            quant="as imported",
            kv_dtype=self.dtype,  # type: ignore[arg-type]
            parameters=sum(w.elems for w in self._weights.values()),
            weight_bytes_by_dtype=dict(sorted(split.items())),
            notes=self.notes,
        )
        return OperatorTrace(header, (tuple(self.operators),))
