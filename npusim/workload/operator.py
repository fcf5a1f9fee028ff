"""Operators: what must be computed, with closed-form MACs and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from npusim.workload.tensor import Role, Tensor, packed_bytes


class OperatorKind(StrEnum):
    """What an operator does."""

    MATMUL = "matmul"  # out[b] = a[b] (m x k) @ w[b] (k x n), plus epilogue
    VECTOR = "vector"  # elementwise, norm, softmax, rope: rows of independent work
    GATHER = "gather"  # embedding: rows of a table
    KV_APPEND = "kv_append"  # write new K or V rows into the cache
    FALLBACK = "fallback"  # what the device cannot do: the host computes it
    ATTENTION = "attention"  # scores, softmax and context in one kernel; made by fusion


class Phase(StrEnum):
    """Phase of a transformer run."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"  # decode of a batch and a chunk of another sequence's prompt in one step
    DRAFT = "draft"  # proposals of a speculative step, which a decode step of several tokens checks


@dataclass(frozen=True, slots=True)
class MatmulShape:
    """`batch` independent products of (m x k) by (k x n).

    `group_rows`: rows of each product where they differ (tokens of each expert); `m` is then the
    largest, and the rows of all products lie one after another. Empty: all have m rows.
    """

    batch: int
    m: int
    k: int
    n: int
    group_rows: tuple[int, ...] = ()

    @classmethod
    def grouped(cls, group_rows: tuple[int, ...], k: int, n: int) -> MatmulShape:
        """Products of unequal numbers of rows, all at least 1."""
        is_equal = len(set(group_rows)) == 1
        return cls(len(group_rows), max(group_rows), k, n, () if is_equal else group_rows)

    @property
    def rows(self) -> int:
        """Rows of all products."""
        return sum(self.group_rows) if self.group_rows else self.batch * self.m

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.rows * self.k * self.n


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a graph.

    `inputs[0]` is the moving operand; for a matmul `inputs[1]` is the (k x n) operand, a weight, KV
    or activation tensor, and `inputs[2:]` are biases. A matmul with several outputs (qkv) writes
    them side by side: their columns, in order, are the n columns. `inputs[1]` of a GATHER is the
    whole table, of which it reads `rows` rows. An input may be a slice: same name as its producer's
    output, smaller shape (KV read behind a window; the last position of a prefill).
    `vector_ops` counts element operations of a VECTOR operator (or of a matmul's epilogue), as
    (name, elements), name from `VECTOR_OPS`; converting accumulators to the output format, with
    its scales, is not among them (the device's `accumulator_convert` says where that happens).
    `rows`: independent rows, the granularity at which a VECTOR operator may be tiled and split;
    every activation input and output divides evenly into them.
    `kv_runs`: (bytes per contiguous run, number of runs) one KV_APPEND writes. `kv_slot`: (tokens
    cached before it, tokens reserved) per sequence and head; None: those of the run.
    """

    name: str
    kind: OperatorKind
    stage: str
    phase: Phase
    layer: int | None
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    matmul: MatmulShape | None = None
    compute_dtype: str | None = None  # format the unit computes in
    vector_ops: tuple[tuple[str, int], ...] = ()
    rows: int = 1
    kv_runs: tuple[int, int] | None = None
    kv_slot: tuple[int, int] | None = None
    b_is_transposed: bool = False  # matmul: inputs[1] is stored (n, k), as a K cache is

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the matrix unit; `matmul` of an ATTENTION is its scores."""
        products = 2 if self.kind is OperatorKind.ATTENTION else 1
        return products * self.matmul.macs if self.matmul else 0

    def bytes_of(self, tensor: Tensor) -> int:
        """Bytes this operator reads of one of its inputs: `rows` rows of a GATHER's table."""
        if self.kind is OperatorKind.GATHER and tensor.role is Role.WEIGHT:
            rows = min(self.rows, tensor.shape[0])
            return packed_bytes(rows * (tensor.elems // tensor.shape[0]), tensor.dtype)
        return tensor.nbytes

    def read_bytes(self, role: Role) -> int:
        """Bytes of all inputs of a role, each once."""
        return sum(self.bytes_of(t) for t in self.inputs if t.role is role)

    def write_bytes(self, role: Role) -> int:
        """Bytes of all outputs of a role, each once."""
        return sum(t.nbytes for t in self.outputs if t.role is role)


#: element operations a vector unit must give a cost for
VECTOR_OPS = ("add", "mul", "max", "exp", "div", "rsqrt", "tanh", "convert", "copy")
