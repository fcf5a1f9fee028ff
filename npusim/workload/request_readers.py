"""Request traces on disk: npusim's own forms, Azure, Mooncake, and benchmark clients.

The kind is told by the first line. What is wrong is named by file, line and key.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from npusim.errors import WorkloadError, nearest
from npusim.workload.facts import Facts, parse_facts
from npusim.workload.lines import read_lines
from npusim.workload.request_records import MARK, RequestHeader, RequestRecord
from npusim.workload.request_statistics import PS_PER_S
from npusim.workload.request_synthesis import EmpiricalLengths
from npusim.workload.request_times import date_ps, number_ps
from npusim.workload.requests import MAX_REQUESTS, MAX_TOKENS, Request, RequestTrace
from npusim.workload.trace import parse_line

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Rows = Iterator[tuple[str, dict[str, str]]]

KINDS = {
    "own-jsonl": "npusim request trace (JSONL)",
    "own-csv": "npusim request trace (CSV)",
    "azure": "Azure LLM inference trace (CSV)",
    "mooncake": "Mooncake trace (JSONL)",
    "client": "benchmark client trace (JSONL)",
}

#: tokens of a block of a Mooncake trace; source: Qin et al., FAST 2025
MOONCAKE_BLOCK_TOKENS = 512
_MS_PS, _NS_PS = 10**9, 10**3
_OWN_COLUMNS = ("arrival_ps", "arrival_s", "prompt_len", "output_len")
_AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_LENGTH_COLUMNS = ("num_prefill_tokens", "num_decode_tokens")
_FROM_FIRST = "times count from the first arrival"

Item = TypeVar("Item")


class ReadRequests(NamedTuple):
    """A request trace and the kind of file it came from."""

    kind: str
    trace: RequestTrace


def request_kind(path: str | os.PathLike[str]) -> str | None:
    """Kind of a request trace, a key of `KINDS`; None for any other file.

    Raises
    ------
    WorkloadError
        If the file cannot be read as lines of text.
    """
    file = Path(path)
    if file.suffix not in (".csv", ".jsonl"):
        return None
    first = next((line for line in read_lines(file) if line.strip()), "")
    if file.suffix == ".csv":
        return _csv_kind({cell.strip() for cell in first.split(",")})
    if not first.lstrip().startswith("{"):
        return None
    try:
        facts = parse_facts(first, str(file))
    except WorkloadError:
        return None  # the reader of another kind says what is wrong with it
    return next((kind for kind, is_it in _JSONL_MARKS.items() if is_it(facts)), None)


_JSONL_MARKS: dict[str, Callable[[Facts], bool]] = {
    "own-jsonl": lambda facts: facts.is_given(MARK),
    "mooncake": lambda facts: facts.is_given("timestamp") and facts.is_given("input_length"),
    "client": lambda facts: facts.is_given("input_toks") and facts.is_given("output_toks"),
}


def _csv_kind(names: set[str]) -> str | None:
    if {"prompt_len", "output_len"} <= names or set(_LENGTH_COLUMNS) <= names:
        return "own-csv"
    return "azure" if set(_AZURE_COLUMNS) <= names else None


def read_requests(path: str | os.PathLike[str]) -> ReadRequests:
    """Read a request trace of any known kind.

    Raises
    ------
    WorkloadError
        If the file is of no known kind, or a line is wrong.
    """
    file, kind = Path(path), request_kind(path)
    if kind is None:
        rule = f"is no request trace; known are: {', '.join(KINDS.values())}"
        raise WorkloadError(str(file), rule)
    readers = {
        "own-jsonl": _own_jsonl, "own-csv": _own_csv, "azure": _azure, "mooncake": _mooncake,
        "client": _client,
    }  # fmt: skip
    return ReadRequests(KINDS[kind], readers[kind](file))


def read_lengths(path: str | os.PathLike[str]) -> EmpiricalLengths:
    """Pairs of lengths of a request trace, or of a CSV file with lengths and no arrivals.

    Such a file has columns ``prompt_len,output_len`` or ``num_prefill_tokens,num_decode_tokens``.

    Raises
    ------
    WorkloadError
        As `read_requests`.
    """
    file = Path(path)
    if request_kind(file) != "own-csv":
        return EmpiricalLengths.of(read_requests(file).trace)
    columns, rows = _csv(file)
    names = _LENGTH_COLUMNS if _LENGTH_COLUMNS[0] in columns else ("prompt_len", "output_len")
    pairs = (
        (_whole(row, names[0], place, 1), _whole(row, names[1], place, 0)) for place, row in rows
    )
    return EmpiricalLengths(file.stem, tuple(_bounded(pairs, str(file))))


def _own_jsonl(path: Path) -> RequestTrace:
    header: RequestHeader | None = None
    requests: list[Request] = []
    for place, line in _numbered(path):
        if header is None:
            header = parse_line(RequestHeader, line, place)
            continue
        request = parse_line(RequestRecord, line, place).request()
        request.check(place, header.prefix_block_tokens)
        requests.append(request)
        _refuse_too_many(requests, str(path))
    assert header is not None  # its line is how the kind was told
    _refuse_none(requests, path)
    return RequestTrace.sorted(header.name, requests, header.prefix_block_tokens, header.notes)


def _own_csv(path: Path) -> RequestTrace:
    columns, rows = _csv(path)
    where = f"{path}: line 1"
    times = [name for name in ("arrival_ps", "arrival_s") if name in columns]
    if not times:
        hint = "draw some with `npusim requests synthesize --lengths FILE`"
        raise WorkloadError(where, "has lengths but no arrival_ps or arrival_s", None, hint)
    if len(times) > 1:
        raise WorkloadError(where, "must have either arrival_ps or arrival_s, not both")
    unknown = [name for name in columns if name not in _OWN_COLUMNS]
    if unknown:
        raise WorkloadError(where, "unknown column", unknown[0], nearest(unknown[0], _OWN_COLUMNS))

    def request(place: str, row: dict[str, str]) -> Request:
        if times[0] == "arrival_ps":
            arrival_ps = _whole(row, "arrival_ps", place, 0, most=10**24)
        else:
            arrival_ps = number_ps(row["arrival_s"], PS_PER_S, place, "arrival_s")
        return _checked(
            place,
            arrival_ps,
            _whole(row, "prompt_len", place, 1),
            _whole(row, "output_len", place, 0),
        )

    return _trace(path, (request(place, row) for place, row in rows))


def _azure(path: Path) -> RequestTrace:
    columns, rows = _csv(path)
    time, prompt, output = _AZURE_COLUMNS
    parsed = (
        (
            place,
            Request(
                date_ps(row[time], place, time),
                _whole(row, prompt, place, 1),
                _whole(row, output, place, 0),
            ),
        )
        for place, row in rows
    )
    left_out = [name for name in columns if name not in _AZURE_COLUMNS]
    notes = [f"column {name} is not read" for name in left_out]
    return _from_first(path, parsed, notes)


def _mooncake(path: Path) -> RequestTrace:
    def request(place: str, facts: Facts) -> Request:
        return _checked(
            place,
            number_ps(facts.get("timestamp"), _MS_PS, place, "timestamp"),
            facts.size("input_length"),
            facts.size("output_length", least=0),
            facts.counts("hash_ids"),
            MOONCAKE_BLOCK_TOKENS,
        )

    lines = (request(place, parse_facts(line, place)) for place, line in _numbered(path))
    note = f"a prefix hash stands for {MOONCAKE_BLOCK_TOKENS} tokens"
    return _trace(path, lines, MOONCAKE_BLOCK_TOKENS, [note])


def _client(path: Path) -> RequestTrace:
    """Lengths and `arrival_time_ns`, or `arrival_time` in seconds of the client's clock."""

    def request(place: str, facts: Facts) -> tuple[str, Request]:
        key, unit_ps = "arrival_time", PS_PER_S
        if facts.is_given("arrival_time_ns"):
            key, unit_ps = "arrival_time_ns", _NS_PS
        arrival_ps = number_ps(facts.get(key), unit_ps, place, key)
        return place, Request(
            arrival_ps, facts.size("input_toks"), facts.size("output_toks", least=0)
        )

    lines = (request(place, parse_facts(line, place)) for place, line in _numbered(path))
    return _from_first(path, lines, ["token ids and measured times, if any, are not read"])


