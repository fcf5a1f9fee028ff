"""QK^T, K streamed from DRAM, one core per head: tiles staged with barriers, or issued as pairs.

staged
    One staging buffer per core holds all queries and as many keys as fit. For each tile the DMA
    engine loads both, the bit ``staged`` tells the matrix unit, it multiplies, the bit ``drained``
    tells the DMA engine; each takes ``sync_cycles``. Queries are read again with every tile.
direct
    Queries stay in the unit. Tiles of keys, as large as above, go to two buffers in turn: one loads
    while the other is multiplied, and no unit tells another anything.

Left out: scores leave the unit for softmax, not for memory; launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.compiler.target import Target
from npusim.compiler.unit_timing import matrix_cycles
from npusim.config.loader import load_system
from npusim.config.overrides import apply_system_overrides
from npusim.config.run_spec import Fidelity
from npusim.config.spec import NonNegativeInt, PositiveInt, Spec
from npusim.errors import ConfigError
from npusim.program import (
    BarrierBit,
    Command,
    Edge,
    EdgeKind,
    Engine,
    EngineKind,
    Kernel,
    Opcode,
    Program,
    Region,
    TransferSpec,
)
from npusim.simulation.memories import build_memory, check_capacity, peak_bytes_per_s
from npusim.simulation.phase import rates_of
from npusim.simulation.program import simulate_program
from npusim.studies.reproduction import Check, Outcome, ReproductionFile, Study

if TYPE_CHECKING:
    from npusim.config.system import SystemConfig
    from npusim.simulation.piece import Piece

_PS_PER_S = 10**12
_PS_PER_US = 10**6
_STAGED, _DRAINED = range(2)  # bits of a core's barrier register


class Config(Spec):
    """Sizes, staging and system."""

    heads: PositiveInt
    """Heads, one core each."""
    keys: PositiveInt
    """Cached tokens."""
    queries: PositiveInt
    """Rows of Q per head."""
    head_width: PositiveInt
    """Elements of a query or key."""
    element_bits: PositiveInt
    """Bits of an element, whole bytes."""
    page_keys: PositiveInt
    """Keys of a head that lie one after the other; then come those of the next head."""
    staging_bytes: PositiveInt
    """Staging buffer of a core."""
    sync_cycles: NonNegativeInt
    """From one unit to the other through a barrier bit."""
    channels: PositiveInt
    """DRAM channels."""
    system: str
    """System to start from."""
    overrides: tuple[str, ...] = ()
    """What is changed in it, as for ``--set``."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a query or key."""
        return self.head_width * self.element_bits // 8

    @property
    def tile_keys(self) -> int:
        """Keys that fit into the staging buffer beside the queries."""
        return self.staging_bytes // self.row_bytes - self.queries

    def tiles(self) -> list[tuple[int, int]]:
        """First key and number of keys of each tile."""
        starts = range(0, self.keys, self.tile_keys)
        return [(start, min(self.tile_keys, self.keys - start)) for start in starts]

    def pieces(self, head: int, first: int, count: int) -> list[tuple[int, int]]:
        """Address and bytes of the rows of a head, page by page; a page has its heads in turn."""
        found = []
        row, last = first, first + count
        while row < last:
            page, within = divmod(row, self.page_keys)
            rows = min(self.page_keys - within, last - row)
            place = (page * self.heads + head) * self.page_keys + within
            found.append((place * self.row_bytes, rows * self.row_bytes))
            row += rows
        return found


class File(ReproductionFile):
    """The file of this reproduction."""

    config: Config
    """What is simulated."""


