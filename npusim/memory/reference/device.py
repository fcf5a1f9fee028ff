"""A DRAM device and its controller as a reference's `devices` entry states them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npusim.config.dram_table import dram_table
from npusim.errors import ConfigError, nearest
from npusim.memory.dram.timing import REQUIRED, DramDevice
from npusim.memory.reference.spacing import stated_spacings

if TYPE_CHECKING:
    from collections.abc import Mapping

RAMULATOR, DRAMSIM = "ramulator2.1", "dramsim3"
RENAMED = {"nBL_min": "nBL", "nRTPL": "nRTP", "nRREFD": "nPBR2ACT"}
REFRESH = {"AllBank": "all_bank", "PerBank": "per_bank", "NoRefresh": "none"}
SCHEDULERS = {"FRFCFS": "frfcfs", "FRFCFS-RowHit": "frfcfs_row_hit"}
HAS_PRECHARGE_DELAY = ("LPDDR4", "GDDR5", "GDDR5X", "GDDR6")  # tPPD in the tool's timing tables
HAS_TWO_RCD = ("HBM", "HBM2", "GDDR5", "GDDR5X", "GDDR6")
PLAIN_BUS = {
    "ticks_per_clock": 1, "activate_cycles": 1, "column_cycles": 1, "precharge_cycles": 1,
    "rising_edge_only": False, "two_step_activate": False, "wck_sync": False,
}  # fmt: skip


@dataclass(frozen=True)
class ReferenceDevice:
    """A device with the settings of its controller, as keywords of `DramConfig`."""

    device: DramDevice
    tool: str
    channels: int
    settings: Mapping[str, Any]


def reference_device(name: str, entry: Mapping[str, Any]) -> ReferenceDevice:
    """Device `name` of a reference.

    What the entry states comes first: `command_constraints_cycles` before `timing_in_tCK`, and
    `controller` before the meaning of a suffix of the name (`-q8`, `-norefresh`, ...).

    Raises
    ------
    ConfigError
        If the entry lacks something, contradicts itself or asks for what is not modelled.
    """
    where = f"device {name}"
    tool = _get(entry, "tool", where)
    builders = {RAMULATOR: _ramulator, DRAMSIM: _dramsim}
    if tool not in builders:
        raise ConfigError(f"{where}.tool", f"is {' or '.join(builders)}", tool)
    device, settings = builders[tool](name, entry, where)
    channels = entry.get("channels", 1)
    if not isinstance(channels, int) or channels < 1:
        raise ConfigError(f"{where}.channels", "is a whole number above 0", channels)
    return ReferenceDevice(device, tool, channels, MappingProxyType(settings))


def _get(entry: Mapping[str, Any], key: str, where: str) -> Any:
    """A required key."""
    if key not in entry:
        raise ConfigError(f"{where}.{key}", "is required", None, nearest(key, entry))
    return entry[key]


def _whole(entry: Mapping[str, Any], key: str, where: str) -> int:
    """A required whole number of at least 0."""
    value = _get(entry, key, where)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ConfigError(f"{where}.{key}", "is a whole number", value)
    if value < 0:
        raise ConfigError(f"{where}.{key}", "is at least 0", value)
    return int(value)


def _shape(
    entry: Mapping[str, Any], burst_length: int, counts: dict[str, int], where: str
) -> dict[str, Any]:
    """Organisation of one channel from the widths of the address fields."""
    bits = dict(_get(entry, "address_field_bits", where))
    for field, stated in counts.items():
        if stated != 1 << bits.get(field, 0):
            rule = f"has as many bits as the organisation's {stated} need"
            raise ConfigError(f"{where}.address_field_bits.{field}", rule, bits.get(field, 0))
    burst = _whole(entry, "transaction_bytes", where)
    if burst < 1 or burst & (burst - 1) or burst * 8 % burst_length:
        rule = f"is a power of two with a whole number of bits in each of {burst_length} beats"
        raise ConfigError(f"{where}.transaction_bytes", rule, burst)
    width = burst * 8 // burst_length
    banks = 1 << (bits.get("BankGroup", 0) + bits.get("Bank", 0) + bits.get("Sid", 0))
    columns, rows = burst_length << bits.get("Column", 0), 1 << bits.get("Row", 0)
    return {
        "width_bits": width, "device_width_bits": width, "burst_length": burst_length,
        "pseudo_channels": 1 << bits.get("PseudoChannel", 0), "stack_ids": 1 << bits.get("Sid", 0),
        "bank_groups": 1 << bits.get("BankGroup", 0), "banks_per_group": 1 << bits.get("Bank", 0),
        "rows": rows, "columns": columns, "density_bits": rows * columns * banks * width,
    }  # fmt: skip


def _ramulator(
    name: str, entry: Mapping[str, Any], where: str
) -> tuple[DramDevice, dict[str, Any]]:
    """A device of Ramulator 2.1."""
    standard = _get(entry, "standard", where)
    commands = dram_table()["commands"]
    if standard not in commands:
        raise ConfigError(f"{where}.standard", "is unknown", standard, nearest(standard, commands))
    bus = dict(commands[standard])
    stated = dict(_get(entry, "timing_in_tCK", where))
    place = f"{where}.timing_in_tCK"
    timing = {str(RENAMED.get(k, k)): _whole(stated, k, place) for k in stated if k[:1] == "n"}
    timing.setdefault("nRCD", timing.get("nRCDRD", 0))
    organisation = _get(entry, "organisation", where)
    column_bits = _get(entry, "address_field_bits", where).get("Column", 0)
    burst_length = _whole(organisation, "column", f"{where}.organisation") >> column_bits
    names = {"bankgroup": "BankGroup", "bank": "Bank", "row": "Row", "sid": "Sid",
             "pseudochannel": "PseudoChannel", "rank": "Rank"}  # fmt: skip
    counts = {names[k]: v for k, v in organisation.items() if k in names}
    settings = _ramulator_settings(name, entry, where)
    if settings.pop("is_wck_on"):
        bus["wck_sync"] = False
    bus["ticks_per_clock"] = entry.get("ticks_per_tCK", bus["ticks_per_clock"])
    rows = entry.get("command_constraints_cycles") or []
    spacing = stated_spacings(rows, f"{where}.command_constraints_cycles", bus["dual_command_bus"])
    if "read_latency_cycles" in entry:
        spacing["RL"] = _whole(entry, "read_latency_cycles", where)
    settings["ranks"] = counts.get("Rank", 1)
    shape = _shape(entry, max(1, burst_length), counts, where)
    return _device(name, entry, standard, shape, bus, timing, spacing), settings


def _device(
    name: str, entry: Mapping[str, Any], standard: str, shape: dict[str, Any],
    bus: dict[str, Any], timing: dict[str, int], spacing: dict[str, int],
) -> DramDevice:  # fmt: skip
    """Put a device together; every timing must be there."""
    where = f"device {name}"
    missing = [key for key in REQUIRED if key not in timing]
    if missing:
        raise ConfigError(f"{where}.timing_in_tCK", "parameters are required", missing)
    if timing["nBL"] < 1:
        raise ConfigError(f"{where}.timing_in_tCK", "a burst lasts at least one cycle", 0)
    cycle_ps = Fraction(str(_get(entry, "cycle_ps", where)))
    if cycle_ps <= 0:
        raise ConfigError(f"{where}.cycle_ps", "is above 0", entry["cycle_ps"])
    return DramDevice(
        name=name, standard=standard, source=f"reference results, {entry['tool']}",
        cycle_ps=cycle_ps, timing=MappingProxyType(timing), spacing=MappingProxyType(spacing),
        **shape, **bus,
    )  # fmt: skip


def _ramulator_settings(name: str, entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Controller of a Ramulator 2.1 device."""
    control = dict(entry.get("controller") or _from_suffixes(name))
    place = f"{where}.controller"
    policy, cap = _page_policy(str(control.get("page_policy", "Open")), place)
    return {
        "controller": "frfcfs",
        "scheduler": _choice(control, "scheduler", SCHEDULERS, "FRFCFS-RowHit", place),
        "refresh": _choice(control, "refresh", REFRESH, "AllBank", place),
        "read_queue_depth": _whole({"read_queue": 32} | control, "read_queue", place),
        "write_queue_depth": _whole({"write_queue": 32} | control, "write_queue", place),
        "write_high_frac": Fraction(str(control.get("write_high_watermark", 0.8))),
        "write_low_frac": Fraction(str(control.get("write_low_watermark", 0.2))),
        "page_policy": policy,
        "page_cap": cap,
        "is_wck_on": control.get("wck_sync_mode") == "always_on",
    }


