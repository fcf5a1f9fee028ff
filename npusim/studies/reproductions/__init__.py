"""Reproductions of published figures, one module each.

A reproduction is a module with a `STUDY`, a file ``workloads/reproductions/NAME.yaml`` and a line
in the table below.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from npusim.config.build import validated, with_units_converted
from npusim.config.document import read_document
from npusim.config.fields import FieldType
from npusim.config.overrides import apply_spec_overrides
from npusim.errors import ConfigError, nearest
from npusim.paths import find_named
from npusim.studies.reproduction import Reproduction, ReproductionFile, Study, finish
from npusim.studies.reproductions import (
    a2_bandwidth,
    a4_fusion,
    a8_mixed_precision,
    a8_qk_dispatch,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        "a2-bandwidth": a2_bandwidth.STUDY,
        "a4-fusion": a4_fusion.STUDY,
        "a8-mixed-precision": a8_mixed_precision.STUDY,
        "a8-qk-dispatch": a8_qk_dispatch.STUDY,
    }
)

_ENDINGS = (".yaml", ".yml")


def load_reproduction(name_or_path: str | Path) -> ReproductionFile:
    """File of a reproduction, validated.

    Raises
    ------
    ConfigError
        If there is no such reproduction, or its file is wrong: file, line, key, rule, value.
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or "/" in text or text.endswith(_ENDINGS)
    if not is_path:
        _require(text, "reproduction")
    path = Path(text) if is_path else find_named("reproduction", text)
    document = read_document(path)
    name = document.get(("name",))
    _require(str(name), document.where(("name",)))
    model = STUDIES[str(name)].file
    data, problems = with_units_converted(document.data, FieldType(model))
    return validated(model, data, document.where, problems, document.data)


def reproduce(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Reproduction:
    """Simulate a reproduction and put the published figures beside ours.

    Parameters
    ----------
    name_or_path : str or Path
        Name of a reproduction, or a changed copy of its file.
    overrides : sequence of str, optional
        Texts ``config.key=value``, written as in the file.

    Raises
    ------
    ConfigError
        If there is no such reproduction, or a setting is wrong.
    SimulationError
        If the program that the configuration gives is refused: a lost barrier, a hazard.
    """
    file = load_reproduction(name_or_path)
    for text in overrides:
        if not text.startswith("config."):
            hint = "an example: config.clock_hz=2 GHz"
            raise ConfigError(f"--set {text}", "must start with config.", text, hint)
    file = apply_spec_overrides(file, overrides)
    return finish(file, STUDIES[file.name].run(file), tuple(overrides))


def _require(name: str, where: str) -> None:
    if name not in STUDIES:
        raise ConfigError(where, "no reproduction has this name", name, nearest(name, STUDIES))
