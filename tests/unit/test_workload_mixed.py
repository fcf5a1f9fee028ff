"""Mixed steps: a batch decodes while a chunk of another prompt is computed, fused."""

from __future__ import annotations

import pytest

from npusim.cli.request import workload_config
from npusim.config.run_spec import WorkloadConfig
from npusim.errors import ConfigError, WorkloadError
from npusim.results.loading import load_result
from npusim.simulation import simulate
from npusim.simulation.footprint import footprint_bytes
from npusim.workload import Phase, Role, Workload, load_model, transformer
from npusim.workload.trace import OperatorTrace
from npusim.workload.trace_files import read_trace, write_trace
from npusim.workload.trace_workload import TraceWorkload
from tests.unit.compiler_samples import bytes_moved, compiled, system_with
from tests.unit.workload_samples import run_spec

# SmolLM2-135M: hidden 576, 9 query heads share 3 key-value heads of 64, MLP 1536, vocabulary
# 49152, 30 layers, bf16. Four sequences with 100 cached tokens decode; 32 tokens of a prompt with
# 64 cached ones are computed beside them.
STEP = {"context_len": 100, "batch": 4, "chunk_tokens": 32, "chunk_context_len": 64}


def step(layers: int = 1, **changes: object):
    work = transformer("smollm2-135m", **{**STEP, **changes})
    return work, work.decode_graph(work.decode_contexts[0], layers)


def test_one_matmul_covers_both_and_attention_is_apart():
    # Linears of a layer: 576 x (960 + 576 + 3072) + 1536 x 576 = 3,538,944 MACs a token, 36 tokens.
    # Attention: 4 x 9 heads x 1 x 101 keys x 64 x 2 = 465,408; 9 x 32 x 96 x 64 x 2 = 3,538,944.
    # lm_head: 4 sequences and the chunk's last token, 5 x 576 x 49152.
    _, graph = step()
    assert graph.macs == 36 * 3_538_944 + 465_408 + 3_538_944 + 141_557_760 == 272_964_096
    assert graph["layers.0.qkv_proj"].matmul.m == 36
    assert graph["layers.0.scores"].matmul.batch == 4 * 3
    assert graph["layers.0.chunk_scores"].matmul.n == 96
    assert graph["lm_head"].matmul.m == 5
    assert {op.phase for op in graph} == {Phase.MIXED}


def test_kv_bytes_are_those_of_both_parts():
    # K and V, 2 bytes: read 4 x 3 x 101 x 64 and 3 x 96 x 64 elements, write 36 x 3 x 64.
    _, graph = step()
    assert sum(op.read_bytes(Role.KV) for op in graph) == 4 * (77_568 + 18_432) == 384_000
    assert sum(op.write_bytes(Role.KV) for op in graph) == 4 * 36 * 3 * 64 == 27_648
    # what the step itself appends need not come from memory
    assert graph.compulsory_read_bytes(Role.KV) == 384_000 - 27_648


def test_weights_are_read_once_and_not_per_part():
    _, graph = step()
    alone = transformer("smollm2-135m", context_len=100, batch=4).decode_graph(100, 1)
    assert {w.name for w in graph.weights} == {w.name for w in alone.weights}
    linears = [op for op in graph if op.kind == "matmul" and op.inputs[1].role is Role.WEIGHT]
    assert len(linears) == 5  # qkv, o, gate and up, down, lm_head


def test_the_chunk_moves_along_its_prompt_from_step_to_step():
    work, _ = step(generate_len=3)
    keys = [work.decode_graph(c, 1)["layers.0.chunk_scores"].matmul.n for c in (100, 101, 102)]
    assert keys == [96, 128, 160]
    assert work.phases == (Phase.MIXED,)
    assert work.cached_tokens == 4 * 103 + 64 + 3 * 32


@pytest.mark.parametrize(
    ("model", "keys"),
    [("mistral-7b-v0.1", 4096 - 1 + 32), ("gemma-2-2b", 4096 - 1 + 32), ("gpt2", 96)],
)
def test_windows_and_other_families_have_mixed_steps(model, keys):
    context = 64 if model == "gpt2" else 5000
    work = transformer(model, **{**STEP, "chunk_context_len": context})
    graph = work.decode_graph(100, 1)
    assert graph["layers.0.chunk_scores"].matmul.n == keys


