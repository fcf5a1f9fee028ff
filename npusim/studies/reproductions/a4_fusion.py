"""Fusion of INT4 GEMM, convert, FP16 softmax and reshape, tile by tile, limited by issue.

Instructions of a tile (rows x n of the result) follow from the shape, a register each:

- gemm: load the rows x k operand, one instruction per block; the other operand stays in the unit
- convert, reshape: one per register; softmax: ``softmax_passes`` per register
- every kernel loads its first operand from SRAM and stores its result there

so each border between kernels costs a store and a load per register, which fusion saves. A kernel
keeps its operand and the results of all its stages in registers. What exceeds the register file
goes to SRAM and comes back, ``spill_cycles`` per register and way. The convert unit takes
``convert_cycles`` from each tile's gemm to its first FP16 instruction; what comes before the
convert is issued a tile ahead.

Left out: contention for SRAM, scalar registers of row statistics, loads of the stationary operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from npusim.compiler.unit_timing import ceil_div
from npusim.config.compute import CubeShape
from npusim.config.spec import ClockRate, NonNegativeFraction, PositiveInt, Spec
from npusim.errors import ConfigError
from npusim.program import (
    Command,
    Edge,
    Engine,
    EngineKind,
    Kernel,
    MemorySpace,
    Opcode,
    Program,
    Region,
)
from npusim.simulation.program import simulate_program
from npusim.studies.reproduction import Check, Outcome, ReproductionFile, Study

if TYPE_CHECKING:
    from collections.abc import Sequence

_PS_PER_S = 10**12
_GEMM, _CONVERT, _SOFTMAX, _RESHAPE = "gemm", "convert", "softmax", "reshape"
STAGES = (_GEMM, _CONVERT, _SOFTMAX, _RESHAPE)

#: kernels of each strategy
STRATEGIES = {
    "separate": tuple((stage,) for stage in STAGES),
    "gemm_softmax": (STAGES[:3], STAGES[3:]),
    "all": (STAGES,),
}
_ISSUE, _CONVERT_UNIT = range(2)
_OVERFLOW, _HIGH_FRAC = 1.0, 0.75  # shares of the register file


class Shape(Spec):
    """The product m x k by k x n; softmax goes along n."""

    m: PositiveInt
    """Rows of the result."""
    k: PositiveInt
    """Depth."""
    n: PositiveInt
    """Columns of the result."""


class Config(Spec):
    """Shape, core and register file."""

    shape: Shape
    """Shape of the GEMM."""
    convert_cycles: NonNegativeFraction
    """From the INT4 unit to the FP16 registers, per tile."""
    clock_hz: ClockRate
    """Clock of the core."""
    tile_rows: PositiveInt
    """Rows of a tile."""
    gemm_bits: PositiveInt
    """Bits of the GEMM's operands."""
    value_bits: PositiveInt
    """Bits of sums and of all later values."""
    block: CubeShape
    """Product of one matrix instruction."""
    register_bytes: PositiveInt
    """Size of a register."""
    register_file_bytes: PositiveInt
    """All registers."""
    instructions_per_cycle: PositiveInt
    """Instructions issued per cycle, of any kind."""
    softmax_passes: PositiveInt
    """Passes of softmax over its operand."""
    spill_cycles: NonNegativeFraction
    """Cycles to move one register to SRAM or back; 0: spills are free."""


class File(ReproductionFile):
    """The file of this reproduction."""

    config: Config
    """What is simulated."""


