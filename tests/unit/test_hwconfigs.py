"""The shipped systems: a source for every number, sizes that add up, published peaks."""

from __future__ import annotations

import pytest

from npusim.config.check import check_system, dram_peak_bytes_per_s, number_paths
from npusim.config.compute import ComputeDtype
from npusim.config.document import value_at
from npusim.config.loader import load_system
from npusim.config.overrides import apply_system_overrides
from npusim.config.system import SystemConfig
from npusim.errors import ConfigError
from npusim.paths import named_files

SHIPPED = sorted(named_files("system"))


def test_the_five_systems_are_shipped() -> None:
    wanted = {"rk3588", "ascend-910b", "tpu-v6e", "jetson-agx-orin", "edge-npu"}
    assert wanted <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_has_a_source_and_every_source_a_value(name: str) -> None:
    system = load_system(name)
    numbers = set(number_paths(system))
    assert len(numbers) > 50
    assert sorted(numbers - set(system.sources)) == []
    data = system.model_dump(mode="json", exclude_none=True)
    for path in system.sources:
        value = value_at(data, tuple(path.split(".")))
        assert isinstance(value, (int, float, str)), path


@pytest.mark.parametrize("name", SHIPPED)
def test_every_source_says_how_sure_it_is(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    assert system.description.endswith(".")
    kinds = ("(quoted)", "(quoted-secondary)", "(derived)", "(unverified)")
    starts = ("assumed: ", "derived: ", "measured: ", "latency-formula article", "NVIDIA Jetson")
    for path, text in system.sources.items():
        assert text.startswith(starts) or any(kind in text for kind in kinds), path


@pytest.mark.parametrize("name", SHIPPED)
def test_measured_values_are_listed_as_calibration(name: str) -> None:
    system = load_system(name)
    measured = {path for path, text in system.sources.items() if text.startswith("measured")}
    assert measured == set(system.calibration)
    assert len(system.calibration) <= 3


@pytest.mark.parametrize("name", SHIPPED)
def test_the_dram_matches_its_standard(name: str) -> None:
    remarks = check_system(load_system(name))
    assert not [remark for remark in remarks if "sources" in remark]
    # the one imbalance that is the product's own: 32 B per cycle and core
    assert len(remarks) == (1 if name == "ascend-910b" else 0)


# Transfers per second x bits / 8, by hand.
@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("rk3588", 33.792),  # 4.224 x 64 / 8
        ("ascend-910b", 1638.4),  # 3.2 x 4096 / 8
        ("tpu-v6e", 1638.4),  # 6.4 x 2048 / 8
        ("jetson-agx-orin", 204.8),  # 6.4 x 256 / 8
        ("edge-npu", 136.528),  # 8.533 x 128 / 8
    ],
)
def test_dram_peaks_are_the_published_ones(name: str, gb_per_s: float) -> None:
    system = load_system(name)
    peak = dram_peak_bytes_per_s(system.memories["dram"])
    assert float(peak) == pytest.approx(gb_per_s * 1e9, rel=1e-12)


def tera_ops(system: SystemConfig, dtype: str) -> float:
    """Peak of all cores, one MAC being two operations."""
    npu = system.devices["npu"]
    macs = npu.cores * npu.core.matrix.macs_per_cycle(ComputeDtype(dtype))
    return macs * 2 * npu.clock_hz / 1e12


# cores x MACs per cycle x 2 x clock, by hand.
@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("rk3588", "int8", 6.144),  # 3 x 1024 x 2 x 1.0 GHz
        ("rk3588", "int4", 12.288),
        ("rk3588", "fp16", 3.072),
        ("ascend-910b", "fp16", 353.8944),  # 24 x 4096 x 2 x 1.8 GHz
        ("ascend-910b", "int8", 707.7888),
        ("ascend-910b", "int4", 1415.5776),
        ("tpu-v6e", "bf16", 917.504),  # 4 x 65536 x 2 x 1.75 GHz
        ("tpu-v6e", "int8", 1835.008),
        ("jetson-agx-orin", "int8", 85.1968),  # 16 x 4 x 512 x 2 x 1.3 GHz
        ("jetson-agx-orin", "fp16", 42.5984),
        ("edge-npu", "int4", 98.304),  # 4 x 8192 x 2 x 1.5 GHz
        ("edge-npu", "fp16", 24.576),
    ],
)
def test_compute_peaks_are_the_published_ones(name: str, dtype: str, tera: float) -> None:
    assert tera_ops(load_system(name), dtype) == pytest.approx(tera, rel=1e-12)


def test_the_banked_sram_of_the_edge_npu_gives_768_gb_per_s() -> None:
    npu = load_system("edge-npu").devices["npu"]
    assert npu.shared_sram is not None
    assert npu.shared_sram.banks * npu.shared_sram.port_bytes * npu.clock_hz == 768 * 10**9


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        (
            "system.memories.dram.capacity_bytes=4 GiB",
            ["memories.dram.capacity_bytes: must be 4 channels x 1 ranks x 2 GiB", "'4 GiB'"],
        ),
        (
            "system.memories.dram.standard=LPDDR4X-4222",
            ["memories.dram.standard: no such DRAM standard", "did you mean 'LPDDR4X-42"],
        ),
        (
            "system.memories.dram.channel_interleave_bytes=16 B",
            ["channel_interleave_bytes: must be at least one burst", "32 B", "'16 B'"],
        ),
    ],
)
def test_a_dram_that_its_standard_cannot_make_is_refused(override: str, parts: list[str]) -> None:
    system = apply_system_overrides(load_system("rk3588"), [override])
    with pytest.raises(ConfigError) as caught:
        check_system(system)
    for part in parts:
        assert part in str(caught.value)


def test_a_missing_source_and_a_bottleneck_are_remarked() -> None:
    system = load_system("rk3588")
    sources = {"devices.npu.core.dma.nothing": "x", **system.sources}
    del sources["devices.npu.cores"]
    narrow = apply_system_overrides(
        system.model_copy(update={"sources": sources}), ["system.buses.axi.data_bits=64 bit"]
    )
    remarks = check_system(narrow)
    assert "devices.npu.cores has no entry in sources" in remarks
    assert "sources.devices.npu.core.dma.nothing belongs to no value" in remarks
    assert "buses.axi carries 8 GB/s, below the 33.79 GB/s of dram" in remarks
