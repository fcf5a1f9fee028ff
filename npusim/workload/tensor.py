"""Tensors as the compiler sees them: shape, format, role, bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod


class Role(StrEnum):
    """What a tensor is for; memory traffic is reported by role."""

    WEIGHT = "weight"
    KV = "kv"
    ACTIVATION = "activation"


#: bits per element of every format npusim knows
DTYPE_BITS = {
    "int4": 4,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "fp8": 8,
    "fp16": 16,
    "bf16": 16,
    "fp32": 32,
}


def packed_bytes(elems: int, dtype: str) -> int:
    """Bytes of `elems` elements, sub-byte formats packed without padding."""
    return -(-elems * DTYPE_BITS[dtype] // 8)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor.

    `scale_group` > 0: every `scale_group` elements along the first axis (K of a K x N weight) carry
    one scale (`scale_dtype`) and, if `zero_point_dtype` is set, one zero point, per column.
    `scale_group` = -1: one scale per column. `stored_bytes`: what a file says the tensor takes, in
    the place of what follows from the format (blocks of 5 or 6 bits, say). `all_rows` > 0: rows
    `first_row` ... of a larger tensor of this name, which has `all_rows` along the first axis.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    scale_group: int = 0
    scale_dtype: str | None = None
    zero_point_dtype: str | None = None
    stored_bytes: int | None = None
    first_row: int = 0
    all_rows: int = 0

    @property
    def elems(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def num_groups(self) -> int:
        """Number of scales (0 when the tensor has none)."""
        if self.scale_group == 0:
            return 0
        k = self.shape[-2]
        per_column = 1 if self.scale_group < 0 else -(-k // self.scale_group)
        return self.elems // k * per_column

    @property
    def bytes_by_dtype(self) -> dict[str, int]:
        """Bytes split by format, scales and zero points included."""
        if self.stored_bytes is not None:
            return {self.dtype: self.stored_bytes}
        split = {self.dtype: packed_bytes(self.elems, self.dtype)}
        for dtype in (self.scale_dtype, self.zero_point_dtype):
            if dtype is not None and self.num_groups:
                split[dtype] = split.get(dtype, 0) + packed_bytes(self.num_groups, dtype)
        return split

    @property
    def nbytes(self) -> int:
        """All bytes, scales and zero points included."""
        return sum(self.bytes_by_dtype.values())

    @property
    def first_byte(self) -> int:
        """Where a part starts in the tensor of its name."""
        return packed_bytes(self.first_row * (self.elems // self.shape[0]), self.dtype)

    @property
    def whole_bytes(self) -> int:
        """Bytes of the tensor of its name, all parts together."""
        if not self.all_rows:
            return self.nbytes
        return packed_bytes(self.all_rows * (self.elems // self.shape[0]), self.dtype)

    def part(self, first_row: int, rows: int) -> Tensor:
        """Rows `first_row` to `first_row + rows`."""
        shape = (rows, *self.shape[1:])
        return replace(self, shape=shape, first_row=first_row, all_rows=self.shape[0])
