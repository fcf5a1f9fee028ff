"""What holds for every decoder, precision and length."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from npusim.workload import (
    KV_DTYPES,
    PRECISIONS,
    ModelConfig,
    OperatorGraph,
    OperatorKind,
    Role,
    build_graph,
    kv_bytes_per_token,
    weight_bytes,
    weight_bytes_by_dtype,
)
from npusim.workload.forward_pass import PromptChunk
from npusim.workload.operator import VECTOR_OPS
from npusim.workload.quantization import parse_quantization
from npusim.workload.weights import stored_weights


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    """Small decoders of any family, windows included."""
    flags = st.booleans()
    layers = draw(st.integers(1, 3))
    kv_heads = draw(st.integers(1, 3))
    windows = st.one_of(st.none(), st.integers(1, 20))
    return ModelConfig(
        name="drawn",
        model_type="drawn",
        hidden_size=draw(st.integers(1, 40)),
        intermediate_size=draw(st.integers(1, 40)),
        num_layers=layers,
        num_heads=kv_heads * draw(st.integers(1, 3)),
        num_kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 8)),
        vocab_size=draw(st.integers(1, 50)),
        max_positions=10_000,
        dtype=draw(st.sampled_from(("bf16", "fp16"))),
        tie_word_embeddings=draw(flags),
        qkv_bias=draw(flags),
        o_bias=draw(flags),
        mlp_bias=draw(flags),
        qk_norm=draw(flags),
        windows=draw(st.tuples(*[windows] * layers)),
        scaled_embedding=draw(flags),
        scaled_residual=draw(flags),
        scaled_logits=draw(flags),
    )


quants = st.sampled_from(PRECISIONS)
kv_dtypes = st.sampled_from((None, *KV_DTYPES))
batches = st.integers(1, 5)
contexts = st.integers(0, 60)
lengths = st.integers(1, 12)


@given(models(), quants, kv_dtypes, batches, contexts)
def test_macs_are_linear_in_batch(model, quant, kv_dtype, batch, context):
    one = build_graph(model, "decode", 1, 1, context, quant, kv_dtype)
    many = build_graph(model, "decode", batch, 1, context, quant, kv_dtype)
    assert many.macs == batch * one.macs


@given(models(), quants, kv_dtypes, batches, contexts)
def test_decode_kv_reads_are_linear_in_context_up_to_the_window(
    model, quant, kv_dtype, batch, context
):
    graph = build_graph(model, "decode", batch, 1, context, quant, kv_dtype)
    per_layer = kv_bytes_per_token(model, kv_dtype) // model.num_layers
    cached = sum(context if w is None else min(context, w - 1) for w in model.windows)
    assert graph.compulsory_read_bytes(Role.KV) == batch * cached * per_layer


@given(models(), quants, kv_dtypes, batches, lengths)
def test_kv_writes_are_exactly_the_new_tokens(model, quant, kv_dtype, batch, length):
    graph = build_graph(model, "prefill", batch, length, 0, quant, kv_dtype)
    written = batch * length * kv_bytes_per_token(model, kv_dtype)
    assert graph.compulsory_write_bytes(Role.KV) == written
    appends = [op for op in graph if op.kind is OperatorKind.KV_APPEND]
    assert sum(op.kv_runs[0] * op.kv_runs[1] for op in appends if op.kv_runs) == written


@given(models(), quants, kv_dtypes, batches, lengths, contexts)
def test_every_activation_is_produced_once_or_is_a_graph_input(
    model, quant, kv_dtype, batch, length, context
):
    graph = build_graph(model, "prefill", batch, length, context, quant, kv_dtype)
    produced = {}
    for operator in graph:
        for tensor in operator.inputs:
            if tensor.role is Role.ACTIVATION and tensor.name != "token_ids":
                source = produced[tensor.name]
                assert source.dtype == tensor.dtype
                assert source.nbytes >= tensor.nbytes
        for tensor in operator.outputs:
            assert tensor.name not in produced or tensor.role is Role.KV
            produced[tensor.name] = tensor
    assert [t.name for t in graph.inputs] == ["token_ids"]
    assert [t.name for t in graph.outputs] == ["logits"]


@given(models(), quants, kv_dtypes, batches, lengths, contexts)
def test_shapes_of_every_operator_agree_with_its_matmul_and_rows(
    model, quant, kv_dtype, batch, length, context
):
    for op in build_graph(model, "prefill", batch, length, context, quant, kv_dtype):
        assert {name for name, _ in op.vector_ops} <= set(VECTOR_OPS)
        assert all(elems > 0 for _, elems in op.vector_ops)
        if op.kind is OperatorKind.MATMUL:
            shape = op.matmul
            assert op.inputs[0].elems == shape.batch * shape.m * shape.k
            assert op.inputs[1].elems == shape.batch * shape.k * shape.n
            assert sum(t.elems for t in op.outputs) == shape.batch * shape.m * shape.n
            assert op.inputs[0].dtype == op.compute_dtype
        else:
            assert op.macs == 0
        if op.kind is OperatorKind.VECTOR:
            moved = [t for t in (*op.inputs, *op.outputs) if t.role is Role.ACTIVATION]
            is_head = op.name == "final_norm"
            assert all(t.elems % op.rows == 0 for t in moved if not is_head)


@given(models(), quants)
def test_stored_weights_are_those_the_graph_reads(model, quant):
    graph = build_graph(model, "decode", context_len=3, quant=quant)
    stored = {t.name: t for t in stored_weights(model, parse_quantization(quant))}
    assert {t.name: t for t in graph.weights}.keys() == stored.keys()
    assert sum(t.nbytes for t in graph.weights) == weight_bytes(model, quant)
    assert sum(t.nbytes for t in stored.values()) == weight_bytes(model, quant)
    assert sum(weight_bytes_by_dtype(model, quant).values()) == weight_bytes(model, quant)


@given(models(), kv_dtypes, contexts)
def test_narrower_weights_never_read_more(model, kv_dtype, context):
    def reads(quant: str) -> int:
        graph = build_graph(model, "decode", 1, 1, context, quant, kv_dtype)
        weights = [op.inputs[1] for op in graph if op.stage in ("qkv", "gate_up", "down")]
        return sum(t.bytes_by_dtype[t.dtype] for t in weights)

    assert reads("w16a16") == 2 * reads("w8a8")
    assert reads("w8a16") == reads("w8a8")


@given(models(), quants, contexts)
def test_building_twice_gives_equal_graphs(model, quant, context):
    first = build_graph(model, "decode", context_len=context, quant=quant)
    second = build_graph(model, "decode", context_len=context, quant=quant)
    assert first.operators == second.operators
    assert list(first.digraph.edges) == list(second.digraph.edges)


@given(models(), quants, kv_dtypes, batches, contexts, lengths, contexts)
def test_a_mixed_step_is_its_parts_with_the_weights_read_once(
    model, quant, kv_dtype, batch, context_len, chunk_tokens, cached
):
    chunk = PromptChunk(chunk_tokens, cached, cached + chunk_tokens)
    mixed = build_graph(model, "mixed", batch, 1, context_len, quant, kv_dtype, chunk=chunk)
    decode = build_graph(model, "decode", batch, 1, context_len, quant, kv_dtype)
    prefill = build_graph(model, "prefill", 1, chunk_tokens, cached, quant, kv_dtype)
    assert mixed.macs == decode.macs + prefill.macs
    for count in (OperatorGraph.compulsory_read_bytes, OperatorGraph.compulsory_write_bytes):
        assert count(mixed, Role.KV) == count(decode, Role.KV) + count(prefill, Role.KV)
    vectors = [_vector_ops(graph) for graph in (mixed, decode, prefill)]
    assert vectors[0] == vectors[1] + vectors[2]
    assert {w.name for w in mixed.weights} == {w.name for w in decode.weights}


@given(models(), quants, kv_dtypes, batches, contexts, lengths)
def test_a_check_computes_as_a_pass_over_all_its_tokens(
    model, quant, kv_dtype, batch, context_len, proposed
):
    check = build_graph(
        model, "decode", batch, 1, context_len, quant, kv_dtype, speculated_tokens=proposed
    )
    whole = build_graph(
        model, "prefill", batch, 1 + proposed, context_len, quant, kv_dtype, all_logits=True
    )
    assert check.macs == whole.macs
    assert check.compulsory_bytes(Role.KV) == whole.compulsory_bytes(Role.KV)


def _vector_ops(graph: OperatorGraph) -> Counter[str]:
    """Element operations by name."""
    total: Counter[str] = Counter()
    for operator in graph:
        for name, count in operator.vector_ops:
            total[name] += count
    return total
