"""What the API shows and takes of alerts, and of where they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from strata.control.texts import AddressText, In, NoteText, Out, SecretText
from strata.hardware.bmc import Severity


class AlertView(Out, frozen=True, kw_only=True):
    """A trouble that somebody should know of. Many events about one trouble are one alert."""

    id: str
    node: str
    bmc: str
    key: str
    severity: Severity
    message: str
    first: float
    last: float
    count: int
    state: Literal["open", "acknowledged", "over"]
    by: str
    """Who acknowledged it."""
    note: str
    fields: Mapping[str, str]


class AlertPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[AlertView, ...]
    next: str
    open: int


class Acknowledgement(In, frozen=True, kw_only=True):
    """A person looks after these alerts."""

    ids: Annotated[tuple[AddressText, ...], Meta(min_length=1, max_length=10_000)]
    note: NoteText = ""


class WebhookSpec(In, frozen=True, kw_only=True):
    """Where to send alerts. With a secret each delivery is signed (HMAC-SHA256 of the body)."""

    url: Annotated[str, Meta(pattern=r"^https?://[^\u0000-\u0020]+$(?!\n)", max_length=2048)]
    least: Severity = "warning"
    secret: SecretText | None = None


class WebhookView(Out, frozen=True, kw_only=True):
    """One of them."""

    name: str
    url: str
    least: Severity
    signed: bool
    delivered: int
    failing: str
    """Why the last delivery failed; empty: it did not."""
