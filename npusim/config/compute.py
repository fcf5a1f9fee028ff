"""What one core is made of: matrix, vector and convert units, DMA, scratchpad, registers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from npusim.config.rules import RuleError
from npusim.config.spec import (
    NonNegativeFraction,
    NonNegativeInt,
    Ordered,
    PositiveInt,
    Spec,
    require_any,
    require_power_of_two,
)
from npusim.errors import nearest


class ComputeDtype(StrEnum):
    """Number formats a unit can compute in."""

    INT4 = "int4"
    INT8 = "int8"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"


class MatrixKind(StrEnum):
    """How a matrix unit takes its operands."""

    SYSTOLIC = "systolic"
    CUBE = "cube"


class Dataflow(StrEnum):
    """Which operand of a systolic array stays in place."""

    WEIGHT_STATIONARY = "weight_stationary"
    OUTPUT_STATIONARY = "output_stationary"
    INPUT_STATIONARY = "input_stationary"


class WeightDequant(StrEnum):
    """Where packed weights become the format the matrix unit computes in."""

    MATRIX_NATIVE = "matrix_native"  # unit reads packed weights; scratchpad holds packed
    DMA_INLINE = "dma_inline"  # DMA expands on the way in; scratchpad holds expanded
    CONVERT_UNIT = "convert_unit"  # convert command between load and matmul; both are held
    VECTOR_UNIT = "vector_unit"  # same, on the vector unit


class AccumulatorConvert(StrEnum):
    """Where 32-bit accumulators become the output format."""

    INLINE = "inline"  # in the drain path of the matrix unit, at no extra cycles
    CONVERT_UNIT = "convert_unit"
    VECTOR_UNIT = "vector_unit"


QosValue = Annotated[int, Field(ge=0, le=15)]

#: element operations a vector unit gives a cost for; a test keeps `workload.operator` equal
VECTOR_OPS = ("add", "mul", "max", "exp", "div", "rsqrt", "tanh", "convert", "copy")


#: words of a scratchpad's bank period, which the conflict count walks through
MAX_PERIOD_WORDS = 1 << 14
MAX_QUEUE_DEPTH = 64


class CubeShape(Spec):
    """Multiply-accumulates of one cycle: an m x k by k x n block."""

    m: PositiveInt
    """Rows of the moving operand in one cycle."""
    k: PositiveInt
    """Depth of the dot products of one cycle."""
    n: PositiveInt
    """Columns of the other operand in one cycle."""


class MatrixSpec(Spec):
    """Systolic arrays (rows x cols) or cube units, `units` of them per core."""

    kind: MatrixKind
    """Systolic array or cube unit."""
    units: PositiveInt
    """Units of this kind in one core."""
    rows: PositiveInt | None = None
    """Systolic: processing elements along the array's height."""
    cols: PositiveInt | None = None
    """Systolic: processing elements along the array's width."""
    dataflow: Dataflow | None = None
    """Systolic: which operand stays in place."""
    preload_overlapped: bool | None = None
    """Systolic: the next stationary tile loads during this fold."""
    drain: bool | None = None
    """Output-stationary: results leave through the array."""
    macs_per_pe: Annotated[dict[ComputeDtype, PositiveInt], Ordered] | None = None
    """Systolic: MACs of one processing element per cycle, by format."""
    cube: Annotated[dict[ComputeDtype, CubeShape], Ordered] | None = None
    """Cube: block of one cycle, by format."""
    startup_cycles: NonNegativeInt | None = None
    """Cube: pipeline fill of one command."""
    operand_buffer_bytes: PositiveInt
    """Operand storage next to the units, all units of the core together."""
    accumulator_buffer_bytes: PositiveInt
    """32-bit accumulators of all units of the core together; K-splits keep partial sums there."""
    operand_bytes_per_cycle: PositiveInt
    """Path from the scratchpad to the units, all units of the core together."""
    accumulator_bytes_per_cycle: PositiveInt
    """Path from the units to the scratchpad, all units of the core together."""
    accumulator_convert: AccumulatorConvert
    """Where 32-bit accumulators become the output format."""

    @model_validator(mode="after")
    def _fields_match_kind(self) -> Self:
        systolic = ("rows", "cols", "dataflow", "preload_overlapped", "drain", "macs_per_pe")
        cube = ("cube", "startup_cycles")
        wanted = systolic if self.kind is MatrixKind.SYSTOLIC else cube
        for name in (*systolic, *cube):
            given = getattr(self, name) is not None
            if name in wanted and not given:
                raise RuleError(name, f"is required for kind={self.kind.value}")
            if name not in wanted and given:
                raise RuleError(name, f"does not apply to kind={self.kind.value}")
        if not self.dtypes:
            path = "cube" if self.kind is MatrixKind.CUBE else "macs_per_pe"
            raise RuleError(path, "must give at least one format")
        return self

    @property
    def dtypes(self) -> tuple[ComputeDtype, ...]:
        """Formats the unit computes in."""
        return tuple(self.macs_per_pe or self.cube or ())

    def macs_per_cycle(self, dtype: ComputeDtype) -> int:
        """Peak MACs per cycle of all units of the core; KeyError for an unsupported format."""
        if self.cube is not None:
            shape = self.cube[dtype]
            return self.units * shape.m * shape.k * shape.n
        assert self.rows and self.cols and self.macs_per_pe is not None
        return self.units * self.rows * self.cols * self.macs_per_pe[dtype]


