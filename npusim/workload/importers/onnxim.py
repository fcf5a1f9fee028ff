"""ONNXim language-model JSON: a decoder's dimensions under other names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.workload.facts import Facts
from npusim.workload.importers.imported import Imported
from npusim.workload.importers.lengths import model_workload
from npusim.workload.model_reader import read_model
from npusim.workload.trace import OperatorTrace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: what tells such a file from a config.json
MARK = "ffn_type"
_FAMILIES = {"llama": "llama", "default": "opt"}


def import_onnxim(path: Path, facts: Facts, lengths: Mapping[str, int | None]) -> Imported:
    """`ffn_type` llama is a gated decoder, default an OPT-style one."""
    kind = facts.choice(MARK, tuple(_FAMILIES))
    heads = facts.size("num_attention_heads")
    values: dict[str, Any] = {
        "model_type": _FAMILIES[kind],
        "hidden_size": facts.size("hidden_size"),
        "num_attention_heads": heads,
        "num_key_value_heads": facts.size("num_kv_heads", default=heads),
        "num_hidden_layers": facts.size("num_hidden_layers"),
        "vocab_size": facts.size("vocab_size"),
        "max_position_embeddings": facts.size("max_seq_length"),
        "torch_dtype": "float16",
        "intermediate_size" if kind == "llama" else "ffn_dim": facts.size("intermediate_size"),
    }
    model = read_model(path.stem, Facts(facts.where, values))
    trace = OperatorTrace.of(model_workload(model, lengths))
    notes = [*trace.header.notes]
    notes += [
        f"{key}={facts.size(key)} is not applied: one device runs the model"
        for key in ("tensor_parallel_size", "pipeline_parallel_size")
        if facts.size(key, default=1) != 1
    ]
    if facts.flag("run_single_layer", False):
        notes.append("run_single_layer is not applied: identical layers fold instead")
    header = trace.header.model_copy(update={"notes": notes})
    return Imported("ONNXim model", OperatorTrace(header, trace.steps))
