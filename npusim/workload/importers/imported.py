"""What an importer found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npusim.workload.trace import OperatorTrace


@dataclass(frozen=True)
class Imported:
    """An imported file.

    Parameters
    ----------
    kind : str
        Kind of file, for people.
    trace : OperatorTrace
        Its operators.
    fallbacks : dict[str, int]
        Operators that the host computes, by their name in the file.
    """

    kind: str
    trace: OperatorTrace
    fallbacks: dict[str, int] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        header, operators = self.trace.header, [op for step in self.trace.steps for op in step]
        return {
            "kind": self.kind,
            "model": header.model,
            "steps": len(self.trace.steps),
            "operators": len(operators),
            "macs": sum(op.macs for op in operators),
            "parameters": header.parameters,
            "weight_bytes": sum(header.weight_bytes_by_dtype.values()),
            "weight_bytes_by_dtype": dict(header.weight_bytes_by_dtype),
            "fallbacks": dict(sorted(self.fallbacks.items())),
            "notes": list(header.notes),
        }
