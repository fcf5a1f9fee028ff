"""Measured rows, the closed forms beside them, and how both are summed up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npusim.cli import main
from npusim.config.loader import load_system
from npusim.errors import ConfigError
from npusim.studies.calibration import calibrate
from npusim.studies.closed_forms import Terms, TwoTerm, fit_two_term, terms_of, weighted_median
from npusim.studies.measurements import DATA, Measurement, device_rows, operator_rows
from npusim.studies.validation import fitted_ids, launch_floor_ns, validate
from npusim.workload.primitives import primitive_graph

TPU = load_system("tpu-v6e")
HEADER = "op,m,k,n,batch,q_heads,kv_heads,q_len,kv_len,head_dim,model,latency_ns\n"


def written(tmp_path, *rows):
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def test_the_fit_uses_every_third_shipped_row_for_at_most_three_numbers():
    rows = operator_rows(DATA / "tpu_v6e_ops.csv")
    assert len(rows) == 249
    assert fitted_ids(TPU) == {row.name for row in rows[::3]}
    assert len(TPU.calibration) <= 3


def test_every_row_reads_as_an_operator_of_ours(tmp_path):
    path = written(
        tmp_path,
        "gemm,1,384,1152,,,,,,,minilm,2593",
        "attention,,,,4,24,8,1,512,128,x,17889.5",
        "ffn_gated,32,1024,3072",  # short rows have no latency
    )
    with pytest.raises(ConfigError, match=r"rows.csv:4.*latency_ns must be a positive number"):
        operator_rows(path)
    path.write_text("\n".join(path.read_text().splitlines()[:3]))  # no newline at the end
    assert operator_rows(path) == (
        Measurement("gemm", "1x384x1152", 2593.0),
        Measurement("attention", "4x24x8x1x512x128", 17889.5),
    )


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("gem,1,1,1,,,,,,,,5", "op must be one of"),
        ("gemm,0,1,1,,,,,,,,5", "m must be a whole number"),
        ("gemm,1,,1,,,,,,,,5", "k must be a whole number"),
        ("gemm,1,1,1,,,,,,,,nan", "positive number"),
        ("gemm,1,1,1,,,,,,,,-3", "positive number"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(tmp_path, row, rule):
    with pytest.raises(ConfigError, match=rf"rows.csv:2.*{rule}"):
        operator_rows(written(tmp_path, row))


def test_a_row_measured_twice_and_an_empty_file_are_refused(tmp_path):
    row = "gemm,1,2,3,,,,,,,,5"
    with pytest.raises(ConfigError, match="measure the same"):
        operator_rows(written(tmp_path, row, row))
    with pytest.raises(ConfigError, match="no rows"):
        operator_rows(written(tmp_path))


def test_a_system_without_measurements_is_told_who_has_some():
    with pytest.raises(ConfigError, match="ascend-910b, rk3588, tpu-v6e"):
        device_rows("edge-npu")


def test_terms_by_hand():
    # 2 * 256^3 FLOPs at 4 * 65536 * 2 * 1.75 GHz; three matrices of 128 KiB at 1638.4 GB/s; one
    # fold of 2 * 256 + 256 + 256 - 2 = 1022 cycles at 1.75 GHz
    terms = terms_of(primitive_graph("matmul", "256x256x256"), TPU)
    assert terms.compute_ns == pytest.approx(2 * 256**3 / 917.504e3, rel=1e-3)
    assert terms.memory_ns == pytest.approx(3 * 131072 / 1638.4, rel=1e-3)
    assert terms.fold_ns == pytest.approx(1022 / 1.75, rel=1e-9)


def test_the_two_term_fit_finds_the_constants_that_made_the_rows():
    made = TwoTerm(1500.0, 0.71, 0.83)
    rng = np.random.default_rng(4)
    terms = [Terms(*(10 ** rng.uniform(1, 5, 2)).tolist(), 0.0) for _ in range(60)]
    fit = fit_two_term(terms, [made.ns(t) for t in terms])
    assert fit is not None
    assert (fit.floor_ns, fit.compute_share, fit.memory_share) == pytest.approx((1500, 0.71, 0.83))
    assert fit_two_term(terms[:3], [1.0, 2.0, 3.0]) is None


def test_a_weighted_median_minimises_weighted_distances():
    values, weights = np.array([[3.0, 1.0, 2.0], [5.0, 4.0, 9.0]]), np.array([1.0, 5.0, 1.0])
    assert weighted_median(values, weights).tolist() == [1.0, 4.0]


def test_rows_of_a_file_are_scored_unless_they_were_fitted(tmp_path, capsys):
    path = written(
        tmp_path,
        "gemm,1,384,384,,,,,,,minilm,2044",  # the first shipped row: fitted
        "gemm,640,384,384,,,,,,,new,3300",
        "attention,,,,1,24,8,1,100,128,new,7000",
    )
    assert main(["validate", "tpu-v6e", "--data", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["is_fitted"] for row in found["rows"]] == [True, False, False]
    assert {"op", "shape", "measured_ns", "simulated_ns", "regime"} <= set(found["rows"][0])
    assert found["errors"]["all"]["simulated"]["rows"] == 2
    first = found["rows"][1]
    assert found["errors"]["gemm"]["roofline"]["bias_frac"] == pytest.approx(
        first["roofline_ns"] / first["measured_ns"] - 1
    )
    assert len(found["parameters"]) <= 3


def test_regimes_are_the_largest_closed_form():
    rows = [
        Measurement("gemm", "1x384x384", 2044.0),  # 181 ns of bytes against 900 ns of launch
        Measurement("gemm", "32x2048x2048", 8986.0),
        Measurement("gemm", "2048x2048x2048", 35880.0),
    ]
    result = validate(TPU, rows, ())
    assert launch_floor_ns(TPU) == 900
    assert [row.regime for row in result.rows] == ["launch", "memory", "compute"]
    assert result.two_term is None


def test_device_time_leaves_the_hosts_synchronisation_out():
    (row,) = validate(TPU, [Measurement("gemm", "1x384x384", 2044.0)], ()).rows
    assert row.simulated_ns < TPU.host.sync_ps / 1e3


def test_a_system_without_calibration_has_nothing_to_fit():
    with pytest.raises(ConfigError, match="nothing to fit"):
        calibrate(load_system("rk3588"), device_rows("rk3588"))
