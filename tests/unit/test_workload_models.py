"""Reading config.json: facts, defaults and complaints."""

from __future__ import annotations

import json
import os

import pytest

from npusim.errors import ConfigError, WorkloadError
from npusim.workload import load_model, model_names

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "torch_dtype": "float16",
}


@pytest.fixture
def write(tmp_path):
    """Write a config: LLAMA with changes; None deletes a key, the text "null" is a JSON null."""

    def write_config(name: str = "toy.json", **changes: object):
        values = {**LLAMA, **changes}
        values = {k: None if v == "null" else v for k, v in values.items() if v is not None}
        path = tmp_path / name
        path.write_text(json.dumps(values))
        return path

    return write_config


def refusal(path) -> str:
    with pytest.raises(WorkloadError) as error:
        load_model(path)
    return str(error.value)


def test_absent_keys_take_the_defaults_of_the_class(write):
    model = load_model(write())
    assert (model.head_dim, model.num_kv_heads, model.rope_theta) == (16, 4, 10_000.0)
    biases = (model.qkv_bias, model.o_bias, model.mlp_bias)
    assert (biases, model.tie_word_embeddings) == ((False, False, False), False)
    assert model.windows == (None, None, None)
    assert model.dtype == "fp16"
    assert model.notes == ()


@pytest.mark.parametrize(
    ("model_type", "qkv_bias", "o_bias", "qk_norm", "tied"),
    [
        ("llama", False, False, False, False),
        ("mistral", False, False, False, False),
        ("qwen2", True, False, False, False),
        ("qwen3", False, False, True, False),
        ("minicpm", False, False, False, True),
        ("PanguEmbedded", True, True, False, False),
    ],
)
def test_each_type_implies_its_biases_norms_and_tying(
    write, model_type, qkv_bias, o_bias, qk_norm, tied
):
    model = load_model(write(model_type=model_type))
    assert (model.qkv_bias, model.o_bias) == (qkv_bias, o_bias)
    assert (model.qk_norm, model.tie_word_embeddings) == (qk_norm, tied)


def test_bias_keys_are_read(write):
    model = load_model(write(attention_bias=True, mlp_bias=True))
    assert (model.qkv_bias, model.o_bias, model.mlp_bias) == (True, True, True)
    assert not load_model(write(model_type="PanguEmbedded", bias=False)).qkv_bias


def test_the_newer_layout_of_rope_and_dtype_is_read(write):
    newer = {"rope_theta": 5e5, "rope_type": "default"}
    model = load_model(write(torch_dtype=None, dtype="bfloat16", rope_parameters=newer))
    assert (model.rope_theta, model.dtype) == (500_000.0, "bf16")


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral"}, (4096,) * 3),
        ({"model_type": "mistral", "sliding_window": "null"}, (None,) * 3),
        ({"model_type": "mistral", "sliding_window": 100}, (100,) * 3),
        ({"model_type": "llama", "sliding_window": 100}, (None,) * 3),
        ({"model_type": "qwen2", "sliding_window": 100}, (None,) * 3),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 100,
                "use_sliding_window": True,
                "max_window_layers": 2,
            },
            (None, None, 100),
        ),
        (
            {
                "model_type": "qwen3",
                "sliding_window": 100,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            (100, None, 100),
        ),
    ],
)
def test_a_sliding_window_counts_only_where_the_type_says_so(write, changes, windows):
    model = load_model(write(**changes))
    assert model.windows == windows
    assert model.has_uniform_layers == (len(set(windows)) == 1)


def test_what_is_assumed_is_noted(write):
    model = load_model(write(torch_dtype="float32", quantization_config={"bits": 4}))
    assert model.dtype == "bf16"
    assert [note.split()[0] for note in model.notes] == ["torch_dtype", "quantization_config"]
    assert load_model(write(torch_dtype=None)).notes == ("torch_dtype is absent: bf16 assumed",)


def test_a_model_is_named_after_its_file_or_the_folder_of_a_config_json(write, tmp_path):
    assert load_model(write("toy.json")).name == "toy"
    assert load_model(write("config.json")).name == tmp_path.name


@pytest.mark.parametrize("name", model_names())
def test_every_shipped_model_loads_under_its_name(name):
    assert load_model(name).name == name