@dataclass(frozen=True)
class Tile:
    """Registers and instructions of a tile of so many rows."""

    config: Config
    rows: int

    def _registers(self, columns: int, bits: int) -> int:
        return int(ceil_div(self.rows * columns * bits, 8 * self.config.register_bytes))

    @property
    def operand(self) -> int:
        """Registers of the GEMM's moving operand."""
        return self._registers(self.config.shape.k, self.config.gemm_bits)

    @property
    def values(self) -> int:
        """Registers of a result of any stage."""
        return self._registers(self.config.shape.n, self.config.value_bits)

    def instructions(self, stage: str) -> int:
        """Of a stage itself, without loads and stores at the borders of its kernel."""
        config, shape = self.config, self.config.shape
        if stage == _GEMM:
            rows, depth = ceil_div(self.rows, config.block.m), ceil_div(shape.k, config.block.k)
            return self.operand + int(rows * depth * ceil_div(shape.n, config.block.n))
        return self.values * (config.softmax_passes if stage == _SOFTMAX else 1)

    def live(self, kernel: Sequence[str]) -> int:
        """Registers a kernel holds: its operand and the results of its stages."""
        first = self.operand if kernel[0] == _GEMM else self.values
        return first + len(kernel) * self.values

    def spilled(self, kernel: Sequence[str]) -> int:
        """Registers a kernel holds beyond the register file."""
        return max(
            self.live(kernel) - self.config.register_file_bytes // self.config.register_bytes, 0
        )


def run(file: File) -> Outcome:
    """Simulate the three strategies."""
    config = file.config
    _check(config)
    instructions, cycles, spills, pressure = {}, {}, {}, {}
    for name, kernels in STRATEGIES.items():
        program = build_program(config, kernels)
        elapsed_ps = simulate_program(program).execution.elapsed_ps
        tiles = _tiles(config)
        instructions[name] = sum(_issued(tile, kernel) for kernel in kernels for tile in tiles)
        cycles[name] = round(float(Fraction(elapsed_ps * config.clock_hz, _PS_PER_S)), 6)
        spills[name] = sum(tile.spilled(kernel) for kernel in kernels for tile in tiles)
        live = max(tile.live(kernel) for kernel in kernels for tile in tiles)
        pressure[name] = live * config.register_bytes / config.register_file_bytes
    figures = {f"{name}_instructions": float(count) for name, count in instructions.items()}
    figures |= {f"{name}_cycles": count for name, count in cycles.items()}
    figures |= {f"{name}_register_file_frac": share for name, share in pressure.items()}
    ordered = cycles["gemm_softmax"] < cycles["all"] < cycles["separate"]
    words = ", ".join(_word(share) for share in pressure.values())
    checks = (
        Check("GEMM + softmax is faster than all fused, which is faster than all apart", ordered),
        Check(f"register pressure is {words}", words == "low, high, overflow (spills)"),
    )
    spilled = ", ".join(f"{name} {count}" for name, count in spills.items())
    remarks = (f"registers spilled, all tiles: {spilled}",)
    return Outcome(figures, checks, {"spilled_registers": spills}, remarks)


def build_program(config: Config, kernels: Sequence[Sequence[str]]) -> Program:
    """Commands of some kernels, each over all tiles."""
    period = Fraction(_PS_PER_S, config.clock_hz)
    engines = [
        Engine("core.issue", EngineKind.MATRIX, "npu", 0, period),
        Engine("core.convert", EngineKind.CONVERT, "npu", 0, period),
    ]
    named = [Kernel("+".join(k), "+".join(k), "+".join(k), None) for k in kernels]
    builder = _Chain(config, kernels)
    spaces = [MemorySpace("sram", "scratchpad", builder.sram_bytes)]
    return Program.from_commands(builder.commands, engines, spaces, named)


