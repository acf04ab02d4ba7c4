"""Bounded texts and numbers: what may come in from outside, and how long it may be.

Everything that the API takes is made of these, so that a bad request is refused before anything looks at it.
Knows no meaning: whether a node of that name exists is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Self, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

# What follows goes into OpenAPI, so patterns are written in the dialect that JSON Schema and Python share: Python's
# `$` also matches before a last newline, hence `(?!\n)`.
PLAIN = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$(?!\n)"
NODE_NAME = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$(?!\n)"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$(?!\n)"
FREEZE_SCOPE = r"^(fleet|(group|node):[A-Za-z0-9][A-Za-z0-9_.-]{0,62})$(?!\n)"
NodeNameText = Annotated[str, Meta(pattern=NODE_NAME, max_length=63)]
GroupNameText = Annotated[str, Meta(pattern=NAME, max_length=63)]
DocumentNameText = Annotated[str, Meta(pattern=NAME, max_length=63)]
LabelText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$(?!\n)", max_length=63)]
VariableText = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_.-]{0,62}$(?!\n)", max_length=63)]
ValueText = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=256)]
SelectText = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=1_000_000)]
ReasonText = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=500)]
NoteText = Annotated[str, Meta(pattern=PLAIN, max_length=500)]
AddressText = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=256)]
SecretText = Annotated[str, Meta(min_length=1, max_length=1024)]
ScopeText = Annotated[str, Meta(pattern=FREEZE_SCOPE, max_length=70)]
RevisionNumber = Annotated[int, Meta(ge=0, le=2**53)]

# The bare text is checked by `check_wanted`: msgspec 0.22 corrupts memory on a union of a text that has a pattern
# with an array (https://github.com/msgspec/msgspec/issues/717).
Wanted = str | Annotated[tuple[ValueText, ...], Meta(min_length=1, max_length=64)]
"""What is wanted of one variable: a value, or several of which any will do."""
WantedMap = Annotated[Mapping[VariableText, Wanted], Meta(max_length=64)]


def wanted_values(wanted: Wanted) -> tuple[str, ...]:
    """The accepted values, however they were written."""
    return (wanted,) if isinstance(wanted, str) else wanted


def check_wanted(wanted: Mapping[str, Wanted]) -> None:
    """Raise ``msgspec.ValidationError`` for a bare value that could not be one of several either."""
    msgspec.convert([value for value in wanted.values() if isinstance(value, str)], list[ValueText])


class _Made(msgspec.Struct, frozen=True, kw_only=True):
    @classmethod
    def of(cls, *records: object, **more: Any) -> Self:
        """What records say of this: their fields of the same names, the first one's first, and ``more``."""
        own = {
            name: getattr(next((one for one in records[:-1] if hasattr(one, name)), records[-1]), name)
            for name in cls.__struct_fields__
            if name not in more
        }
        return cls(**own, **more)


class In(_Made, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes from outside: an unknown field is a mistake that we name."""


class Out(_Made, frozen=True, kw_only=True):
    """What goes out."""


class ListOf(Out, Generic[T], frozen=True, kw_only=True):
    """Some of a kind, or all; the route that answers with it says which, and in what order."""

    items: tuple[T, ...]
