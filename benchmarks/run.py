"""Speed and memory of npusim itself: `make bench`, or ``python benchmarks/run.py NAME ...``.

Every case runs in a process of its own, once to warm up caches on disk and then `RUNS` times; the
median is printed. CPU time excludes imports and compilation unless the case says otherwise.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 3
CASES = Path(__file__).parent / "cases.py"


def main(names: list[str]) -> int:
    """Run the named cases, or all."""
    known = json.loads(_python("--list"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown case {unknown[0]!r}; one of {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        _python(name)
        started = time.perf_counter()
        results = [json.loads(_python(name)) for _ in range(RUNS)]
        for key in results[0]:
            values = sorted(result[key] for result in results)
            print(
                f"{name:24} {key:28} median {statistics.median(values):12,.4g}"
                f"   min {values[0]:12,.4g}   max {values[-1]:12,.4g}"
            )
        print(f"{name:24} wall for {RUNS} runs {time.perf_counter() - started:.1f} s", flush=True)
    return 0


def _python(argument: str) -> str:
    done = subprocess.run(
        [sys.executable, str(CASES), argument], check=True, capture_output=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
