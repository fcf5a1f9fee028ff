"""What every simulated component can say about itself."""

from __future__ import annotations

from typing import Protocol


class Component(Protocol):
    """A component that can be blocked."""

    def waiting_for(self) -> str | None:
        """What it waits for now, for the deadlock report; None when it has finished."""
