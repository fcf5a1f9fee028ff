"""The layer table of the architecture, checked by parsing every import.

``TABLE`` is the one place of the rule. The checks are functions of a source tree, so that broken
trees prove below that each of them can fail.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 400


@dataclass(frozen=True)
class Row:
    """Layer of a package, the packages and the third-party libraries that it may import."""

    layer: int
    packages: str = ""  # names, or "0-3": every package of these layers
    third_party: str = ""


TABLE = {
    "_version": Row(0),
    "errors": Row(0),
    "units": Row(0),
    "paths": Row(0, "errors"),
    "config": Row(1, "0", "pydantic ruamel"),
    "workload": Row(1, "0", "networkx numpy pydantic"),
    "program": Row(1, "0", "numpy"),
    "engine": Row(1, "0", "simpy numpy"),
    "compiler": Row(2, "0 config workload program", "numpy networkx"),
    "analytic": Row(2, "0 config workload", "numpy"),
    "memory": Row(2, "0 config", "numpy numba"),
    "machine": Row(3, "0 config program engine memory", "simpy numpy"),
    "replay": Row(3, "0 config program memory", "numba"),
    "results": Row(3, "0 config", "pandas pyarrow"),
    "insight": Row(4, "0-3", "numpy pandas networkx"),
    "simulation": Row(4, "0-3", "numpy"),  # the parts of simulate
    "simulate": Row(4, "0-3 simulation"),
    "serving": Row(5, "0-4", "simpy numpy"),
    "explore": Row(5, "0-4", "dask distributed optuna numpy pandas pyarrow pydantic"),
    "studies": Row(5, "0-4 explore", "numpy"),
    "report": Row(5, "0 results insight", "plotly"),
    "cli": Row(6, "0-5", "typer rich"),
}
# Inner packages with libraries of their own.
INNER_THIRD_PARTY = {"workload.importers": "onnx google pyarrow"}
# Libraries that cannot be used without the other: its arguments are arrays, or it is the core.
BROUGHT_BY = {"numba": "numpy", "pandas": "numpy", "pydantic": "pydantic_core"}
# Roots: the public names (loaded on first use) and `python -m npusim`.
ROOT_MODULES = {"__init__", "__main__"}
MAY_PRINT_OR_EXIT = {"cli"}
FORBIDDEN_CALLS = {"print", "exit", "quit", "breakpoint"}
FORBIDDEN_ATTRIBUTES = {
    ("sys", "exit"),
    ("sys", "stdout"),
    ("sys", "stderr"),
    ("os", "_exit"),
}
# A comment that is more than an order to a tool.
EXPLANATION = re.compile(r"#\s*(?!noqa|type:|pragma)\w")


@dataclass(frozen=True)
class Import:
    """One imported module, as written in `path`."""

    path: Path
    line: int
    importer: str  # dotted, below npusim
    target: str  # dotted, absolute
    is_inside_function: bool
    is_for_types: bool

    def at(self, text: str) -> str:
        return f"{self.path}:{self.line} {text}"


def allowed_packages(name: str) -> set[str]:
    """Packages that package `name` may import, itself included."""
    allowed = {name}
    for word in TABLE[name].packages.split():
        if word[0].isdigit():
            low, _, high = word.partition("-")
            layers = range(int(low), int(high or low) + 1)
            allowed |= {p for p, row in TABLE.items() if row.layer in layers}
        else:
            allowed.add(word)
    return allowed


def allowed_libraries(module: str) -> set[str]:
    """Third-party libraries that a module (dotted, below npusim) may import."""
    words = TABLE[module.split(".")[0]].third_party.split()
    for inner, libraries in INNER_THIRD_PARTY.items():
        if module == inner or module.startswith(inner + "."):
            words += libraries.split()
    return {*words, *(BROUGHT_BY[word] for word in words if word in BROUGHT_BY)}


def sources(root: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name below ``npusim``; packages by their own."""
    found = {}
    for path in sorted((root / "npusim").rglob("*.py")):
        parts = path.relative_to(root / "npusim").with_suffix("").parts
        if len(parts) > 1 and parts[-1] == "__init__":
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