class VectorSpec(Spec):
    """A SIMD unit: `lanes` per format, cycles per lane and operation, fixed latency per command."""

    lanes: Annotated[dict[ComputeDtype, PositiveInt], Ordered]
    """Elements of one cycle, by format; fp16 or fp32 is required."""
    op_cycles: Annotated[dict[str, PositiveInt], Ordered]
    """Cycles a lane spends on one element, by operation; every operation is required."""
    latency_cycles: NonNegativeInt
    """Pipeline depth, paid once per command."""
    bytes_per_cycle: PositiveInt
    """Path to the scratchpad, reads and writes together."""

    @model_validator(mode="after")
    def _formats_and_operations(self) -> Self:
        require_any("lanes", self.lanes, ("fp16", "fp32"))
        for name in self.op_cycles:
            if name not in VECTOR_OPS:
                raise RuleError(
                    f"op_cycles.{name}", "is no operation", hint=nearest(name, VECTOR_OPS)
                )
        for name in VECTOR_OPS:
            if name not in self.op_cycles:
                raise RuleError("op_cycles", f"lacks the operation {name!r}")
        return self


class ConvertSpec(Spec):
    """The unit between number formats: a fixed part (may be fractional) plus a rate."""

    elems_per_cycle: PositiveInt
    """Elements converted per cycle."""
    fixed_cycles: NonNegativeFraction
    """Cycles of one command before the first element; 1.8 stays 1.8."""


class DmaSpec(Spec):
    """DMA engines of one core: in-order descriptors, `queue_depth` of them in flight."""

    load_engines: PositiveInt
    """Engines that move data into the core."""
    store_engines: PositiveInt
    """Engines that move data out of the core."""
    queue_depth: PositiveInt
    """Descriptors in flight per engine."""
    issue_cycles: NonNegativeInt
    """Cycles to issue one descriptor; the next one waits for that long."""
    bytes_per_cycle: PositiveInt
    """Rate of one engine."""
    dram_bytes_per_cycle: PositiveInt
    """Rate of one engine when the other end is a DRAM; at most `bytes_per_cycle`."""
    outstanding_bursts: PositiveInt
    """Bursts of one engine sent to memory and not answered, per direction."""
    gather_issue_cycles: PositiveInt | None = None
    """Cycles of one fetch from a descriptor's list of pieces, for descriptors of several pieces;
    None: the list costs nothing beyond `issue_cycles`."""
    gather_pieces_per_fetch: PositiveInt | None = None
    """Pieces of a list that one fetch brings; None: one."""
    ids: Annotated[int, Field(gt=0, le=1024)] | None = None
    """AXI IDs of one engine and direction, taken in turn; bursts of one ID return in order.
    None: every burst has an ID of its own."""
    outstanding_per_id: PositiveInt | None = None
    """Bursts of one ID sent and not answered; None: no limit of its own."""
    qos: Annotated[dict[str, QosValue], Ordered] | None = None
    """AXI QoS by engine of the core (load0, load1, ..., store0, ...), 15 first; unnamed engines: 0.
    Matters on a bus with arbitration: qos."""

    @model_validator(mode="after")
    def _optional_keys_fit(self) -> Self:
        if self.gather_pieces_per_fetch is not None and self.gather_issue_cycles is None:
            raise RuleError("gather_pieces_per_fetch", "needs gather_issue_cycles")
        if self.outstanding_per_id is not None and self.ids is None:
            raise RuleError("outstanding_per_id", "needs ids")
        names = [f"load{i}" for i in range(self.load_engines)]
        names += [f"store{i}" for i in range(self.store_engines)]
        for name in self.qos or {}:
            if name not in names:
                raise RuleError(f"qos.{name}", "is no DMA engine", hint=nearest(name, names))
        return self

    @model_validator(mode="after")
    def _dram_path_within_engine(self) -> Self:
        if self.dram_bytes_per_cycle > self.bytes_per_cycle:
            rule = f"must not exceed bytes_per_cycle={self.bytes_per_cycle}"
            raise RuleError("dram_bytes_per_cycle", rule, self.dram_bytes_per_cycle)
        return self


