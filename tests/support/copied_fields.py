"""A plugin of mypy for ``Out.of`` and ``In.of``: every field that they copy is a field of one of the records.

``of`` copies fields by name when it runs, which mypy cannot follow: without this, a view with a field that no record
has fails only when somebody asks for it. ``pyproject.toml`` names this file. Records of type ``Any`` are not checked.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.nodes import TypeInfo
from mypy.plugin import MethodContext, Plugin
from mypy.types import AnyType, Instance, ProperType, TupleType, Type, UnionType, get_proper_type

BASE = "strata.core.texts._Made"


class CopiedFields(Plugin):
    """Looks at each call of a method ``of``."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """The check, for whatever is called ``of``."""
        return _check if fullname.rpartition(".")[2] == "of" else None


def _check(call: MethodContext) -> Type:
    made = get_proper_type(call.default_return_type)
    if isinstance(made, Instance) and made.type.has_base(BASE) and len(call.arg_types) == 2:
        records = [get_proper_type(one) for one in call.arg_types[0]]
        if not any(isinstance(one, AnyType) for one in records) and None not in call.arg_names[1]:
            missing = [
                name
                for name in _fields(made.type)
                if name not in call.arg_names[1] and not any(_has(one, name) for one in records)
            ]
            if missing:
                which = ", ".join(f'"{name}"' for name in missing)
                call.api.fail(f'No record given to "{made.type.name}.of" has {which}', call.context)
    return call.default_return_type


def _fields(info: TypeInfo) -> list[str]:
    """The fields of a struct; mypy keeps them as those of a dataclass."""
    own = (field["name"] for one in info.mro for field in one.metadata.get("dataclass", {}).get("attributes", ()))
    return list(dict.fromkeys(own))


def _has(record: ProperType, name: str) -> bool:
    if isinstance(record, UnionType):
        return all(_has(get_proper_type(one), name) for one in record.items)
    if isinstance(record, TupleType):  # a named one
        record = record.partial_fallback
    return isinstance(record, Instance) and record.type.get(name) is not None


def plugin(version: str) -> type[Plugin]:
    """What mypy asks for."""
    del version
    return CopiedFields