def test_latent_attention_works_on_the_cached_rows_of_both_parts():
    # rows of the chunk: 128 heads x 32 tokens; 96 cached rows of 512 + 64 elements
    graph = transformer("deepseek-v3", **STEP).decode_graph(100, 1)
    chunk = graph["layers.0.chunk_scores"]
    assert (chunk.matmul.batch, chunk.matmul.m) == (1, 128 * 32)
    assert (chunk.matmul.k, chunk.matmul.n) == (576, 96)
    assert graph["layers.0.scores"].matmul.m == 128
    assert graph["layers.0.kv_append"].outputs[0].shape == (4, 1, 1, 576)
    assert graph["layers.0.chunk_kv_append"].outputs[0].shape == (1, 1, 32, 576)


def test_experts_are_routed_over_the_tokens_of_both():
    graph = transformer("qwen3-30b-a3b", **STEP).decode_graph(100, 1)
    assert graph["layers.0.experts.gate_up_proj"].matmul.rows == 36 * 8


@pytest.mark.parametrize(("system", "quant"), [("edge-npu", "w16a16"), ("ascend-910b", "w8a8")])
@pytest.mark.parametrize("kv_dtype", [None, "int8"])
@pytest.mark.parametrize("fusion", ["off", "on"])
def test_the_program_moves_the_kv_bytes_of_both(system, quant, kv_dtype, fusion):
    work, graph = step(quant=quant, kv_dtype=kv_dtype)
    program = compiled(
        graph, system_with(system), kv_capacity_tokens=101, cached_tokens=100, fusion=fusion
    ).program
    written = bytes_moved(program, "kv", is_write=True)
    assert written == graph.compulsory_write_bytes(Role.KV)
    assert bytes_moved(program, "kv", is_write=False) >= graph.compulsory_read_bytes(Role.KV)
    # the chunk's cache holds its 96 tokens, the batch's 101 each
    sizes = {a.name: a.nbytes for a in program.allocations if a.role == "kv"}
    width = 3 * 64 * (2 if kv_dtype is None else 1)
    assert sizes["layers.0.k_cache"] == 4 * 101 * width
    assert sizes["layers.0.chunk_k_cache"] == work.chunk_capacity_tokens * width == 96 * width


def test_appends_of_the_chunk_lie_behind_its_cached_tokens():
    _, graph = step()
    system = system_with("edge-npu")
    program = compiled(graph, system, kv_capacity_tokens=101, cached_tokens=100).program
    home = next(a for a in program.allocations if a.name == "layers.0.chunk_k_cache")
    kernels = [k.name for k in program.kernels]
    of_append = program.kernel == kernels.index("layers.0.chunk_k_append")
    transfers = program.transfer[of_append & (program.transfer >= 0)]
    table = program.transfers
    written = set()
    for index in transfers[table.is_write[transfers]].tolist():
        for base, nbytes, *_ in table.runs[table.run_ptr[index] : table.run_ptr[index + 1]]:
            written |= set(range(base - home.offset, base - home.offset + nbytes))
    row = 64 * 2
    assert written == {
        head * 96 * row + byte for head in range(3) for byte in range(64 * row, 96 * row)
    }


def test_a_trace_of_mixed_steps_replays_as_the_same_program(tmp_path):
    work = transformer("smollm2-135m", **STEP, generate_len=2)
    path = tmp_path / "mixed.jsonl"
    trace = OperatorTrace.of(work)
    write_trace(trace, path)
    assert read_trace(path) == trace
    replayed = TraceWorkload(trace)
    assert replayed.phases == (Phase.MIXED,)
    assert replayed.cached_tokens == work.cached_tokens
    system = system_with("edge-npu")
    programs = [
        compiled(graph, system, kv_capacity_tokens=102, cached_tokens=101).program.digest()
        for graph in (work.decode_graph(101, 2), replayed.decode_graph(101, 2))
    ]
    assert programs[0] == programs[1]


