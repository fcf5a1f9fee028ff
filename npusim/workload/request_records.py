"""Lines of npusim's own request traces, validated: see docs/guide/traces.md for the format."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from npusim.workload.requests import MAX_ARRIVAL_PS, MAX_HASH, MAX_TOKENS, Request
from npusim.workload.trace_records import Record, Text

MARK = "npusim_requests"

Hash = Annotated[int, Field(ge=0, le=MAX_HASH)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class RequestHeader(Record):
    """First line of the JSONL form."""

    npusim_requests: Literal[1]
    name: Text
    prefix_block_tokens: Tokens | None = None
    notes: tuple[str, ...] = ()


class RequestRecord(Record):
    """One request."""

    arrival_ps: Annotated[int, Field(ge=0, le=MAX_ARRIVAL_PS)]
    prompt_len: Tokens
    output_len: Annotated[int, Field(ge=0, le=MAX_TOKENS)]
    prefix_hashes: tuple[Hash, ...] = ()

    def request(self) -> Request:
        """The request."""
        return Request(self.arrival_ps, self.prompt_len, self.output_len, self.prefix_hashes)

    @classmethod
    def of(cls, request: Request) -> RequestRecord:
        """Record of a request."""
        return cls(
            arrival_ps=request.arrival_ps,
            prompt_len=request.prompt_len,
            output_len=request.output_len,
            prefix_hashes=request.prefix_hashes,
        )
