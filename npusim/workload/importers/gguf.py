"""GGUF headers: architecture and the exact bytes of every tensor.

Format: the GGUF specification of the ggml project, versions 2 and 3, little-endian. Tensor data are
not read, so a file may end after its header.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npusim.errors import WorkloadError, nearest
from npusim.workload.facts import Facts
from npusim.workload.importers.binary import Reader, read_bytes
from npusim.workload.model_reader import read_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from npusim.workload.model_config import ModelConfig

MAGIC = b"GGUF"
_MAX_KEYS, _MAX_TENSORS, _MAX_TEXT, _MAX_ARRAY, _MAX_DEPTH = 100_000, 1_000_000, 1 << 24, 1 << 24, 4

#: struct code by value type; 8 is a text, 9 an array
_CODES = MappingProxyType(
    {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
)

#: name, elements and bytes of a block, by ggml type; source: ggml-quants.h
GGML_TYPES: Mapping[int, tuple[str, int, int]] = MappingProxyType(
    {
        0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
        6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36),
        10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2),
        26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56),
        30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    }
)  # fmt: skip

#: `model_type` by `general.architecture`, and whether q, k and v have biases is read from tensors
ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
        "gemma": "gemma", "gemma2": "gemma2", "phi2": "phi", "phi3": "phi3", "gpt2": "gpt2",
        "minicpm": "minicpm", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe",
    }
)  # fmt: skip


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: extents innermost first, as the file has them."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    nbytes: int

    @property
    def elems(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """Metadata and tensors of a file."""

    where: str
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def bytes_by_type(self) -> dict[str, int]:
        """Bytes of all tensors by their ggml type."""
        split: dict[str, int] = {}
        for tensor in self.tensors.values():
            split[tensor.type_name] = split.get(tensor.type_name, 0) + tensor.nbytes
        return dict(sorted(split.items()))

    def model(self, name: str) -> ModelConfig:
        """The architecture.

        Raises
        ------
        WorkloadError
            If it is not one this package builds, or a key is missing.
        """
        return read_model(name, Facts(self.where, self._config()))

    def _config(self) -> dict[str, Any]:
        """Keys of a config.json, from the metadata."""
        arch = self.metadata.get("general.architecture")
        if not isinstance(arch, str) or arch not in ARCHITECTURES:
            rule = f"general.architecture must be one of {', '.join(ARCHITECTURES)}"
            hint = nearest(arch, ARCHITECTURES) if isinstance(arch, str) else None
            raise WorkloadError(self.where, rule, arch, hint)
        model_type = ARCHITECTURES[arch]
        keys = {
            "hidden_size": "embedding_length",
            "num_hidden_layers": "block_count",
            "intermediate_size": "feed_forward_length",
            "num_attention_heads": "attention.head_count",
            "num_key_value_heads": "attention.head_count_kv",
            "max_position_embeddings": "context_length",
            "head_dim": "attention.key_length",
            "rope_theta": "rope.freq_base",
            "sliding_window": "attention.sliding_window",
            "num_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "moe_intermediate_size": "expert_feed_forward_length",
        }
        values = {
            key: self.metadata[f"{arch}.{name}"]
            for key, name in keys.items()
            if f"{arch}.{name}" in self.metadata
        }
        if model_type == "gpt2":
            renamed = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer"}
            renamed |= {"num_attention_heads": "n_head", "intermediate_size": "n_inner"}
            renamed |= {"max_position_embeddings": "n_positions"}
            values = {renamed.get(key, key): value for key, value in values.items()}
        embedding = self.tensors.get("token_embd.weight")
        if embedding is None:
            raise WorkloadError(self.where, "has no tensor token_embd.weight")
        has_bias = "blk.0.attn_q.bias" in self.tensors
        return {
            **values,
            "model_type": model_type,
            "vocab_size": embedding.shape[-1],
            "tie_word_embeddings": "output.weight" not in self.tensors,
            "attention_bias": has_bias,
            "torch_dtype": "float16",
        }


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a GGUF file.

    Raises
    ------
    WorkloadError
        If it is not GGUF, is cut off before its tensors end, or holds something absurd.
    """
    reader = Reader(read_bytes(path), str(path))
    if reader.take(4) != MAGIC:
        raise WorkloadError(str(path), "is not GGUF: the first four bytes are not 'GGUF'")
    version = int(reader.number("I"))
    if version not in (2, 3):
        raise WorkloadError(str(path), "GGUF versions 2 and 3 are read", version)
    num_tensors = reader.size("Q", _MAX_TENSORS, "number of tensors")
    num_keys = reader.size("Q", _MAX_KEYS, "number of keys")
    metadata = {}
    for _ in range(num_keys):
        key = _text(reader)
        metadata[key] = _value(reader, int(reader.number("I")), 0)
    tensors = {}
    for _ in range(num_tensors):
        tensor = _tensor(reader)
        tensors[tensor.name] = tensor
    return GgufHeader(str(path), metadata, tensors)


def _text(reader: Reader) -> str:
    return reader.take(reader.size("Q", _MAX_TEXT, "length of a text")).decode(errors="replace")


def _value(reader: Reader, kind: int, depth: int) -> Any:
    """One metadata value; of an array only its length is kept when it is long."""
    if kind in _CODES:
        return reader.number(_CODES[kind])
    if kind == 8:
        return _text(reader)
    if kind != 9 or depth >= _MAX_DEPTH:
        reader.fail(f"metadata type {kind} is unknown or nested too deeply")
    inner = int(reader.number("I"))
    count = reader.size("Q", _MAX_ARRAY, "length of an array")
    return [_value(reader, inner, depth + 1) for _ in range(count)]


def _tensor(reader: Reader) -> GgufTensor:
    name = _text(reader)
    rank = reader.size("I", 4, "rank of a tensor")
    shape = tuple(reader.size("Q", 1 << 40, "extent of a tensor") for _ in range(rank))
    kind = int(reader.number("I"))
    reader.number("Q")  # offset of the data
    if kind not in GGML_TYPES:
        reader.fail(f"tensor {name!r} has unknown ggml type {kind}")
    type_name, block, block_bytes = GGML_TYPES[kind]
    elems = prod(shape)
    if rank == 0 or elems == 0 or shape[0] % block:
        reader.fail(f"tensor {name!r} of shape {shape} does not hold whole blocks of {block}")
    return GgufTensor(name, shape, type_name, elems // block * block_bytes)
