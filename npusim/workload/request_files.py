"""Writing request traces: JSONL, or CSV without prefix hashes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npusim.errors import WorkloadError
from npusim.workload.request_records import RequestHeader, RequestRecord

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from npusim.workload.requests import RequestTrace


def request_lines(trace: RequestTrace) -> Iterator[str]:
    """Lines of the JSONL form, without line ends."""
    header = RequestHeader(
        npusim_requests=1,
        name=trace.name,
        prefix_block_tokens=trace.prefix_block_tokens,
        notes=trace.notes,
    )
    yield header.model_dump_json(exclude_defaults=True)
    for request in trace:
        yield RequestRecord.of(request).model_dump_json(exclude_defaults=True)


def write_requests(trace: RequestTrace, path: str | os.PathLike[str]) -> None:
    """Write a trace whole or not at all; the ending says how, `.jsonl` or `.csv`.

    Raises
    ------
    WorkloadError
        If the ending is unknown, the file cannot be written, or the trace has prefix hashes and
        the file is CSV, which has no place for them.
    """
    target = Path(path)
    if target.suffix not in (".jsonl", ".csv"):
        raise WorkloadError("request trace", "must end in .jsonl or .csv", str(target))
    if target.suffix == ".csv" and trace.has_prefix_hashes:
        rule = "the CSV form has no prefix hashes, but the trace has some; write .jsonl"
        raise WorkloadError(str(target), rule)
    lines = request_lines(trace) if target.suffix == ".jsonl" else _rows(trace)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        partial.replace(target)
    except OSError as error:
        raise WorkloadError(str(target), f"cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def _rows(trace: RequestTrace) -> Iterator[str]:
    yield "arrival_ps,prompt_len,output_len"
    for request in trace:
        yield f"{request.arrival_ps},{request.prompt_len},{request.output_len}"
