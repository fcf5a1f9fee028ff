"""What a dotted path leads to in a configuration model: type, dimension, valid names."""

from __future__ import annotations

import types
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from npusim.units import Dimension, dimension_of_key


@dataclass(frozen=True)
class FieldType:
    """A place in a model: a field, an entry of a mapping or sequence, or the model itself.

    Attributes
    ----------
    annotation : object
        Type without ``Annotated`` and without ``None``.
    key : str
        Name of the nearest field; its ending sets the dimension of everything below.
    is_optional : bool
        Whether ``None`` is allowed.
    field : FieldInfo or None
        pydantic's record of the field; None for entries and for the root.
    """

    annotation: object
    key: str = ""
    is_optional: bool = False
    field: FieldInfo | None = None

    @property
    def model(self) -> type[BaseModel] | None:
        """Model at this place, if it is one."""
        annotation = self.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        return None

    @property
    def choices(self) -> type[StrEnum] | None:
        """Enumeration at this place, if it is one."""
        annotation = self.annotation
        if isinstance(annotation, type) and issubclass(annotation, StrEnum):
            return annotation
        return None

    @property
    def is_mapping(self) -> bool:
        """Whether this is a mapping with keys of the user's (or of an enumeration)."""
        return get_origin(self.annotation) is dict

    @property
    def key_type(self) -> FieldType:
        """Type of a mapping's keys."""
        return _stripped(get_args(self.annotation)[0], self.key)

    @property
    def is_leaf(self) -> bool:
        """Whether a single value stands here."""
        return self.model is None and get_origin(self.annotation) is None

    @property
    def dimension(self) -> Dimension | None:
        """Dimension of a numeric leaf; None for counts, fractions and everything else."""
        is_number = self.annotation in (int, float, Fraction)
        return dimension_of_key(self.key) if is_number else None

    @property
    def names(self) -> tuple[str, ...]:
        """Valid names below this place; empty where the user chooses them."""
        if self.model is not None:
            return tuple(self.model.model_fields)
        if self.is_mapping and self.key_type.choices is not None:
            return tuple(choice.value for choice in self.key_type.choices)
        return ()

    def child(self, name: str | int) -> FieldType | None:
        """Place below this one, or None if there is no such name."""
        if self.model is not None:
            info = self.model.model_fields.get(str(name))
            return None if info is None else _stripped(info.annotation, str(name), info)
        if self.is_mapping:
            known = self.names
            return None if known and name not in known else self.entry
        return self.entry if get_origin(self.annotation) in (tuple, list) else None

    @property
    def entry(self) -> FieldType:
        """Type of the values of a mapping or sequence."""
        args = get_args(self.annotation)
        return _stripped(args[1] if self.is_mapping else args[0], self.key)

    def below(self, path: tuple[str | int, ...]) -> FieldType | None:
        """Place at the end of `path`, or None."""
        place: FieldType | None = self
        for name in path:
            place = None if place is None else place.child(name)
        return place


def _stripped(annotation: object, key: str, info: FieldInfo | None = None) -> FieldType:
    """Field type of an annotation, without ``Annotated`` and ``None``."""
    is_optional = False
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            some = [arg for arg in get_args(annotation) if arg is not type(None)]
            is_optional, annotation = len(some) < len(get_args(annotation)), some[0]
        else:
            return FieldType(annotation, key, is_optional, info)