def _choice(
    control: Mapping[str, Any], key: str, names: Mapping[str, str], default: str, place: str
) -> str:
    """Our name of a policy."""
    value = control.get(key, default)
    if value not in names:
        raise ConfigError(f"{place}.{key}", f"is one of {', '.join(names)}", value)
    return names[value]


def _page_policy(text: str, place: str) -> tuple[str, int]:
    """(page policy, cap) of `Open` or `ClosedCAP cap=N` (the tool's default: 4)."""
    match = re.fullmatch(r"ClosedCAP(?:\D*(\d+))?\D*", text)
    if text == "Open":
        return "open", 1
    if match is None:
        raise ConfigError(f"{place}.page_policy", "is Open or ClosedCAP cap=N", text)
    return "closed_cap", int(match[1] or 4)


def _from_suffixes(name: str) -> dict[str, Any]:
    """What the suffixes of a name say of a controller that the entry does not state."""
    meanings: dict[str, dict[str, Any]] = {
        "closed": {"page_policy": "ClosedCAP cap=1"}, "frfcfs": {"scheduler": "FRFCFS"},
        "norefresh": {"refresh": "NoRefresh"}, "perbankref": {"refresh": "PerBank"},
        "wckon": {"wck_sync_mode": "always_on"},
    }  # fmt: skip
    control: dict[str, Any] = {}
    for suffix in name.split("-")[2:]:
        control |= meanings.get(suffix, {})
        if re.fullmatch(r"q\d+", suffix):
            control |= {"read_queue": int(suffix[1:]), "write_queue": int(suffix[1:])}
    return control


