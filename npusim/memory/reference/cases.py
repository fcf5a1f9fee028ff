"""A folder of reference cases: read it, replay every case, compare cycles and command lists.

The folder holds `results.json` (`devices`, `address_maps`, `cases`) and `traces/<case id>.npz`;
cases without a trace file carry their `requests` and, if they like, a command list. Devices and
maps are built from the folder alone, never from the shipped table.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.errors import ConfigError, nearest
from npusim.memory.dram.address_map import ORDERS
from npusim.memory.layout import COMMAND_NAMES
from npusim.memory.reference.device import ReferenceDevice, reference_device
from npusim.memory.reference.maps import reference_map
from npusim.memory.replay import ReplayResult, replay, replay_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from npusim.memory.specs import DramConfig

MEAN_FRAC, WORST_FRAC = 0.03, 0.08
COLUMNS = ("addr", "is_write", "arrival_cycle")
NAMES = {
    "ACT1": "ACT", "PREpb": "PRE", "CAS_RD": "CAS", "CAS_WR": "CAS", "activate": "ACT",
    "precharge": "PRE", "read": "RD", "write": "WR", "refresh": "REFab",
}  # fmt: skip
Trace = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64]"]


@dataclass(frozen=True)
class CaseResult:
    """One case replayed; `commands_exact` is None without a reference command list."""

    id: str
    device: str
    total_cycles: int
    reference_cycles: int
    commands_exact: bool | None

    @property
    def err_frac(self) -> float:
        """Signed relative error of the total cycles."""
        return self.total_cycles / self.reference_cycles - 1


@dataclass(frozen=True)
class DeviceSummary:
    """Errors of one device over all its cases."""

    cases: int
    mean_abs_err_frac: float
    max_abs_err_frac: float
    worst_case: str

    @property
    def meets_target(self) -> bool:
        """Whether mean and worst error lie within the target."""
        return self.mean_abs_err_frac <= MEAN_FRAC and self.max_abs_err_frac <= WORST_FRAC


@dataclass(frozen=True)
class Validation:
    """A folder's cases replayed; `refused` tells why devices could not be built."""

    cases: tuple[CaseResult, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> dict[str, DeviceSummary]:
        """Summary per device, in order of first appearance."""
        groups: dict[str, list[CaseResult]] = {}
        for case in self.cases:
            groups.setdefault(case.device, []).append(case)
        return {name: _summary(cases) for name, cases in groups.items()}

    @property
    def meets_target(self) -> bool:
        """Whether every device was built and meets the target."""
        return not self.refused and all(s.meets_target for s in self.devices.values())


def _summary(cases: Sequence[CaseResult]) -> DeviceSummary:
    """Errors of one device."""
    errors = [abs(case.err_frac) for case in cases]
    worst = max(range(len(cases)), key=errors.__getitem__)
    return DeviceSummary(len(cases), sum(errors) / len(errors), errors[worst], cases[worst].id)


class ReferenceFolder:
    """A folder of reference cases; devices are built when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "results.json"
        data = _read_results(self.path)
        self.cases: list[dict[str, Any]] = data["cases"]
        self._devices: dict[str, Any] = data["devices"]
        self._maps: dict[str, Any] = data["address_maps"]
        self._built: dict[str, ReferenceDevice] = {}

    def device(self, name: str) -> ReferenceDevice:
        """A device by name."""
        if name not in self._devices:
            hint = nearest(name, self._devices)
            raise ConfigError(f"{self.path}: devices", "no such device", name, hint)
        if name not in self._built:
            self._built[name] = reference_device(name, self._devices[name])
        return self._built[name]

    def memory(self, device: str, address_map: str, **stated: Any) -> DramConfig:
        """The memory a case ran on; `stated` fields of `DramConfig` come first.

        The map is one of the folder or, where it has none of that name, one of our own.
        """
        built = self.device(device)
        settings = {"channels": built.channels, **built.settings, **stated}
        channels, ranks = settings["channels"], settings["ranks"]
        key = f"{device}.{address_map}"
        if key in self._maps:
            fields, interleave = reference_map(
                self._maps[key], built.device, channels, ranks, f"address map {key}"
            )
            settings = {"channel_interleave_bytes": interleave} | settings
            return replay_memory(built.device, fields, **settings)
        if address_map not in ORDERS and ":" not in address_map:
            hint = nearest(key, self._maps)
            raise ConfigError(f"{self.path}: address_maps", "no such map", key, hint)
        return replay_memory(built.device, address_map, **settings)

    def trace(self, case: Mapping[str, Any]) -> Trace:
        """The requests of a case."""
        if "requests" in case:
            rows = np.array(case["requests"], dtype=np.int64)
            if rows.ndim != 2 or rows.shape[1] != len(COLUMNS):
                raise ConfigError(
                    f"case {case['id']}", f"requests are rows of {COLUMNS}", rows.shape
                )
            return rows[:, 0], rows[:, 1], rows[:, 2]
        return read_trace(self.folder / "traces" / f"{case['id']}.npz")

    def run(self, case: Mapping[str, Any], command_log: int | None = None) -> ReplayResult:
        """Replay one case, with a log of as many commands as it could need."""
        memory = self.memory(case["device"], case["address_map"])
        trace = self.trace(case)
        try:
            return replay(*trace, memory, command_log or 0)
        except ConfigError as error:
            raise ConfigError(
                f"case {case['id']}: {error.where}", error.rule, error.value
            ) from None

    def compare(self, case: Mapping[str, Any]) -> CaseResult:
        """Replay one case and compare."""
        reference = case["result"]
        listed = reference.get("commands")
        result = self.run(case, 64 * len(listed["rows"]) + 64 if listed else 0)
        exact = None
        if listed:
            device = self.device(case["device"]).device
            rows = stated_commands(listed, device.bank_groups, device.banks_per_group)
            exact = own_commands(result) == rows
        return CaseResult(
            case["id"], case["device"], result.total_cycles, reference["total_cycles"], exact
        )


def own_commands(result: ReplayResult) -> list[tuple[int, str, int | None]]:
    """(cycle, command, bank in its channel) of a replay; a whole rank's commands have no bank."""
    rows = []
    for cycle, code, _, bank, _ in result.commands.tolist():
        name = str(COMMAND_NAMES[code])
        rows.append((cycle, name, None if name in ("PREab", "REFab") else bank))
    return rows


def stated_commands(
    listed: Mapping[str, Any], bank_groups: int, banks_per_group: int
) -> list[tuple[int, str, int | None]]:
    """The same of a reference's list."""
    columns = list(listed["columns"])
    sizes = {"Bank": banks_per_group, "BankGroup": bank_groups, "Sid": 1, "Rank": 1}
    rows = []
    for row in listed["rows"]:
        at = dict(zip(columns, row, strict=True))
        bank, unit = 0, 1
        for level, size in sizes.items():
            bank += max(0, at.get(level, 0)) * unit
            unit *= size
        bank += max(0, at.get("PseudoChannel", 0)) * unit
        name = NAMES.get(str(at["cmd"]), str(at["cmd"]))
        rows.append((int(at["cycle"]), name, None if name in ("PREab", "REFab") else bank))
    return rows


def validate_folder(folder: str | Path) -> Validation:
    """Replay every case of a folder and compare its total cycles.

    Parameters
    ----------
    folder : str or Path
        Holds `results.json` and `traces/`.

    Returns
    -------
    Validation
        Every case whose device could be built, and why others could not.

    Raises
    ------
    ConfigError
        If the folder, a map, a trace or a case is wrong.
    """
    reference = ReferenceFolder(Path(folder))
    refused = {}
    for name in dict.fromkeys(str(case["device"]) for case in reference.cases):
        try:
            reference.device(name)
        except ConfigError as error:
            refused[name] = str(error)
    cases = [c for c in reference.cases if c["device"] not in refused]
    return Validation(tuple(reference.compare(case) for case in cases), refused)


def _read_results(path: Path) -> dict[str, Any]:
    """`results.json`, its blocks and the keys of every case checked."""
    if not path.is_file():
        raise ConfigError(str(path), "must be a file")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(str(path), f"must be JSON: {error}") from None
    kinds: dict[str, type] = {"devices": dict, "address_maps": dict, "cases": list}
    for key, kind in kinds.items():
        if not isinstance(data, dict) or not isinstance(data.get(key), kind):
            raise ConfigError(f"{path}: {key}", "must be there")
    if not data["cases"]:
        raise ConfigError(f"{path}: cases", "has at least one case")
    for i, case in enumerate(data["cases"]):
        missing = [k for k in ("id", "device", "address_map", "result") if k not in case]
        if not missing and int(case["result"].get("total_cycles", 0)) < 1:
            missing = ["result.total_cycles"]
        if missing:
            raise ConfigError(f"{path}: cases[{i}]", "needs", missing)
    return data


def read_trace(path: Path) -> Trace:
    """The three columns of a trace file.

    Raises
    ------
    ConfigError
        If it is no npz file, lacks an array, or the arrays are no whole numbers of one length.
    """
    if not path.is_file():
        raise ConfigError(str(path), "must be a file")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in COLUMNS if name not in file]
            if missing:
                raise ConfigError(str(path), f"needs the arrays {', '.join(COLUMNS)}", missing)
            columns = [file[name] for name in COLUMNS]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError):
        raise ConfigError(str(path), "must be an npz file") from None
    for name, column in zip(COLUMNS, columns, strict=True):
        if column.dtype.kind not in "iub":
            raise ConfigError(f"{path}: {name}", "holds whole numbers", str(column.dtype))
        if column.dtype == np.uint64 and column.size and int(column.max()) >= 1 << 62:
            raise ConfigError(f"{path}: {name}", "is below 2^62", int(column.max()))
    addr, is_write, arrival = (column.astype(np.int64) for column in columns)
    return addr, is_write, arrival