def test_a_folder_of_the_user_comes_first(write, tmp_path):
    (tmp_path / "workloads/models").mkdir(parents=True)
    write().rename(tmp_path / "workloads/models/qwen2-1.5b.json")
    assert load_model("qwen2-1.5b", (tmp_path,)).num_layers == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing; it must be a positive integer"),
        ({"hidden_size": "null"}, "hidden_size is null; it must be a positive integer"),
        ({"hidden_size": None, "hiden_size": 64}, "did you mean 'hiden_size'?"),
        ({"hidden_size": 0}, "hidden_size must be an integer from 1 to 2147483647 (got 0)"),
        ({"hidden_size": -64}, "(got -64)"),
        ({"hidden_size": 64.0}, "(got 64.0)"),
        ({"hidden_size": True}, "(got True)"),
        ({"hidden_size": "64"}, "(got '64')"),
        ({"hidden_size": [64]}, "(got [64])"),
        ({"hidden_size": 2**40}, "from 1 to 2147483647"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be an integer from 1 to 4096"),
        ({"hidden_size": 65}, "without head_dim, hidden_size must be a multiple of num_attention"),
        ({"head_dim": 7}, "head_dim must be even"),
        ({"num_key_value_heads": 3}, "must be a multiple of num_key_value_heads"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false (got 1)"),
        ({"torch_dtype": "flaot16"}, "did you mean 'float16'?"),
        ({"hidden_act": "selu"}, "hidden_act must be one of silu, swish, gelu"),
        ({"rope_theta": -1}, "rope_theta must be a positive number (got -1)"),
        ({"rope_parameters": 3}, "rope_parameters must be an object (got 3)"),
        ({"model_type": None}, "model_type is missing; it must be one of llama, mistral"),
        ({"model_type": 7}, "model_type must be a text (got 7)"),
        ({"model_type": "lama"}, "did you mean 'llama'?"),
        (
            {"model_type": "mistral", "layer_types": ["full_attention"]},
            "layer_types must be a list with 3 entries",
        ),
        (
            {"model_type": "qwen3", "layer_types": ["sliding_attention"] * 3},
            "layer_types names sliding_attention but sliding_window is not in force",
        ),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8},
            "max_window_layers is missing; it must be an integer of at least 0",
        ),
    ],
)
def test_a_wrong_key_is_refused_with_file_rule_and_value(write, changes, message):
    path = write(**changes)
    text = refusal(path)
    assert message in text
    assert "toy" in text


@pytest.mark.parametrize("model_type", ["bert", "falcon", "gpt_neox", "llama4", "mamba", "t5"])
def test_an_unsupported_type_is_named_with_the_known_ones_and_no_guess(write, model_type):
    text = refusal(write(model_type=model_type))
    assert "supported are llama, mistral, qwen2, qwen3, minicpm, PanguEmbedded" in text
    assert f"(got {model_type!r})" in text
    assert "did you mean" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: the file is empty"),
        (b" \n", "line 1: the file is empty"),
        (b'{\n "a": 1,\n}', "line 3 column 1: not valid JSON"),
        (b"{'a': 1}", "line 1 column 2: not valid JSON"),
        (b'{"a": NaN}', "numbers must be finite, found NaN"),
        (b'{"a": -Infinity}', "numbers must be finite, found -Infinity"),
        (b'{"a": 1, "a": 2}', "key 'a' appears twice"),
        (b"[1]", "must hold one JSON object (got 'list')"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b"\xff\xfe{}", "is not UTF-8 text (byte 0)"),
        (b'{"a": ' + b"1" * 5000 + b"}", "integer"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    text = refusal(path)
    assert text.startswith(str(path))
    assert message in text


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(5 * 2**20)
    assert "must be at most 4194304 bytes" in refusal(path)


def test_a_long_value_is_cut_in_the_message(write):
    assert len(refusal(write(hidden_size=list(range(10_000))))) < 400


def test_a_directory_and_a_missing_file_are_refused(tmp_path):
    assert "is a directory; a config.json file is needed" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "none.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(write):
    path = write()
    path.chmod(0)
    assert "cannot be read: Permission denied" in refusal(path)


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(WorkloadError) as error:
        load_model("qwen2-1.5")
    assert "did you mean 'qwen2-1.5b'?" in str(error.value)
    assert not isinstance(error.value, ConfigError)


@pytest.mark.parametrize("name", ["", ".", "/", "a\0b"])
def test_an_empty_or_strange_name_is_refused(name):
    with pytest.raises(WorkloadError):
        load_model(name)
