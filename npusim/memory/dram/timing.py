"""DRAM devices as data: `config/dram_standards.yaml` resolved to command spacings.

The table holds JEDEC parameters in clock cycles. `spacings` turns them into cycles from the start
of one command to the start of the next. A command of n cycles counts from its last one, which adds
n - 1 after it and takes n - 1 off before it (JEDEC's rule for multi-cycle commands).
Left out: power-down and self-refresh, temperature-dependent refresh, RFM, ODT, tCCD_M.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npusim.config.dram_table import dram_table
from npusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUIRED = (
    "nBL", "nCL", "nCWL", "nRCD", "nRP", "nRAS", "nWR", "nRTP", "nCCDS", "nCCDL", "nRRDS", "nRRDL",
    "nFAW", "nWTRS", "nWTRL", "nRFC", "nREFI",
)  # fmt: skip
OPTIONAL = (
    "nBL_max", "nRC", "nRPab", "nRCDRD", "nRCDWR", "nCCDS_WR", "nCCDL_WR", "nRTW", "nPPD", "nCS",
    "nCCDR", "nAAD", "nWCKPST", "nRFCpb", "nREFIpb", "nPBR2PBR", "nPBR2ACT",
)  # fmt: skip
ORGANISATION = (
    "width_bits", "burst_length", "pseudo_channels", "stack_ids", "bank_groups", "banks_per_group",
    "rows", "columns", "density_bits",
)  # fmt: skip


@dataclass(frozen=True)
class DramDevice:
    """One kind of DRAM channel.

    Parameters
    ----------
    cycle_ps : Fraction
        Controller cycle; `ticks_per_clock` of them make one CK (HBM3: 2), timings are in CK.
    width_bits : int
        Data bus width of a pseudo-channel (of the channel when it has none).
    density_bits : int
        Bits behind one data bus of `device_width_bits`; checked against rows x columns x banks.
    timing : Mapping[str, int]
        JEDEC parameters in CK.
    dual_command_bus : bool
        Row and column commands travel on buses of their own (HBM).
    rising_edge_only : bool
        Commands other than PRE start on odd controller cycles only (HBM3).
    two_step_activate, wck_sync : bool
        LPDDR5: ACT1 + ACT2; CAS before a column command when WCK is off.
    source : str
        Where the numbers come from.
    spacing : Mapping[str, int]
        Spacings stated in controller cycles; they replace those derived from `timing`.
    """

    name: str
    standard: str
    source: str
    cycle_ps: Fraction
    ticks_per_clock: int
    width_bits: int
    device_width_bits: int
    burst_length: int
    pseudo_channels: int
    stack_ids: int
    bank_groups: int
    banks_per_group: int
    rows: int
    columns: int
    density_bits: int
    activate_cycles: int
    column_cycles: int
    precharge_cycles: int
    dual_command_bus: bool
    rising_edge_only: bool
    two_step_activate: bool
    wck_sync: bool
    timing: Mapping[str, int] = field(hash=False)
    spacing: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def burst_bytes(self) -> int:
        """Bytes moved by one RD or WR."""
        return self.width_bits * self.burst_length // 8

    @property
    def channel_bytes(self) -> int:
        """Capacity of one channel with one rank."""
        banks = self.bank_groups * self.banks_per_group * self.stack_ids * self.pseudo_channels
        return self.rows * self.columns * banks * self.width_bits // 8

    @property
    def channel_peak_bytes_per_s(self) -> Fraction:
        """Peak of one channel: a burst per nBL cycles on every pseudo-channel."""
        cycles = self.timing["nBL"] * self.ticks_per_clock
        return Fraction(self.burst_bytes * self.pseudo_channels * 10**12) / (cycles * self.cycle_ps)


def check_device(device: DramDevice) -> None:
    """Refuse a device whose numbers contradict each other."""
    where = f"dram_standards.yaml: {device.name}"
    t = device.timing
    missing = [name for name in REQUIRED if name not in t]
    if missing:
        raise ConfigError(f"{where}.timing_nCK", "parameters are required", missing)
    unknown = sorted(set(t) - set(REQUIRED) - set(OPTIONAL))
    if unknown:
        hint = nearest(unknown[0], REQUIRED + OPTIONAL)
        raise ConfigError(f"{where}.timing_nCK", "parameter is unknown", unknown[0], hint)
    negative = [name for name, value in t.items() if value < 0]
    if negative:
        raise ConfigError(f"{where}.timing_nCK", "cycles are at least 0", negative)
    banks = device.bank_groups * device.banks_per_group * device.stack_ids
    bits = device.rows * device.columns * banks * device.device_width_bits
    row_cycle = t.get("nRC", t["nRAS"] + t["nRP"])
    rules = (
        ("density = rows x columns x banks x width", device.density_bits == bits, bits),
        ("nRC >= nRAS + nRP", row_cycle >= t["nRAS"] + t["nRP"] - 1, t),
        ("nCCDL >= nCCDS >= nBL", t["nCCDL"] >= t["nCCDS"] >= t["nBL"], t),
        ("nRRDL >= nRRDS", t["nRRDL"] >= t["nRRDS"], t),
        ("nFAW >= 3 x nRRDS", t["nFAW"] >= 3 * t["nRRDS"], t),
        ("nRFC + nRC < nREFI: a row opens and closes between refreshes",
         t["nRFC"] + row_cycle < t["nREFI"], t),
        ("width is a multiple of the device width",
         device.width_bits % device.device_width_bits == 0, device.width_bits),
        ("bursts are whole bytes", device.width_bits * device.burst_length % 8 == 0, None),
        ("rate: nBL = burst length over transfers per clock",
         device.burst_length % t["nBL"] == 0, device.burst_length),
    )  # fmt: skip
    for rule, holds, value in rules:
        if not holds:
            raise ConfigError(where, rule, value)


def spacings(device: DramDevice) -> dict[str, int]:
    """Command spacings in controller cycles, start to start, keyed like `layout.T_*`."""
    t, k = device.timing, device.ticks_per_clock
    act, col = device.activate_cycles - 1, device.column_cycles - 1
    pre = device.precharge_cycles - 1
    bl, rl, wl = t["nBL"], t["nCL"], t["nCWL"]
    bl_max = t.get("nBL_max", bl)
    rp = t["nRP"]
    rc = t.get("nRC", t["nRAS"] + rp)
    write_end = wl + bl
    switch = bl + t.get("nCS", 2)
    return {
        "RL": (rl + bl) * k,
        "WL": write_end * k,
        "BL": bl * k,
        "RCDRD": t.get("nRCDRD", t["nRCD"]) * k + act - col,
        "RCDWR": t.get("nRCDWR", t["nRCD"]) * k + act - col,
        "RP": rp * k + pre - act,
        "RPAB": t.get("nRPab", rp) * k + pre - act,
        "RAS": t["nRAS"] * k + act - pre,
        "RC": rc * k,
        "RTP": t["nRTP"] * k + col - pre,
        "WR": (write_end + t["nWR"]) * k + col - pre,
        "CCDS": t["nCCDS"] * k,
        "CCDL": t["nCCDL"] * k,
        "CCDS_WR": t.get("nCCDS_WR", t["nCCDS"]) * k,
        "CCDL_WR": t.get("nCCDL_WR", t["nCCDL"]) * k,
        "RTW": t.get("nRTW", rl + bl + 2 - wl) * k,
        "WTRS": (write_end + t["nWTRS"]) * k,
        "WTRL": (wl + bl_max + t["nWTRL"]) * k,
        "RRDS": t["nRRDS"] * k,
        "RRDL": t["nRRDL"] * k,
        "FAW": t["nFAW"] * k,
        "PPD": t.get("nPPD", 0) * k,
        "RPREF": rp * k + pre,
        "RCREF": rc * k + act,
        "RFC": t["nRFC"] * k - act,
        "REFI": t["nREFI"] * k,
        "RFCPB": t.get("nRFCpb", 0) * k - act,
        "REFIPB": t.get("nREFIpb", 0) * k,
        "PBR2PBR": t.get("nPBR2PBR", 0) * k,
        "PBR2ACT": t.get("nPBR2ACT", 0) * k - act,
        "CSR": switch * k,
        "CCDR": t.get("nCCDR", t["nCCDS"]) * k,
        "SIDS": device.stack_ids,
        "CSW": max(0, (write_end + t.get("nCS", 2) - rl) * k),
        "ACT_LEN": device.activate_cycles,
        "COL_LEN": device.column_cycles,
        "PRE_LEN": device.precharge_cycles,
        "DUAL": int(device.dual_command_bus),
        "ODD": int(device.rising_edge_only),
        "AAD": t.get("nAAD", 0) * k if device.two_step_activate else 0,
        "WCK": int(device.wck_sync),
        "WCKPST": t.get("nWCKPST", 0) * k,
        "ACT2PBR": t["nRRDS"] * k + act if device.dual_command_bus else 0,
        **device.spacing,
    }


def dram_device_names() -> list[str]:
    """Names in `dram_standards.yaml`, sorted."""
    return sorted(dram_table()["devices"])


@cache
def load_dram_device(name: str) -> DramDevice:
    """Device `name` of `dram_standards.yaml`, checked.

    Raises
    ------
    ConfigError
        If the name is unknown (with the nearest one) or the entry contradicts itself.
    """
    table = dram_table()
    if name not in table["devices"]:
        hint = nearest(name, dram_device_names())
        raise ConfigError("dram_standards.yaml", "no such DRAM device", name, hint)
    return parse_device(name, table["devices"][name], table["commands"])


def parse_device(name: str, entry: Mapping[str, Any], commands: Mapping[str, Any]) -> DramDevice:
    """Build and check one entry; `commands` maps a standard to its command-bus rules."""
    where = f"dram_standards.yaml: {name}"
    keys = {"standard", "source", "cycle_ps", "organisation", "timing_nCK"}
    if set(entry) != keys:
        raise ConfigError(where, f"keys are {sorted(keys)}", sorted(entry))
    if entry["standard"] not in commands:
        hint = nearest(str(entry["standard"]), commands)
        raise ConfigError(f"{where}.standard", "is unknown", entry["standard"], hint)
    organisation = dict(entry["organisation"])
    device_width = organisation.pop("device_width_bits", organisation.get("width_bits"))
    if set(organisation) != set(ORGANISATION):
        wrong = sorted(set(organisation) ^ set(ORGANISATION))
        raise ConfigError(f"{where}.organisation", f"keys are {list(ORGANISATION)}", wrong)
    device = DramDevice(
        name=name,
        standard=entry["standard"],
        source=entry["source"],
        cycle_ps=Fraction(str(entry["cycle_ps"])),
        device_width_bits=device_width,
        timing=MappingProxyType(dict(entry["timing_nCK"])),
        **organisation,
        **commands[entry["standard"]],
    )
    check_device(device)
    return device
