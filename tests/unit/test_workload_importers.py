"""Importers: real files give the counts that their sources state; broken ones are refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from npusim.errors import WorkloadError
from npusim.workload.importers import import_file
from npusim.workload.loading import load_model
from npusim.workload.transformer import build_graph

DATA = Path(__file__).parents[1] / "data" / "traces"
DECODE_MACS, PREFILL_MACS = 36_571_392, 4_567_597_056
ONNX = "smollm2arch_2layer_decoder_kvcache_graph_only.onnx"


def facts(name, **options):
    return import_file(DATA / name, **options).facts()


def test_config_onnx_and_pytorch_trace_agree_on_the_macs_of_a_decode_step():
    model = load_model("smollm2-135m")
    config = build_graph(model, "decode", context_len=512, num_layers=2, all_logits=True)
    assert config.macs == DECODE_MACS
    assert facts("smollm2arch_2layer_decode_past512_et.json.gz")["macs"] == DECODE_MACS
    assert facts(ONNX, dims={"L": 1, "P": 512, "T": 513})["macs"] == DECODE_MACS


def test_config_onnx_and_pytorch_trace_agree_on_the_macs_of_a_prefill():
    model = load_model("smollm2-135m")
    config = build_graph(model, "prefill", new_tokens=128, num_layers=2, all_logits=True)
    assert config.macs == PREFILL_MACS
    assert facts("smollm2arch_2layer_prefill128_et.json.gz")["macs"] == PREFILL_MACS
    assert facts(ONNX, dims={"L": 128, "P": 0, "T": 128})["macs"] == PREFILL_MACS


def test_symbolic_dimensions_are_guessed_and_noted():
    found = facts(ONNX)
    assert found["macs"] == PREFILL_MACS
    assert "dimension L=128 assumed; give --dim L=N" in found["notes"]


def test_a_dimension_the_file_does_not_have_is_refused():
    with pytest.raises(WorkloadError, match=r"symbolic dimensions are .*L.* \(got 'X'\)"):
        facts(ONNX, dims={"X": 3})


def test_weights_stored_as_int8_stay_int8():
    # 48 products, 6 of them scores and 6 contexts; total from the source's shape inference
    imported = import_file(DATA / "all-MiniLM-L6-v2_int8_graph_only.onnx")
    assert imported.facts()["macs"] == 1_434_451_968
    assert imported.facts()["weight_bytes_by_dtype"]["int8"] > 21_000_000
    assert imported.fallbacks == {}


def test_a_gguf_header_gives_the_exact_bytes_of_the_weights():
    found = facts("SmolLM2-135M-Instruct.Q4_1.header.gguf")
    # whole file 98,362,432 bytes, its header 1,785,664
    assert found["weight_bytes"] == 98_362_432 - 1_785_664
    assert found["parameters"] == 134_515_008
    assert set(found["weight_bytes_by_dtype"]) == {"F32", "Q4_1", "Q8_0"}


def test_weights_of_a_gguf_are_read_with_their_bytes():
    imported = import_file(
        DATA / "SmolLM2-135M-Instruct.Q4_1.header.gguf", lengths={"context_len": 16}
    )
    down = next(op for op in imported.trace.steps[0] if op.name == "layers.0.down_proj")
    assert down.inputs[1].nbytes == 1536 * 576 // 32 * 20


# Conv1 of AlexNet: (224 - 11) // 4 + 1 = 54; 54^2 x 11^2 x 3 x 96
def test_a_convolution_is_its_im2col_product():
    imported = import_file(DATA / "topologies_conv_nets_alexnet.csv")
    assert imported.trace.steps[0][0].macs == 54**2 * 11**2 * 3 * 96


def test_a_gemm_line_is_m_n_k():
    first = import_file(DATA / "topologies_GEMM_mnk_gpt2.csv").trace.steps[0][0]
    assert (first.matmul.m, first.matmul.k, first.matmul.n) == (1024, 64, 1024)


@pytest.mark.parametrize("comma", ["", ",", ", ,"])
def test_trailing_commas_change_nothing(tmp_path, comma):
    path = tmp_path / "t.csv"
    path.write_text(f"Layer,M,N,K{comma}\nA,4,5,6{comma}\nB,7,8,9{comma}")
    found = import_file(path).facts()
    assert (found["operators"], found["macs"]) == (2, 4 * 5 * 6 + 7 * 8 * 9)


def test_an_absent_batch_is_one():
    # the heading of this file names a batch size that its lines leave out
    assert facts("topologies_transformer_transformer_fwd.csv")["operators"] == 54


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Layer,M,N,K\nA,4,5\n", "line 2: column 'k' is missing"),
        ("Layer,M,N,K\nA,4,-5,6\n", "line 2: column 'n' must be an integer"),
        ("Layer,M,N,K\nA,4,x,6\n", "(got 'x')"),
        ("Layer,M,N,K\n", "holds no operator"),
        ("a,b\n1,2\n", "line 1: the heading must be"),
        ("", "the file is empty"),
    ],
)
def test_a_broken_topology_is_named_by_line(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(WorkloadError) as error:
        import_file(path)
    assert message in str(error.value)


def test_onnxim_models_are_the_decoders_they_name():
    llama = facts("llama3-8b.json")
    assert llama["parameters"] == 8_030_261_248
    assert 65e9 < facts("opt-66b.json")["parameters"] < 67e9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hta_simple_add_trace.json.gz", "record_shapes=True"),
        ("small_chakra.0.json", "none of its 7 nodes has shapes or a size"),
        ("all-MiniLM-L6-v2.header.safetensors", "model_type is not supported"),
    ],
)
def test_what_says_nothing_about_other_hardware_is_refused_with_the_reason(name, message):
    with pytest.raises(WorkloadError) as error:
        import_file(DATA / name)
    assert message in str(error.value)


def test_communication_of_a_chakra_trace_falls_back_to_the_host():
    imported = import_file(DATA / "custom_allreduce.0.et")
    assert imported.fallbacks == {"send": 14, "receive": 14}
    with pytest.raises(WorkloadError, match="receive x 14, send x 14"):
        import_file(DATA / "custom_allreduce.0.et", strict=True)


def _et(nodes):
    return {"schema": "1.1.0-chakra.0.0.4", "nodes": nodes}


def test_the_newer_schema_of_execution_traces_is_read(tmp_path):
    def tensor(storage, *shape):
        return [storage, storage, 0, 1, 4, "cpu"], list(shape), "Tensor(float)"

    values = [tensor(1, 4, 8), tensor(2, 8, 16)]
    out = tensor(3, 4, 16)
    node = {
        "id": 2,
        "name": "aten::mm",
        "ctrl_deps": 1,
        "inputs": dict(
            zip(("values", "shapes", "types"), map(list, zip(*values, strict=True)), strict=True)
        ),
        "outputs": {"values": [out[0]], "shapes": [out[1]], "types": [out[2]]},
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps(_et([node])))
    assert import_file(path).facts()["macs"] == 4 * 8 * 16


def test_calls_in_a_circle_are_refused(tmp_path):
    empty = {"inputs": [], "input_shapes": [], "input_types": []}
    empty |= {"outputs": [], "output_shapes": [], "output_types": []}
    nodes = [{"id": i, "name": "x", "parent": 3 - i, **empty} for i in (1, 2)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
    with pytest.raises(WorkloadError, match="circle"):
        import_file(path)


@pytest.mark.parametrize(
    "name", sorted(p.name for p in DATA.iterdir() if p.suffix != ".md" and "first" not in p.name)
)
@pytest.mark.parametrize("keep", [0, 3, 17, 400])
def test_a_truncated_file_is_refused_or_smaller_but_never_crashes(tmp_path, name, keep):
    whole = (DATA / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole[: min(keep, len(whole) // 2)])
    try:
        found = import_file(path).facts()["operators"]
    except WorkloadError:
        found = 0
    assert found == 0 or found < facts(name)["operators"]


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    from npusim.workload.importers import jsonfile

    monkeypatch.setattr(jsonfile, "MAX_TEXT_BYTES", 1000)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(WorkloadError, match="unpacks to more than 1000 bytes"):
        import_file(path)


def _kineto(path, *calls):
    """A trace of calls (name, start, duration, input shapes) on one thread."""
    events = [
        {
            "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
            "args": {"Input Dims": shapes, "Input type": ["float"] * len(shapes)},
        }
        for name, ts, dur, shapes in calls
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    return import_file(path)


def test_unknown_leaves_of_a_kineto_trace_fall_back_and_are_counted(tmp_path):
    found = _kineto(
        tmp_path / "t.json",
        ("aten::linear", 0, 10, [[4, 8], [16, 8]]),
        ("aten::mm", 1, 5, [[4, 8], [8, 16]]),  # inside the linear
        ("aten::mystery", 20, 5, [[4, 8]]),
        ("aten::view", 30, 1, [[4, 8]]),
    )
    assert found.facts()["macs"] == 4 * 8 * 16
    assert found.fallbacks == {"mystery": 1}


def test_a_bias_of_another_shape_is_added_by_an_operator_of_its_own(tmp_path):
    found = _kineto(tmp_path / "t.json", ("aten::addmm", 0, 9, [[4, 16], [4, 8], [8, 16]]))
    product, bias = found.trace.steps[0]
    assert product.vector_ops == ()
    assert bias.vector_ops == (("add", 4 * 16),)
