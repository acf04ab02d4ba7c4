"""Holds, freezes and retries: people's hands on the automation."""

from __future__ import annotations

import msgspec

from strata.core.node import Hold
from strata.core.texts import In, Out, ReasonText, ScopeText, SelectText


class HoldRequest(In, frozen=True, kw_only=True):
    """Take the selected nodes out of automation."""

    select: SelectText
    reason: ReasonText


class HoldView(Hold, frozen=True, kw_only=True):
    """A person took ``node`` out of automation."""

    node: str

    @classmethod
    def of(cls, node: str, hold: Hold) -> HoldView:
        """The hold of a node."""
        return cls(node=node, **msgspec.structs.asdict(hold))


class HoldPage(Out, frozen=True, kw_only=True):
    """A part of all holds, by node name."""

    items: tuple[HoldView, ...]
    next: str | None
    total: int


class FreezeRequest(In, frozen=True, kw_only=True):
    """Start nothing for ``scope``: ``fleet``, ``group:NAME`` or ``node:NAME``."""

    scope: ScopeText
    reason: ReasonText


class RetryRequest(In, frozen=True, kw_only=True):
    """Try the selected nodes again now."""

    select: SelectText
