"""Start-up stays light: slow libraries load only when something uses them."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

# Library, and what it would cost every `npusim --help` (or what alone needs it).
HEAVY = {
    "networkx": "only graphs of a run need it; a tenth of a second",
    "numba": "only simulations need it; half a second and an LLVM",
    "pandas": "only tables need it; half a second",
    "plotly": "only timelines and plots need it; a tenth of a second",
    "pyarrow": "only stored results need it; a tenth of a second",
    "scipy": "no dependency of ours; another library would have pulled it in",
}
START_UPS = {
    "import npusim": "import npusim",
    "npusim --help": (
        "import sys; sys.argv = ['npusim', '--help']\n"
        "from npusim.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code"
    ),
}
MAX_START_UP_CPU_S = 0.5


@pytest.mark.parametrize("start_up", START_UPS)
def test_starting_loads_no_heavy_library(start_up):
    report = "import sys; print('\\nloaded:', *sys.modules)"
    done = run(f"{START_UPS[start_up]}\n{report}")
    loaded = set(done.stdout.rpartition("loaded:")[2].split())
    assert "npusim" in loaded
    assert {name: why for name, why in HEAVY.items() if name in loaded} == {}


@pytest.mark.slow
@pytest.mark.parametrize("start_up", START_UPS)
def test_starting_takes_at_most_half_a_second_of_cpu_time(start_up):
    used_s = []
    for _ in range(5):  # the first ones also compile and cache bytecode
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(START_UPS[start_up])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(used_s) <= MAX_START_UP_CPU_S


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter; a failure shows its standard error."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
