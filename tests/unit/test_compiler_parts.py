"""Operands that are rows of a larger tensor: where their bytes lie and what waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from npusim.compiler.layout import _arena
from npusim.program.check import check_program
from npusim.workload import Role, transformer
from tests.unit.compiler_samples import compiled, consumers, system_with

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npusim.program import Program

ROLES = ("weight", "kv", "activation")
# of 36 rows, four sequences decode and 32 tokens are a chunk behind 64 cached ones
STEP = {"context_len": 100, "batch": 4, "chunk_tokens": 32, "chunk_context_len": 64}


def step(model: str = "smollm2-135m", **settings: object):
    graph = transformer(model, **STEP).decode_graph(100, 2)
    sample = {"kv_capacity_tokens": 101, "cached_tokens": 100, "activation_residency": "dram"}
    return graph, compiled(graph, system_with("edge-npu"), **sample, **settings).program


def touched(program: Program, kernel: int, role: str, *, is_write: bool) -> list[tuple[int, int]]:
    """Byte ranges of the DRAM that a kernel's transfers of a role touch."""
    transfers = program.transfers
    mine = program.transfer[(program.kernel == kernel) & (program.transfer >= 0)]
    is_mine = (transfers.role[mine] == ROLES.index(role)) & (transfers.is_write[mine] == is_write)
    is_mine &= transfers.space[mine] == 0  # tiles that cores share come from elsewhere
    ranges = []
    for index in mine[is_mine].tolist():
        for base, nbytes, stride, count in transfers.runs[
            transfers.run_ptr[index] : transfers.run_ptr[index + 1]
        ].tolist():
            ranges += [(base + i * stride, base + i * stride + nbytes) for i in range(count)]
    return ranges


def producers_mask(tags: NDArray[np.int64], ranges: list[tuple[int, int]]) -> set[int]:
    """Kernels that wrote the bytes last."""
    return {int(tag) for low, high in ranges for tag in np.unique(tags[low:high])}


# decode, chunk, and a model without rotation, whose queries are columns of the projection itself
@pytest.mark.parametrize(
    ("model", "fusion"), [("smollm2-135m", "off"), ("smollm2-135m", "on"), ("gpt2", "on")]
)
def test_every_activation_byte_read_was_written_by_a_producer_of_the_operand(model, fusion):
    graph, program = step(model, fusion=fusion, fuse_activation=False)
    check_program(program)
    names = [kernel.name for kernel in program.kernels]
    size = max(a.offset + a.nbytes for a in program.allocations if a.space == 0)
    tags = np.full(size, -1, dtype=np.int64)
    fused = {f"{n.removesuffix('attention')}{part}": n for n in names for part in
             ("scores", "softmax", "context") if n.endswith("attention")}  # fmt: skip
    for kernel, name in enumerate(names):
        members = [op for op in graph if fused.get(op.name, op.name) == name]
        made = {p.name for op in members for p in graph.producers(op)}
        allowed = {names.index(fused.get(p, p)) for p in made}
        inputs = {t.name for t in graph.inputs}
        if any(t.name in inputs for op in members for t in op.inputs):
            allowed.add(-1)
        read = producers_mask(tags, touched(program, kernel, "activation", is_write=False))
        assert read <= allowed, name
        for low, high in touched(program, kernel, "activation", is_write=True):
            tags[low:high] = kernel


def test_the_parts_of_attention_fill_the_rows_that_the_projection_reads():
    _, program = step(fusion="off")
    names = [kernel.name for kernel in program.kernels]

    def bytes_of(name: str, *, is_write: bool) -> set[int]:
        kernel = names.index(f"layers.1.{name}")
        ranges = touched(program, kernel, "activation", is_write=is_write)
        return {byte for low, high in ranges for byte in range(low, high)}

    # rows of 576 elements, 2 bytes
    decode, chunk = (bytes_of(f"{p}context", is_write=True) for p in ("", "chunk_"))
    assert (len(decode), len(chunk)) == (4 * 1152, 32 * 1152)
    assert min(chunk) == min(decode) + 4 * 1152
    assert decode | chunk == bytes_of("o_proj", is_write=False)
    queries = [bytes_of(f"{p}scores", is_write=False) for p in ("", "chunk_")]
    assert [len(q) for q in queries] == [4 * 1152, 32 * 1152]
    assert min(queries[1]) == min(queries[0]) + 4 * 1152


def test_the_projection_waits_for_both_parts():
    _, program = step(fusion="off")
    names = [kernel.name for kernel in program.kernels]
    waits = program.kernel[consumers(program)] == names.index("layers.0.o_proj")
    awaited = {names[k] for k in program.kernel[program.edge_producer[waits]].tolist()}
    assert {"layers.0.context", "layers.0.chunk_context"} <= awaited


@pytest.mark.parametrize("fusion", ["off", "on"])
def test_attention_of_the_chunk_reads_its_own_cache_and_all_of_it(fusion):
    _, program = step(fusion=fusion)
    names = [kernel.name for kernel in program.kernels]
    kernels = [i for i, n in enumerate(names) if n in ("layers.1.chunk_scores",
               "layers.1.chunk_context", "layers.1.chunk_attention")]  # fmt: skip
    ranges = [r for k in kernels for r in touched(program, k, "kv", is_write=False)]
    read = {byte for low, high in ranges for byte in range(low, high)}
    homes = {a.name: a for a in program.allocations if a.role == "kv"}
    expected = set()
    for part in ("k", "v"):
        home = homes[f"layers.1.chunk_{part}_cache"]
        assert home.nbytes == 3 * 96 * 64 * 2
        expected |= set(range(home.offset, home.offset + home.nbytes))
    assert read == expected


def test_a_tensor_written_in_parts_keeps_room_for_all_of_them():
    graph = transformer("smollm2-135m", **STEP).decode_graph(100, 1)
    operators = list(graph)
    homes = {tensor.name: (start, end) for tensor, start, end in _arena(graph)}
    name = "layers.0.context.out"
    start, end = homes[name]
    assert end - start == 45_056  # 36 rows of 1152 bytes in pages of 4096
    live = range(  # from the first part's writer to the reader
        operators.index(graph["layers.0.context"]), operators.index(graph["layers.0.o_proj"]) + 1
    )
    others = {t.name for i in live for t in operators[i].outputs if t.role is Role.ACTIVATION}
    for other in others - {name}:
        assert homes[other][1] <= start or end <= homes[other][0], other
