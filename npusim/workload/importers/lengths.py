"""Run lengths of files that describe a model rather than a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.workload.workload import Workload, transformer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.workload.model_config import ModelConfig

#: tokens of the prefill when the import names no length
DEFAULT_PROMPT = 128


def model_workload(
    model: ModelConfig, lengths: Mapping[str, int | None], quant: str = "w16a16"
) -> Workload:
    """A workload of a model; without lengths a prefill of `DEFAULT_PROMPT` tokens."""
    given = {key: value for key, value in lengths.items() if value is not None}
    if "prompt_len" not in given and "context_len" not in given:
        given["prompt_len"] = min(DEFAULT_PROMPT, model.max_positions)
    return transformer(model, quant=quant, **given)  # type: ignore[arg-type]
