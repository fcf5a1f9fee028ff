"""What every test shares: deterministic hypothesis, golden files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from npusim.paths import ENV_CONFIG_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOLDEN_DIR = Path(__file__).parent / "golden"

# Same inputs, same verdict: examples derive from the test, not from the clock, and a slow machine
# is no failure. `HYPOTHESIS_PROFILE=explore pytest ...` searches at random.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        metavar="REASON",
        help="rewrite tests/golden/*.json and store REASON in them; without it they are compared",
    )


@pytest.fixture(autouse=True)
def _own_user_folders() -> Iterator[None]:
    """What ``--config-path`` of one test adds is gone in the next."""
    earlier = os.environ.get(ENV_CONFIG_PATH)
    yield
    os.environ.pop(ENV_CONFIG_PATH, None)
    if earlier is not None:
        os.environ[ENV_CONFIG_PATH] = earlier


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Check data against ``tests/golden/<name>.json``: ``golden("name", data)``."""
    reason: str | None = request.config.getoption("--update-golden")

    def check(name: str, data: object) -> None:
        path = GOLDEN_DIR / f"{name}.json"
        plain = json.loads(json.dumps(data))
        if reason is not None:
            assert reason.strip(), "--update-golden needs a reason"
            content = {"reason": reason, "data": plain}
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing; create it with --update-golden=REASON"
        assert plain == json.loads(path.read_text(encoding="utf-8"))["data"]

    return check
