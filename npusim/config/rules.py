"""A rule between fields of a configuration that failed."""

from __future__ import annotations


class RuleError(ValueError):
    """A rule between fields that failed, with the key to blame.

    Parameters
    ----------
    path : str
        Dotted path of that key, from the model that checks the rule.
    rule : str
        What must hold, as a sentence.
    value : object, optional
        Offending value.
    hint : str, optional
        Nearest valid name or another fix.
    """

    def __init__(self, path: str, rule: str, value: object = None, hint: str | None = None) -> None:
        super().__init__(path, rule, value, hint)
        self.path = path
        self.rule = rule
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.path}: {self.rule}"
        if self.value is not None:
            text += f" (got {self.value!r})"
        return f"{text}; {self.hint}" if self.hint else text