def _from_first(
    path: Path, placed: Iterable[tuple[str, Request]], notes: Iterable[str]
) -> RequestTrace:
    """A trace whose clock starts at its first arrival."""
    given = _bounded(placed, str(path))
    _refuse_none(given, path)
    first_ps = min(request.arrival_ps for _, request in given)
    moved = []
    for place, request in given:
        moved.append(replace(request, arrival_ps=request.arrival_ps - first_ps))
        moved[-1].check(place, None)
    return RequestTrace.sorted(path.stem, moved, None, [_FROM_FIRST, *notes])


def _trace(
    path: Path, requests: Iterable[Request], block: int | None = None, notes: Iterable[str] = ()
) -> RequestTrace:
    given = _bounded(requests, str(path))
    _refuse_none(given, path)
    has_hashes = any(request.prefix_hashes for request in given)
    return RequestTrace.sorted(
        path.stem, given, block if has_hashes else None, notes if has_hashes else ()
    )


def _checked(
    place: str, arrival_ps: int, prompt_len: int, output_len: int,
    hashes: tuple[int, ...] = (), block: int | None = None,
) -> Request:  # fmt: skip
    request = Request(arrival_ps, prompt_len, output_len, hashes)
    request.check(place, block)
    return request


def _bounded(items: Iterable[Item], where: str) -> list[Item]:
    """All items, refused as soon as there are too many."""
    kept = list(islice(items, MAX_REQUESTS + 1))
    _refuse_too_many(kept, where)
    return kept


