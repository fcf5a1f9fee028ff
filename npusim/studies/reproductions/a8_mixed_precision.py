"""Mixed-precision pipeline: QKV in FP16, output projection in INT4, residual in BF16.

QKV makes ``tiles`` column tiles; the projection takes each as a slice of its K and accumulates.
Finished tiles go to an output buffer of ``output_buffer_tiles``, the one under computation is in
the accumulators beside it. When the buffer is full the FP16 unit raises ``int4_ready`` and the
projection starts; for the tiles that the buffer does not hold it awaits ``fp16_done``. The
residual adds the projection to x in place: it must not overwrite x before QKV has read it
(``fp16_done``) nor read the sums before the last is written back (``bf16_align``, set by an arbiter
with a period of its own).

Left out: attention, conversion between formats, loads of weights.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from npusim.compiler.unit_timing import ceil_div
from npusim.config.compute import CubeShape
from npusim.config.spec import ClockRate, PositiveInt, Spec
from npusim.engine import FixedLatencyMemory, StallCause
from npusim.errors import ConfigError, ProtocolError, nearest
from npusim.machine import Machine, find_hazards
from npusim.program import (
    BarrierBit,
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
    Trigger,
)
from npusim.program.check import check_program
from npusim.simulation.program import simulate_program
from npusim.studies.reproduction import Check, Outcome, ReproductionFile, Study

if TYPE_CHECKING:
    from npusim.machine import Execution

_PS_PER_S = 10**12
_BYTES = 2  # of an FP16 or BF16 element

FP16_DONE = BarrierBit(0, 0, "fp16_done")
INT4_READY = BarrierBit(0, 1, "int4_ready", Trigger.LEVEL)
BF16_ALIGN = BarrierBit(0, 2, "bf16_align")
BARRIERS = (FP16_DONE, INT4_READY, BF16_ALIGN)

_ENGINES = ("io", "fp16", "int4", "bf16", "arbiter")
_IO, _FP16, _INT4, _BF16, _ARBITER = range(5)
_STAGES = {"qkv": _FP16, "o_projection": _INT4, "residual": _BF16}


class Config(Spec):
    """Shapes and units of the pipeline."""

    clock_hz: ClockRate
    """Clock of all units."""
    tokens: PositiveInt
    """Rows of x."""
    width: PositiveInt
    """Columns of x and of the projection."""
    qkv_width: PositiveInt
    """Columns of QKV, a multiple of `tiles`."""
    tiles: PositiveInt
    """Column tiles of QKV."""
    fp16_block: CubeShape
    """Product of one cycle of the FP16 unit."""
    int4_block: CubeShape
    """Product of one cycle of the INT4 unit."""
    vector_bytes_per_cycle: PositiveInt
    """Path of the BF16 unit, reads and writes together."""
    output_buffer_tiles: PositiveInt
    """Finished tiles that the FP16 unit's output buffer holds."""
    arbiter_period_cycles: PositiveInt
    """The arbiter sets bits at multiples of this."""
    without: tuple[str, ...] = ()
    """Barriers that are left out."""


class File(ReproductionFile):
    """The file of this reproduction."""

    config: Config
    """What is simulated."""


def run(file: File) -> Outcome:
    """Simulate the pipeline, and then without each barrier."""
    config = file.config
    _check(config)
    piece = simulate_program(build_program(config))
    execution = piece.execution
    tally = piece.tally(0, piece.num_kernels)
    barriers = [
        {
            "name": name,
            "waits": tally["barrier", name, "waits"],
            "wait_cycles": _cycles(config, tally["barrier", name, "wait_ps"]),
        }
        for name in tally.names("barrier")
    ]
    waiters = {
        engine: _cycles(config, use.stalls_ps.get(StallCause.BARRIER, 0))
        for engine, use in zip(_ENGINES, execution.engines, strict=True)
    }
    removals = [_removed(config, barrier.name) for barrier in BARRIERS]
    align = removals[BARRIERS.index(BF16_ALIGN)]
    early = f"{align['residual_start_cycles']:g}"
    checks = (
        Check(f"a run without bf16_align (residual at {early}) is a hazard", bool(align["hazard"])),
        Check(
            "a program without any one of the barriers is refused",
            all(found["refused"] for found in removals),
        ),
    )
    details = {"barriers": barriers, "barrier_stall_cycles": waiters, "removed": removals}
    figures = _figures(config, piece.program, execution)
    return Outcome(figures, checks, details, _remarks(barriers, removals))


