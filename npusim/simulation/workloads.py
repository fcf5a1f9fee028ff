"""What a run spec's workload names: a model with lengths, or an operator trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.config.run_spec import PATTERN_KEYS
from npusim.errors import WorkloadError
from npusim.paths import IMPORT_ENDINGS, TRACE_ENDINGS
from npusim.workload.loading import load_model
from npusim.workload.speculation import MTP_DRAFT
from npusim.workload.workload import Workload

if TYPE_CHECKING:
    from npusim.config.run_spec import RunSpec
    from npusim.workload.trace_workload import TraceWorkload

    AnyWorkload = Workload | TraceWorkload

#: settings of a model that a trace already contains
_OF_A_MODEL = (
    *("prompt_len", "context_len", "generate_len", "batch", "quant", "kv_dtype"),
    *PATTERN_KEYS,
)


def workload_of(spec: RunSpec) -> AnyWorkload:
    """The workload of a spec.

    Raises
    ------
    WorkloadError
        If the model or trace cannot be read, or lengths or precision are given beside a trace.
    """
    path = Path(spec.workload.model)
    if path.name.endswith(IMPORT_ENDINGS):
        return _imported(spec, path)
    if path.suffix not in TRACE_ENDINGS:
        return Workload.of(load_model(spec.workload.model), spec.workload, spec.simulation.seed)
    _refuse(spec, _OF_A_MODEL, "an operator trace has its own lengths and precision")
    # the records of a trace are slow to build
    from npusim.workload.importers import import_file
    from npusim.workload.trace_workload import TraceWorkload

    return TraceWorkload(import_file(path).trace)


def _imported(spec: RunSpec, path: Path) -> TraceWorkload:
    """A foreign file, imported with the run's lengths where it describes a model."""
    # importers are slow to load
    from npusim.workload.importers import import_file
    from npusim.workload.trace_workload import TraceWorkload

    _refuse(
        spec, ("batch", "quant", "kv_dtype"), "an imported file has its own precision and batch"
    )
    _refuse(spec, PATTERN_KEYS, "an imported file is run as it is")
    settings = spec.workload
    lengths = {
        "prompt_len": settings.prompt_len,
        "context_len": settings.context_len,
        "generate_len": settings.generate_len or None,
    }
    if path.suffix not in (".gguf", ".safetensors"):
        _refuse(spec, tuple(lengths), "this kind of file has its own lengths")
    return TraceWorkload(import_file(path, lengths=lengths).trace)


def _refuse(spec: RunSpec, keys: tuple[str, ...], rule: str) -> None:
    """Refuse settings that would be ignored."""
    fields = type(spec.workload).model_fields
    for key in keys:
        value = getattr(spec.workload, key)
        if value != fields[key].default:
            raise WorkloadError(f"workload.{key}", rule, value)


def workload_facts(workload: AnyWorkload) -> dict[str, object]:
    """Of the workload, for results."""
    extra: dict[str, object] = {}
    if workload.chunk_tokens:
        extra["chunk_tokens"] = workload.chunk_tokens
        extra["chunk_context_len"] = workload.chunk_context_len
    if workload.mtp_layers:
        extra["mtp_layers"] = workload.mtp_layers
    if workload.speculation is not None:
        extra["speculation"] = workload.speculation.facts()
    return {
        "model": workload.model.name,
        "parameters": workload.parameters,
        "weight_bytes": workload.weight_bytes,
        "weight_bytes_by_dtype": workload.weight_bytes_by_dtype,
        "kv_bytes_per_token": workload.kv_bytes_per_token,
        "quant": workload.quant.name,
        "kv_dtype": workload.kv_dtype,
        "batch": workload.batch,
        "prompt_len": workload.prompt_len,
        "context_len": workload.context_len,
        "generate_len": workload.generate_len,
        **extra,
    }


def pattern_settings(workload: Workload) -> dict[str, Any]:
    """Settings of chunks, speculation and extra layers, those that are in use."""
    speculation = workload.speculation
    draft = speculation.draft if speculation else None
    return {
        "chunk_tokens": workload.chunk_tokens or None,
        "chunk_context_len": workload.chunk_context_len or None,
        "speculate_tokens": speculation.tokens if speculation else None,
        "accept_frac": float(speculation.accept_frac) if speculation else None,
        "draft_model": (MTP_DRAFT if draft.is_mtp else draft.name) if draft else None,
        "mtp_layers": workload.mtp_layers or None,
    }
