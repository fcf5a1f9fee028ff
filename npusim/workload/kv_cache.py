"""Where keys and values lie in memory, and which byte runs a step touches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.quantization import resolve_kv_dtype
from npusim.workload.tensor import packed_bytes

if TYPE_CHECKING:
    from npusim.workload.model_config import ModelConfig

#: alignment of the K and of the V region of every layer: a 4 KiB page
REGION_ALIGN_BYTES = 4096


class CachePart(StrEnum):
    """Half of a layer's cache."""

    KEY = "k"
    VALUE = "v"


@dataclass(frozen=True, slots=True)
class Runs:
    """`count` contiguous pieces of `nbytes`, `stride` apart, from `base` (bytes, in the cache)."""

    base: int
    nbytes: int
    stride: int
    count: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all pieces."""
        return self.nbytes * self.count


@dataclass(frozen=True, slots=True)
class KvCacheLayout:
    """Contiguous cache: per layer K then V, per (sequence, KV head) `[capacity][head_dim]`.

    A region (K or V of one layer) starts at a multiple of `REGION_ALIGN_BYTES`; inside it tokens
    and heads are packed without padding. A sliding window limits what is read, not what is kept: no
    token is overwritten.

    Parameters
    ----------
    num_layers, batch, kv_heads, head_dim : int
        Shape; `kv_heads` is num_key_value_heads.
    capacity_tokens : int
        Tokens per sequence the cache can hold.
    dtype : str
        Format of the elements. Scales are static per head and are not stored here.
    parts : int, optional
        2 for K and V; 1 for latent attention, whose only part stands in the place of K.
    """

    num_layers: int
    batch: int
    kv_heads: int
    head_dim: int
    capacity_tokens: int
    dtype: str
    parts: int = 2

    @classmethod
    def of(
        cls, model: ModelConfig, batch: int, capacity_tokens: int, kv_dtype: str | None = None
    ) -> KvCacheLayout:
        """Layout for a model."""
        dtype = resolve_kv_dtype(kv_dtype, model.dtype)
        parts, heads, width = model.cache_shape
        return cls(model.num_layers, batch, heads, width, capacity_tokens, dtype, parts)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token of one head."""
        return packed_bytes(self.head_dim, self.dtype)

    @property
    def head_bytes(self) -> int:
        """Bytes from one (sequence, head) to the next."""
        return self.capacity_tokens * self.token_bytes

    @property
    def region_bytes(self) -> int:
        """Bytes from K to V of a layer, padding included."""
        nbytes = self.batch * self.kv_heads * self.head_bytes
        return -(-nbytes // REGION_ALIGN_BYTES) * REGION_ALIGN_BYTES

    @property
    def nbytes(self) -> int:
        """Footprint of the whole cache."""
        return self.parts * self.num_layers * self.region_bytes

    def region_base(self, layer: int, part: CachePart | str) -> int:
        """Offset of the K or V region of a layer."""
        half = 1 if CachePart(part) is CachePart.VALUE else 0
        if half >= self.parts:
            raise WorkloadError("kv_cache", "a latent cache has no values of its own", part)
        return (self.parts * layer + half) * self.region_bytes

    def runs(self, layer: int, part: CachePart | str, first_token: int, num_tokens: int) -> Runs:
        """Tokens `[first_token, first_token + num_tokens)` of every sequence and head.

        The runs an append writes and the runs a context range reads.

        Raises
        ------
        WorkloadError
            If the range leaves the capacity; nothing wraps around.
        """
        self._check(first_token, num_tokens)
        base = self.region_base(layer, part) + first_token * self.token_bytes
        count = self.batch * self.kv_heads
        return Runs(base, num_tokens * self.token_bytes, self.head_bytes, count)

    def head_run(
        self, layer: int, part: CachePart | str, head: int, first_token: int, num_tokens: int
    ) -> Runs:
        """The same for one head; `head` counts sequence by sequence, 0 to batch * kv_heads - 1."""
        if not 0 <= head < self.batch * self.kv_heads:
            raise WorkloadError("head", f"must be below {self.batch * self.kv_heads}", head)
        every = self.runs(layer, part, first_token, num_tokens)
        return Runs(every.base + head * self.head_bytes, every.nbytes, every.stride, 1)

    def _check(self, first_token: int, num_tokens: int) -> None:
        """Refuse tokens outside the cache."""
        if first_token < 0 or num_tokens < 1 or first_token + num_tokens > self.capacity_tokens:
            rule = f"tokens must lie in a cache of {self.capacity_tokens}"
            raise WorkloadError("kv_cache", rule, (first_token, num_tokens))


def kv_bytes_per_token(model: ModelConfig, kv_dtype: str | None = None) -> int:
    """Bytes of one token over all layers: K and V of num_key_value_heads, or one latent row."""
    dtype = resolve_kv_dtype(kv_dtype, model.dtype)
    parts, heads, width = model.cache_shape
    return parts * model.num_layers * heads * packed_bytes(width, dtype)