def _dramsim(name: str, entry: Mapping[str, Any], where: str) -> tuple[DramDevice, dict[str, Any]]:
    """A device of DRAMsim3: spacings derived as its timing tables do."""
    organisation = _get(entry, "organisation", where)
    place = f"{where}.organisation"
    protocol = str(organisation.get("protocol", _get(entry, "standard", where)))
    burst_length = _whole(organisation, "BL", place)
    names = {"bankgroups": "BankGroup", "banks_per_group": "Bank", "rows": "Row", "ranks": "Rank"}
    counts = {names[k]: _whole(organisation, k, place) for k in organisation if k in names}
    t = {"AL": 0, "tPPD": 0} | dict(_get(entry, "timing_in_tCK", where))
    burst = entry.get("burst_cycles", burst_length // 2)
    timing = _dramsim_timing(t, burst, protocol, counts.get("BankGroup", 1) == 1, where)
    is_dual = str(organisation.get("hbm_dual_cmd", "false")).lower() == "true"
    shape = _shape(entry, burst_length, counts, where)
    device = _device(
        name, entry, protocol, shape, PLAIN_BUS | {"dual_command_bus": is_dual}, timing,
        {"RCREF": 0, "ACT2PBR": 0},
    )  # fmt: skip
    return device, {"ranks": counts.get("Rank", 1), **_dramsim_settings(entry, where)}


def _dramsim_timing(
    t: Mapping[str, Any], burst: int, protocol: str, has_one_group: bool, where: str
) -> dict[str, int]:
    """Our parameters from the tool's; with one bank group its `_S` values apply everywhere."""
    place = f"{where}.timing_in_tCK"

    def value(key: str) -> int:
        return _whole(t, key, place)

    long = "S" if has_one_group else "L"
    rl, wl = value("AL") + value("CL"), value("AL") + value("CWL")
    two_rcd = protocol in HAS_TWO_RCD
    rcd = {"RD": value("tRCDRD"), "WR": value("tRCDWR")} if two_rcd else None
    plain_rcd = 0 if two_rcd else value("tRCD") - value("AL")
    has_ppd = protocol in HAS_PRECHARGE_DELAY
    return {
        "nBL": burst, "nCL": rl, "nCWL": wl, "nRP": value("tRP"), "nRAS": value("tRAS"),
        "nRC": value("tRAS") + value("tRP"), "nWR": value("tWR"),
        "nRTP": value("AL") + value("tRTP"),
        "nRCD": rcd["RD"] if rcd else plain_rcd, "nRCDRD": rcd["RD"] if rcd else plain_rcd,
        "nRCDWR": rcd["WR"] if rcd else plain_rcd,
        "nCCDS": max(burst, value("tCCD_S")), "nCCDL": max(burst, value(f"tCCD_{long}")),
        "nRRDS": value("tRRD_S"), "nRRDL": value(f"tRRD_{long}"), "nFAW": value("tFAW"),
        "nWTRS": value("tWTR_S"), "nWTRL": value(f"tWTR_{long}"),
        "nRTW": rl + burst - wl + value("tRTRS"), "nCS": value("tRTRS"),
        "nPPD": value("tPPD") if has_ppd else 0, "nRFC": value("tRFC"), "nREFI": value("tREFI"),
    }  # fmt: skip


def _dramsim_settings(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Controller of a DRAMsim3 device."""
    control, place = dict(entry.get("controller") or {}), f"{where}.controller"
    policy = control.get("page_policy", "OPEN_PAGE")
    if policy != "OPEN_PAGE":
        raise ConfigError(f"{place}.page_policy", "is OPEN_PAGE; others are not modelled", policy)
    if not control.get("unified_read_write_queue", True):
        raise ConfigError(
            f"{place}.unified_read_write_queue", "is true; separate ones are not modelled"
        )
    refresh = str(control.get("refresh", "all-bank")).lower()
    if not refresh.startswith(("all-bank", "no")):
        raise ConfigError(f"{place}.refresh", "is all-bank or none", control["refresh"])
    limits = {
        "transaction_queue": 32, "command_queue_per_bank": 8, "row_hit_limit_before_precharge": 4
    }  # fmt: skip
    queue, per_bank, hits = (_whole(limits | control, key, place) for key in limits)
    return {
        "controller": "bank_round_robin", "read_queue_depth": queue, "write_queue_depth": queue,
        "bank_queue_depth": per_bank, "row_hit_limit": hits,
        "refresh": "none" if refresh.startswith("no") else "all_bank",
    }  # fmt: skip
