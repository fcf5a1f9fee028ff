"""Choices of the compiler, every one switchable."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from npusim.config.spec import PositiveInt, Spec


class Launch(StrEnum):
    """Launch path used for the run; `system` takes the host's."""

    SYSTEM = "system"
    EAGER = "eager"
    GRAPH = "graph"


class ActivationResidency(StrEnum):
    """Where activations live between operators."""

    AUTO = "auto"  # eager: DRAM (or shared SRAM cache); graph: on chip where they fit
    DRAM = "dram"
    ON_CHIP = "on_chip"  # on chip or refuse


class WeightResidency(StrEnum):
    """Where weights are when a decode step starts."""

    COLD = "cold"  # every step reads every weight from DRAM
    RESIDENT = "resident"  # all weights stay on chip across steps, or refuse


class WeightLayout(StrEnum):
    """Order of weight bytes in DRAM."""

    TILED = "tiled"  # every tile contiguous, in the order it is read
    ROW_MAJOR = "row_major"


class SplitPolicy(StrEnum):
    """How an operator is split over cores."""

    AUTO = "auto"
    M = "m"
    N = "n"


class FusionMode(StrEnum):
    """Whether operators are fused."""

    OFF = "off"
    AUTO = "auto"  # where it is legal and predicted to be no slower
    ON = "on"  # wherever it is legal


class Fusion(StrEnum):
    """Fusion of a run; `system` takes the device's."""

    SYSTEM = "system"
    OFF = "off"
    AUTO = "auto"
    ON = "on"


class GemvUnit(StrEnum):
    """Unit that computes floating-point products of one row."""

    MATRIX = "matrix"
    VECTOR = "vector"  # a multiply and a reduction, which stream the matrix


class Gemv(StrEnum):
    """Unit for products of one row in a run; `system` takes the device's."""

    SYSTEM = "system"
    MATRIX = "matrix"
    VECTOR = "vector"


class Staging(StrEnum):
    """Whether products wait for whole operands."""

    SYSTEM = "system"  # whole if the device has `staging_tile_bytes`
    TILES = "tiles"  # a product waits for its own tiles
    WHOLE = "whole"  # the first product waits for both operands, where they fit


#: Python may give a choice by its name, as YAML does
BY_NAME = Field(strict=False)


class CompilerConfig(Spec):
    """Compiler settings; the objective of every search is predicted latency."""

    launch: Annotated[Launch, BY_NAME] = Launch.SYSTEM
    """Launch path; `system` takes the host's."""
    activation_residency: Annotated[ActivationResidency, BY_NAME] = ActivationResidency.AUTO
    """Where activations live between operators."""
    weight_residency: Annotated[WeightResidency, BY_NAME] = WeightResidency.COLD
    """Where weights are when a decode step starts."""
    weight_layout: Annotated[WeightLayout, BY_NAME] = WeightLayout.TILED
    """Order of weight bytes in DRAM."""
    split: Annotated[SplitPolicy, BY_NAME] = SplitPolicy.AUTO
    """How an operator is split over cores."""
    buffers: PositiveInt = 2
    """Slots per streamed operand; 2 is double buffering."""
    fusion: Annotated[Fusion, BY_NAME] = Fusion.SYSTEM
    """Whether operators are fused; `system` takes the device's."""
    fuse_attention: bool = True
    """Fusion covers scores, softmax and context: one kernel that keeps scores on chip."""
    fuse_activation: bool = True
    """Fusion covers a gated activation in the epilogue of the matmul before it."""
    gemv: Annotated[Gemv, BY_NAME] = Gemv.SYSTEM
    """Unit that computes floating-point products of one row; `system` takes the device's."""
    staging: Annotated[Staging, BY_NAME] = Staging.SYSTEM
    """Whether products wait for whole operands; `system` asks the device."""
    prefetch: bool = True
    """Graph launch: weight loads run ahead across kernels."""
    max_cores: PositiveInt | None = None
    """Most cores an operator may use; None: all of the device."""
