"""Rules of scratchpad banks and caches, refused with path, rule and value."""

from __future__ import annotations

import pytest

from npusim.config.loader import load_system
from npusim.config.overrides import apply_system_overrides
from npusim.errors import ConfigError

PAD = "system.devices.npu.core.scratchpad"
TIER = "system.devices.npu.shared_sram"
#: the shared tier of jetson-agx-orin as a cache with tags, which it ships without
TAGS = (
    f"{TIER}.cache={{line_bytes: 128 B, sector_bytes: 32 B, ways: 16, write_policy: write_back, "
    "write_allocate: true, bypass_weights: false, bypass_kv: false, bypass_activations: false}"
)


@pytest.mark.parametrize(
    ("system", "override", "message"),
    [
        ("edge-npu", f"{PAD}.interleave_bytes=48 B", "multiple of port_bytes=32"),
        ("edge-npu", f"{PAD}.interleave_bytes=64 KiB", "at most 16384 words"),
        ("edge-npu", f"{PAD}.queue_depth=3", "queue_depth=3: must be a power of two"),
        ("edge-npu", f"{PAD}.queue_depth=128", "queue_depth=128: must be at most 64"),
        ("jetson-agx-orin", f"{TIER}.kind=scratchpad", "cache: does not apply to kind=scratchpad"),
        ("jetson-agx-orin", f"{TIER}.cache.ways=7", "multiple of line_bytes x ways = 896"),
        (
            "jetson-agx-orin",
            f"{TIER}.cache.line_bytes=96 B",
            "line_bytes=96 B: must be a power of two",
        ),
        ("jetson-agx-orin", f"{TIER}.cache.sector_bytes=256 B", "must have 1 to 62 sectors"),
        (
            "jetson-agx-orin",
            "system.devices.npu.shared_tiles=multicast",
            "a cache with lines has no multicast",
        ),
    ],
)
def test_an_impossible_sram_is_refused(system: str, override: str, message: str) -> None:
    shipped = load_system(system)
    if system == "jetson-agx-orin":
        shipped = apply_system_overrides(shipped, [TAGS])
    with pytest.raises(ConfigError, match=message):
        apply_system_overrides(shipped, [override])


def test_optional_keys_have_neutral_defaults() -> None:
    pad = load_system("rk3588").devices["npu"].core.scratchpad
    assert (pad.ports, pad.interleave_bytes, pad.queue_depth) == (None, None, None)
    assert pad.bank_interleave_bytes == pad.port_bytes
    assert pad.bytes_per_cycle == pad.banks * pad.port_bytes


def test_roles_that_bypass_are_not_cached() -> None:
    changed = apply_system_overrides(
        load_system("jetson-agx-orin"), [TAGS, f"{TIER}.cache.bypass_weights=true"]
    )
    shared = changed.devices["npu"].shared_sram
    assert shared is not None
    assert shared.cache is not None
    assert shared.cache.cached_roles == ("kv", "activation")