def _refuse_too_many(kept: Sequence[object], where: str) -> None:
    if len(kept) > MAX_REQUESTS:
        raise WorkloadError(where, f"has more than {MAX_REQUESTS} requests; cut the file")


def _refuse_none(requests: Sequence[object], path: Path) -> None:
    if not requests:
        raise WorkloadError(str(path), "has a heading but no requests")


def _numbered(path: Path) -> Iterator[tuple[str, str]]:
    """Non-empty lines with their place."""
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            yield f"{path}: line {number}", line


def _csv(path: Path) -> tuple[list[str], Rows]:
    """Columns of the heading, and rows by column with their place."""
    reader = csv.reader(read_lines(path), strict=True)
    try:
        heading = [cell.strip() for cell in next(cells for cells in reader if any(cells))]
    except csv.Error as error:
        raise WorkloadError(f"{path}: line {reader.line_num}", f"is not CSV: {error}") from None
    while heading and not heading[-1]:
        heading.pop()
    twice = next((name for name in heading if heading.count(name) > 1), None)
    if twice is not None:
        raise WorkloadError(f"{path}: line {reader.line_num}", f"column {twice!r} appears twice")

    def rows() -> Rows:
        while True:
            try:
                cells = [cell.strip() for cell in next(reader)]
            except StopIteration:
                return
            except csv.Error as error:
                place = f"{path}: line {reader.line_num}"
                raise WorkloadError(place, f"is not CSV: {error}") from None
            place = f"{path}: line {reader.line_num}"
            while len(cells) > len(heading) and not cells[-1]:
                cells.pop()
            if not any(cells):
                continue
            if len(cells) != len(heading):
                rule = f"has {len(cells)} columns, the heading {len(heading)}"
                raise WorkloadError(place, rule)
            yield place, dict(zip(heading, cells, strict=True))

    return heading, rows()


def _whole(row: dict[str, str], key: str, place: str, least: int, most: int = MAX_TOKENS) -> int:
    """An integer of a row."""
    text = row[key]
    is_number = text.isascii() and text.isdigit() and len(text) <= 25
    if not is_number or not least <= int(text) <= most:
        raise WorkloadError(place, f"{key} must be an integer {least} to {most}", text[:80])
    return int(text)