def test_a_mixed_step_is_cheaper_than_its_parts_alone(tmp_path):
    def elapsed(**lengths: int) -> int:
        work = transformer("llama-3.2-1b", **lengths)
        return simulate("tpu-v6e", work, simulation={"fidelity": "analytic"}).elapsed_ps

    work = transformer("llama-3.2-1b", context_len=512, batch=8, chunk_tokens=256)
    mixed = simulate("tpu-v6e", work, simulation={"fidelity": "analytic"})
    decode, prefill = elapsed(context_len=512, batch=8), elapsed(prompt_len=256)
    assert max(decode, prefill) < mixed.elapsed_ps < decode + prefill
    assert mixed.tpot_ps == mixed.elapsed_ps
    assert mixed.phase("mixed").tokens == 8
    assert mixed.workload["chunk_tokens"] == 256
    assert "chunk_head" in {a.kind for a in mixed.phase("mixed").approximations}
    assert load_result(mixed.save(tmp_path)) == mixed


@pytest.mark.slow
def test_a_simulated_mixed_step_is_cheaper_than_its_parts_alone():
    def elapsed(**lengths: int) -> int:
        work = transformer("smollm2-135m", **lengths)
        return simulate("edge-npu", work, simulation={"fidelity": "transfer"}).elapsed_ps

    decode, prefill = elapsed(context_len=256, batch=4), elapsed(prompt_len=64)
    mixed = elapsed(context_len=256, batch=4, chunk_tokens=64)
    assert max(decode, prefill) < mixed < 0.9 * (decode + prefill)


@pytest.mark.slow
def test_a_folded_mixed_step_is_the_unfolded_one_but_for_time():
    work = transformer("smollm2-135m", context_len=128, batch=2, chunk_tokens=16)
    folded, whole = (
        simulate("edge-npu", work, simulation={"fidelity": "burst", "fold": fold}).phase("mixed")
        for fold in (True, False)
    )
    assert folded.macs == whole.macs == work.decode_graph(128).macs
    assert folded.kernels == whole.kernels
    assert folded.memories[0].bytes_by_role == whole.memories[0].bytes_by_role
    assert folded.elapsed_ps == pytest.approx(whole.elapsed_ps, rel=0.01)
    assert any(note.kind == "layer_folding" for note in folded.approximations)


def test_the_cache_of_the_chunk_is_part_of_the_footprint():
    with_chunk = transformer("smollm2-135m", **STEP)
    alone = transformer("smollm2-135m", context_len=100, batch=4)
    spec = run_spec("edge-npu", model="smollm2-135m", generate_len=1, **STEP)
    more = footprint_bytes(with_chunk, spec) - footprint_bytes(alone, spec)
    assert more == 96 * 23_040


def test_a_workload_config_makes_the_same_workload():
    settings = WorkloadConfig(model="smollm2-135m", generate_len=1, **STEP)
    work = Workload.of(load_model("smollm2-135m"), settings)
    assert work == transformer("smollm2-135m", **STEP)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"prompt_len": 8, "chunk_tokens": 4}, "chunk_tokens: needs context_len"),
        ({"context_len": 8, "chunk_context_len": 4}, "chunk_context_len: needs chunk_tokens"),
        ({"context_len": 8, "chunk_tokens": -1}, "chunk_tokens: must be an integer of at least 0"),
        ({"context_len": 8, "chunk_tokens": 9000}, "chunk_tokens: all chunks must fit"),
        (
            {"context_len": 8, "chunk_tokens": 4, "speculate_tokens": 2, "accept_frac": 0.5},
            "chunk_tokens: excludes speculate_tokens",
        ),
    ],
)
def test_a_chunk_that_makes_no_step_is_refused(lengths, message):
    with pytest.raises(WorkloadError, match=message):
        transformer("smollm2-135m", **lengths)


def test_the_configuration_refuses_incomplete_patterns():
    with pytest.raises(ConfigError, match="chunk_tokens: needs context_len"):
        workload_config(model="smollm2-135m", prompt_len=8, chunk_tokens=4)
