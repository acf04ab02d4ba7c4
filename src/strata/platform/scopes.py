"""Whom documents are about: selectors that follow nodes and groups, worked out once until one of these changes."""

from __future__ import annotations

from strata.core.errors import BadRequest
from strata.fleet.columns import Mask
from strata.fleet.registry.registry import Registry
from strata.fleet.selectors.language import parse
from strata.platform.written import placed


class Scopes:
    """The nodes that each of many selectors means now."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._edition = -1
        self._masks: dict[str, Mask] = {}

    def mask(self, select: str) -> Mask:
        """Who is meant. Nodes and groups that do not exist are nobody: they may come later."""
        if self._edition != self._registry.edition:
            self._edition = self._registry.edition
            self._masks.clear()
        found = self._masks.get(select)
        if found is None:
            found = self._masks[select] = parse(select).mask(self._registry, strict=False)
        return found

    def has(self, select: str, index: int) -> bool:
        """Whether a node is meant."""
        mask = self.mask(select)
        return 0 <= index < len(mask) and bool(mask[index])


def check_scope(select: str, where: str) -> None:
    """Raise ``BadRequest`` unless ``select`` can be whom a document is about."""
    with placed(where):
        selector = parse(select)
    if not selector.static:
        raise BadRequest(
            "cannot select by state, fact or want: it would come and go with them",
            where=where,
            hint="select by nodeset, group, label, role, arch or location",
        )
