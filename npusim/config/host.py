"""The host that launches kernels, and what a launch costs."""

from __future__ import annotations

from enum import StrEnum

from npusim.config.spec import NonNegativeInt, PositiveInt, Spec


class LaunchMode(StrEnum):
    """How kernels reach the device."""

    EAGER = "eager"
    GRAPH = "graph"


class HostSpec(Spec):
    """Launch path and its costs.

    Eager: one `host_issue` per kernel, up to `queue_depth` launches outstanding, `device_start`
    from queue head to first command. Graph: one `graph_launch` per step, then `graph_node` per
    kernel on the device. `sync` blocks the host at the end of a phase.
    """

    launch: LaunchMode
    """What the product's runtime does unless `compiler.launch` says otherwise."""
    host_issue_ps: NonNegativeInt
    """Eager: host time of one kernel launch."""
    queue_depth: PositiveInt
    """Launches outstanding before the host blocks."""
    device_start_ps: NonNegativeInt
    """Eager: device time from the queue's head to a kernel's first command."""
    sync_ps: NonNegativeInt
    """Time the host blocks at the end of a phase or step."""
    graph_launch_ps: NonNegativeInt
    """Graph: host time to launch one captured step."""
    graph_node_ps: NonNegativeInt
    """Graph: device time from one kernel to the next."""
    fallback_bytes_per_s: PositiveInt | None = None
    """Rate at which the host computes what the device cannot; None: such graphs are refused."""
