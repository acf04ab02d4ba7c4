"""What the API shows and takes of the service itself: audit, store, model, status, credentials. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from strata.control.fleet_views.nodes import State
from strata.control.principal import Role
from strata.control.texts import GroupNameText, In, NoteText, Out

Json = Annotated[Any, Meta(description="any JSON")]


class AuditView(Out, frozen=True, kw_only=True):
    """Who did what, chained by hash."""

    seq: int
    time: float
    author: str
    action: str
    target: str
    detail: Mapping[str, Any]
    hash: str


class AuditPage(Out, frozen=True, kw_only=True):
    """A part of the audit log, oldest first."""

    items: tuple[AuditView, ...]
    next: str | None


class AuditVerdict(Out, frozen=True, kw_only=True):
    """Whether the chain holds; if not, at which record it breaks and how."""

    ok: bool
    count: int
    first_bad: int | None = None
    reason: str = ""


class BackupView(Out, frozen=True, kw_only=True):
    """A backup that was written."""

    path: str
    revision: int
    bytes: int


class StoreCheck(Out, frozen=True, kw_only=True):
    """What is wrong with the stored data; empty ``problems``: sound."""

    ok: bool
    problems: tuple[str, ...]
    revision: int


class ModelView(Out, frozen=True, kw_only=True):
    """The declared world: variables, mutations, guards and budgets as in a model file."""

    variables: Mapping[str, Json]
    mutations: Mapping[str, Json]
    guards: Mapping[str, Json]
    budgets: Mapping[str, Json]


class ShardView(Out, frozen=True, kw_only=True):
    """A part of the fleet and who leads it. ``epoch`` 0: nobody."""

    shard: int
    leader: str
    epoch: int


class StatusView(Out, frozen=True, kw_only=True):
    """The fleet and its controller at a glance."""

    version: str
    controller: str
    started: float
    nodes: int
    by_state: Mapping[State, int]
    queue: Mapping[str, int]
    """Engine: ``ready`` to act, ``waiting``, ``in_flight``, ..."""
    shards: tuple[ShardView, ...]
    freezes: int
    holds: int
    revision: int
    """The states show everything that was said up to here."""


# credentials


class TokenRequest(In, frozen=True, kw_only=True):
    """A new bearer token: role, groups that it is limited to (none: all), seconds to live."""

    role: Role
    scope: Annotated[tuple[GroupNameText, ...], Meta(max_length=100)] = ()
    ttl: Annotated[int, Meta(ge=1, le=10 * 365 * 86400)] = 30 * 86400
    note: NoteText = ""


class TokenView(Out, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    role: Role
    scope: tuple[str, ...]
    created: float
    expires: float
    author: str
    note: str


class NewToken(Out, frozen=True, kw_only=True):
    """A token with its secret: shown once, stored nowhere."""

    token: str
    view: TokenView


class CertificateRequest(In, frozen=True, kw_only=True):
    """A new client certificate, either for the key in ``csr`` (PEM) or with a key made here for ``name``."""

    role: Role
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$(?!\n)", max_length=63)]
    csr: Annotated[str, Meta(max_length=20_000)] = ""
    scope: Annotated[tuple[GroupNameText, ...], Meta(max_length=100)] = ()
    ttl: Annotated[int, Meta(ge=1, le=365 * 86400)] = 86400


class NewCertificate(Out, frozen=True, kw_only=True):
    """A certificate with what is needed to use it. ``key`` is empty when the key was the caller's own."""

    serial: str
    certificate: str
    key: str
    ca: str
    expires: float


class CertificateView(Out, frozen=True, kw_only=True):
    """A client certificate that was issued."""

    serial: str
    name: str
    role: Role
    scope: tuple[str, ...]
    expires: float
    author: str
    revoked: bool


class WhoView(Out, frozen=True, kw_only=True):
    """Who you are, and what you may do."""

    name: str
    role: Role
    scope: tuple[str, ...]
    via: str
    rights: tuple[str, ...]
