"""Simulate transformer inference on NPUs that do not exist yet.

Public names load on first use, so that ``import npusim`` stays fast.

Examples
--------
>>> import npusim as ns
>>> ns.load_model("qwen2-1.5b").num_kv_heads
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from npusim._version import __version__
from npusim.results.views import register_view

if TYPE_CHECKING:
    from npusim.config.compiler import CompilerConfig
    from npusim.config.loader import load_system, load_workload
    from npusim.config.run_spec import RunSpec, SimulationConfig
    from npusim.config.system import SystemConfig
    from npusim.errors import NpusimError
    from npusim.explore.search import search
    from npusim.explore.sweep import sweep
    from npusim.explore.table import load_sweep
    from npusim.explore.whatif import whatif
    from npusim.results.loading import load_result
    from npusim.results.operator import OperatorResult
    from npusim.results.run import RunResult
    from npusim.simulation import simulate, simulate_operator, simulate_run
    from npusim.studies.reproductions import reproduce
    from npusim.workload.loading import load_model
    from npusim.workload.workload import transformer

__all__ = [
    "CompilerConfig",
    "NpusimError",
    "OperatorResult",
    "RunResult",
    "RunSpec",
    "SimulationConfig",
    "SystemConfig",
    "__version__",
    "load_model",
    "load_result",
    "load_sweep",
    "load_system",
    "load_workload",
    "reproduce",
    "search",
    "simulate",
    "simulate_operator",
    "simulate_run",
    "sweep",
    "transformer",
    "whatif",
]

_HOMES = {
    "CompilerConfig": "npusim.config.compiler",
    "NpusimError": "npusim.errors",
    "OperatorResult": "npusim.results.operator",
    "RunResult": "npusim.results.run",
    "RunSpec": "npusim.config.run_spec",
    "SimulationConfig": "npusim.config.run_spec",
    "SystemConfig": "npusim.config.system",
    "load_model": "npusim.workload.loading",
    "load_result": "npusim.results.loading",
    "load_sweep": "npusim.explore.table",
    "load_system": "npusim.config.loader",
    "load_workload": "npusim.config.loader",
    "search": "npusim.explore.search",
    "reproduce": "npusim.studies.reproductions",
    "simulate": "npusim.simulation",
    "simulate_operator": "npusim.simulation",
    "simulate_run": "npusim.simulation",
    "sweep": "npusim.explore.sweep",
    "transformer": "npusim.workload.workload",
    "whatif": "npusim.explore.whatif",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'npusim' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Public names."""
    return __all__


def _draw_timeline(result: Any, phase: str | None) -> Any:
    """Timeline of a result, drawn by the report package."""
    from npusim.report.timeline import result_figure  # plotly is slow to load

    return result_figure(result, phase)


def _export(result: Any, format_name: str, path: Any, phase: str | None) -> Any:
    """Files for other tools, written by the report package."""
    from npusim.report.export import export_result  # pyarrow is slow to load

    return export_result(result, format_name, path, phase)


def _report(result: Any, path: Any) -> None:
    """Page about a result, written by the report package."""
    from npusim.report.run_page import write_report  # plotly is slow to load

    write_report(result, path)


register_view("timeline", _draw_timeline)
register_view("export", _export)
register_view("report", _report)