def run(file: File) -> Outcome:
    """Simulate both ways."""
    config = file.config
    _check(config)
    system = _system(config)
    peak = peak_bytes_per_s(system)[next(iter(system.memories))]
    elapsed_us, moved, details = {}, {}, {}
    for name, chain in (("staged", _Staged), ("direct", _Direct)):
        piece = _simulate(chain(config, system), system)
        elapsed_us[name] = piece.execution.elapsed_ps / _PS_PER_US
        moved[name] = int(piece.read_bytes.sum())
        details[name] = _waits(piece)
    figures = {f"{name}_us": round(value, 6) for name, value in elapsed_us.items()}
    figures["time_ratio"] = round(elapsed_us["staged"] / elapsed_us["direct"], 6)
    for name, nbytes in moved.items():
        rate = nbytes * _PS_PER_S / (elapsed_us[name] * _PS_PER_US)
        figures[f"{name}_bandwidth_frac"] = round(rate / peak, 6)
    figures["bytes_ratio"] = round(moved["staged"] / moved["direct"], 6)
    least = config.heads * (config.queries + config.keys) * config.row_bytes
    checks = (
        Check("direct dispatch reads every byte once", moved["direct"] == least),
        Check("staging reads more bytes and uses less of the bandwidth", _is_worse(figures)),
    )
    waits = ", ".join(f"{bit} {us:g}" for bit, us in details["staged"].items())
    remarks = (f"staged, all cores: {waits}",) if waits else ()
    facts = {"bytes": moved, "peak_bytes_per_s": peak, **details}
    return Outcome(figures, checks, facts, remarks)


def _is_worse(figures: dict[str, float]) -> bool:
    less = figures["staged_bandwidth_frac"] < figures["direct_bandwidth_frac"]
    return figures["bytes_ratio"] > 1 and less


def _waits(piece: Piece) -> dict[str, float]:
    """Time all waits at the bits took, in microseconds, by what the bit says."""
    tally = piece.tally(0, piece.num_kernels)
    waits: dict[str, float] = {}
    for name in tally.names("barrier"):
        bit = name.partition(".")[2]
        waits[bit] = waits.get(bit, 0.0) + tally["barrier", name, "wait_ps"] / _PS_PER_US
    return {f"{bit}_wait_us": round(value, 6) for bit, value in waits.items()}


class _Chain:
    """Commands of all heads; subclasses add those of one."""

    def __init__(self, config: Config, system: SystemConfig) -> None:
        self.config = config
        self.target = Target(system, peak_bytes_per_s(system))
        self.commands: list[Command] = []
        self.barriers: list[BarrierBit] = []
        period = self.target.period_ps
        self._sync = len(self.target.engines)
        self._sync_engines = [
            Engine(f"core{head}.sync", EngineKind.BARRIER, self.target.device_name, head, period)
            for head in range(config.heads)
        ]
        for head in range(config.heads):
            self.add_head(head)

    def program(self) -> Program:
        """The whole program."""
        engines = (*self.target.engines, *self._sync_engines)
        kernel = Kernel("qk", "qk", "qk", None)
        return Program.from_commands(
            self.commands, engines, self.target.spaces, [kernel], self.barriers
        )

    def add_head(self, head: int) -> None:
        """Commands of one head."""
        raise NotImplementedError

    def load(
        self,
        head: int,
        rows: list[tuple[int, int]],
        region: Region,
        waits: tuple[Edge, ...] = (),
    ) -> int:
        """A descriptor of (first, count) rows into a region."""
        pieces = [p for first, count in rows for p in self.config.pieces(head, first, count)]
        spec = TransferSpec.gather(self.target.dram_space, pieces, role="kv")
        engine = self.target.core_engines[head].loads[0]
        return self.add(Command(engine, Opcode.LOAD, 0, waits, spec, writes=(region,)))

    def multiply(self, head: int, keys: int, waits: tuple[Edge, ...], *reads: Region) -> int:
        """Scores of all queries with some keys."""
        config, core = self.config, self.target.core
        dtype = self.target.compute_dtype("fp16", "qk")
        m, k, bits = config.queries, config.head_width, config.element_bits
        cycles = int(matrix_cycles(core, dtype, m, k, keys, bits))
        engine = self.target.core_engines[head].matrix
        return self.add(
            Command(engine, Opcode.MATMUL, cycles, waits, reads=reads, macs=m * k * keys)
        )

    def signal(self, head: int, bit: int, generation: int, producer: int) -> None:
        """Tell the other unit, when the producer has ended."""
        self.add(
            Command(
                self._sync + head,
                Opcode.SIGNAL,
                self.config.sync_cycles,
                (Edge(producer),),
                register=head,
                bit=bit,
                generation=generation,
            )
        )

    def wait(self, engine: int, head: int, bit: int, generation: int) -> None:
        """Wait for the other unit."""
        self.add(Command(engine, Opcode.WAIT, register=head, bit=bit, generation=generation))

    def add(self, command: Command) -> int:
        """Append; its position."""
        self.commands.append(command)
        return len(self.commands) - 1

    def region(self, head: int, offset: int, nbytes: int) -> Region:
        """Bytes of the core's scratchpad."""
        return Region(self.target.scratchpad_space(head), offset, nbytes)


