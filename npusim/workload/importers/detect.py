"""Which importer reads a file: by its first bytes and keys, then by its ending."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.facts import Facts
from npusim.workload.importers.binary import read_bytes
from npusim.workload.importers.imported import Imported

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = (
    "ONNX", "PyTorch execution trace", "Kineto trace with shapes", "Chakra trace (.et or JSON)",
    "GGUF", "safetensors", "SCALE-Sim topology (.csv)", "ONNXim model (.json)", "config.json",
    "operator trace (.jsonl, .parquet)",
)  # fmt: skip


def import_file(
    file: str | Path,
    *,
    strict: bool = False,
    dims: Mapping[str, int] | None = None,
    lengths: Mapping[str, int | None] | None = None,
) -> Imported:
    """Import a foreign file.

    Parameters
    ----------
    file : str or Path
        The file.
    strict : bool, optional
        Refuse what the device cannot compute; otherwise the host computes it.
    dims : mapping of str to int, optional
        Sizes of symbolic dimensions (ONNX).
    lengths : mapping, optional
        `prompt_len`, `context_len`, `generate_len` of files that describe a model (GGUF,
        safetensors, ONNXim, config.json).

    Raises
    ------
    WorkloadError
        If the kind is not recognised, or the file is damaged or refused by its importer.
    """
    path, sizes = Path(file), lengths or {}
    head = read_bytes(path, 16)
    if path.suffix in (".jsonl", ".csv"):
        _refuse_requests(path)
    if path.suffix in (".jsonl", ".parquet"):
        from npusim.workload.trace_files import read_trace  # pydantic is slow to load

        return Imported("operator trace", read_trace(path))
    if head[:4] == b"GGUF" or path.suffix == ".gguf":
        from npusim.workload.importers.gguf_trace import import_gguf  # only when needed

        return import_gguf(path, sizes)
    if path.suffix == ".safetensors":
        from npusim.workload.importers.safetensors import import_safetensors  # only when needed

        return import_safetensors(path, sizes)
    if path.suffix == ".onnx":
        return _onnx(path, dims or {}, strict=strict)
    if path.suffix == ".et":
        from npusim.workload.importers.chakra import import_chakra  # only when needed

        return import_chakra(path, read_bytes(path), strict=strict)
    if path.suffix == ".csv":
        from npusim.workload.importers.scalesim import import_scalesim  # only when needed

        return import_scalesim(path, strict=strict)
    if path.suffix in (".json", ".gz"):
        return _json(path, sizes, strict=strict)
    raise WorkloadError(str(path), f"is none of: {', '.join(KINDS)}")


def _refuse_requests(path: Path) -> None:
    """Refuse request traces: they hold arrivals and lengths, no operators."""
    from npusim.workload.request_readers import KINDS, request_kind  # pydantic is slow to load

    kind = request_kind(path)
    if kind is not None:
        rule = f"is an {KINDS[kind]}" if kind == "azure" else f"is a {KINDS[kind]}"
        hint = "look at it with `npusim inspect`"
        raise WorkloadError(str(path), f"{rule}: arrivals and lengths, no operators", None, hint)


def _onnx(path: Path, dims: Mapping[str, int], *, strict: bool) -> Imported:
    try:
        from npusim.workload.importers.onnx_graph import import_onnx  # onnx is an extra
    except ModuleNotFoundError as error:
        rule = "reading ONNX needs the extra: pip install 'npusim[onnx]'"
        raise WorkloadError(str(path), rule, error.name) from None
    return import_onnx(path, dims, strict=strict)


def _json(path: Path, lengths: Mapping[str, int | None], *, strict: bool) -> Imported:
    """A JSON file, by its keys."""
    # only when needed
    from npusim.workload.importers import chakra, kineto, onnxim, pytorch_et
    from npusim.workload.importers.jsonfile import read_json
    from npusim.workload.importers.lengths import model_workload
    from npusim.workload.model_reader import read_model
    from npusim.workload.trace import OperatorTrace

    data = read_json(path)
    if pytorch_et.is_execution_trace(data):
        return pytorch_et.import_execution_trace(path, data, strict=strict)
    if kineto.is_kineto(data):
        return kineto.import_kineto(path, data, strict=strict)
    if chakra.is_chakra(data):
        return chakra.import_chakra_json(path, data, strict=strict)
    if not isinstance(data, dict):
        raise WorkloadError(str(path), f"is none of: {', '.join(KINDS)}")
    facts = Facts(str(path), data)
    if facts.is_given(onnxim.MARK):
        return onnxim.import_onnxim(path, facts, lengths)
    if facts.is_given("model_type") or facts.is_given("n_embd"):
        model = read_model(path.stem, facts)
        return Imported("config.json", OperatorTrace.of(model_workload(model, lengths)))
    raise WorkloadError(str(path), f"its keys are those of none of: {', '.join(KINDS)}")