class _Chain:
    """Collects the commands of all kernels."""

    def __init__(self, config: Config, kernels: Sequence[Sequence[str]]) -> None:
        self._config = config
        self._tiles = _tiles(config)
        slot = max(t.values for t in self._tiles) * config.register_bytes
        self.sram_bytes = len(self._tiles) * slot * len(kernels)
        self._slot = slot
        self.commands: list[Command] = []
        self._crossing: dict[int, int] = {}  # convert command of each tile of the open kernel
        for index, kernel in enumerate(kernels):
            self._add_kernel(index, kernel)

    def _add_kernel(self, index: int, kernel: Sequence[str]) -> None:
        """Front parts up to the convert unit run a tile ahead of what follows it."""
        fronts = len(self._tiles) if _CONVERT in kernel else 0
        if fronts:
            self._add_front(index, kernel, 0)
        for tile in range(len(self._tiles)):
            if tile + 1 < fronts:
                self._add_front(index, kernel, tile + 1)
            self._add_back(index, kernel, tile)

    def _add_front(self, index: int, kernel: Sequence[str], tile: int) -> None:
        at = kernel.index(_CONVERT)
        count = sum(self._tiles[tile].instructions(stage) for stage in kernel[:at])
        front = self._issue(index, count + self._loads(kernel, tile), reads=self._in(index, tile))
        self._crossing[tile] = self._convert(index, front)

    def _add_back(self, index: int, kernel: Sequence[str], tile: int) -> None:
        crosses = _CONVERT in kernel
        stages = kernel[kernel.index(_CONVERT) :] if crosses else kernel
        self._spill(index, kernel, tile)
        count = sum(self._tiles[tile].instructions(stage) for stage in stages)
        count += self._tiles[tile].values + (0 if crosses else self._loads(kernel, tile))
        waits = (Edge(self._crossing[tile]),) if crosses else ()
        reads = () if crosses else self._in(index, tile)
        self._issue(index, count, waits, reads=reads, writes=self._out(index, tile))

    def _spill(self, index: int, kernel: Sequence[str], tile: int) -> None:
        moved = 2 * self._tiles[tile].spilled(kernel)  # there and back
        if moved:
            cycles = moved * self._config.spill_cycles
            self.commands.append(Command(_ISSUE, Opcode.VECTOR, cycles, kernel=index))

    def _loads(self, kernel: Sequence[str], tile: int) -> int:
        """Loads of what the kernel before has stored; the GEMM counts its own."""
        return 0 if kernel[0] == _GEMM else self._tiles[tile].values

    def _issue(self, index: int, count: int, waits: tuple[Edge, ...] = (), **regions: Any) -> int:
        cycles = Fraction(count, self._config.instructions_per_cycle)
        self.commands.append(Command(_ISSUE, Opcode.MATMUL, cycles, waits, kernel=index, **regions))
        return len(self.commands) - 1

    def _convert(self, index: int, front: int) -> int:
        cycles = self._config.convert_cycles
        self.commands.append(
            Command(_CONVERT_UNIT, Opcode.CONVERT, cycles, (Edge(front),), kernel=index)
        )
        return len(self.commands) - 1

    def _out(self, index: int, tile: int) -> tuple[Region, ...]:
        place = (index * len(self._tiles) + tile) * self._slot
        return (Region(0, place, self._tiles[tile].values * self._config.register_bytes),)

    def _in(self, index: int, tile: int) -> tuple[Region, ...]:
        return self._out(index - 1, tile) if index else ()


def _tiles(config: Config) -> list[Tile]:
    """All tiles; the last one may have fewer rows."""
    starts = range(0, config.shape.m, config.tile_rows)
    return [Tile(config, min(config.tile_rows, config.shape.m - start)) for start in starts]


def _issued(tile: Tile, kernel: Sequence[str]) -> int:
    """Instructions of a kernel on a tile, loads and stores at its borders included."""
    loads = 0 if kernel[0] == _GEMM else tile.values
    return loads + sum(tile.instructions(stage) for stage in kernel) + tile.values


def _word(share: float) -> str:
    if share > _OVERFLOW:
        return "overflow (spills)"
    return "high" if share > _HIGH_FRAC else "low"


def _check(config: Config) -> None:
    if config.register_file_bytes % config.register_bytes:
        rule = f"must be a multiple of register_bytes={config.register_bytes}"
        raise ConfigError("config.register_file_bytes", rule, config.register_file_bytes)


STUDY = Study(File, run)