class ScratchpadSpec(Spec):
    """Banked on-chip SRAM managed by software."""

    capacity_bytes: PositiveInt
    """Size, all banks together."""
    banks: PositiveInt
    """Banks that work in the same cycle."""
    port_bytes: PositiveInt
    """Bytes of one bank per cycle."""
    latency_cycles: NonNegativeInt
    """Cycles from request to data."""
    ports: PositiveInt | None = None
    """Words one bank serves in a cycle; None: one."""
    interleave_bytes: PositiveInt | None = None
    """Contiguous bytes in one bank before the next; None: one word of `port_bytes`."""
    queue_depth: PositiveInt | None = None
    """Accesses of a stream that wait at the banks, a power of two; None: those of a bank period."""

    @model_validator(mode="after")
    def _banks_divide_capacity(self) -> Self:
        if self.capacity_bytes % self.banks:
            rule = f"must be a multiple of banks={self.banks}"
            raise RuleError("capacity_bytes", rule, self.capacity_bytes)
        return self

    @model_validator(mode="after")
    def _bank_period_is_countable(self) -> Self:
        interleave = self.bank_interleave_bytes
        if interleave % self.port_bytes:
            rule = f"must be a multiple of port_bytes={self.port_bytes}"
            raise RuleError("interleave_bytes", rule, interleave)
        words = self.banks * interleave // self.port_bytes
        if words > MAX_PERIOD_WORDS:
            rule = f"banks x interleave must hold at most {MAX_PERIOD_WORDS} words of port_bytes"
            raise RuleError("interleave_bytes", rule, interleave)
        if self.queue_depth is not None:
            require_power_of_two("queue_depth", self.queue_depth)
            if self.queue_depth > MAX_QUEUE_DEPTH:
                raise RuleError(
                    "queue_depth", f"must be at most {MAX_QUEUE_DEPTH}", self.queue_depth
                )
        return self

    @property
    def bank_interleave_bytes(self) -> int:
        """Contiguous bytes in one bank before the next."""
        return self.interleave_bytes or self.port_bytes

    @property
    def bytes_per_cycle(self) -> int:
        """Peak rate with every port of every bank busy."""
        return self.banks * self.port_bytes * (self.ports or 1)


class CoreSpec(Spec):
    """The template that every core of a device repeats."""

    matrix: MatrixSpec
    """Matrix units."""
    vector: VectorSpec
    """Vector unit."""
    convert: ConvertSpec | None = None
    """Convert unit; None: the core has none."""
    dma: DmaSpec
    """DMA engines."""
    scratchpad: ScratchpadSpec
    """Local memory."""
    register_file_bytes: PositiveInt
    """Live values of fused operators; what exceeds it spills to the scratchpad."""
    weight_dequant: WeightDequant
    """Where packed weights become the format the matrix unit computes in."""

    @model_validator(mode="after")
    def _convert_unit_exists(self) -> Self:
        users = {
            "weight_dequant": self.weight_dequant is WeightDequant.CONVERT_UNIT,
            "matrix.accumulator_convert": (
                self.matrix.accumulator_convert is AccumulatorConvert.CONVERT_UNIT
            ),
        }
        for path, wants in users.items():
            if wants and self.convert is None:
                raise RuleError(path, "needs a convert block in the core", "convert_unit")
        return self
