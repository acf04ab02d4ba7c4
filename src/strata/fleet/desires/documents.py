"""Desire documents: a name, whom it is about, what is wanted of them. What configuration in git becomes.

Of several documents that want something of one variable of a node, the one with the highest priority rules; among
equals the one written last, then the one whose name sorts last. What is set on the node itself rules over all of them.
What rules, rules also over what cannot be true together with it: who says off last gets off, whatever image is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from strata.core.errors import BadRequest
from strata.core.model import Model
from strata.fleet.columns import Mask
from strata.fleet.selectors.language import Selector, parse
from strata.fleet.selectors.selectable import Selectable

ValueSet = tuple[str, ...]
"""Any of these will do: distinct and sorted, so that equal sets are equal tuples."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
MOST_VALUES = 64


class DesireDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wanted of whatever ``select`` matches, now and later."""

    name: str
    select: str
    set: Mapping[str, ValueSet]
    priority: int = 0
    author: str = ""

    def same_as(self, other: DesireDocument) -> bool:
        """Whether both want the same of the same, whoever wrote it."""
        return msgspec.structs.replace(self, author="") == msgspec.structs.replace(other, author="")


class Standing:
    """A document as it stands in the store, with the nodes that it selects now."""

    __slots__ = ("document", "mask", "revision", "selector")

    def __init__(self, document: DesireDocument, revision: int, fleet: Selectable) -> None:
        self.document = document
        self.revision = revision
        self.selector: Selector = parse(document.select)
        self.mask: Mask
        self.evaluate(fleet)

    def evaluate(self, fleet: Selectable) -> None:
        """Look again whom it selects. Nodes and groups that do not exist are nobody: they may come later."""
        self.mask = self.selector.mask(fleet, strict=False)

    def about(self, variable: str) -> dict[str, ValueSet]:
        """What it says of one variable alone."""
        return {name: values for name, values in self.document.set.items() if name == variable}

    @property
    def rank(self) -> tuple[int, int, str]:
        """Later in this order rules."""
        return (self.document.priority, self.revision, self.document.name)


def value_set(model: Model, variable: str, values: str | Iterable[str]) -> ValueSet:
    """Check what is wanted of one variable and put it in its one form."""
    chosen = tuple(sorted({values} if isinstance(values, str) else set(values)))
    if not chosen:
        raise BadRequest("give at least one value, or unset it", where=variable)
    if len(chosen) > MOST_VALUES:
        raise BadRequest(f"{len(chosen)} values; at most {MOST_VALUES}", where=variable)
    for value in chosen:
        model.check_value(variable, value)
        if len(value) > 256 or not value.isprintable():
            raise BadRequest("a value is at most 256 printable characters", where=variable)
    return chosen


def value_sets(model: Model, wanted: Mapping[str, str | Iterable[str]]) -> dict[str, ValueSet]:
    """The same for several variables."""
    return {variable: value_set(model, variable, values) for variable, values in wanted.items()}


def checked(model: Model, document: DesireDocument, author: str) -> DesireDocument:
    """The document in its one form and under its author; ``BadRequest`` says what is wrong with it and where."""
    where = f"document {document.name[:80]!r}"
    if not _NAME.match(document.name):
        raise BadRequest("a document's name is 1 to 63 letters, digits, '-', '_' and '.'", where=where)
    if not document.select.isprintable():
        raise BadRequest("a selector is of printable characters", where=where)
    if abs(document.priority) > 1_000_000:
        raise BadRequest("a priority is between -1000000 and 1000000", where=where)
    try:
        selector = parse(document.select)
        wanted = value_sets(model, document.set)
    except BadRequest as error:
        raise BadRequest(error.detail, where=f"{where}: {error.where}", hint=error.hint) from None
    if not selector.static:
        raise BadRequest(
            "a document cannot select by state or fact: it would follow what it causes",
            where=where,
            hint="select by nodeset, group, label, role, arch or location",
        )
    if not wanted:
        raise BadRequest("it wants nothing: set at least one variable", where=where)
    return msgspec.structs.replace(document, set=wanted, author=author)
