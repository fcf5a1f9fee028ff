"""The readable form of a program."""

from __future__ import annotations

from fractions import Fraction

import pytest

from npusim.errors import ProtocolError
from npusim.program import (
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    Kernel,
    MemorySpace,
    Opcode,
    Program,
    Region,
    TransferSpec,
)
from npusim.program.dump import dump_program

NS = Fraction(1000)
PROGRAM = Program.from_commands(
    [
        Command(
            0,
            Opcode.LOAD,
            transfer=TransferSpec(0, False, ((0, 64, 128, 3),)),
            writes=(Region(1, 0, 192),),
        ),
        Command(
            1,
            Opcode.MATMUL,
            Fraction(9, 5),
            (Edge(0),),
            reads=(Region(1, 0, 192),),
            macs=512,
            kernel=1,
        ),
        Command(1, Opcode.SIGNAL, 0, (Edge(1, EdgeKind.ORDER, at=5),), kernel=1, register=0, bit=2),
    ],
    [
        Engine("load", EngineKind.DMA_LOAD, "npu", 0, NS, port=0),
        Engine("matrix", EngineKind.MATRIX, "npu", 0, NS),
    ],
    [MemorySpace("dram", "dram", 4096, 0), MemorySpace("pad", "scratchpad", 1024)],
    [Kernel("k0", "embedding", "embed", None), Kernel("k1", "k1", "mlp", 0)],
)


def test_a_dump_shows_engines_and_commands():
    lines = list(dump_program(PROGRAM))
    assert lines[0].startswith("3 commands, 2 edges, 2 kernels, 1 transfers of 192 bytes, digest ")
    assert lines[1:] == [
        "space   dram: dram, 4096 bytes",
        "space   pad: scratchpad, 1024 bytes",
        "engine  load    dma_load   1 LOAD",
        "engine  matrix  matrix     1 MATMUL, 1 SIGNAL",
        "",
        "#0  load  LOAD  k0  (embedding)  192 bytes from dram  writes pad[0:192]",
        "#1  matrix  MATMUL  k1  1.8 cycles  512 MACs  waits #0:data  reads pad[0:192]",
        "#2  matrix  SIGNAL  k1  0 cycles  barrier 2 generation 0  waits #1+1:order",
    ]


def test_a_limit_says_how_much_it_hides():
    lines = list(dump_program(PROGRAM, limit=1))
    assert lines[-2].startswith("#0")
    assert lines[-1] == "... 2 more commands"


def test_one_kernel_can_be_shown():
    shown = [line for line in dump_program(PROGRAM, kernel="k1") if line.startswith("#")]
    assert [line.split()[0] for line in shown] == ["#1", "#2"]


def test_an_unknown_kernel_is_refused_at_once():
    with pytest.raises(ProtocolError, match="did you mean 'k1'"):
        dump_program(PROGRAM, kernel="kk1")
