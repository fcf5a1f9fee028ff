"""Lines of an operator trace, validated: see docs/guide/traces.md for the format."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from npusim.workload.operator import VECTOR_OPS, MatmulShape, Operator, OperatorKind, Phase
from npusim.workload.tensor import Role, Tensor

MAX_INT = 2**62
Size = Annotated[int, Field(ge=1, le=MAX_INT)]
Count = Annotated[int, Field(ge=0, le=MAX_INT)]
Text = Annotated[str, Field(min_length=1, max_length=512)]
Dtype = Literal["int4", "int8", "int16", "int32", "int64", "fp8", "fp16", "bf16", "fp32"]
Scale = Annotated[int, Field(ge=-1, le=MAX_INT)]


class Record(BaseModel):
    """Strict, with no unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class TensorRecord(Record):
    """One tensor of an operator."""

    name: Text
    shape: list[Size]
    dtype: Dtype
    role: Literal["weight", "kv", "activation"]
    scale_group: Scale = 0
    scale_dtype: Dtype | None = None
    zero_point_dtype: Dtype | None = None
    stored_bytes: Size | None = None
    first_row: Count = 0
    all_rows: Count = 0

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if not self.shape:
            raise ValueError("shape needs at least one extent")
        if prod(self.shape) > MAX_INT:
            raise ValueError(f"shape {self.shape} has more than 2^62 elements")
        if self.scale_group and (len(self.shape) < 2 or self.scale_dtype is None):
            raise ValueError("scale_group needs two extents and a scale_dtype")
        if self.first_row + self.shape[0] > self.all_rows and (self.all_rows or self.first_row):
            raise ValueError(
                f"rows {self.first_row} to {self.first_row + self.shape[0]} are not "
                f"among all_rows={self.all_rows}"
            )
        return self

    def tensor(self) -> Tensor:
        """The tensor."""
        values = self.model_dump()
        return Tensor(**{**values, "shape": tuple(self.shape), "role": Role(self.role)})

    @classmethod
    def of(cls, tensor: Tensor) -> TensorRecord:
        """Record of a tensor."""
        return cls(
            name=tensor.name,
            shape=list(tensor.shape),
            dtype=tensor.dtype,  # type: ignore[arg-type]  # DTYPE_BITS has the same names
            role=tensor.role.value,
            scale_group=tensor.scale_group,
            scale_dtype=tensor.scale_dtype,  # type: ignore[arg-type]
            zero_point_dtype=tensor.zero_point_dtype,  # type: ignore[arg-type]
            stored_bytes=tensor.stored_bytes,
            first_row=tensor.first_row,
            all_rows=tensor.all_rows,
        )


class MatmulRecord(Record):
    """Shape of a matmul; `group_rows` as in `MatmulShape`."""

    batch: Size
    m: Size
    k: Size
    n: Size
    group_rows: list[Size] = []

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        rows = self.group_rows
        if rows and (len(rows) != self.batch or max(rows) != self.m):
            raise ValueError(f"group_rows needs batch={self.batch} entries with maximum m={self.m}")
        return self

    def shape(self) -> MatmulShape:
        """The shape."""
        return MatmulShape(self.batch, self.m, self.k, self.n, tuple(self.group_rows))