class _Staged(_Chain):
    """Load both, tell, multiply, tell."""

    def add_head(self, head: int) -> None:
        config, engines = self.config, self.target.core_engines[head]
        self.barriers.append(BarrierBit(head, _STAGED, f"core{head}.staged"))
        self.barriers.append(BarrierBit(head, _DRAINED, f"core{head}.drained"))
        q_bytes = config.queries * config.row_bytes
        for tile, (first, count) in enumerate(config.tiles()):
            k_bytes = count * config.row_bytes
            both = self.region(head, 0, q_bytes + k_bytes)
            if tile:
                self.wait(engines.loads[0], head, _DRAINED, tile - 1)
            rows = [(config.keys, config.queries), (first, count)]  # queries lie behind the keys
            self.signal(head, _STAGED, tile, self.load(head, rows, both))
            self.wait(engines.matrix, head, _STAGED, tile)
            product = self.multiply(head, count, (), both)
            if first + count < config.keys:
                self.signal(head, _DRAINED, tile, product)


class _Direct(_Chain):
    """Queries once, then tiles of keys into two buffers in turn."""

    def add_head(self, head: int) -> None:
        config = self.config
        q_bytes = config.queries * config.row_bytes
        q_region = self.region(head, 0, q_bytes)
        q_load = self.load(head, [(config.keys, config.queries)], q_region)
        products: list[int] = []
        for tile, (first, count) in enumerate(config.tiles()):
            k_bytes = count * config.row_bytes
            place = q_bytes + tile % 2 * config.tile_keys * config.row_bytes
            buffer = self.region(head, place, k_bytes)
            free = (Edge(products[-2], EdgeKind.BUFFER_FREE),) if tile > 1 else ()
            load = self.load(head, [(first, count)], buffer, free)
            waits = (Edge(q_load), Edge(load))
            products.append(self.multiply(head, count, waits, q_region, buffer))


def _simulate(chain: _Chain, system: SystemConfig) -> Piece:
    memory = build_memory(system, chain.target, Fidelity.BURST)
    return simulate_program(chain.program(), memory, rates_of(system, chain.target))


def _system(config: Config) -> SystemConfig:
    system = load_system(config.system)
    memory = next(iter(system.memories))
    changes = [*config.overrides, f"system.memories.{memory}.channels={config.channels}"]
    system = apply_system_overrides(system, changes)
    check_capacity(system)
    cores = next(iter(system.devices.values())).cores
    if cores < config.heads:
        raise ConfigError("config.heads", f"has one core each, of {cores}", config.heads)
    return system


def _check(config: Config) -> None:
    if config.element_bits % 8:
        rule = "must be a multiple of 8"
        raise ConfigError("config.element_bits", rule, config.element_bits)
    if config.tile_keys < 1:
        least = (config.queries + 1) * config.row_bytes
        rule = f"must hold all queries and a key, {least} bytes"
        raise ConfigError("config.staging_bytes", rule, config.staging_bytes)


STUDY = Study(File, run)
