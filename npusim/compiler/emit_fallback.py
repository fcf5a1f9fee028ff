"""Operators that the device cannot compute: one blocking command of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.compiler.target import PS_PER_S
from npusim.errors import MappingError
from npusim.program import Opcode

if TYPE_CHECKING:
    from npusim.compiler.emit import Emission
    from npusim.workload.operator import Operator


def emit_fallback(emission: Emission, operator: Operator) -> None:
    """Wait for the inputs, then bytes in and out over `host.fallback_bytes_per_s`.

    The host blocks meanwhile, so later eager launches wait. Its own path to the memory is not
    simulated: these bytes are in the duration, not in the traffic of the device.

    Raises
    ------
    MappingError
        If the system does not say how fast its host is.
    """
    host = emission.target.host
    if host.fallback_bytes_per_s is None:
        raise MappingError(
            operator.name,
            "the device cannot compute this operator and host.fallback_bytes_per_s is not set",
            operator.stage,
            "set system.host.fallback_bytes_per_s, or import with --strict to see what falls back",
        )
    nbytes = sum(operator.bytes_of(t) for t in operator.inputs)
    nbytes += sum(t.nbytes for t in operator.outputs)
    duration_ps = -(-nbytes * PS_PER_S // host.fallback_bytes_per_s)
    command = emission.add(
        emission.target.host_engine,
        Opcode.FALLBACK,
        0,
        duration_ticks=duration_ps * emission.target.ticks_per_cycle,
    )
    for tensor in operator.inputs:
        emission.wait_for_tensor(command, tensor)
    emission.arrive(command)