def walk(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Every node below `node`, with whether a function or a TYPE_CHECKING block holds it."""
    for child in ast.iter_child_nodes(node):
        inside = in_function or isinstance(
            child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        types = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
        yield child, inside, types
        yield from walk(child, inside, types)


def imports(root: Path) -> list[Import]:
    """Every import statement of the package, resolved to modules."""
    modules = sources(root)
    found = []
    for importer, path in modules.items():
        for node, inside, types in walk(ast.parse(path.read_text("utf-8")), False, False):
            for target in _targets(node, modules):
                relative = path.relative_to(root)
                found.append(Import(relative, node.lineno, importer, target, inside, types))
    return found


def _targets(node: ast.AST, modules: dict[str, Path]) -> list[str]:
    """Modules that one statement imports; ``from a import b`` is a.b where that is a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert node.level == 0, f"relative import on line {node.lineno}"
    base = node.module or ""
    inner = base.removeprefix("npusim").lstrip(".")
    targets = []
    for alias in node.names:
        full = f"{inner}.{alias.name}".lstrip(".")
        is_module = base.split(".")[0] == "npusim" and full in modules
        targets.append(f"npusim.{full}" if is_module else base)
    return sorted(set(targets))


def unknown_packages(root: Path) -> list[str]:
    """Packages and modules that the table lacks."""
    names = {module.split(".")[0] for module in sources(root)}
    return sorted(f"npusim/{name} is not in TABLE" for name in names - set(TABLE) - ROOT_MODULES)


def forbidden_imports(root: Path) -> list[str]:
    """Imports that the table does not allow."""
    found = []
    for item in imports(root):
        package = item.importer.split(".")[0]
        if package in ROOT_MODULES or package not in TABLE:
            continue
        top, _, below = item.target.partition(".")
        if top == "npusim":
            target = below.split(".")[0] or "__init__"
            if target not in allowed_packages(package) and package != "cli":
                found.append(item.at(f"{package} must not import {target}"))
        elif top not in sys.stdlib_module_names and top not in allowed_libraries(item.importer):
            found.append(item.at(f"{package} must not import the library {top}"))
    return found


def unexplained_inner_imports(root: Path) -> list[str]:
    """Imports inside functions without a comment on their line or just above."""
    return [
        item.at("import inside a function without a comment that says why")
        for item in imports(root)
        if item.is_inside_function and not EXPLANATION.search("\n".join(_block_around(root, item)))
    ]


def _block_around(root: Path, item: Import) -> list[str]:
    """The import's line, and the imports and comments directly above it."""
    lines = (root / item.path).read_text("utf-8").splitlines()
    block = [lines[item.line - 1]]
    for line in reversed(lines[: item.line - 1]):
        if not line.strip().startswith(("#", "import ", "from ")):
            break
        block.append(line)
    return block


def cycles(root: Path) -> list[str]:
    """Import cycles between modules, also those that hide in functions."""
    graph: dict[str, set[str]] = {module: set() for module in sources(root)}
    for item in imports(root):
        target = item.target.removeprefix("npusim.")
        if target in graph and target != item.importer and not item.is_for_types:
            graph[item.importer].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


def prints_and_exits(root: Path) -> list[str]:
    """Output and exits outside the command line package."""
    found = []
    for module, path in sources(root).items():
        if module.split(".")[0] in MAY_PRINT_OR_EXIT | {"__main__"}:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = _forbidden_name(node)
            if name:
                found.append(f"{path.relative_to(root)}:{node.lineno} {name}")
    return found


def _forbidden_name(node: ast.AST) -> str | None:
    """Name of the forbidden call, attribute or exception at this node."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id if node.func.id in FORBIDDEN_CALLS else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        pair = (node.value.id, node.attr)
        return ".".join(pair) if pair in FORBIDDEN_ATTRIBUTES else None
    if isinstance(node, ast.Name) and node.id == "SystemExit" and isinstance(node.ctx, ast.Load):
        return "SystemExit"
    if isinstance(node, ast.ImportFrom):
        names = [(node.module or "", alias.name) for alias in node.names]
        return next((".".join(n) for n in names if n in FORBIDDEN_ATTRIBUTES), None)
    return None


def hidden_imports(root: Path) -> list[str]:
    """Imports by computed name, which the other checks cannot see."""
    return [
        f"{path.relative_to(root)}:{node.lineno} imports by computed name"
        for module, path in sources(root).items()
        if module not in ROOT_MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Name) and node.id == "__import__")
        or (isinstance(node, ast.Attribute) and node.attr == "import_module")
        or (isinstance(node, ast.alias) and node.name == "import_module")
    ]


def star_imports(root: Path) -> list[str]:
    """``from x import *``."""
    return [
        f"{path.relative_to(root)}:{node.lineno} import *"
        for path in sources(root).values()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]


def long_files(root: Path) -> list[str]:
    """Python files above the cap."""
    found = []
    for folder in ("npusim", "tests", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            count = len(path.read_text("utf-8").splitlines())
            if count > MAX_LINES:
                found.append(f"{path.relative_to(root)} has {count} lines, cap {MAX_LINES}")
    return found


CHECKS = [
    unknown_packages,
    forbidden_imports,
    unexplained_inner_imports,
    cycles,
    prints_and_exits,
    hidden_imports,
    star_imports,
    long_files,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_source_tree_keeps_the_rule(check):
    assert check(ROOT) == []


def test_every_row_imports_only_downwards():
    for name, row in TABLE.items():
        above = {p for p in allowed_packages(name) - {name} if TABLE[p].layer > row.layer}
        assert not above, f"{name} (layer {row.layer}) is allowed to import {above}"
    order = TopologicalSorter({name: allowed_packages(name) - {name} for name in TABLE})
    order.prepare()  # raises CycleError if the table itself has a cycle


BROKEN = [
    (unknown_packages, {"stuff/__init__.py": ""}, "npusim/stuff is not in TABLE"),
    (forbidden_imports, {"compiler/a.py": "import simpy"}, "must not import the library simpy"),
    (forbidden_imports, {"units.py": "import numpy.linalg"}, "units must not import the library"),
    (
        forbidden_imports,
        {"analytic/a.py": "from npusim import machine", "machine/__init__.py": ""},
        "analytic must not import machine",
    ),
    (
        forbidden_imports,
        {"machine/a.py": "def f():\n    from npusim.compiler.b import c  # why"},
        "machine must not import compiler",
    ),
    (forbidden_imports, {"config/a.py": "import npusim"}, "config must not import __init__"),
    (
        forbidden_imports,
        {"workload/graph.py": "import onnx", "workload/importers/a.py": "import onnx"},
        "npusim/workload/graph.py:1 workload must not",
    ),
    (unexplained_inner_imports, {"cli/a.py": "def f():\n    import json  # noqa: F401"}, ":2"),
    (unexplained_inner_imports, {"cli/a.py": "def f():\n    import json"}, "cli/a.py:2"),
    (
        cycles,
        {"config/a.py": "import npusim.config.b", "config/b.py": "from npusim.config import a"},
        "config.",
    ),
    (prints_and_exits, {"engine/a.py": "print(1)"}, "engine/a.py:1 print"),
    (prints_and_exits, {"engine/a.py": "import sys\nsys.exit(1)"}, "engine/a.py:2 sys.exit"),
    (prints_and_exits, {"engine/a.py": "from sys import exit"}, "engine/a.py:1 sys.exit"),
    (prints_and_exits, {"engine/a.py": "raise SystemExit"}, "engine/a.py:1 SystemExit"),
    (hidden_imports, {"engine/a.py": "m = __import__('simpy')"}, "engine/a.py:1"),
    (hidden_imports, {"config/a.py": "from importlib import import_module"}, "config/a.py:1"),
    (star_imports, {"engine/a.py": "from math import *"}, "engine/a.py:1 import *"),
    (long_files, {"engine/a.py": "\n" * 401}, "has 401 lines, cap 400"),
]


@pytest.mark.parametrize(("check", "files", "expected"), BROKEN)
def test_a_broken_tree_is_caught_once(check, files, expected, tmp_path):
    write_tree(tmp_path, files)
    violations = check(tmp_path)
    assert len(violations) == 1
    assert expected in violations[0]


def test_a_compliant_tree_passes(tmp_path):
    files = {
        "cli/a.py": "import sys\nimport typer\nimport npusim\nprint(npusim)\nsys.exit(0)",
        "__init__.py": "def f():\n    # slow to load\n    import numba\n    import pandas",
        "compiler/a.py": "import numpy\nfrom npusim.program import arrays",
        "config/a.py": "import pydantic\nfrom npusim import units",
        "program/arrays.py": "import npusim.errors",
        "errors.py": "",
        "units.py": "import fractions",
    }
    write_tree(tmp_path, files)
    assert {check.__name__: check(tmp_path) for check in CHECKS} == {
        check.__name__: [] for check in CHECKS
    }


def write_tree(root: Path, files: dict[str, str]) -> None:
    """Create files below ``root/npusim``."""
    for name, text in files.items():
        path = root / "npusim" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
