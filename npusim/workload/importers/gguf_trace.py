"""A GGUF file as an operator trace whose weights take exactly the file's bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.workload.importers.gguf import GGML_TYPES, GgufHeader, read_gguf
from npusim.workload.importers.imported import Imported
from npusim.workload.importers.lengths import model_workload
from npusim.workload.tensor import DTYPE_BITS, Role, Tensor
from npusim.workload.trace import OperatorTrace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from npusim.workload.operator import Operator

#: tensors of the file behind each weight of a layer, in `blk.<i>.`
_PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "attn_norm.weight": ("attn_norm.weight",),
        "attn_norm.bias": ("attn_norm.bias",),
        "mlp_norm.weight": ("ffn_norm.weight",),
        "mlp_norm.bias": ("ffn_norm.bias",),
        "qkv_proj.weight": ("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_qkv.weight"),
        "qkv_proj.bias": ("attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"),
        "q_norm.weight": ("attn_q_norm.weight",),
        "k_norm.weight": ("attn_k_norm.weight",),
        "o_proj.weight": ("attn_output.weight",),
        "o_proj.bias": ("attn_output.bias",),
        "gate_up_proj.weight": ("ffn_gate.weight", "ffn_up.weight"),
        "up_proj.weight": ("ffn_up.weight",),
        "up_proj.bias": ("ffn_up.bias",),
        "down_proj.weight": ("ffn_down.weight",),
        "down_proj.bias": ("ffn_down.bias",),
        "router.weight": ("ffn_gate_inp.weight",),
        "post_attn_norm.weight": ("post_attention_norm.weight",),
        "post_mlp_norm.weight": ("post_ffw_norm.weight",),
    }
)
_SHARED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "embedding.weight": ("token_embd.weight",),
        "positions.weight": ("position_embd.weight",),
        "final_norm.weight": ("output_norm.weight",),
        "final_norm.bias": ("output_norm.bias",),
        "lm_head.weight": ("output.weight", "token_embd.weight"),
    }
)
_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
_BITS = MappingProxyType({name: 8 * size / block for name, block, size in GGML_TYPES.values()})


def import_gguf(path: Path, lengths: Mapping[str, int | None]) -> Imported:
    """Architecture from the metadata, bytes from the tensors; 16-bit activations."""
    header = read_gguf(path)
    model = header.model(path.stem)
    workload = model_workload(model, lengths)
    trace = OperatorTrace.of(workload)
    types = ", ".join(f"{name} {n} bytes" for name, n in header.bytes_by_type.items())
    notes = (*trace.header.notes, f"weights as in the file: {types}")
    facts = trace.header.model_copy(
        update={
            "weight_bytes_by_dtype": header.bytes_by_type,
            "parameters": sum(t.elems for t in header.tensors.values()),
            "quant": "as in the file",
            "notes": list(notes),
        }
    )
    steps = tuple(tuple(_stored(op, header) for op in step) for step in trace.steps)
    return Imported("GGUF header", OperatorTrace(facts, steps))


def _stored(operator: Operator, header: GgufHeader) -> Operator:
    """An operator whose weights are those of the file."""
    inputs = tuple(_weight(t, header) if t.role is Role.WEIGHT else t for t in operator.inputs)
    return replace(operator, inputs=inputs)


def _weight(tensor: Tensor, header: GgufHeader) -> Tensor:
    """A weight in the file's format; unchanged if the file has nothing of its name and size."""
    match = _LAYER.fullmatch(tensor.name)
    names = _PARTS.get(match[2], ()) if match else _SHARED.get(tensor.name, ())
    prefix = f"blk.{match[1]}." if match else ""
    found = [header.tensors[prefix + n] for n in names if prefix + n in header.tensors]
    if tensor.name == "lm_head.weight":
        found = found[:1]
    if sum(t.elems for t in found) != tensor.elems:
        return tensor
    nbytes = sum(t.nbytes for t in found)
    bits = max(_BITS[t.type_name] for t in found)
    dtype = next((d for d in ("int4", "int8") if bits <= DTYPE_BITS[d] * 1.5), tensor.dtype)
    return replace(
        tensor, dtype=dtype, scale_group=0, scale_dtype=None, zero_point_dtype=None,
        stored_bytes=nbytes,
    )  # fmt: skip