class OperatorRecord(Record):
    """One operator; `step` is its place in the header's `steps`."""

    step: Count
    name: Text
    kind: Literal["matmul", "vector", "gather", "kv_append", "fallback"]
    stage: Text
    layer: Count | None = None
    inputs: list[TensorRecord]
    outputs: list[TensorRecord]
    matmul: MatmulRecord | None = None
    compute_dtype: Dtype | None = None
    vector_ops: list[tuple[str, Count]] = []
    rows: Size = 1
    kv_runs: tuple[Size, Size] | None = None
    kv_slot: tuple[Count, Size] | None = None
    b_is_transposed: bool = False

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if not self.outputs:
            raise ValueError("outputs needs at least one tensor")
        unknown = [name for name, _ in self.vector_ops if name not in VECTOR_OPS]
        if unknown:
            raise ValueError(f"vector_ops knows {', '.join(VECTOR_OPS)}, not {unknown[0]!r}")
        if self.kind != "fallback" and self.compute_dtype is None:
            raise ValueError(f"a {self.kind} needs compute_dtype")
        checks = {"matmul": self._check_matmul, "gather": self._check_gather}
        checks.get(self.kind, self._check_other)()
        return self

    def _check_matmul(self) -> None:
        """Operands must hold the elements that the shape names."""
        if self.matmul is None or len(self.inputs) < 2:
            raise ValueError("a matmul needs matmul and two inputs")
        shape = self.matmul.shape()
        sizes = (
            ("inputs[0]", prod(self.inputs[0].shape), shape.rows * shape.k),
            ("inputs[1]", prod(self.inputs[1].shape), shape.batch * shape.k * shape.n),
            ("outputs", sum(prod(t.shape) for t in self.outputs), shape.rows * shape.n),
        )
        for where, have, need in sizes:
            if have != need:
                raise ValueError(f"{where} holds {have} elements, the matmul needs {need}")

    def _check_gather(self) -> None:
        if len(self.inputs) != 2:
            raise ValueError("a gather has two inputs, indices and table")

    def _check_other(self) -> None:
        if self.kind == "kv_append" and (self.kv_runs is None or len(self.inputs) != 1):
            raise ValueError("a kv_append needs kv_runs and one input")
        if self.kv_slot is not None:
            shape, (first, capacity) = self.outputs[0].shape, self.kv_slot
            if self.kind != "kv_append" or len(shape) != 4 or first + shape[2] > capacity:
                raise ValueError(f"kv_slot {list(self.kv_slot)} does not hold what is appended")
        if self.matmul is not None:
            raise ValueError(f"a {self.kind} has no matmul")

    def operator(self, phase: Phase) -> Operator:
        """The operator."""
        return Operator(
            name=self.name,
            kind=OperatorKind(self.kind),
            stage=self.stage,
            phase=phase,
            layer=self.layer,
            inputs=tuple(t.tensor() for t in self.inputs),
            outputs=tuple(t.tensor() for t in self.outputs),
            matmul=self.matmul.shape() if self.matmul else None,
            compute_dtype=self.compute_dtype,
            vector_ops=tuple(self.vector_ops),
            rows=self.rows,
            kv_runs=self.kv_runs,
            kv_slot=self.kv_slot,
            b_is_transposed=self.b_is_transposed,
        )

    @classmethod
    def of(cls, operator: Operator, step: int) -> OperatorRecord:
        """Record of an operator."""
        shape = operator.matmul
        matmul = None
        if shape is not None:
            rows = list(shape.group_rows)
            matmul = MatmulRecord(
                batch=shape.batch, m=shape.m, k=shape.k, n=shape.n, group_rows=rows
            )
        return cls(
            step=step,
            name=operator.name,
            kind=operator.kind.value,  # type: ignore[arg-type]  # traces hold unfused operators
            stage=operator.stage,
            layer=operator.layer,
            inputs=[TensorRecord.of(t) for t in operator.inputs],
            outputs=[TensorRecord.of(t) for t in operator.outputs],
            matmul=matmul,
            compute_dtype=operator.compute_dtype,  # type: ignore[arg-type]
            vector_ops=list(operator.vector_ops),
            rows=operator.rows,
            kv_runs=operator.kv_runs,
            kv_slot=operator.kv_slot,
            b_is_transposed=operator.b_is_transposed,
        )


class StepRecord(Record):
    """One pass: the prefill, or a decode step with `context_len` cached tokens per sequence."""

    phase: Literal["prefill", "decode", "mixed"]
    context_len: Count = 0
    tokens: Size = 1


class TraceHeader(Record):
    """First line of a trace: what its operators were made from."""

    npusim_trace: Literal[1]
    model: Text
    dtype: Dtype
    steps: Annotated[list[StepRecord], Field(min_length=1)]
    batch: Size = 1
    prompt_len: Size | None = None
    context_len: Size | None = None
    generate_len: Count = 0
    capacity_tokens: Count = 0
    chunk_tokens: Count = 0
    chunk_context_len: Count = 0
    chunk_capacity_tokens: Count = 0
    quant: Text = "w16a16"
    kv_dtype: Dtype = "bf16"
    parameters: Count = 0
    weight_bytes_by_dtype: dict[str, Count] = {}
    kv_bytes_per_token: Count = 0
    notes: list[str] = []

    @model_validator(mode="after")
    def _steps_come_in_order(self) -> Self:
        phases = [step.phase for step in self.steps]
        if "prefill" in phases[1:]:
            raise ValueError("steps: a prefill comes first and once")
        contexts = [step.context_len for step in self.steps if step.phase != "prefill"]
        if len(set(phases) - {"prefill"}) > 1:
            raise ValueError("steps: decode and mixed steps exclude each other")
        if contexts != list(range(contexts[0], contexts[0] + len(contexts)) if contexts else []):
            raise ValueError(
                "steps: each decode step has one cached token more than the one before"
            )
        return self