def _remarks(barriers: list[dict[str, Any]], removals: list[dict[str, Any]]) -> tuple[str, ...]:
    """Waits by bit, and what each removed bit does."""
    waits = ", ".join(f"{b['name']} {b['wait_cycles']:g}" for b in barriers)
    found = [
        f"without {removed['barrier']}: {removed['hazard'] or 'refused, no hazard at these times'}"
        for removed in removals
    ]
    return (f"cycles waited at barriers: {waits}", *found)


def build_program(config: Config) -> Program:
    """Commands of the pipeline."""
    period = Fraction(_PS_PER_S, config.clock_hz)
    kinds = (
        *(EngineKind.VECTOR, EngineKind.MATRIX, EngineKind.MATRIX, EngineKind.VECTOR),
        EngineKind.BARRIER,
    )
    periods = (*(period,) * 4, period * config.arbiter_period_cycles)
    engines = [
        Engine(name, kind, "npu", 0, one)
        for name, kind, one in zip(_ENGINES, kinds, periods, strict=True)
    ]
    kernels = [Kernel("pipeline", "pipeline", "pipeline", None)]  # in order of use, not by stage
    commands = _Pipeline(config).commands
    return Program.from_commands(commands, engines, _spaces(config), kernels, BARRIERS)


class _Pipeline:
    """Collects the commands, in program order of every unit."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.commands: list[Command] = []
        self._slots = config.output_buffer_tiles + 1
        self._projections: list[int] = []  # commands of the projection's tiles so far
        self._x, self._sums, self._tile = _regions(config)
        self._input = self._add(_IO, Opcode.VECTOR, 0, writes=(self._x,))
        self._add_products()
        self._add_residual()

    def _add(
        self,
        engine: int,
        opcode: Opcode,
        cycles: int,
        waits: tuple[Edge, ...] = (),
        **keys: Any,
    ) -> int:
        self.commands.append(Command(engine, opcode, cycles, waits, **keys))
        return len(self.commands) - 1

    def _set(self, engine: int, barrier: BarrierBit, waits: tuple[Edge, ...] = ()) -> None:
        if barrier.name not in self._config.without:
            register, bit = barrier.register, barrier.bit
            self._add(engine, Opcode.SIGNAL, 0, waits, register=register, bit=bit)

    def _await(self, engine: int, barrier: BarrierBit) -> None:
        if barrier.name not in self._config.without:
            register, bit = barrier.register, barrier.bit
            self._add(engine, Opcode.WAIT, 0, register=register, bit=bit)

    def _add_products(self) -> None:
        """Tiles of QKV and of the projection, in the order in which they use the buffer."""
        config = self._config
        full = min(config.output_buffer_tiles, config.tiles)
        for tile in range(config.tiles):
            waits: tuple[Edge, ...] = (Edge(self._input),)
            if tile >= self._slots:
                self._add_projection()
                waits = (*waits, Edge(self._projections[-1], EdgeKind.BUFFER_FREE))
            self._add_qkv(tile, waits)
            if tile + 1 == full:
                self._set(_FP16, INT4_READY)
        self._set(_FP16, FP16_DONE)
        while len(self._projections) < config.tiles:
            self._add_projection()
        self._set(_ARBITER, BF16_ALIGN, (Edge(self._projections[-1]),))

    def _add_qkv(self, tile: int, waits: tuple[Edge, ...]) -> None:
        config = self._config
        m, k, n = config.tokens, config.width, config.qkv_width // config.tiles
        self._add(
            _FP16,
            Opcode.MATMUL,
            _blocks(config.fp16_block, m, k, n),
            waits,
            reads=(self._x,),
            writes=(self._tile(tile),),
            macs=m * k * n,
        )

    def _add_projection(self) -> None:
        """The next tile; the first awaits a full buffer, the first beyond it all of QKV."""
        config, tile = self._config, len(self._projections)
        if tile == 0:
            self._await(_INT4, INT4_READY)
        if tile == config.output_buffer_tiles:
            self._await(_INT4, FP16_DONE)
        m, k, n = config.tokens, config.qkv_width // config.tiles, config.width
        sums = (self._sums,)
        self._projections.append(
            self._add(
                _INT4,
                Opcode.MATMUL,
                _blocks(config.int4_block, m, k, n),
                reads=(self._tile(tile), *(sums if tile else ())),
                writes=sums,
                macs=m * k * n,
            )
        )

    def _add_residual(self) -> None:
        config = self._config
        self._await(_BF16, FP16_DONE)
        self._await(_BF16, BF16_ALIGN)
        moved = 3 * _BYTES * config.tokens * config.width
        cycles = int(ceil_div(moved, config.vector_bytes_per_cycle))
        self._add(
            _BF16,
            Opcode.VECTOR,
            cycles,
            (Edge(self._input),),
            reads=(self._x, self._sums),
            writes=(self._x,),
        )


def _regions(config: Config) -> tuple[Region, Region, Any]:
    """x, the projection's sums, and the slot of each tile of QKV."""
    x_bytes = config.tokens * config.width * _BYTES
    tile_bytes = config.tokens * (config.qkv_width // config.tiles) * _BYTES
    slots = config.output_buffer_tiles + 1

    def tile_region(tile: int) -> Region:
        return Region(0, 2 * x_bytes + tile % slots * tile_bytes, tile_bytes)

    return Region(0, 0, x_bytes), Region(0, x_bytes, x_bytes), tile_region


def _spaces(config: Config) -> list[MemorySpace]:
    _, _, tile_region = _regions(config)
    last = tile_region(config.output_buffer_tiles)
    return [MemorySpace("buffers", "scratchpad", last.offset + last.nbytes)]


def _blocks(block: CubeShape, m: int, k: int, n: int) -> int:
    """Cycles of a product, one block each."""
    return int(ceil_div(m, block.m) * ceil_div(k, block.k) * ceil_div(n, block.n))


def _check(config: Config) -> None:
    if config.qkv_width % config.tiles:
        rule = f"must be a multiple of tiles={config.tiles}"
        raise ConfigError("config.qkv_width", rule, config.qkv_width)
    names = [barrier.name for barrier in BARRIERS]
    for name in config.without:
        if name not in names:
            raise ConfigError("config.without", "is no barrier", name, nearest(name, names))


def _cycles(config: Config, time_ps: int) -> float:
    return float(Fraction(time_ps * config.clock_hz, _PS_PER_S))


def _figures(config: Config, program: Program, execution: Execution) -> dict[str, float]:
    figures = {}
    is_work = (program.opcode == Opcode.MATMUL) | (program.opcode == Opcode.VECTOR)
    for name, engine in _STAGES.items():
        commands = (program.engine == engine) & is_work
        start = int(execution.start_ps[commands].min())
        end = int(execution.end_ps[commands].max())
        figures[f"{name}_start_cycles"] = _cycles(config, start)
        figures[f"{name}_cycles"] = _cycles(config, end - start)
    figures["end_cycles"] = _cycles(config, execution.elapsed_ps)
    return figures


def _removed(config: Config, name: str) -> dict[str, Any]:
    """What the static check says without a barrier, and what a run does that skips that check."""
    program = build_program(config.model_copy(update={"without": (*config.without, name)}))
    refused = ""
    try:
        check_program(program)
    except ProtocolError as error:
        refused = str(error)
    execution = Machine(program, FixedLatencyMemory(0)).run()
    hazards = find_hazards(program, execution)
    return {
        "barrier": name,
        "refused": refused,
        "hazard": str(hazards[0].error(program)) if hazards else "",
        **_figures(config, program, execution),
    }


STUDY = Study(File, run)
