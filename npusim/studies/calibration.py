"""Fitting the numbers a system lists under `calibration` to the rows it names there.

Least mean relative error over those rows, one number after the other until none gains a tenth of a
percent. The launch of a captured graph shifts every operator's time, so its best value is a
weighted median; every other number is tried at its value times powers of two. Only the named rows
are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npusim.config.document import value_at
from npusim.config.overrides import apply_overrides
from npusim.config.run_spec import Fidelity, RunSpec, WorkloadConfig
from npusim.errors import ConfigError, NpusimError
from npusim.studies.closed_forms import weighted_median
from npusim.studies.measurements import PHASES
from npusim.studies.validation import device_time_ns, fitted_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npusim.config.system import SystemConfig
    from npusim.studies.measurements import Measurement

SHIFT = "host.graph_launch_ps"
_SHIFT_STEP_PS = 10_000
_FACTORS = (0.25, 0.5, 1, 2, 4)
_WORTH_FRAC = 1e-3  # a change that gains less is not made


@dataclass(frozen=True)
class Trial:
    """One setting of all numbers and its mean relative error over the fitted rows."""

    values: dict[str, int]
    mean_abs_frac: float


@dataclass(frozen=True)
class Calibration:
    """The best setting, the shipped one, and all that were tried."""

    system: str
    rows: int
    shipped: Trial
    best: Trial
    trials: tuple[Trial, ...]


def calibrate(
    system: SystemConfig,
    measurements: Sequence[Measurement],
    fidelity: Fidelity = Fidelity.TRANSFER,
    progress: Callable[[str], None] | None = None,
) -> Calibration:
    """Fit the system's calibrated numbers to its calibration rows among `measurements`.

    Raises
    ------
    ConfigError
        If the system names no calibration, or no measured operator of it.
    """
    wanted = fitted_ids(system)
    rows = [row for row in measurements if row.name in wanted and row.op not in PHASES]
    if not rows:
        rule = "names no measured operator rows, so there is nothing to fit"
        raise ConfigError("calibration", rule, system.name)
    fitter = _Fitter(system, rows, fidelity, progress)
    shipped = fitter.as_shipped()
    best = fitter.descend()
    return Calibration(system.name, len(rows), shipped, best, tuple(fitter.trials))


class _Fitter:
    """Coordinate descent; every setting is simulated once."""

    def __init__(
        self,
        system: SystemConfig,
        rows: Sequence[Measurement],
        fidelity: Fidelity,
        progress: Callable[[str], None] | None,
    ) -> None:
        self._system, self._rows, self._fidelity = system, rows, fidelity
        self._progress = progress
        self._measured = np.array([row.measured_ns for row in rows])
        data = system.model_dump(mode="json")
        self._start = {
            path: int(value_at(data, tuple(path.split(".")))) for path in system.calibration
        }
        self._known: dict[tuple[tuple[str, int], ...], Trial | None] = {}
        self.trials: list[Trial] = []

    def as_shipped(self) -> Trial:
        """Error with the numbers as they are."""
        return Trial(self._start, self._error(self._times(self._start)))

    def descend(self) -> Trial:
        """Best setting found."""
        best = self._try(self._start)
        assert best is not None
        improved = True
        while improved:
            improved = False
            for path in self._start:
                if path == SHIFT:
                    continue
                tried = [
                    self._try({**best.values, path: round(best.values[path] * factor)})
                    for factor in _FACTORS
                ]
                found = min((t for t in tried if t), key=lambda trial: trial.mean_abs_frac)
                if found.mean_abs_frac < best.mean_abs_frac - _WORTH_FRAC:
                    best, improved = found, True
        return best

    def _try(self, values: dict[str, int]) -> Trial | None:
        """Setting with its best launch; None if the system refuses it."""
        key = tuple((path, value) for path, value in values.items() if path != SHIFT)
        if key not in self._known:
            self._known[key] = self._trial(values)
        return self._known[key]

    def _trial(self, values: dict[str, int]) -> Trial | None:
        try:
            times = self._times(values)
        except NpusimError:
            return None
        if SHIFT in values:
            shift = weighted_median((self._measured - times)[np.newaxis], 1 / self._measured)
            wanted = values[SHIFT] + float(shift[0]) * 1e3
            launch = max(round(wanted / _SHIFT_STEP_PS), 0) * _SHIFT_STEP_PS
            times = times + (launch - values[SHIFT]) / 1e3
            values = {**values, SHIFT: launch}
        trial = Trial(values, self._error(times))
        self.trials.append(trial)
        if self._progress is not None:
            said = ", ".join(f"{path} = {value}" for path, value in values.items())
            self._progress(f"{said}: {100 * trial.mean_abs_frac:.2f} %")
        return trial

    def _times(self, values: dict[str, int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        spec = RunSpec(system=self._system, workload=WorkloadConfig(model="operator", prompt_len=1))
        spec = apply_overrides(spec, [_override(path, value) for path, value in values.items()])
        times = [device_time_ns(spec.system, row, self._fidelity)[0] for row in self._rows]
        return np.array(times)

    def _error(self, times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return float(np.mean(np.abs(times / self._measured - 1)))


def _override(path: str, value: int) -> str:
    """An override with the unit that the key's name ends in."""
    unit = {"ps": " ps", "bytes": " B", "hz": " Hz"}.get(path.rsplit("_", 1)[-1], "")
    return f"system.{path}={value}{unit}"
