"""What travels in the wheel, and how names become files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from npusim import __version__, paths
from npusim.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(autouse=True)
def _no_user_folders(monkeypatch):
    monkeypatch.delenv(paths.ENV_CONFIG_PATH, raising=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this source tree, built offline."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("npusim-*.whl")
    return built


def shipped(folder: str, pattern: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(pattern)}


def test_the_wheel_holds_every_shipped_system_and_workload(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    data = shipped("hwconfigs", "*.yaml") | shipped("workloads", "*.yaml")
    data |= shipped("workloads/models", "*.json")
    assert data
    assert {f"npusim/_data/{name}" for name in data} <= inside


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel):
    inside = zipfile.ZipFile(wheel).namelist()
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "npusim").rglob("*.py")}
    assert package <= set(inside)
    assert {name.split("/")[0] for name in inside} == {
        "npusim",
        f"npusim-{__version__}.dist-info",
    }


def test_an_unpacked_wheel_finds_its_systems_and_models(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import npusim.paths as p; print(p.__file__)\n"
        "for kind in ('system', 'model'): print(*p.named_files(kind).values(), sep='\\n')"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [Path(line) for line in done.stdout.splitlines()]
    names = {path.stem for path in found[1:]}
    assert all(path.is_relative_to(tmp_path / "site") for path in found)
    assert names == {*paths.named_files("system"), *paths.named_files("model")}


def test_the_source_tree_finds_the_five_systems_and_the_demo_model():
    systems = {"ascend-910b", "edge-npu", "jetson-agx-orin", "rk3588", "tpu-v6e"}
    assert systems <= set(paths.named_files("system"))
    assert paths.find_named("model", "qwen2-1.5b") == ROOT / "workloads/models/qwen2-1.5b.json"


@pytest.fixture
def folders(tmp_path) -> dict[str, Path]:
    """Three users' folders with a system called rk3588 each, in every place it may lie."""
    places = {"direct": "rk3588.yaml", "nested": "hwconfigs/rk3588.yaml", "env": "rk3588.yml"}
    for folder, place in places.items():
        file = tmp_path / folder / place
        file.parent.mkdir(parents=True)
        file.write_text("", "utf-8")
    return {folder: tmp_path / folder for folder in places}


def test_the_argument_wins_over_the_environment_over_the_shipped_file(folders, monkeypatch):
    assert paths.find_named("system", "rk3588").parent.name == "hwconfigs"
    monkeypatch.setenv(paths.ENV_CONFIG_PATH, f"{os.pathsep}{folders['env']}{os.pathsep}")
    assert paths.find_named("system", "rk3588") == folders["env"] / "rk3588.yml"
    extra = [folders["nested"], folders["direct"]]
    assert paths.find_named("system", "rk3588", extra) == extra[0] / "hwconfigs/rk3588.yaml"
    assert paths.hwconfig_dirs(extra)[:4] == [
        extra[0],
        extra[0] / "hwconfigs",
        extra[1],
        folders["env"],
    ]


def test_models_and_workloads_of_a_user_lie_below_workloads(tmp_path):
    models = tmp_path / "workloads/models"
    models.mkdir(parents=True)
    (models / "mine.json").write_text("{}", "utf-8")
    (tmp_path / "workloads/job.yaml").write_text("", "utf-8")
    (tmp_path / "not-a-model.json").write_text("{}", "utf-8")
    assert paths.model_dirs([tmp_path])[0] == models
    assert paths.workload_dirs([tmp_path])[0] == tmp_path / "workloads"
    assert paths.find_named("model", "mine", [tmp_path]) == models / "mine.json"
    assert "job" in paths.named_files("workload", [tmp_path])
    assert "not-a-model" not in paths.named_files("model", [tmp_path])


def test_an_unknown_name_gets_the_nearest_valid_one(folders):
    with pytest.raises(ConfigError) as refusal:
        paths.find_named("system", "rk3585", [folders["direct"]])
    assert refusal.value.where == "system name"
    assert refusal.value.value == "rk3585"
    assert refusal.value.hint == "did you mean 'rk3588'?"
    assert str(folders["direct"]) in refusal.value.rule


@pytest.mark.parametrize("name", ["../hwconfigs/rk3588", "rk3588.yaml", "", "."])
def test_a_path_is_not_a_name(name):
    with pytest.raises(ConfigError, match="no system has this name"):
        paths.find_named("system", name)


def test_a_missing_user_folder_is_refused_where_it_was_given(tmp_path, monkeypatch):
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match="--config-path: must name an existing folder"):
        paths.model_dirs([missing])
    monkeypatch.setenv(paths.ENV_CONFIG_PATH, str(missing))
    with pytest.raises(ConfigError, match="NPUSIM_CONFIG_PATH: must name an existing folder"):
        paths.model_dirs()


def test_every_dependency_is_pinned_within_its_range():
    from packaging.requirements import Requirement  # packaging comes with pytest
    from packaging.utils import canonicalize_name

    pins = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, version = re.fullmatch(r"(\S+)==(\S+)", line).groups()
            pins[canonicalize_name(name)] = version
    extras = PROJECT["optional-dependencies"].values()
    for text in [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        if requirement.name != "npusim":
            assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


def test_all_means_every_extra_that_is_not_for_development():
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert (
        everything == f"npusim[{','.join(name for name in extras if name not in ('dev', 'all'))}]"
    )
