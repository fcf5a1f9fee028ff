"""The compiled kernel's cache: read-only installations, many workers at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import npusim

WORKER = """
import json, warnings
from fractions import Fraction
from npusim.memory import query
from npusim.memory.specs import BusConfig, PortConfig, SramConfig
from npusim.memory.system import MemorySystem
import npusim
memory = MemorySystem(
    [PortConfig("p", 0, Fraction(1000), 32, 4)], [BusConfig("b", Fraction(1000), 32, 0, 16)],
    [SramConfig("s", Fraction(1000), 2, 32, 128, 2, 4096)],
)
split = memory.attribution(5000, 0).tolist()
stats = query.attribution.stats
print(json.dumps([npusim.__file__, split, sum(stats.cache_hits.values())]))
"""
STARVED = [0, 0, 0, 0, 0, 0, 0, 0, 2 * 5000]  # two banks, nothing served


@pytest.fixture
def read_only_install(tmp_path):
    """A copy of the package whose folders take no cache: a file lies where it would be made.

    (Permissions do not stop a test that runs as root.)
    """
    site = tmp_path / "site"
    source = Path(npusim.__file__).parent
    shutil.copytree(source, site / "npusim", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [site / "npusim", *(p for p in (site / "npusim").rglob("*") if p.is_dir())]:
        (folder / "__pycache__").write_text("no folder")
    return site


def start(site, home, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_"))}
    env |= {"PYTHONPATH": str(site), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"} | more
    return subprocess.Popen(
        [sys.executable, "-c", WORKER], env=env, cwd=home,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    file, split, hits = json.loads(out)
    return Path(file), split, hits, err


@pytest.mark.slow
def test_read_only_install_and_four_workers_at_once(read_only_install, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    workers = [start(read_only_install, home) for _ in range(4)]
    for file, split, _, err in [finish(worker) for worker in workers]:
        assert file.is_relative_to(read_only_install)
        assert split == STARVED
        assert "not kept" not in err
    assert list(home.rglob("*.nbi"))  # the user's cache directory took it
    assert all(p.is_file() for p in read_only_install.rglob("__pycache__"))
    _, split, hits, _ = finish(start(read_only_install, home))
    assert (split, hits) == (STARVED, 1)


@pytest.mark.slow
def test_the_cache_folder_can_be_named(read_only_install, tmp_path):
    named = tmp_path / "named"
    finish(start(read_only_install, tmp_path, NUMBA_CACHE_DIR=str(named)))
    assert list(named.rglob("*.nbi"))
    assert finish(start(read_only_install, tmp_path, NUMBA_CACHE_DIR=str(named)))[2] == 1


@pytest.mark.slow
def test_without_any_writable_folder_it_compiles_anew_and_says_so(read_only_install, tmp_path):
    home = tmp_path / "nowhere"
    home.mkdir()
    (home / ".cache").write_text("no folder")
    _, split, hits, err = finish(start(read_only_install, home))
    assert (split, hits) == (STARVED, 0)
    assert "NUMBA_CACHE_DIR names a folder" in err
