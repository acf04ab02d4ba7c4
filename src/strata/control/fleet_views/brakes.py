"""Holds, freezes and retries: people's hands on the automation."""

from __future__ import annotations

from strata.control.texts import In, Out, ReasonText, ScopeText, SelectText


class HoldRequest(In, frozen=True, kw_only=True):
    """Take the selected nodes out of automation."""

    select: SelectText
    reason: ReasonText


class HoldView(Out, frozen=True, kw_only=True):
    """A person took ``node`` out of automation."""

    node: str
    reason: str
    author: str
    since: float


class HoldPage(Out, frozen=True, kw_only=True):
    """A part of all holds, by node name."""

    items: tuple[HoldView, ...]
    next: str | None
    total: int


class FreezeRequest(In, frozen=True, kw_only=True):
    """Start nothing for ``scope``: ``fleet``, ``group:NAME`` or ``node:NAME``."""

    scope: ScopeText
    reason: ReasonText


class FreezeView(Out, frozen=True, kw_only=True):
    """A brake that is on."""

    scope: str
    reason: str
    author: str
    since: float


class RetryRequest(In, frozen=True, kw_only=True):
    """Try the selected nodes again now."""

    select: SelectText
