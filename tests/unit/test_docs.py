"""README and guide say what is true: links resolve, commands exist, examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from npusim import units
from npusim.cli.app import app
from npusim.config.loader import load_system, load_workload
from npusim.workload.architectures import ARCHITECTURES
from npusim.workload.quantization import KV_DTYPES, PRECISIONS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
COMMANDS = (ROOT / "docs/guide/commands.md").read_text("utf-8")
CONFIGS = (ROOT / "docs/guide/configs.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[pytest.param]:
    """Fenced blocks of a language in all pages, named by page and position."""
    found = []
    for page in PAGES:
        texts = [m[2] for m in FENCE.finditer(page.read_text("utf-8")) if m[1] == language]
        name = page.relative_to(ROOT)
        found += [pytest.param(text, id=f"{name}-{i}") for i, text in enumerate(texts)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_and_pictures_resolve(page):
    text = FENCE.sub("", page.read_text("utf-8"))
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [link for link in links if link and not re.match(r"https?:|mailto:", link)]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_command_is_documented_and_every_documented_command_exists():
    documented = set(re.findall(r"^## `npusim ([\w-]+)`$", COMMANDS, re.MULTILINE))
    assert documented == set(typer.main.get_command(app).commands)


def test_every_make_target_that_pages_name_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        text = page.read_text("utf-8")
        named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", text, re.MULTILINE))
        assert {first or second for first, second in named} <= targets, page


@pytest.mark.parametrize("script", blocks("sh"))
def test_options_of_commands_in_pages_exist(script):
    commands = typer.main.get_command(app).commands
    for line in script.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["npusim"]:
            command = commands[words[1]]
            command = getattr(command, "commands", {}).get(words[2], command)  # of a group
            known = {name for option in command.params for name in option.opts}
            assert {word for word in words if word.startswith("--")} <= known, line


def test_every_example_of_a_unit_in_the_guide_is_valid():
    table = re.findall(r"^\| (`_?\w+`.*?) \| .*? \| (`.*?) \|$", CONFIGS, re.MULTILINE)
    examples = [(key, text) for keys, texts in table for key, text in pairs(keys, texts)]
    assert len(examples) > 10
    for key, text in examples:
        dimension = units.dimension_of_key("x" + key if key.startswith("_") else key)
        assert dimension is not None, key
        units.parse_quantity(text, dimension)


def test_the_yaml_examples_of_the_guide_load(tmp_path):
    extending, workload = (m[2] for m in FENCE.finditer(CONFIGS) if m[1] == "yaml")
    (tmp_path / "system.yaml").write_text(extending, "utf-8")
    (tmp_path / "workload.yaml").write_text(workload, "utf-8")
    assert load_system(tmp_path / "system.yaml").devices["npu"].cores == 6
    assert load_workload(tmp_path / "workload.yaml").prompt_len == 512


def test_every_model_type_and_precision_is_documented():
    pages = ("docs/guide/models.md", "docs/modelling/workload.md")
    text = "".join((ROOT / page).read_text("utf-8") for page in pages)
    names = [*ARCHITECTURES, *PRECISIONS, *KV_DTYPES]
    assert [name for name in names if name not in text] == []


def pairs(keys: str, texts: str) -> list[tuple[str, str]]:
    """Each example with its key: one key for all of them, or the n-th for the n-th."""
    names, examples = re.findall(r"`(.*?)`", keys), re.findall(r"`(.*?)`", texts)
    if len(names) > 1 and len(names) == len(examples):
        return list(zip(names, examples, strict=True))
    return [(name, example) for name in names for example in examples]


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code, tmp_path):
    (tmp_path / "tests").symlink_to(ROOT / "tests")  # the data that examples of a checkout read
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
