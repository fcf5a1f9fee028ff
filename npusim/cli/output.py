"""Where text goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 110  # columns when nobody's terminal says otherwise


def complain(text: str, exit_code: int) -> int:
    """Print one message to stderr and give the exit code back."""
    print(f"npusim: {text}", file=sys.stderr)
    return exit_code


def note(text: str) -> None:
    """Print a message that is no result."""
    print(text, file=sys.stderr)


def print_json(data: Any) -> None:
    """Print JSON, and nothing else, to stdout."""
    print(json.dumps(data, indent=2, allow_nan=False))


def result_console() -> Console:
    """Console on stdout; on a pipe plain text of a fixed width."""
    from rich.console import Console  # slow to load

    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if is_terminal else PIPE_WIDTH,
        highlight=False,
        soft_wrap=False,
    )
